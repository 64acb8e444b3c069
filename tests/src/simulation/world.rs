//! The loop: what can happen now, one of it chosen, until a run is over.

use std::collections::BTreeSet;
use std::time::Duration;

use super::collector::{Collector, Setup};
use super::jobs::{self, has_jobs};
use super::link::{Link, said};
use super::random::Random;
use super::truth::{Check, Truth, Violation};
use super::ttl::{self, Expirer};
use super::worker::{self, Worker};
use super::{Failure, Mistake, Options, Report, Trace, liveness, users, weather};
use crate::sim::{ApiServer, Snapshot};

/// Virtual time within which everything comes to rest once faults have ended: an item that failed all through the storm
/// waits up to 1,000 s for its next attempt (client-go's limit), and a cascade may have several of them in a row.
const REST_WITHIN: Duration = Duration::from_secs(3_600);
/// More steps than any run needs to come to rest: work that goes round in circles without time passing.
const REST_STEPS_MAX: u64 = 200_000;
/// A watch and a list of each of 7 resources in 120 to 200 s, with a probe after each that was silent, and two requests
/// of discovery every 30 s.
const LOOK_EVERY: Duration = Duration::from_secs(30);
const IDLE_REQUESTS_PER_MINUTE: u64 = 2 * 2 + 7 * 2;
/// In worlds that have jobs: of the watch of these, and of a finished job that does not say when, which is read ever more
/// rarely.
const IDLE_REQUESTS_FOR_JOBS: u64 = 2 + 12;

/// A run.
pub(super) struct World<'t> {
    pub link: Link,
    /// None: it was killed, and is not started again yet.
    pub collector: Option<Collector>,
    seed: u64,
    setup: Setup,
    chance: Random,
    options: Options,
    /// Of a thousand steps of the storm, so many are disturbances.
    disturbance_permille: u32,
    /// Of a thousand disturbances, so many are the weather's.
    weather_permille: u32,
    disturbances: u32,
    pub backup: Option<Backup>,
    start_at: Duration,
    /// In worlds that have jobs: whether a step is one of those who have to do with them.
    jobs: Option<Random>,
    /// Until then the collector's process is stopped (SIGSTOP): time passes between two of its steps, and what it has
    /// sent arrives.
    pub paused_until: Duration,
    /// Since when everything works.
    calm_since: Duration,
    step: u64,
    /// The server was restored, and the collector's own writes brought it to the version that a watch had seen before
    /// that watch could look (see the module's documentation): nothing can be asked of this world any more.
    is_overtaken: bool,
    trace: Option<Trace<'t>>,
}

/// A backup of the server, and what was true then.
pub(super) struct Backup {
    pub server: Snapshot,
    pub version: u64,
    pub truth: Truth,
}

/// One thing that can happen next.
#[derive(Clone, Copy, Debug)]
enum Move {
    Deliver(usize),
    Read(usize),
    Find,
    Look,
    Answer,
    Work(usize),
    Late(usize),
    LateExpiry(usize),
    Expire(usize),
    Wake,
    Start,
}

impl<'t> World<'t> {
    pub(super) fn new(seed: u64, options: &Options, trace: Option<Trace<'t>>) -> World<'t> {
        let mut chance = Random::new(seed);
        let fault_permille = chance.pick(&[0, 0, 10, 50, 150, 400]).copied().unwrap_or_default();
        let setup = Setup {
            seed,
            delete_workers: chance.within(1, 4),
            orphan_workers: chance.within(1, 2),
            stream_lists: chance.permille(300),
            ignored: liveness::ignored(has_jobs(seed)),
            has_jobs: has_jobs(seed),
            core: core_options(seed, options.mistake),
            builder: match options.mistake {
                Some(Mistake::Builder(mistake)) => Some(mistake),
                _ => None,
            },
        };
        let link = Link {
            server: ApiServer::new(seed),
            truth: Truth::new(options.ignored.clone()),
            now: Duration::ZERO,
            fault_permille: if options.has_faults { fault_permille } else { 0 },
            faults: Random::apart(seed, 1),
            mistake: options.mistake,
            requests: 0,
            late: Vec::new(),
            is_traced: trace.is_some(),
            restores: 0,
            restored_to: 0,
            away_until: Duration::ZERO,
            keeps_reads: false,
            cache_is_behind_until: Duration::ZERO,
            denied: BTreeSet::new(),
            late_expiries: Vec::new(),
            clock_ahead_ms: 0,
            in_hand: Vec::new(),
        };
        World {
            link,
            collector: None,
            seed,
            setup,
            options: options.clone(),
            disturbance_permille: chance.pick(&[20, 60, 150, 300]).copied().unwrap_or_default(),
            weather_permille: chance.pick(&[0, 50, 150, 400]).copied().unwrap_or_default(),
            chance,
            disturbances: 0,
            backup: None,
            start_at: Duration::ZERO,
            jobs: has_jobs(seed).then(|| Random::apart(seed, 5)),
            paused_until: Duration::ZERO,
            calm_since: Duration::ZERO,
            step: 0,
            is_overtaken: false,
            trace,
        }
    }

    pub(super) fn run(mut self) -> Result<Report, Box<Failure>> {
        match self.play() {
            Ok(()) => Ok(Report {
                steps: self.step,
                disturbances: self.disturbances,
                requests: self.link.requests,
                objects: self.link.truth.past.len(),
                deleted: self.link.truth.deleted,
                expired: self.link.truth.jobs.expired,
                is_overtaken: self.is_overtaken,
            }),
            Err(violation) => Err(Box::new(Failure {
                seed: self.seed,
                violation,
                step: self.step,
                disturbances: self.disturbances,
            })),
        }
    }

    fn play(&mut self) -> Result<(), Violation> {
        users::prepare(&mut self.link)?;
        let objects = self.chance.within(0, 12).min(self.options.objects_max);
        for _ in 0..objects {
            let mut chance = Random::apart(self.seed, 1_000 + u64::from(self.disturbances));
            self.disturb(|world| users::create(&mut world.link, &mut chance))?;
        }
        self.create_jobs()?;
        self.start_if_dead();
        let steps = self.chance.within(30, 500).min(self.options.steps_max);
        for _ in 0..steps {
            self.storm_step()?;
        }
        self.say("the storm is over", "");
        weather::clear(self);
        self.calm_since = self.link.now;
        self.rest()?;
        let count = users::let_go(&mut self.link)?;
        self.say("users", &format!("let {count} objects go"));
        self.rest()?;
        if self.is_overtaken {
            self.say(
                "the world ends",
                "the restored server has passed what a watch had seen before it could look",
            );
            return Ok(());
        }
        self.idle()
    }

    fn create_jobs(&mut self) -> Result<(), Violation> {
        let count = self.jobs.as_mut().map_or(0, |jobs| jobs.within(1, 4));
        for _ in 0..count {
            let mut chance = Random::apart(self.seed, 1_000 + u64::from(self.disturbances));
            self.disturb(|world| jobs::create(&mut world.link, &mut chance))?;
        }
        Ok(())
    }

    fn storm_step(&mut self) -> Result<(), Violation> {
        // While the collector is stopped the others go on.
        let permille = if self.link.now < self.paused_until { 700 } else { self.disturbance_permille };
        let is_of_jobs = self.jobs.as_mut().is_some_and(|jobs| jobs.permille(jobs::STEPS_PERMILLE));
        if !is_of_jobs && !self.chance.permille(permille) {
            return self.any_move().map(drop);
        }
        // A restore shows in versions that are older than before. Nobody writes until every watch has had its look:
        // versions that have passed what was seen betray nothing.
        let is_unsettled =
            self.collector.as_ref().is_some_and(|c| !c.readers.iter().all(|r| r.has_looked(&self.link)));
        if is_unsettled {
            return self.any_move().map(drop);
        }
        let is_weather = self.chance.permille(self.weather_permille);
        let mut chance = Random::apart(self.seed, 1_000 + u64::from(self.disturbances));
        if is_of_jobs {
            self.disturb(|world| jobs::act(world, &mut chance))
        } else if is_weather {
            self.disturb(|world| weather::strike(world, &mut chance))
        } else {
            let jobs =
                self.collector.iter().flat_map(|c| &c.workers).filter_map(|worker| worker.job.as_ref());
            self.link.in_hand = jobs.map(|job| job.uid.to_string()).collect();
            self.disturb(|world| users::act(&mut world.link, &mut chance))
        }
    }

    /// A disturbance has a number, by which it can be left out.
    fn disturb(
        &mut self,
        act: impl FnOnce(&mut World<'t>) -> Result<String, Violation>,
    ) -> Result<(), Violation> {
        let number = self.disturbances;
        self.disturbances += 1;
        self.begin_step();
        if self.options.skip.contains(&number) {
            return Ok(());
        }
        let said = act(self)?;
        self.say(&format!("#{number}"), &said);
        Ok(())
    }

    /// Time passes a little with each step, and sometimes a lot.
    fn begin_step(&mut self) {
        self.step += 1;
        let passes = match self.chance.below(40) {
            0 => self.chance.millis(0, 5_000),
            1..=10 => self.chance.millis(0, 20),
            _ => Duration::ZERO,
        };
        self.link.now += passes;
        self.link.truth.begin_step(self.step, self.link.now);
    }

    /// Takes one of the moves that are possible now; where there is none, waits for the first. False: there never will
    /// be one.
    fn any_move(&mut self) -> Result<bool, Violation> {
        self.begin_step();
        let (mut moves, wake) = self.moves();
        if moves.is_empty() {
            let Some(wake) = wake else { return Ok(false) };
            self.link.now = self.link.now.max(wake);
            moves = self.moves().0;
        }
        if moves.is_empty() {
            return Ok(true);
        }
        let chosen = moves.swap_remove(self.chance.below(moves.len()));
        self.make(chosen)?;
        self.is_overtaken |= self.collector.as_ref().is_some_and(|c| c.is_overtaken(&self.link));
        Ok(true)
    }

    /// Everything that can happen now, and when something else can.
    fn moves(&mut self) -> (Vec<Move>, Option<Duration>) {
        let now = self.link.now;
        let mut moves = Vec::new();
        let mut wakes: Vec<Duration> = Vec::new();
        moves.extend((0..self.link.late.len()).map(Move::Late));
        moves.extend((0..self.link.late_expiries.len()).map(Move::LateExpiry));
        let Some(collector) = &mut self.collector else {
            if self.start_at <= now {
                moves.push(Move::Start);
            } else {
                wakes.push(self.start_at);
            }
            return (moves, wakes.into_iter().min());
        };
        if now < self.paused_until {
            let link = &self.link;
            let arrives = |worker: &Worker| worker.has_sent() && !worker.waits_for_server(link);
            let under_way = collector.workers.iter().enumerate().filter(|(_, worker)| arrives(worker));
            moves.extend(under_way.map(|(number, _)| Move::Work(number)));
            moves.extend(collector.expirer.iter().flat_map(|expirer| expirer.sent()).map(Move::Expire));
            return (moves, Some(self.paused_until));
        }
        for (at, reader) in collector.readers.iter().enumerate() {
            if reader.can_deliver(now) {
                moves.push(Move::Deliver(at));
            } else if reader.has_changes() {
                wakes.push(reader.stalled_until);
            }
            match reader.acts_at(&self.link) {
                Some(due) if due <= now => moves.push(Move::Read(at)),
                due => wakes.extend(due),
            }
        }
        moves.extend((!collector.findings.is_empty()).then_some(Move::Find));
        if collector.has_answer() {
            moves.push(Move::Answer);
        } else if collector.next_look <= now {
            moves.push(Move::Look);
        } else {
            wakes.push(collector.next_look);
        }
        match collector.builder.due() {
            Some(due) if due <= now => moves.push(Move::Wake),
            due => wakes.extend(due),
        }
        let (to_delete, to_orphan) =
            (collector.to_delete.next_ready(now), collector.to_orphan.next_ready(now));
        let is_collecting = collector.builder.is_collecting();
        for (number, worker) in collector.workers.iter().enumerate() {
            let ready = if worker.is_orphan { to_orphan } else { to_delete };
            let ready = ready.map(|at| at.max(worker.rests_until));
            match ready {
                _ if worker.waits_for_server(&self.link) => wakes.push(self.link.away_until),
                _ if worker.job.is_some() => moves.push(Move::Work(number)),
                Some(at) if is_collecting && at <= now => moves.push(Move::Work(number)),
                at if is_collecting => wakes.extend(at),
                _ => {}
            }
        }
        if let Some(expirer) = &collector.expirer {
            let (workers, wake) = expirer.moves(&self.link);
            moves.extend(workers.into_iter().map(Move::Expire));
            wakes.push(wake);
        }
        (moves, wakes.into_iter().min())
    }

    fn make(&mut self, chosen: Move) -> Result<(), Violation> {
        let (link, chance) = (&mut self.link, &mut self.chance);
        if let Move::Late(at) = chosen {
            let (request, cause) = link.late.swap_remove(at);
            // Or it never arrives.
            if chance.permille(700) {
                let reply = link.arrive_late(&request, &cause)?;
                let said =
                    said!(link, "{} -> {}", worker::show_request(&request), worker::show_reply(&reply));
                self.say("late", &said);
            }
            return Ok(());
        }
        if let Move::LateExpiry(at) = chosen {
            let request = link.late_expiries.swap_remove(at);
            if chance.permille(700) {
                link.expiry_arrives_late(&request)?;
                self.say("late", &ttl::show(&request));
            }
            return Ok(());
        }
        let Some(collector) = &mut self.collector else {
            self.start_if_dead();
            return Ok(());
        };
        let (who, said) = match chosen {
            Move::Deliver(at) => (collector.who(at, "graph <-", link), collector.deliver(at, link)),
            Move::Read(at) => {
                let who = collector.who(at, "reader", link);
                let Some(reader) = collector.readers.get_mut(at) else { return Ok(()) };
                (who, reader.act(link)?)
            }
            Move::Find => ("graph <- finding".into(), collector.take_finding(link)),
            Move::Look => ("discovery".into(), collector.look(link)?),
            Move::Answer => ("loop <- discovery".into(), collector.take_answer(link)),
            Move::Wake => ("builder".into(), collector.wake(link)),
            Move::Work(number) => {
                (said!(link, "worker {number}"), worker::step(collector, number, link, chance)?)
            }
            Move::Expire(number) => {
                let Some(expirer) = &mut collector.expirer else { return Ok(()) };
                (said!(link, "ttl {number}"), expirer.step(number, link)?)
            }
            Move::Late(_) | Move::LateExpiry(_) | Move::Start => (String::new(), String::new()),
        };
        self.say(&who, &said);
        Ok(())
    }

    pub(super) fn kill(&mut self) -> String {
        let Some(mut collector) = self.collector.take() else {
            return "the collector is dead already".into();
        };
        for reader in &mut collector.readers {
            reader.hang_up(&mut self.link);
        }
        self.link.late_expiries.extend(collector.expirer.into_iter().flat_map(Expirer::into_under_way));
        for worker in collector.workers {
            self.link.late.extend(worker.under_way(self.link.truth.life));
        }
        self.start_at = self.link.now + self.chance.millis(0, 10_000);
        self.paused_until = Duration::ZERO;
        "the collector is killed".into()
    }

    pub(super) fn start_if_dead(&mut self) {
        if self.collector.is_none() {
            self.link.truth.life += 1;
            self.collector = Some(Collector::start(&self.setup, self.link.now));
            self.say("collector", "starts");
        }
    }

    /// Until nothing is left to do but what happens at intervals.
    fn rest(&mut self) -> Result<(), Violation> {
        let deadline = self.link.now + REST_WITHIN;
        let last_step = self.step + REST_STEPS_MAX;
        while !self.is_overtaken && !self.is_at_rest() {
            if deadline < self.link.now || last_step < self.step {
                return Err(Violation::new(Check::NoRest, self.unrest()));
            }
            self.any_move()?;
        }
        self.say("at rest", "");
        match &self.collector {
            _ if self.is_overtaken => Ok(()),
            Some(collector) => liveness::check(collector, &self.link),
            None => Ok(()),
        }
    }

    fn is_at_rest(&mut self) -> bool {
        let now = self.link.now;
        let Some(collector) = &mut self.collector else { return false };
        let nothing_queued =
            collector.to_delete.next_ready(now).is_none() && collector.to_orphan.next_ready(now).is_none();
        nothing_queued
            && self.link.late.is_empty()
            && self.link.late_expiries.is_empty()
            && collector.expirer.as_ref().is_none_or(Expirer::is_at_rest)
            && collector.builder.is_collecting()
            && collector.builder.monitors().iter().all(|monitor| monitor.is_synced())
            && collector.findings.is_empty()
            && collector.workers.iter().all(|worker| worker.job.is_none())
            && collector.is_discovery_quiet()
            && self.calm_since < collector.last_look
            && collector.readers.iter().all(|reader| reader.is_quiet(&self.link))
    }

    /// What is left to do.
    fn unrest(&mut self) -> String {
        let now = self.link.now;
        let Some(collector) = &mut self.collector else { return "the collector is dead".into() };
        let readers: Vec<&str> = (collector.readers.iter())
            .filter(|reader| !reader.is_quiet(&self.link))
            .map(|reader| reader.resource.resource.as_str())
            .collect();
        let busy = collector.workers.iter().filter_map(|w| w.job.as_ref()).map(|job| job.uid.to_string());
        format!(
            "to delete at {:?}, {} wait; to orphan at {:?}; readers {readers:?}; busy {:?}; discovery {}; jobs {}; now {now:?}",
            collector.to_delete.next_ready(now),
            collector.to_delete.waiting_len(),
            collector.to_orphan.next_ready(now),
            busy.collect::<Vec<_>>(),
            collector.is_discovery_quiet(),
            collector.expirer.as_ref().map(Expirer::unrest).unwrap_or_default(),
        )
    }

    /// Nothing happens, and nothing is sent but watches and discovery: no worker has anything to do.
    fn idle(&mut self) -> Result<(), Violation> {
        // The next look of discovery wakes what waited for a kind that it no longer needs.
        let looked = self.link.now + LOOK_EVERY;
        while self.link.now < looked {
            self.any_move()?;
        }
        self.rest()?;
        let drawn = if Random::apart(self.seed, 2).below(10) == 0 { 60 } else { 3 };
        let idle = self.options.idle.unwrap_or(Duration::from_secs(drawn * 60));
        let until = self.link.now + idle;
        let (requests, writes) = (self.link.requests, self.link.server.resource_version());
        while self.link.now < until {
            self.any_move()?;
            let busy = self.collector.iter().flat_map(|c| &c.workers).find_map(|worker| worker.job.as_ref());
            if let Some(job) = busy {
                return Err(Violation::new(Check::Idle, format!("an attempt at {} begins", job.uid)));
            }
        }
        if writes != self.link.server.resource_version() {
            return Err(Violation::new(Check::Idle, "something was written"));
        }
        let minutes = idle.as_secs().div_ceil(60) + 1;
        let sent = self.link.requests - requests;
        let for_jobs = if self.setup.has_jobs { IDLE_REQUESTS_FOR_JOBS } else { 0 };
        if minutes * (IDLE_REQUESTS_PER_MINUTE + for_jobs) < sent {
            return Err(Violation::new(Check::Idle, format!("{sent} requests in {minutes} minutes")));
        }
        Ok(())
    }

    fn say(&mut self, who: &str, said: &str) {
        if let Some(trace) = &mut self.trace {
            trace(&format!("{:>5} {:>9} ms  {who}: {said}", self.step, self.link.now.as_millis()));
        }
    }
}

/// One seed in four reads everything: the same has to hold with D15 and without.
fn core_options(seed: u64, mistake: Option<Mistake>) -> gc_core::Options {
    let mistake = match mistake {
        Some(Mistake::Core(mistake)) => Some(mistake),
        _ => None,
    };
    let decides_from_graph = !seed.is_multiple_of(4);
    gc_core::Options { mistake, decides_from_graph, ..gc_core::Options::default() }
}
