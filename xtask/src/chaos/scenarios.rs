//! The scenarios, in the order in which they run.

use std::time::Duration;

use crate::chaos::hostile;
use crate::chaos::proxy::Mode;
use crate::chaos::rotation;
use crate::chaos::stage::{Fault, Figures, Place, Stage, Victim, sleep};
use crate::failure::Failure;

/// The longest wait for the next fault: two or three of them fall into one short run of the users.
const MOMENT: Duration = Duration::from_millis(1_500);
/// How long a process that was killed stays away in a short run.
const AWAY: Duration = Duration::from_millis(2_500);

/// One of them.
pub struct Scenario {
    /// How it is chosen.
    pub name: &'static str,
    /// What it shows.
    pub sentence: &'static str,
    /// How it is run.
    pub run: Run,
    /// Whether it is left to the long run, because of the time that it takes.
    pub is_long: bool,
}

/// How a scenario is run.
#[derive(Clone, Copy)]
pub enum Run {
    /// With users at work.
    OnStage(Fault),
    /// By itself.
    Alone(fn(&mut Place<'_>) -> Result<Figures, Failure>),
}

/// All of them.
pub const ALL: &[Scenario] = &[
    on_stage("daemon-killed", "SIGKILL of the daemon, again and again", |stage| {
        stage.start_daemon()?;
        killed(stage, Victim::Daemon, 3, Duration::ZERO)
    }),
    on_stage("daemon-paused", "SIGSTOP and SIGCONT of the daemon", |stage| paused(stage, Victim::Daemon)),
    on_stage("etcd-killed", "SIGKILL of etcd", |stage| {
        stage.start_daemon()?;
        killed(stage, Victim::Etcd, 2, AWAY)
    }),
    on_stage("etcd-paused", "SIGSTOP and SIGCONT of etcd", |stage| paused(stage, Victim::Etcd)),
    on_stage("apiserver-killed", "SIGKILL of the API server", |stage| {
        stage.start_daemon()?;
        killed(stage, Victim::ApiServer, 1, AWAY)
    }),
    on_stage("apiserver-paused", "SIGSTOP and SIGCONT of the API server", |stage| {
        paused(stage, Victim::ApiServer)
    }),
    on_stage("mixed", "all of these in any order", mixed),
    on_stage("proxy-cuts", "connections are cut, and new ones closed at once", proxy_cuts),
    on_stage("proxy-stalls", "nothing is passed on for a while, and then everything", proxy_stalls),
    on_stage("proxy-truncates", "connections are closed in the middle of an answer", |stage| {
        proxy_budget(stage, Mode::Truncate)
    }),
    long("proxy-falls-silent", "connections end in the middle of an answer and stay open", |stage| {
        // A watch that is dead by itself is noticed when its next bookmark is overdue.
        stage.recovers_within(Duration::from_secs(120));
        proxy_budget(stage, Mode::FallSilent)
    }),
    long("proxy-forgets", "every connection stays open and is dead for ever", proxy_forgets),
    on_stage("token-rotates", "a token file with an expired token, and then a good one", rotation::token),
    on_stage("certificate-rotates", "client certificate files are replaced", rotation::certificate),
    on_stage("authority-rotates", "a new serving certificate, and then its authority", rotation::authority),
    Scenario {
        name: "list-of-300-mb",
        sentence: "a list of 300 MB of objects, and one with an object of 300 MB",
        run: Run::Alone(hostile::long_list),
        is_long: false,
    },
];

const fn on_stage(name: &'static str, sentence: &'static str, fault: Fault) -> Scenario {
    Scenario { name, sentence, run: Run::OnStage(fault), is_long: false }
}

const fn long(name: &'static str, sentence: &'static str, fault: Fault) -> Scenario {
    Scenario { is_long: true, ..on_stage(name, sentence, fault) }
}

fn killed(stage: &mut Stage<'_, '_>, victim: Victim, times: u32, away: Duration) -> Result<(), Failure> {
    for _ in 0..times {
        stage.wait_a_moment(MOMENT)?;
        stage.kill(victim, away)?;
    }
    stage.note(format!("{victim:?} killed {times} times"));
    Ok(())
}

fn paused(stage: &mut Stage<'_, '_>, victim: Victim) -> Result<(), Failure> {
    stage.start_daemon()?;
    stage.wait_a_moment(MOMENT)?;
    let pause = stage.place.pause;
    stage.pause(victim, pause)?;
    stage.note(format!("{victim:?} paused for {} s", pause.as_secs()));
    Ok(())
}

fn mixed(stage: &mut Stage<'_, '_>) -> Result<(), Failure> {
    const FAULTS: usize = 4;
    stage.start_daemon()?;
    for _ in 0..FAULTS {
        stage.wait_a_moment(MOMENT)?;
        let victims = [Victim::Daemon, Victim::Etcd, Victim::ApiServer];
        let victim = victims[usize::try_from(stage.random.below(3)).unwrap_or_default()];
        let is_killed = stage.random.below(2) == 0;
        let lasts = Duration::from_millis(500 + stage.random.below(2_500));
        if is_killed {
            stage.kill(victim, lasts)?;
        } else {
            stage.pause(victim, lasts)?;
        }
        stage.note(format!("{victim:?} {}", if is_killed { "killed" } else { "paused" }));
    }
    Ok(())
}

fn through_proxy(stage: &mut Stage<'_, '_>) -> Result<(), Failure> {
    stage.use_proxy()?;
    stage.start_daemon()?;
    stage.wait_a_moment(MOMENT)
}

fn proxy_cuts(stage: &mut Stage<'_, '_>) -> Result<(), Failure> {
    const CUTS: usize = 4;
    through_proxy(stage)?;
    for _ in 0..CUTS {
        stage.proxy.set(Mode::Cut);
        stage.wait_a_moment(MOMENT)?;
        stage.proxy.set(Mode::Pass);
        stage.wait_a_moment(MOMENT)?;
    }
    let accepted = stage.proxy.accepted();
    stage.note(format!("cut {CUTS} times, {accepted} connections"));
    Ok(())
}

fn proxy_stalls(stage: &mut Stage<'_, '_>) -> Result<(), Failure> {
    through_proxy(stage)?;
    let pause = stage.place.pause;
    stage.proxy.set(Mode::Stall);
    stage.quiet(pause)?;
    stage.proxy.set(Mode::Pass);
    stage.note(format!("stalled for {} s", pause.as_secs()));
    Ok(())
}

fn proxy_budget(stage: &mut Stage<'_, '_>, mode: Mode) -> Result<(), Failure> {
    through_proxy(stage)?;
    stage.proxy.set(mode);
    let pause = stage.place.pause;
    sleep(pause)?;
    stage.proxy.set(Mode::Pass);
    let accepted = stage.proxy.accepted();
    stage.note(format!("{mode:?} for {} s, {accepted} connections", pause.as_secs()));
    Ok(())
}

fn proxy_forgets(stage: &mut Stage<'_, '_>) -> Result<(), Failure> {
    through_proxy(stage)?;
    stage.proxy.forget();
    stage.note("every connection forgotten");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn names_are_unique() {
        for (index, scenario) in ALL.iter().enumerate() {
            assert!(ALL[..index].iter().all(|other| other.name != scenario.name), "{} twice", scenario.name);
        }
    }
}
