//! `cargo xtask mutants`: cargo-mutants over the crates that decide what is deleted, and its survivors held against the
//! list in `tests/mutants.md`.
//!
//! Each mutant is first tried by the tests of its own crate, without the slow ones and built without optimization
//! (`.cargo/mutants.toml`): a second or two each. What survives that is tried once more by everything that knows the
//! crate: its own slow tests, the small worlds and the simulation.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use crate::dirs;
use crate::failure::{Doing, Failure};
use crate::flags::Mutants;
use crate::process;

/// The crates in which a mistake can delete what it should not, or forget what it should delete.
const CRATES: [&str; 3] = ["gc-queue", "gc-core", "gc-graph"];
/// The survivors that are known, each with its reason.
const LIST: &str = "tests/mutants.md";
/// The least share of viable mutants that has to be caught.
const CAUGHT_MIN: f64 = 0.95;
/// The fast tests of a crate take a second or two; what takes longer than this goes round in circles.
const FAST_TIMEOUT_S: &str = "20";
/// The same for all tests; the simulation takes about half a minute.
const SLOW_TIMEOUT_S: &str = "300";
/// Mutations are coarse; what needs more random worlds than this to be seen is seen by the second pass.
const FAST_PROPTEST_CASES: &str = "32";

/// Runs cargo-mutants over each crate and prints what it caught.
///
/// # Errors
///
/// When cargo-mutants is not installed, or the tests fail without any mutation.
pub fn run(flags: &Mutants) -> Result<ExitCode, Failure> {
    let version = Command::new(cargo()).args(["mutants", "--version"]).stderr(Stdio::null()).output();
    if !version.is_ok_and(|output| output.status.success()) {
        return Err(Failure::new(
            "cargo-mutants is not installed; this does it: cargo install --locked cargo-mutants@27.1.0",
        ));
    }
    let list = dirs::workspace().join(LIST);
    let listed =
        Listed::parse(&fs::read_to_string(&list).doing(|| format!("cannot read {}", list.display()))?);
    let crates = match &flags.only[..] {
        [] => CRATES.map(str::to_owned).to_vec(),
        only => only.to_vec(),
    };
    let mut is_good = true;
    let mut lines = Vec::new();
    for name in &crates {
        let (found, unlisted) = try_crate(name, &flags.args, &listed)?;
        is_good &= found.is_good() && unlisted == 0;
        lines.push(format!("{name}: {found}; {unlisted} survivors not in {LIST}"));
    }
    println!("{}", lines.join("\n"));
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Both passes over one crate, and how many survivors nobody has given a reason for.
fn try_crate(name: &str, args: &[String], listed: &Listed) -> Result<(Found, usize), Failure> {
    let out = dirs::workspace().join("target/mutants").join(name);
    let mut fast = mutants(name, &out);
    fast.args(["--timeout", FAST_TIMEOUT_S]).args(args).env("PROPTEST_CASES", FAST_PROPTEST_CASES);
    finish(fast)?;
    let mut found = Found::read(&out)?;
    if !found.missed.is_empty() {
        let out = out.join("survivors");
        let mut slow = mutants(name, &out);
        slow.args(["--no-config", "--cap-lints", "true", "--timeout", SLOW_TIMEOUT_S]);
        slow.args(["--test-package", name, "--test-package", "gc-tests"]);
        slow.args(["--cargo-arg=--lib", "--cargo-arg=--tests"]);
        slow.args(found.missed.iter().map(|mutant| format!("--re=^{}$", escaped(mutant))));
        finish(slow)?;
        found.second_pass(&Found::read(&out)?);
    }
    let mut places = BTreeMap::new();
    for mutant in &found.missed {
        places.entry(without_place(mutant)).or_insert_with(Vec::new).push(mutant);
    }
    let mut unlisted = 0;
    for (mutant, places) in &places {
        for (i, place) in places.iter().enumerate() {
            let reason = listed.reason(mutant).filter(|(times, _)| i < *times).map(|(_, reason)| reason);
            unlisted += usize::from(reason.is_none());
            println!("survivor: {place}: {}", reason.unwrap_or("NOT LISTED"));
        }
    }
    if args.is_empty() {
        for mutant in listed.of_crate(name).filter(|mutant| !places.contains_key(*mutant)) {
            println!("caught by now, strike it from {LIST}: {mutant}");
        }
    }
    Ok((found, unlisted))
}

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn mutants(name: &str, out: &Path) -> Command {
    let mut command = process::tied(cargo());
    command.args(["mutants", "--package", name, "--output"]).arg(out);
    // It copies the tree, and builds in the copy; debug information would only cost time.
    command.env_remove("CARGO_TARGET_DIR").current_dir(dirs::workspace());
    command
}

fn finish(mut command: Command) -> Result<(), Failure> {
    let out: Option<PathBuf> = command.get_args().skip_while(|arg| *arg != "--output").nth(1).map(Into::into);
    if let Some(out) = &out {
        fs::create_dir_all(out).doing(|| format!("cannot create {}", out.display()))?;
    }
    let status = command.status().doing(|| "cannot start cargo mutants".into())?;
    // 2: some mutants survived; 3: some took too long.
    match status.code() {
        Some(0 | 2 | 3) => Ok(()),
        _ => Err(Failure::new(format!("cargo mutants gave up ({status}); it has said why"))),
    }
}

/// What became of the mutants of one crate.
#[derive(Debug, Default)]
struct Found {
    caught: Vec<String>,
    /// A test that never ends notices as well.
    timeouts: Vec<String>,
    /// Caught by the second pass only, in whatever way.
    caught_late: usize,
    unviable: usize,
    missed: Vec<String>,
}

impl Found {
    fn read(out: &Path) -> Result<Found, Failure> {
        let lines = |file: &str| -> Result<Vec<String>, Failure> {
            let path = out.join("mutants.out").join(file);
            let text = fs::read_to_string(&path).doing(|| format!("cannot read {}", path.display()))?;
            Ok(text.lines().map(Into::into).collect())
        };
        Ok(Found {
            caught: lines("caught.txt")?,
            timeouts: lines("timeout.txt")?,
            caught_late: 0,
            unviable: lines("unviable.txt")?.len(),
            missed: lines("missed.txt")?,
        })
    }

    /// The second pass counts for those that the first one missed: cargo-mutants tries the deletion of fields whatever
    /// `--re` says.
    fn second_pass(&mut self, second: &Found) {
        let before = self.missed.len();
        self.missed.retain(|mutant| !second.caught.contains(mutant) && !second.timeouts.contains(mutant));
        self.caught_late += before - self.missed.len();
    }

    /// Caught, of those that compile. Nothing to catch is no failure.
    fn share(&self) -> f64 {
        let caught = self.caught.len() + self.caught_late + self.timeouts.len();
        let viable = caught + self.missed.len();
        if viable == 0 { 1.0 } else { caught as f64 / viable as f64 }
    }

    fn is_good(&self) -> bool {
        CAUGHT_MIN <= self.share()
    }
}

impl std::fmt::Display for Found {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Found { caught, caught_late, timeouts, unviable, missed } = self;
        // Rounded down, so that 100.0 % means all.
        let percent = (self.share() * 1000.0).floor() / 10.0;
        write!(
            f,
            "{percent:.1} % of viable mutants caught: {} by its own fast tests, {} by a time-out of these, {caught_late} \
             by slow tests and the worlds; {} survive, {unviable} do not compile",
            caught.len(),
            timeouts.len(),
            missed.len()
        )
    }
}

/// The survivors that are known, with how many there are of each, and why.
#[derive(Debug, Default)]
struct Listed(BTreeMap<String, (usize, String)>);

impl Listed {
    /// Each is an item of a list: ``- `gc-core/src/file.rs: what was done in where`: why``, or ``- 2 × `…`: why`` where
    /// one function has two that read the same. The line is left out, so that the list outlives changes above it.
    fn parse(text: &str) -> Listed {
        let mut listed = BTreeMap::new();
        for item in text.split("\n- ").skip(1) {
            let Some((before, rest)) = item.split_once('`') else { continue };
            let Some((mutant, reason)) = rest.split_once("`: ") else { continue };
            let times = before.trim_end_matches([' ', '×']).parse().unwrap_or(1);
            let reason = reason.split("\n\n").next().unwrap_or_default();
            let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            listed.insert(mutant.to_owned(), (times, reason));
        }
        Listed(listed)
    }

    fn reason(&self, mutant: &str) -> Option<(usize, &str)> {
        self.0.get(mutant).map(|(times, reason)| (*times, reason.as_str()))
    }

    fn of_crate(&self, name: &str) -> impl Iterator<Item = &str> {
        let folder = format!("{name}/");
        self.0.keys().map(String::as_str).filter(move |mutant| mutant.starts_with(&folder))
    }
}

/// `src/file.rs:47:20: replace …` without the line and the column.
fn without_place(mutant: &str) -> String {
    let Some((place, what)) = mutant.split_once(": ") else { return mutant.to_owned() };
    format!("{}: {what}", place.split(':').next().unwrap_or(place))
}

/// As a regular expression that matches just this. Nothing else is escaped: `\<` is the beginning of a word.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if r"\.+*?()|[]{}^$#&-~".contains(character) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_gives_each_survivor_a_reason() {
        let listed = Listed::parse(
            "# Mutants\n\n\
             - `gc-core/src/a.rs: replace || with && in one`: there is\n  no way to see it.\n\
             - 2 × `gc-core/src/b.rs: delete ! in <impl fmt::Debug for X<'_>>::fmt`: for people.\n\n\
             ## Another crate\n\n\
             - `gc-core-2/src/c.rs: x`: y.\n",
        );
        let core: Vec<_> = listed.of_crate("gc-core").collect();
        assert_eq!(
            core,
            [
                "gc-core/src/a.rs: replace || with && in one",
                "gc-core/src/b.rs: delete ! in <impl fmt::Debug for X<'_>>::fmt"
            ]
        );
        assert_eq!(listed.reason(core[0]), Some((1, "there is no way to see it.")));
        assert_eq!(listed.reason(core[1]), Some((2, "for people.")));
        assert_eq!(listed.reason("gc-core/src/a.rs: replace"), None);
    }

    #[test]
    fn a_survivor_is_known_wherever_in_its_file_it_stands() {
        let mutant = "gc-core/src/a.rs:47:20: replace Option<A> -> Option<B: C> with None";
        assert_eq!(without_place(mutant), "gc-core/src/a.rs: replace Option<A> -> Option<B: C> with None");
        assert_eq!(escaped("a.rs:1:2: x || y -> <Z>"), r"a\.rs:1:2: x \|\| y \-> <Z>");
    }

    #[test]
    fn a_share_is_of_those_that_compile() {
        let mutants = |numbers: std::ops::Range<u32>| numbers.map(|n| n.to_string()).collect::<Vec<_>>();
        let mut found =
            Found { caught: mutants(0..90), unviable: 50, missed: mutants(90..100), ..Found::default() };
        assert!(!found.is_good());
        let second = Found {
            caught: [mutants(90..94), mutants(200..300)].concat(),
            timeouts: mutants(94..95),
            missed: mutants(95..100),
            ..Found::default()
        };
        found.second_pass(&second);
        assert!(found.is_good());
        assert_eq!(
            found.to_string(),
            "95.0 % of viable mutants caught: 90 by its own fast tests, 0 by a time-out of these, 5 by slow tests and \
             the worlds; 5 survive, 50 do not compile"
        );
        assert!(Found::default().is_good());
    }
}
