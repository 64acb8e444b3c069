//! What waits for its TTL, when the next job is due, and which are (T2, T3).

use std::sync::Arc;

use gc_graph::Uid;

use crate::ttl::attempt::{Gone, Outcome};
use crate::ttl::report::Told;
use crate::ttl::table::{Job, Meanwhile, Place, Stage, Table};
use crate::ttl::{Facts, Profile, Reason, Report, Verdict};

/// The first wait after a failure: short enough not to be noticed, long enough for a blip to pass.
const RETRY_FIRST_MS: i64 = 200;
/// The longest wait after failures of the server: an outage of hours costs a job a minute once it is over.
const RETRY_MAX_MS: i64 = 60_000;
/// The first wait after what will not mend itself soon: a right that we do not have, a webhook that refuses, a finish
/// time that nobody has written. A change of the job itself is acted on at once.
const REFUSED_FIRST_MS: i64 = 5_000;
/// The longest wait after these: client-go's longest, a quarter of an hour.
const REFUSED_MAX_MS: i64 = 1_000_000;
/// A deletion that the server has taken is shown by the watch in a moment. If it is not for this long, the job is read
/// again: the server may have been restored from a backup.
const CONFIRM_FIRST_MS: i64 = 60_000;
/// A server that says this often in a row, at least a minute apart, that a job does not exist is believed, whatever the
/// watch says (kubernetes/kubernetes#98471).
const DENIALS_MAX: u8 = 2;
/// Clocks that are kept by NTP differ by less; a larger difference is worth a warning.
const SKEW_MS: i64 = 1_000;
/// A clock that is set back by more than this has jumped.
const JUMP_MS: i64 = 1_000;
/// More profiles than anybody has kinds of jobs.
const PROFILES_MAX: usize = 1_000;

/// A profile within one engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileId(u16);

impl ProfileId {
    /// From 0, in the order in which the profiles were added.
    pub fn index(self) -> usize {
        self.0.into()
    }
}

/// What bounds an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// So many jobs are kept at most. The default is five million: a gigabyte here, and more than any etcd holds.
    pub jobs_max: usize,
    /// So many attempts are given out at the same time. The default is a thousand: each holds a name and a UID, and
    /// waits for a worker.
    pub in_flight_max: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { jobs_max: 5_000_000, in_flight_max: 1_000 }
    }
}

/// There are as many profiles as there can be (a thousand).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineFull;

impl std::fmt::Display for EngineFull {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "more than {PROFILES_MAX} profiles")
    }
}

impl std::error::Error for EngineFull {}

/// A job whose time has come, for an [`Attempt`](crate::ttl::Attempt); goes back to [`Engine::finish`] with the outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The profile it belongs to.
    pub profile: ProfileId,
    /// Empty for a cluster-scoped object.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID. Another object under that name is none of this one's business.
    pub uid: Uid,
    /// When it was due as last observed, in Unix milliseconds; `None` when that is not known.
    pub due_ms: Option<i64>,
}

/// How many jobs there are, by what they wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Their time has not come.
    pub waiting: usize,
    /// Their time has come, and they wait for a worker.
    pub due: usize,
    /// An attempt is under way.
    pub in_flight: usize,
    /// Something went wrong, and they are tried again later.
    pub retrying: usize,
    /// The server has taken the deletion; the watch is to show it.
    pub confirming: usize,
}

/// One job, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobView<'a> {
    /// The profile it belongs to.
    pub profile: ProfileId,
    /// Empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a Uid,
    /// When it is due, in Unix milliseconds; `None` when that is not known.
    pub due_ms: Option<i64>,
    /// When it is looked at next, in Unix milliseconds; later than it is due where something went wrong.
    pub at_ms: i64,
    /// Where it stands.
    pub stage: Stage,
}

/// The jobs of all profiles that have finished and wait for their TTL.
///
/// A job takes about 200 bytes, its name included (up to 300 just after the tables have grown); objects that wait for
/// nothing take none. A time that goes in is the wall clock in Unix milliseconds and may jump: call
/// [`Engine::take_due`] when [`Engine::next_due_ms`] says so, and every few seconds of a clock that does not jump.
///
/// The example in the [module](crate::ttl) shows the whole way of a job.
#[derive(Clone, Debug)]
pub struct Engine {
    limits: Limits,
    profiles: Vec<Arc<Profile>>,
    table: Table,
    in_flight: usize,
    told: Told,
    /// The latest time that was told.
    now_ms: i64,
    /// A server that has too much to do is asked for nothing until then.
    paused_until_ms: i64,
}

impl Engine {
    /// An engine without profiles.
    pub fn new(limits: Limits) -> Engine {
        Engine {
            limits,
            profiles: Vec::new(),
            table: Table::default(),
            in_flight: 0,
            told: Told::default(),
            now_ms: i64::MIN,
            paused_until_ms: i64::MIN,
        }
    }

    /// Adds a profile; it stays for good, whether its kind is served or not (T4).
    ///
    /// # Errors
    ///
    /// There are a thousand already.
    pub fn add_profile(&mut self, profile: Arc<Profile>) -> Result<ProfileId, EngineFull> {
        let id = u16::try_from(self.profiles.len()).map_err(|_| EngineFull)?;
        if PROFILES_MAX <= self.profiles.len() {
            return Err(EngineFull);
        }
        self.profiles.push(profile);
        Ok(ProfileId(id))
    }

    /// The profile with this number.
    pub fn profile(&self, id: ProfileId) -> Option<&Arc<Profile>> {
        self.profiles.get(id.index())
    }

    /// A list or a watch shows an object. Whatever changes its due time takes effect at once (T2).
    pub fn observe(&mut self, now_ms: i64, id: ProfileId, facts: &Facts, reports: &mut Vec<Report>) {
        self.tell_time(now_ms);
        let Some(profile) = self.profiles.get(id.index()) else { return };
        let due = match profile.verdict(facts) {
            Verdict::DueAt { due_ms, finished_ms } => Some((due_ms, finished_ms)),
            Verdict::NoFinishTime(why) => {
                self.report(reports, id, facts, Reason::NoFinishTime, no_finish_time(&why));
                None
            }
            Verdict::Invalid(why) => {
                self.report(reports, id, facts, Reason::InvalidTtl, invalid(&why));
                return self.leave_name(id, &facts.namespace, &facts.name);
            }
            Verdict::BeingDeleted | Verdict::NotFinished | Verdict::Protected | Verdict::NoTtl => {
                return self.leave_name(id, &facts.namespace, &facts.name);
            }
        };
        self.wait(id, facts, due, reports);
    }

    /// A watch shows that an object is gone. An object that has taken over its name stays.
    pub fn delete(&mut self, now_ms: i64, id: ProfileId, namespace: &str, name: &str, uid: &Uid) {
        self.tell_time(now_ms);
        let Some(place) = self.table.find(id, namespace, name) else { return };
        if self.table.get(place).is_some_and(|job| job.uid == *uid) {
            self.leave(place);
        }
    }

    /// A list begins: what it does not show is gone when it ends.
    pub fn begin_list(&mut self, id: ProfileId) {
        for place in self.table.places(id) {
            if let Some(job) = self.table.get_mut(place) {
                job.is_listed = false;
            }
        }
    }

    /// A complete list has ended.
    pub fn end_list(&mut self, id: ProfileId) {
        for place in self.table.places(id) {
            if self.table.get(place).is_some_and(|job| !job.is_listed) {
                self.leave(place);
            }
        }
    }

    /// The profile's kind is not served any more: nothing of it waits (T4). Attempts under way may end as they like.
    pub fn stop(&mut self, id: ProfileId) {
        for place in self.table.places(id) {
            self.leave(place);
        }
    }

    /// When there is something to do next, in Unix milliseconds; in the past if there is now. `None` while nothing waits,
    /// and while as many attempts are under way as may be.
    pub fn next_due_ms(&self) -> Option<i64> {
        if self.limits.in_flight_max <= self.in_flight {
            return None;
        }
        self.table.first().map(|(at_ms, _)| at_ms.max(self.paused_until_ms))
    }

    /// Gives out those whose time has come, the earliest first, `max` at most and not more than may be under way at once.
    /// Each is to be given back by [`Engine::finish`], also one whose attempt came to nothing ([`Outcome::Failed`]): until
    /// then nothing else is begun for that job.
    pub fn take_due(&mut self, now_ms: i64, max: usize, due: &mut Vec<Due>) {
        self.tell_time(now_ms);
        if now_ms < self.paused_until_ms {
            return;
        }
        let room = self.limits.in_flight_max.saturating_sub(self.in_flight).min(max);
        let places: Vec<Place> = self.table.until(now_ms).take(room).collect();
        for place in places {
            self.table.schedule(place, Stage::InFlight, now_ms);
            let Some(job) = self.table.get_mut(place) else { continue };
            job.meanwhile = Meanwhile::Nothing;
            self.in_flight += 1;
            let (namespace, name) = job.names();
            due.push(Due {
                profile: job.profile,
                namespace: namespace.into(),
                name: name.into(),
                uid: job.uid.clone(),
                due_ms: job.due_ms,
            });
        }
    }

    /// Takes the outcome of an attempt at what [`Engine::take_due`] gave out.
    pub fn finish(&mut self, now_ms: i64, due: &Due, outcome: &Outcome, reports: &mut Vec<Report>) {
        self.tell_time(now_ms);
        self.in_flight = self.in_flight.saturating_sub(1);
        self.report_outcome(due, outcome, reports);
        if let Outcome::Busy { retry_after, .. } = outcome {
            let wait_ms = i64::try_from(retry_after.as_millis()).unwrap_or(RETRY_MAX_MS);
            self.paused_until_ms = self.paused_until_ms.max(now_ms.saturating_add(wait_ms));
        }
        let Some(place) = self.table.find(due.profile, &due.namespace, &due.name) else { return };
        match self.table.get(place) {
            Some(job) if job.uid == due.uid && job.stage == Stage::InFlight => {
                self.settle(now_ms, place, outcome);
            }
            // Another object under that name, with a life of its own.
            _ => {}
        }
    }

    /// How many jobs of a profile there are. Takes as long as there are jobs: for metrics, not for each event.
    pub fn counts(&self, id: ProfileId, now_ms: i64) -> Counts {
        let mut counts = Counts::default();
        for job in self.table.jobs().filter(|job| job.profile == id) {
            let count = match job.stage {
                Stage::Waiting if job.at_ms() <= now_ms => &mut counts.due,
                Stage::Waiting => &mut counts.waiting,
                Stage::InFlight => &mut counts.in_flight,
                Stage::Retrying => &mut counts.retrying,
                Stage::Confirming => &mut counts.confirming,
            };
            *count += 1;
        }
        counts
    }

    /// How many jobs there are of all profiles.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All jobs, in no order.
    pub fn jobs(&self) -> impl Iterator<Item = JobView<'_>> {
        self.table.jobs().map(|job| {
            let (namespace, name) = job.names();
            JobView {
                profile: job.profile,
                namespace,
                name,
                uid: &job.uid,
                due_ms: job.due_ms,
                at_ms: job.at_ms(),
                stage: job.stage,
            }
        })
    }

    /// A clock that was set back must not make back-offs longer than they were meant to be: a day back would be a day's
    /// wait. Due times are times of the wall clock and stay.
    fn tell_time(&mut self, now_ms: i64) {
        let has_jumped = now_ms.saturating_add(JUMP_MS) < self.now_ms;
        let back_ms = self.now_ms.saturating_sub(now_ms);
        self.now_ms = now_ms;
        if !has_jumped {
            return;
        }
        self.paused_until_ms = self.paused_until_ms.saturating_sub(back_ms);
        let backing_off: Vec<(i64, Place)> = (0..).zip(self.table.slots()).filter_map(backs_off).collect();
        for (at_ms, place) in backing_off {
            let stage = self.table.get(place).map_or(Stage::Retrying, |job| job.stage);
            self.table.schedule(place, stage, at_ms.saturating_sub(back_ms));
        }
    }

    /// The object waits, until `due` (due and finish time) or, without a finish time, until the next look at it.
    fn wait(&mut self, id: ProfileId, facts: &Facts, due: Option<(i64, i64)>, reports: &mut Vec<Report>) {
        let finished_s = due.map_or(0, |(_, finished_ms)| seconds(finished_ms));
        if let Some((_, finished_ms)) = due
            && self.now_ms.saturating_add(SKEW_MS) < finished_ms
        {
            self.report(reports, id, facts, Reason::FinishedInFuture, in_future(finished_ms, self.now_ms));
        }
        let due_ms = due.map(|(due_ms, _)| due_ms);
        let place = match self.table.find(id, &facts.namespace, &facts.name) {
            Some(place) if self.table.get(place).is_some_and(|job| job.uid == facts.uid) => place,
            found => {
                // The name was taken over: nothing of the old object's time is left.
                if let Some(place) = found {
                    self.table.remove(place);
                }
                return self.admit(id, facts, due_ms, finished_s, reports);
            }
        };
        let Some(job) = self.table.get_mut(place) else { return };
        let moved_from = (job.finished_s != 0 && job.finished_s < finished_s).then_some(job.finished_s);
        let is_same = job.due_ms == due_ms;
        let (stage, at_ms) = (job.stage, job.at_ms());
        job.is_listed = true;
        job.finished_s = finished_s;
        job.due_ms = due_ms;
        match stage {
            Stage::InFlight => job.meanwhile = Meanwhile::Waits,
            Stage::Waiting | Stage::Retrying if !is_same => {
                job.tries = 0;
                let now_ms = self.now_ms;
                let (stage, at_ms) = match due_ms {
                    Some(due_ms) => (Stage::Waiting, due_ms),
                    None => (Stage::Retrying, now_ms.saturating_add(REFUSED_FIRST_MS)),
                };
                self.table.schedule(place, stage, at_ms);
            }
            Stage::Waiting | Stage::Retrying | Stage::Confirming => self.table.schedule(place, stage, at_ms),
        }
        if let Some(before_s) = moved_from {
            self.report(reports, id, facts, Reason::FinishTimeMoved, moved(before_s, finished_s));
        }
    }

    fn admit(
        &mut self,
        id: ProfileId,
        facts: &Facts,
        due_ms: Option<i64>,
        finished_s: u32,
        reports: &mut Vec<Report>,
    ) {
        let is_full = self.limits.jobs_max <= self.table.len();
        let mut job = Job::new(id, &facts.namespace, &facts.name, facts.uid.clone());
        job.due_ms = due_ms;
        job.finished_s = finished_s;
        let at_ms = due_ms.unwrap_or_else(|| self.now_ms.saturating_add(REFUSED_FIRST_MS));
        let place = if is_full { None } else { self.table.insert(job, at_ms) };
        match place {
            Some(place) if due_ms.is_none() => self.table.schedule(place, Stage::Retrying, at_ms),
            Some(_) => {}
            None => {
                let max = self.limits.jobs_max;
                let message =
                    format!("more than {max} objects wait for their TTL: this one is left for the next list");
                self.report(reports, id, facts, Reason::TooManyJobs, message);
            }
        }
    }

    fn leave_name(&mut self, id: ProfileId, namespace: &str, name: &str) {
        if let Some(place) = self.table.find(id, namespace, name) {
            self.leave(place);
        }
    }

    /// It does not wait any more. While an attempt is under way it keeps its place, so that no other is begun.
    fn leave(&mut self, place: Place) {
        match self.table.get_mut(place) {
            Some(job) if job.stage == Stage::InFlight => {
                job.meanwhile = Meanwhile::Left;
                job.is_listed = true;
            }
            _ => {
                self.table.remove(place);
            }
        }
    }

    /// An attempt has ended. What a watch showed meanwhile may be newer than what the attempt read, or older: where the
    /// two differ the job is looked at at the earlier time, which costs a read at most.
    fn settle(&mut self, now_ms: i64, place: Place, outcome: &Outcome) {
        let Some(job) = self.table.get_mut(place) else { return };
        let meanwhile = std::mem::replace(&mut job.meanwhile, Meanwhile::Nothing);
        if meanwhile == Meanwhile::Left {
            self.table.remove(place);
            return;
        }
        let is_denial = matches!(outcome, Outcome::Gone(Gone::NotFound));
        job.denials = if is_denial { job.denials.saturating_add(1) } else { 0 };
        let is_gone = DENIALS_MAX <= job.denials;
        match outcome {
            Outcome::Gone(Gone::NotFound) if is_gone => {
                self.table.remove(place);
            }
            Outcome::Deleted { .. } | Outcome::Gone(Gone::NotFound) => {
                let wait_ms = doubled(CONFIRM_FIRST_MS, job.confirms, REFUSED_MAX_MS);
                job.confirms = job.confirms.saturating_add(1);
                job.tries = 0;
                self.table.schedule(place, Stage::Confirming, now_ms.saturating_add(wait_ms));
            }
            Outcome::Gone(Gone::Replaced) | Outcome::BeingDeleted => {
                self.table.remove(place);
            }
            Outcome::NotDue { due_ms, again_ms, .. } => {
                job.tries = 0;
                let observed = (meanwhile == Meanwhile::Waits).then_some(job.due_ms).flatten();
                let due_ms = observed.map_or(*due_ms, |observed| observed.min(*due_ms));
                job.due_ms = Some(due_ms);
                // Not before a clock that is ahead of the server's says so.
                let is_skewed = now_ms < *again_ms && due_ms <= now_ms;
                let (stage, at_ms) =
                    if is_skewed { (Stage::Retrying, *again_ms) } else { (Stage::Waiting, due_ms) };
                self.table.schedule(place, stage, at_ms);
            }
            Outcome::NotWaiting(_) if meanwhile == Meanwhile::Nothing => {
                self.table.remove(place);
            }
            Outcome::NoFinishTime(_) | Outcome::Refused { .. } => {
                if meanwhile == Meanwhile::Nothing && matches!(outcome, Outcome::NoFinishTime(_)) {
                    // Whichever time a watch shows next is another one.
                    job.due_ms = None;
                }
                self.back_off(now_ms, place, REFUSED_FIRST_MS, REFUSED_MAX_MS);
            }
            Outcome::NotWaiting(_) | Outcome::Failed(_) | Outcome::Busy { .. } => {
                self.back_off(now_ms, place, RETRY_FIRST_MS, RETRY_MAX_MS);
            }
        }
    }

    /// Later; but a job whose time a watch has put off meanwhile has all the time in the world.
    fn back_off(&mut self, now_ms: i64, place: Place, first_ms: i64, max_ms: i64) {
        let Some(job) = self.table.get_mut(place) else { return };
        let at_ms = now_ms.saturating_add(doubled(first_ms, job.tries, max_ms));
        job.tries = job.tries.saturating_add(1);
        match job.due_ms {
            Some(due_ms) if at_ms < due_ms => {
                job.tries = 0;
                self.table.schedule(place, Stage::Waiting, due_ms);
            }
            _ => self.table.schedule(place, Stage::Retrying, at_ms),
        }
    }

    fn report_outcome(&mut self, due: &Due, outcome: &Outcome, reports: &mut Vec<Report>) {
        let (reason, message) = match outcome {
            Outcome::Refused { message, .. } => {
                (Reason::DeleteRefused, format!("its TTL has expired, but it cannot be deleted: {message}"))
            }
            Outcome::NoFinishTime(why) => (Reason::NoFinishTime, no_finish_time(why)),
            Outcome::NotWaiting(Verdict::Invalid(why)) => (Reason::InvalidTtl, invalid(why)),
            // The server tells whole seconds.
            Outcome::NotDue { ahead_ms: Some(ahead_ms), .. } if SKEW_MS + 1_000 < *ahead_ms => {
                let seconds = ahead_ms / 1_000;
                let message =
                    format!("this clock is {seconds} s ahead of the API server's, whose time counts");
                (Reason::ClockSkew, message)
            }
            _ => return,
        };
        let report = Report {
            profile: due.profile,
            namespace: due.namespace.clone(),
            name: due.name.clone(),
            uid: due.uid.clone(),
            reason,
            message,
        };
        if self.told.is_news(&report) {
            reports.push(report);
        }
    }

    fn report(
        &mut self,
        reports: &mut Vec<Report>,
        profile: ProfileId,
        facts: &Facts,
        reason: Reason,
        message: String,
    ) {
        let report = Report {
            profile,
            namespace: facts.namespace.clone(),
            name: facts.name.clone(),
            uid: facts.uid.clone(),
            reason,
            message,
        };
        if self.told.is_news(&report) {
            reports.push(report);
        }
    }
}

fn backs_off((place, job): (Place, &Option<Job>)) -> Option<(i64, Place)> {
    let job = job.as_ref()?;
    matches!(job.stage, Stage::Retrying | Stage::Confirming).then(|| (job.at_ms(), place))
}

/// The wait after so many tries: twice as long each time.
fn doubled(first_ms: i64, tries: u8, max_ms: i64) -> i64 {
    first_ms.saturating_mul(1 << tries.min(16)).min(max_ms)
}

fn seconds(ms: i64) -> u32 {
    u32::try_from(ms / 1_000).unwrap_or(u32::MAX)
}

fn time(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).map_or_else(|_| format!("{ms} ms"), |time| time.to_string())
}

fn in_future(finished_ms: i64, now_ms: i64) -> String {
    let (finished, now) = (time(finished_ms), time(now_ms));
    format!(
        "it finished in the future, at {finished} (it is {now}): clocks in the cluster differ; its TTL waits"
    )
}

fn moved(before_s: u32, after_s: u32) -> String {
    let (before, after) = (time(i64::from(before_s) * 1_000), time(i64::from(after_s) * 1_000));
    format!("the time at which it finished has moved from {before} to {after}, and its deadline with it")
}

fn no_finish_time(why: &str) -> String {
    format!("it has finished, but does not say when: {why}; its TTL cannot expire")
}

fn invalid(why: &str) -> String {
    format!("{why}: it is ignored, and the object stays")
}
