//! A worker: one attempt, one request at a time; each request leaves in one step, arrives in another, and its reply is
//! taken in a third.

use std::time::Duration;

use gc_core::{
    DeleteAttempt, OrphanAttempt, OrphanStep, Outcome, PatchedField, ReleaseAttempt, Reply, Request, Step,
    Target,
};
use gc_core::{FOREGROUND_FINALIZER, ORPHAN_FINALIZER};
use gc_graph::Uid;

use super::collector::Collector;
use super::kinds::Kind;
use super::link::{Link, said};
use super::random::Random;
use super::truth::{Cause, Check, Violation, short_uid};

/// A worker of one of the two queues.
#[derive(Debug)]
pub(super) struct Worker {
    pub is_orphan: bool,
    pub job: Option<Job>,
    /// It takes nothing before this: the server asked to be left alone.
    pub rests_until: Duration,
}

/// An attempt under way.
#[derive(Debug)]
pub(super) struct Job {
    pub uid: Uid,
    since: u64,
    /// The era in which it began.
    era: u64,
    attempt: Attempt,
    pub traffic: Traffic,
    /// The owner that it reads, or whose read by another worker it waits for.
    owner: Owner,
    /// Dependents that are being released, in parallel.
    pub releases: Vec<Release>,
}

/// Several workers that want to read the same owner share one request, as the daemon's do.
#[derive(Debug)]
enum Owner {
    None,
    Reads(Target),
    WaitsFor(Target),
}

#[derive(Debug)]
enum Attempt {
    Delete(DeleteAttempt),
    Orphan(OrphanAttempt),
}

#[derive(Debug)]
pub(super) struct Release {
    attempt: ReleaseAttempt,
    pub traffic: Traffic,
}

/// Where a request is.
#[derive(Debug)]
pub(super) enum Traffic {
    /// None is under way.
    None,
    /// On its way to the server.
    Sent(Request),
    /// On its way back.
    Back(Reply),
}

impl Traffic {
    /// As the daemon does it: nothing is written while no attempt may begin. Where no server is there to take it, a request
    /// fails at once (a write that waits for the next server is in SAFETY.md, "What remains": the way of a request).
    fn leaving(request: Request, collector: &Collector, link: &mut Link) -> Traffic {
        let is_read = matches!(request, Request::Read(_));
        if !is_read && !collector.builder.is_collecting() {
            return Traffic::Back(Reply::Failed("nothing is written while no attempt may begin".into()));
        }
        if link.is_away() && !(is_read && link.keeps_reads) {
            link.requests += 1;
            return Traffic::Back(Reply::Failed("the connection was cut".into()));
        }
        Traffic::Sent(request)
    }
}

impl Worker {
    pub(super) fn for_deletion() -> Worker {
        Worker { is_orphan: false, job: None, rests_until: Duration::ZERO }
    }

    pub(super) fn for_orphaning() -> Worker {
        Worker { is_orphan: true, job: None, rests_until: Duration::ZERO }
    }

    fn reads(&self, owner: &Target) -> bool {
        self.job.as_ref().is_some_and(|job| matches!(&job.owner, Owner::Reads(read) if read == owner))
    }

    /// Whether its next step is that its request arrives, for which its process need not run.
    pub(super) fn has_sent(&self) -> bool {
        let job = self.job.as_ref().filter(|job| job.releases.is_empty());
        job.is_some_and(|job| matches!(job.traffic, Traffic::Sent(_)))
    }

    /// Whether it waits for an answer to a read that comes only when there is a server again.
    pub(super) fn waits_for_server(&self, link: &Link) -> bool {
        let job = self.job.as_ref().filter(|job| job.releases.is_empty());
        link.keeps_reads
            && link.is_away()
            && job.is_some_and(|job| matches!(job.traffic, Traffic::Sent(Request::Read(_))))
    }

    /// Requests that are on their way to the server: they may arrive although their sender is no more.
    pub(super) fn under_way(self, life: u32) -> Vec<(Request, Cause)> {
        let Some(job) = self.job else { return Vec::new() };
        let mut sent = Vec::new();
        let since = job.since;
        for traffic in std::iter::once(job.traffic).chain(job.releases.into_iter().map(|r| r.traffic)) {
            if let Traffic::Sent(request) = traffic {
                let is_delete = matches!(request, Request::Delete { .. });
                sent.push((request, Cause { since, life, is_delete }));
            }
        }
        sent
    }
}

/// The server is gone, and with it every request that is on its way; reads may stay.
pub(super) fn lose_requests(workers: &mut [Worker], but_reads: bool) {
    let jobs = workers.iter_mut().filter_map(|worker| worker.job.as_mut());
    for traffic in jobs.flat_map(|job| {
        std::iter::once(&mut job.traffic).chain(job.releases.iter_mut().map(|r| &mut r.traffic))
    }) {
        let stays = but_reads && matches!(traffic, Traffic::Sent(Request::Read(_)));
        if !stays && matches!(traffic, Traffic::Sent(_)) {
            *traffic = Traffic::Back(Reply::Failed("the connection was cut".into()));
        }
    }
}

/// One step of the worker with this number.
pub(super) fn step(
    collector: &mut Collector,
    number: usize,
    link: &mut Link,
    chance: &mut Random,
) -> Result<String, Violation> {
    let Some(worker) = collector.workers.get_mut(number) else { return Ok(String::new()) };
    let is_orphan = worker.is_orphan;
    let Some(mut job) = worker.job.take() else {
        let queue = if is_orphan { &mut collector.to_orphan } else { &mut collector.to_delete };
        let Some(uid) = queue.get(link.now) else { return Ok(String::new()) };
        let mut job = Job::new(uid, is_orphan, link.truth.step, collector.state.era());
        let said = job.advance(collector, link)?;
        return Ok(finish(collector, number, link, job, said));
    };
    let said = if collector.workers.iter().any(|other| job.waits_for(other)) {
        Said::Step("waits for another's read".into())
    } else if job.releases.is_empty() {
        match std::mem::replace(&mut job.traffic, Traffic::None) {
            Traffic::Sent(request) => {
                let holds = |uid: &str| collector.holds(uid);
                let reply = link.send(&request, &job.cause(&request, link.truth.life), &holds)?;
                let said = said!(link, "{} -> {}", show_request(&request), show_reply(&reply));
                job.traffic = Traffic::Back(reply);
                Said::Step(said)
            }
            back => {
                job.traffic = back;
                job.advance(collector, link)?
            }
        }
    } else {
        job.release(collector, link, chance)?
    };
    Ok(finish(collector, number, link, job, said))
}

/// What a step came to.
enum Said {
    Step(String),
    Done(Outcome),
}

fn finish(collector: &mut Collector, number: usize, link: &mut Link, job: Job, said: Said) -> String {
    let uid = short_uid(&job.uid.to_string()).to_owned();
    let Some(worker) = collector.workers.get_mut(number) else { return String::new() };
    match said {
        Said::Step(said) => {
            worker.job = Some(job);
            said!(link, "{uid}: {said}")
        }
        Said::Done(outcome) => {
            let said = said!(link, "{uid}: {outcome}");
            let is_orphan = worker.is_orphan;
            if let Outcome::Busy(delay, _) = outcome {
                worker.rests_until = link.now + delay;
            }
            collector.settle(link.now, &job.uid, is_orphan, (job.era, outcome));
            said
        }
    }
}

impl Job {
    fn new(uid: Uid, is_orphan: bool, since: u64, era: u64) -> Job {
        let attempt = if is_orphan {
            Attempt::Orphan(OrphanAttempt::new(uid.clone()))
        } else {
            Attempt::Delete(DeleteAttempt::new(uid.clone()))
        };
        Job { uid, since, era, attempt, traffic: Traffic::None, owner: Owner::None, releases: Vec::new() }
    }

    fn cause(&self, request: &Request, life: u32) -> Cause {
        Cause { since: self.since, life, is_delete: matches!(request, Request::Delete { .. }) }
    }

    /// Takes the reply, and gives the next request or the outcome.
    fn advance(&mut self, collector: &mut Collector, link: &mut Link) -> Result<Said, Violation> {
        let reply = match std::mem::replace(&mut self.traffic, Traffic::None) {
            Traffic::Back(reply) => Some(reply),
            Traffic::None | Traffic::Sent(_) => None,
        };
        let state = &mut collector.state;
        state.tell_time(link.now);
        let request = match &mut self.attempt {
            Attempt::Delete(attempt) => match attempt.step(state, link.now, reply) {
                Step::Done(outcome) => return Ok(Said::Done(outcome)),
                Step::Call(request) => request,
            },
            Attempt::Orphan(attempt) => match attempt.step(state, link.now, reply) {
                OrphanStep::Done(outcome) => return Ok(Said::Done(outcome)),
                OrphanStep::Call(request) => request,
                OrphanStep::Release(releases) => {
                    let said = format!("releases {} dependents", releases.len());
                    let release = |attempt| Release { attempt, traffic: Traffic::None };
                    self.releases = releases.into_iter().map(release).collect();
                    return Ok(Said::Step(said));
                }
            },
        };
        self.check(&request, collector, link)?;
        self.owner = self.reading_or_waiting(&request, collector);
        if let Owner::WaitsFor(owner) = &self.owner {
            return Ok(Said::Step(said!(link, "lets another read {owner}")));
        }
        let said = said!(link, "sends {}", show_request(&request));
        self.traffic = Traffic::leaving(request, collector, link);
        Ok(Said::Step(said))
    }

    /// One that has waited already reads for itself: what the other found did not settle it.
    fn reading_or_waiting(&self, request: &Request, collector: &Collector) -> Owner {
        match (&self.attempt, request) {
            (Attempt::Delete(attempt), Request::Read(owner)) if attempt.reads_owner() => {
                let has_waited = matches!(self.owner, Owner::WaitsFor(_));
                let is_read = || collector.workers.iter().any(|other| other.reads(owner));
                if !has_waited && is_read() {
                    Owner::WaitsFor(owner.clone())
                } else {
                    Owner::Reads(owner.clone())
                }
            }
            _ => Owner::None,
        }
    }

    fn waits_for(&self, other: &Worker) -> bool {
        matches!(&self.owner, Owner::WaitsFor(owner) if other.reads(owner))
    }

    /// What must hold when a request leaves.
    fn check(&self, request: &Request, collector: &Collector, link: &Link) -> Result<(), Violation> {
        let is_orphan = matches!(self.attempt, Attempt::Orphan(_));
        link.truth.unless_ignored(check_preconditions(request, is_orphan))?;
        if let Request::Patch { change: PatchedField::Finalizers, .. } = request {
            let finalizer = match self.attempt {
                Attempt::Delete(_) => FOREGROUND_FINALIZER,
                Attempt::Orphan(_) => ORPHAN_FINALIZER,
            };
            let keeps_owners = |kind: &Kind| collector.keeps_owners(kind, link.now);
            let owner = self.uid.to_string();
            link.truth.judge_release(&owner, finalizer, &collector.shown, &keeps_owners)?;
        }
        Ok(())
    }

    /// One step of one of the releases.
    fn release(
        &mut self,
        collector: &mut Collector,
        link: &mut Link,
        chance: &mut Random,
    ) -> Result<Said, Violation> {
        let at = chance.below(self.releases.len());
        let (since, life) = (self.since, link.truth.life);
        let Some(release) = self.releases.get_mut(at) else { return Ok(Said::Step(String::new())) };
        let uid = short_uid(&release.attempt.uid().to_string()).to_owned();
        let said = match std::mem::replace(&mut release.traffic, Traffic::None) {
            Traffic::Sent(request) => {
                let holds = |uid: &str| collector.holds(uid);
                let reply = link.send(&request, &Cause { since, life, is_delete: false }, &holds)?;
                let said = said!(link, "{} -> {}", show_request(&request), show_reply(&reply));
                release.traffic = Traffic::Back(reply);
                said
            }
            traffic => {
                let reply = if let Traffic::Back(reply) = traffic { Some(reply) } else { None };
                collector.state.tell_time(link.now);
                match release.attempt.step(&mut collector.state, link.now, reply) {
                    Step::Call(request) => {
                        link.truth.unless_ignored(check_preconditions(&request, true))?;
                        let said = said!(link, "sends {}", show_request(&request));
                        release.traffic = Traffic::leaving(request, collector, link);
                        said
                    }
                    Step::Done(outcome) => {
                        let said = said!(link, "{outcome}");
                        let done = self.releases.swap_remove(at);
                        if let Attempt::Orphan(attempt) = &mut self.attempt {
                            attempt.released(done.attempt.uid(), outcome);
                        }
                        said
                    }
                }
            }
        };
        Ok(Said::Step(said!(link, "dependent {uid}: {said}")))
    }
}

/// A DELETE names the UID and the version, a PATCH the UID, and the version where something was decided from it. Only
/// releasing a dependent is right at every version.
pub(super) fn check_preconditions(request: &Request, is_orphan: bool) -> Result<(), Violation> {
    let complain = |what: &str| Err(Violation::new(Check::Precondition, format!("{what}: {request:?}")));
    match request {
        Request::Read(_) => Ok(()),
        Request::Delete { uid, resource_version, .. } if uid.is_empty() || resource_version.is_empty() => {
            complain("a DELETE without UID or version")
        }
        Request::Delete { .. } => Ok(()),
        Request::Patch { body, change, .. } => {
            let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
            let has = |key: &str| body["metadata"][key].as_str().is_some_and(|text| !text.is_empty());
            let releases = is_orphan && *change == PatchedField::OwnerReferences;
            match (has("uid"), has("resourceVersion")) {
                (false, _) => complain("a PATCH without UID"),
                (true, false) if !releases => complain("a PATCH without version"),
                _ => Ok(()),
            }
        }
    }
}

pub(super) fn show_request(request: &Request) -> String {
    match request {
        Request::Read(target) => format!("GET {target}"),
        Request::Delete { target, resource_version, policy, .. } => {
            format!("DELETE {target} v{resource_version} {policy}")
        }
        Request::Patch { target, body, .. } => format!("PATCH {target} {body}"),
    }
}

pub(super) fn show_reply(reply: &Reply) -> String {
    match reply {
        Reply::Object(live) => {
            let deleting = if live.being_deleted { " deleting" } else { "" };
            format!("{} v{}{deleting}", short_uid(&live.uid), live.resource_version)
        }
        other => format!("{other:?}"),
    }
}
