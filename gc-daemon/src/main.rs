#![forbid(unsafe_code)]
//! The garbage collector as one binary.

use std::process::ExitCode;

use crossbeam_channel::{Receiver, bounded};
use gc_daemon::daemon::daemon;
use gc_daemon::flags::Flags;
use gc_daemon::logging;
use log::info;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Exit codes are decided here and nowhere else: 0 after a signal, 1 when it cannot go on, 2 for a bad flag.
fn main() -> ExitCode {
    let flags = match Flags::from_env() {
        Ok(flags) => flags,
        Err(exit) => return exit.report(),
    };
    logging::init(flags.verbosity, flags.log_format);
    let ended = signals().and_then(|stop| daemon(&flags, &stop));
    if ended.is_ok() {
        info!("stopped");
    }
    // Counts of lines that were held back as repeats come out here.
    log::logger().flush();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("gc-daemon: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// A channel that gets a message at SIGTERM or SIGINT.
fn signals() -> Result<Receiver<()>, String> {
    let (stop, stopped) = bounded(1);
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|e| format!("cannot wait for signals: {e}"))?;
    let wait = move || {
        for _ in signals.forever() {
            // A second signal, while the first is being obeyed, changes nothing.
            let _ = stop.try_send(());
        }
    };
    std::thread::Builder::new()
        .name("signals".into())
        .spawn(wait)
        .map_err(|e| format!("cannot wait for signals: {e}"))?;
    Ok(stopped)
}
