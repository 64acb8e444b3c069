//! Nanoseconds for each item, as `cargo xtask bench --rows queue` compares them with client-go's:
//! `cargo run --release -p gc-queue --example speed -- alone`; without a name, all of them. With `bare-` before a name the
//! queue does not measure for metrics.

#![expect(clippy::cast_precision_loss, reason = "figures for people")]

use std::process::ExitCode;
use std::time::Instant;

#[path = "../benches/work/mod.rs"]
mod work;

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        for (name, work) in work::ALL {
            println!("{name:<13} {:7.1} ns, bare {:7.1} ns", nanos_each(work, true), nanos_each(work, false));
        }
        return ExitCode::SUCCESS;
    };
    let bare = name.strip_prefix("bare-");
    let asked = bare.unwrap_or(&name);
    let Some((_, work)) = work::ALL.iter().find(|(other, _)| *other == asked) else {
        eprintln!("no work is named {name}");
        return ExitCode::from(2);
    };
    println!("{:.1}", nanos_each(*work, bare.is_none()));
    ExitCode::SUCCESS
}

fn nanos_each(work: work::Work, timing: bool) -> f64 {
    let start = Instant::now();
    let items = work(timing);
    start.elapsed().as_nanos() as f64 / items as f64
}
