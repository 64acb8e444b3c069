//! Fuzzing of everything that reads bytes from outside: the targets, and the loop that feeds them.
//!
//! A [`Target`] makes a promise about *any* bytes; [`Target::check`] is that promise as a function. The loop needs no
//! instrumented build: it starts from valid inputs (recorded conversations, our encoders), damages them, and keeps
//! what led to an answer that it has not seen before, so that the next damage starts from there. The same functions
//! run a few hundred times each in `cargo test` and for as long as one likes in `cargo xtask fuzz`.
//!
//! What a failure looks like: the target, its promise, what was wrong, and the smallest input found in hexadecimal,
//! which [`Plan::input`] runs again.
//!
//! ```
//! use gc_tests::fuzz::{Memory, Plan, Target, run};
//!
//! const NUMBERS: Target = Target {
//!     name: "numbers",
//!     promise: "a number is read, or an error given",
//!     corpus: || vec![b"17".to_vec()],
//!     words: &[b"-"],
//!     memory: Memory { fixed_bytes: 1 << 16, per_input_byte: 16 },
//!     check: |bytes| Ok(format!("{:?}", String::from_utf8_lossy(bytes).parse::<u8>().is_ok())),
//! };
//! let report = run(&[NUMBERS], &Plan { cases: 50, ..Plan::default() }, &|work| { work(); 0 });
//! assert!(report.failures.is_empty() && report.cases == 50);
//! ```

mod dice;
mod documents;
mod fields;
mod http;
mod mutate;
mod run;
mod secrets;
mod simulator;
mod wire;

pub use dice::Dice;
pub use run::{Failure, Measure, Plan, Report, check, run};

/// Something that reads bytes from outside, and what it promises.
#[derive(Clone, Copy)]
pub struct Target {
    /// As `--target` names it.
    pub name: &'static str,
    /// What holds for all bytes, in one line.
    pub promise: &'static str,
    /// Valid inputs to start from.
    pub corpus: fn() -> Vec<Vec<u8>>,
    /// What means something to the reader: keys, brackets, magic.
    pub words: &'static [&'static [u8]],
    /// How much the check may hold at once.
    pub memory: Memory,
    /// Whether the promise holds for these bytes. `Ok` says in a few words what came of them, without what differs
    /// from input to input: two inputs with the same words went the same way.
    pub check: fn(&[u8]) -> Result<String, String>,
}

/// A bound on the memory that one check holds at once, the check's own copies included.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// Whatever the input.
    pub fixed_bytes: u64,
    /// In proportion to it.
    pub per_input_byte: u64,
}

impl Memory {
    /// The bound for an input.
    pub fn for_input(self, input: &[u8]) -> u64 {
        self.fixed_bytes + self.per_input_byte * input.len() as u64
    }
}

/// All targets of this package; the daemon's own (flags, heads of HTTP requests) stand beside their parsers.
pub const TARGETS: &[Target] = &[
    wire::LIST,
    wire::WATCH,
    wire::OBJECT,
    wire::SAME_IN_BOTH,
    fields::FIELDS,
    documents::STATUS,
    documents::DISCOVERY,
    documents::DISCOVERY_FORMS,
    documents::HEADERS,
    secrets::KUBECONFIG,
    secrets::EXEC_CREDENTIAL,
    secrets::PEM,
    simulator::REQUESTS,
    simulator::LISTS,
    http::ANSWER,
];

/// A message without what differs from input to input: digits, and what is quoted.
pub fn outline(message: &str) -> String {
    let mut outline = String::new();
    let mut quote = None;
    for c in message.chars() {
        match quote {
            Some(open) if open == c => quote = None,
            Some(_) => {}
            None if c == '"' || c == '`' => quote = Some(c),
            None if c.is_ascii_digit() => {}
            None => outline.push(c),
        }
    }
    outline
        .truncate((0..=outline.len().min(200)).rev().find(|at| outline.is_char_boundary(*at)).unwrap_or(0));
    outline
}

/// Fails with these words unless the condition holds.
///
/// # Errors
///
/// The words.
pub fn ensure(holds: bool, words: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(words()) }
}

/// Whether this is one line that a log may carry.
///
/// # Errors
///
/// When it has a control character.
pub fn ensure_one_line(message: &str) -> Result<(), String> {
    ensure(!message.chars().any(char::is_control), || {
        format!("a message of more than one clean line: {message:?}")
    })
}
