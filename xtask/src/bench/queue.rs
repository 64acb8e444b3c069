//! The work queue alone, against client-go's: two small programs that do the same work, run in turns.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::ground::Contender;
use crate::bench::{Plan, Results};
use crate::cargo::build_queue_example;
use crate::failure::Failure;
use crate::process::output;
use crate::rig;

/// What the names of these rows begin with; the rest is the work's name in both programs.
const PREFIX: &str = "queue-";

/// Whether a row is one of these.
pub fn is_queue(row: &str) -> bool {
    row.starts_with(PREFIX)
}

/// Builds both programs, and runs each for each of the plan's rows.
///
/// # Errors
///
/// When one of them cannot be built or run.
pub fn measure(plan: &Plan, results: &mut Results) -> Result<(), Failure> {
    if !plan.rows.iter().any(|row| is_queue(row)) {
        return Ok(());
    }
    let (ours, reference) = (build_queue_example()?, rig::queue()?);
    for row in plan.rows.iter().filter(|row| is_queue(row)) {
        for round in 1..=plan.rounds {
            plan.say(&format!("{row}, round {round}"));
            let mut turns: [(Contender, &PathBuf); 2] =
                [(Contender::Ours, &ours), (Contender::Reference, &reference)];
            if round % 2 == 0 {
                turns.reverse();
            }
            for (who, program) in turns {
                results.add(row, who, nanos_each(program, row.trim_start_matches(PREFIX))?);
            }
        }
    }
    Ok(())
}

fn nanos_each(program: &Path, work: &str) -> Result<f64, Failure> {
    let mut command = Command::new(program);
    command.arg(work);
    let name = program.display().to_string();
    let said = output(&name, command)?;
    said.trim().parse().map_err(|_| Failure::new(format!("{name} said {said:?}, not nanoseconds")))
}
