#![forbid(unsafe_code)]
//! The garbage collector as one binary.

use std::process::ExitCode;
use std::thread::Builder;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, select};
use gc_daemon::daemon::daemon;
use gc_daemon::flags::Flags;
use gc_daemon::logging;
use log::{info, warn};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// A signal ends the process within 5 s (spec R6) whatever hangs, such as a kubeconfig on a file system that does not
/// answer. The orderly stop takes up to 4.5 s; writing the rest of the log needs a moment as well.
const STOP_WITHIN: Duration = Duration::from_millis(4_600);

/// Exit codes are decided here and nowhere else: 0 after a signal, 1 when it cannot go on, 2 for a bad flag.
fn main() -> ExitCode {
    let flags = match Flags::from_env() {
        Ok(flags) => flags,
        Err(exit) => return exit.report(),
    };
    logging::init(flags.verbosity, flags.log_format);
    logging::log_panics();
    if flags.ttl_list {
        return list(&flags);
    }
    let ended = run(flags);
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

/// `--ttl-list`: prints, and changes nothing.
fn list(flags: &Flags) -> ExitCode {
    let mut out = std::io::stdout().lock();
    match gc_daemon::ttl::list::list(flags, &mut out) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("gc-daemon: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the daemon in a thread of its own, so that this one can leave when a signal has come and the daemon hangs.
fn run(flags: Flags) -> Result<(), String> {
    let (stop, stopped) = bounded(1);
    let signalled = signals(stop)?;
    let (ended_in, ended) = bounded(1);
    let body = move || {
        // Nobody takes it when this thread hung for so long that the other one left.
        let _ = ended_in.send(daemon(&flags, &stopped));
    };
    Builder::new()
        .name("event-loop".into())
        .spawn(body)
        .map_err(|e| format!("cannot start a thread: {e}"))?;
    select! {
        recv(ended) -> outcome => outcome.unwrap_or_else(|_| Err("a fault in this program: the event loop panicked".into())),
        recv(signalled) -> _ => ended.recv_timeout(STOP_WITHIN).unwrap_or_else(|_| {
            warn!("something hangs and ends with the process");
            Ok(())
        }),
    }
}

/// `stop` gets a message at SIGTERM or SIGINT, and so does the channel that is returned.
fn signals(stop: Sender<()>) -> Result<Receiver<()>, String> {
    let (signalled_in, signalled) = bounded(1);
    let mut signals = Signals::new([SIGTERM, SIGINT]).map_err(|e| format!("cannot wait for signals: {e}"))?;
    let wait = move || {
        for _ in signals.forever() {
            // A second signal, while the first is being obeyed, changes nothing.
            let _ = stop.try_send(());
            let _ = signalled_in.try_send(());
        }
    };
    Builder::new().name("signals".into()).spawn(wait).map_err(|e| format!("cannot wait for signals: {e}"))?;
    Ok(signalled)
}
