//! From what watches, workers and discovery say to the graph, and whether attempts may begin.

use std::time::Duration;

use gc_client::{Discovery, Error};
use gc_core::State;
use gc_graph::Effect;
use hashbrown::HashSet;

use crate::convert::observe;
use crate::mistakes::Mistake;
use crate::monitors::{Listed, Monitor, MonitorId, Monitors};
use crate::{Change, Fact, Finding, News, Out, Poke, Seen};

/// Collection starts with what is listed by then (S4).
const FIRST_LISTS_WITHIN: Duration = Duration::from_secs(30);
/// If no worker could be started, it is tried again after this.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// What is chosen for one builder.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Resources that are left alone, as (group, resource).
    pub ignored: HashSet<(String, String)>,
    /// A mistake to make, for tests.
    #[cfg(feature = "mistakes")]
    pub mistake: Option<Mistake>,
}

/// Whether attempts may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Not yet: the first lists are awaited (S4).
    Starting,
    /// They may.
    Collecting,
    /// No server answers; until the watches go on, or time is up, nothing is begun (S7).
    Lost,
    /// The server's data was restored; until everything is listed anew, or time is up, nothing is begun (S7).
    Restored,
}

/// The reference's `GraphBuilder`: the one that changes the graph. The caller owns the [`State`] and its lock, tells it
/// the time, and carries out what comes [out](Out).
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    monitors: Monitors,
    phase: Phase,
    is_discovered: bool,
    first_lists_due: Option<Duration>,
    /// Since when no watch has had a word of any server.
    silent_since: Option<Duration>,
    #[cfg(feature = "mistakes")]
    mistake: Option<Mistake>,
}

impl GraphBuilder {
    /// Nothing is watched yet.
    pub fn new(options: Options) -> GraphBuilder {
        GraphBuilder {
            monitors: Monitors::new(options.ignored),
            phase: Phase::Starting,
            is_discovered: false,
            first_lists_due: None,
            silent_since: None,
            #[cfg(feature = "mistakes")]
            mistake: options.mistake,
        }
    }

    /// What is watched.
    pub fn monitors(&self) -> &Monitors {
        &self.monitors
    }

    /// Whether attempts may begin. Where they may no longer, the caller sees to it before it lets go of the state, so
    /// that no worker decides on what is void now (S7).
    pub fn is_collecting(&self) -> bool {
        self.phase == Phase::Collecting
    }

    /// When [`GraphBuilder::first_lists_due`] is to be called.
    pub fn due(&self) -> Option<Duration> {
        self.first_lists_due
    }

    #[cfg(feature = "mistakes")]
    fn makes(&self, mistake: Mistake) -> bool {
        self.mistake == Some(mistake)
    }

    #[cfg(not(feature = "mistakes"))]
    #[expect(clippy::unused_self, reason = "with the feature it is used")]
    fn makes(&self, _: Mistake) -> bool {
        false
    }

    /// A watch saw something, and its reader heard of it at `heard_at`: what it proves absent is proved as of then. What an
    /// ended watch still had under way is void: its objects may be unserved by now.
    pub fn seen(&mut self, state: &mut State, now: Duration, heard_at: Duration, seen: &Seen, out: &mut Out) {
        // What a watch begins or ceases to hear is of now (O2); what it shows is as old as when it was heard.
        state.tell_time(now);
        state.tell_heard(heard_at);
        self.hear_server(now, heard_at, seen);
        self.change(state, (now, heard_at), seen, out);
        state.tell_time(now);
    }

    /// The first word of a server since none was found: the other watches find it within the longest back-off, which is as
    /// long as this. Without one, time is not up, even where not every watch is lost: a connection may be dead and not know.
    /// A refusal is a word as well, if it is an API server's.
    fn hear_server(&mut self, now: Duration, heard_at: Duration, seen: &Seen) {
        let is_word = match &seen.change {
            Change::Failed(Error::Status(status)) => status.is_status,
            Change::Failed(_) | Change::Died | Change::Ended | Change::Probing | Change::ListStarted => false,
            _ => true,
        };
        if is_word && self.silent_since.is_some_and(|since| since < heard_at) {
            self.silent_since = None;
            self.first_lists_due = Some(now + FIRST_LISTS_WITHIN);
        }
    }

    fn change(
        &mut self,
        state: &mut State,
        (now, heard_at): (Duration, Duration),
        seen: &Seen,
        out: &mut Out,
    ) {
        let Seen { monitor: id, change } = seen;
        let id = *id;
        let only_lists = self.makes(Mistake::OnlyListsCount);
        let Some(monitor) = self.monitors.get_mut(id) else { return };
        match change {
            Change::ListStarted => {
                state.begin_list(id.source);
                state.watch_breaks_off(id.source);
            }
            Change::Ended => state.watch_pauses(id.source),
            Change::Probing => state.watch_breaks_off(id.source),
            Change::Watching => state.watch_hears(id.source),
            Change::Seen(objects) => objects.for_each(|meta| {
                note(monitor, meta.resource_version, only_lists, out);
                observe(monitor, &meta, |seen| state.observe(seen, &mut out.effects));
            }),
            Change::Deleted(objects) => objects.for_each(|meta| {
                note(monitor, meta.resource_version, only_lists, out);
                observe(monitor, &meta, |seen| state.delete(seen, &mut out.effects));
            }),
            Change::Bookmark(_) if only_lists => {}
            Change::Bookmark(version) => monitor.saw(version),
            Change::Died => {
                monitor.died();
                state.watch_breaks_off(id.source);
            }
            Change::ListDone(version) => self.list_done(state, now, id, version, out),
            Change::WentBack(_) if only_lists => {}
            Change::WentBack(version) => self.went_back(state, now, id, version, out),
            Change::Resumed => {
                let were_all_lost = self.monitors.are_all_lost();
                if let Some(monitor) = self.monitors.get_mut(id) {
                    monitor.resumed();
                }
                self.go_on(now, were_all_lost, out);
            }
            Change::Failed(error) => {
                let (is_other, is_newly_lost) = monitor.failed(error);
                out.news.push(News::Failed(id, error.clone(), is_other));
                state.watch_breaks_off(id.source);
                if is_newly_lost {
                    self.hold_while_lost(now, heard_at, out);
                }
            }
        }
    }

    fn list_done(&mut self, state: &mut State, now: Duration, id: MonitorId, version: &str, out: &mut Out) {
        if !self.makes(Mistake::ListsSweepNothing) {
            state.end_list(id.source, &mut out.effects);
        }
        let were_all_lost = self.monitors.are_all_lost();
        let is_blind = self.makes(Mistake::RestoreUnnoticed);
        let Some(monitor) = self.monitors.get_mut(id) else { return };
        let mut listed = monitor.listed(version, &mut out.news);
        if is_blind && listed == Listed::WentBack {
            listed = Listed::Again;
        }
        if listed == Listed::WentBack {
            out.news.push(News::HeldAfterRestore(monitor.resource.clone(), version.to_owned()));
            return self.start_again(state, now, out);
        }
        out.news.push(News::Listed(id, listed == Listed::First));
        self.go_on(now, were_all_lost, out);
    }

    /// A watch found the server at an older version than before. It says so before it lists anew: the writes that are
    /// made meanwhile, by this program most of all, may bring the list beyond that version.
    fn went_back(&mut self, state: &mut State, now: Duration, id: MonitorId, version: &str, out: &mut Out) {
        if self.makes(Mistake::RestoreUnnoticed) {
            return;
        }
        let Some(monitor) = self.monitors.get_mut(id) else { return };
        if monitor.went_back(version, &mut out.news) {
            out.news.push(News::HeldAfterRestore(monitor.resource.clone(), version.to_owned()));
            self.start_again(state, now, out);
        }
    }

    /// S7: nothing that was seen absent is believed any more and attempts under way are void; nothing is begun until
    /// everything has been listed anew.
    fn start_again(&mut self, state: &mut State, now: Duration, out: &mut Out) {
        let first = out.news.len();
        state.forget_proofs(&mut out.effects);
        if self.phase != Phase::Starting {
            self.phase = Phase::Restored;
        }
        self.monitors.restart_all(&mut out.news);
        begin_to_hear(state, out.news.get(first..).unwrap_or_default());
        self.first_lists_due = Some(now + FIRST_LISTS_WITHIN);
    }

    /// S7: a server that was away may come back in an older state, and workers would find it before the watches do.
    /// Until the watches have looked, or time is up, nothing is begun. A watch that never finds its server again is
    /// told once only, so that it does not hold the others up again and again (S3).
    fn hold_while_lost(&mut self, now: Duration, heard_at: Duration, out: &mut Out) {
        if self.phase == Phase::Collecting {
            self.phase = Phase::Lost;
            self.silent_since = Some(now.max(heard_at));
            self.first_lists_due = Some(now + FIRST_LISTS_WITHIN);
            out.news.push(News::HeldWhileLost);
        }
    }

    /// A watch goes on, or has listed.
    fn go_on(&mut self, now: Duration, were_all_lost: bool, out: &mut Out) {
        let is_back = were_all_lost && !self.monitors.are_all_lost();
        if is_back && self.phase != Phase::Collecting {
            // The other watches find the server within the longest back-off, which is as long as this.
            self.first_lists_due = Some(now + FIRST_LISTS_WITHIN);
        }
        self.collect_if_all_listed(out);
    }

    /// A worker found something. In another era than it was found in it proves nothing, and is looked at once more (S7).
    pub fn found(&self, state: &mut State, finding: &Finding, out: &mut Out) {
        let is_void = finding.era != state.era();
        match &finding.fact {
            Fact::Absent(coordinate, _) | Fact::Impossible(coordinate) if is_void => {
                out.effects.push(Effect::AttemptToDelete(coordinate.uid.clone()));
            }
            Fact::Absent(coordinate, asked_at) => {
                state.virtual_delete(coordinate, *asked_at, &mut out.effects);
            }
            Fact::Impossible(coordinate) => state.reconsider(coordinate, &mut out.effects),
        }
    }

    /// Discovery has answered. An answer that names no resource changes nothing (kubernetes/kubernetes#60037).
    pub fn discovered(&mut self, state: &mut State, now: Duration, answer: &Discovery, out: &mut Out) {
        state.tell_time(now);
        let first = out.news.len();
        if answer.resources.is_empty() && self.makes(Mistake::EmptyDiscoveryIsTruth) {
            for source in self.monitors.end_all(&mut out.news) {
                state.begin_list(source);
                state.end_list(source, &mut out.effects);
            }
        }
        if answer.resources.is_empty() {
            return out.news.push(News::NothingServed);
        }
        let updated = self.monitors.update(answer, now, &mut out.news);
        for source in updated.unserved {
            state.unserve(source, &mut out.effects);
        }
        begin_to_hear(state, out.news.get(first..).unwrap_or_default());
        match updated.kinds {
            Some(kinds) => state.set_kinds(kinds, &mut out.effects),
            None => state.wake_waiting(&mut out.effects),
        }
        if updated.look_again {
            out.news.push(News::Poke(Poke::Missing));
        }
        if !self.is_discovered {
            self.is_discovered = true;
            self.first_lists_due = Some(now + FIRST_LISTS_WITHIN);
            out.news.push(News::Discovered);
        }
        self.collect_if_all_listed(out);
    }

    /// Time is up for lists that are awaited: collection starts with those that there are (S4).
    pub fn first_lists_due(&mut self, now: Duration, out: &mut Out) {
        if self.first_lists_due.is_none_or(|due| now < due) {
            return;
        }
        if self.monitors.are_all_lost() || self.silent_since.is_some() {
            // Workers would find no server either.
            self.first_lists_due = Some(now + FIRST_LISTS_WITHIN);
        } else if self.monitors.iter().all(|monitor| !monitor.is_synced()) {
            // There is nothing to collect. Who waits for readiness would believe otherwise.
            let error = self.monitors.iter().filter_map(Monitor::last_error).min();
            out.news.push(News::NothingListed(error.unwrap_or("no list has ended").to_owned()));
            self.first_lists_due = Some(now + FIRST_LISTS_WITHIN);
        } else {
            self.collect("not everything is listed, but 30 s have passed", out);
        }
    }

    /// No worker could be started on [`News::Collecting`]: it is said again a second later.
    pub fn could_not_collect(&mut self, now: Duration) {
        self.phase = Phase::Starting;
        self.first_lists_due = Some(now + TRY_AGAIN_AFTER);
    }

    /// The reader of [`News::Start`] could not be started: the next discovery answer tries again.
    pub fn could_not_start(&mut self, id: MonitorId) {
        if let Some(monitor) = self.monitors.get_mut(id) {
            monitor.died();
        }
    }

    fn collect_if_all_listed(&mut self, out: &mut Out) {
        let needs_all = match self.phase {
            Phase::Collecting => return,
            Phase::Starting | Phase::Restored => true,
            Phase::Lost => false,
        };
        let is_listed = |monitor: &Monitor| (monitor.is_synced() || !needs_all) && !monitor.is_lost();
        if self.is_discovered && self.monitors.iter().all(is_listed) {
            self.collect(if needs_all { "everything is listed" } else { "the watches go on" }, out);
        }
    }

    /// S4.
    fn collect(&mut self, why: &'static str, out: &mut Out) {
        (self.first_lists_due, self.silent_since) = (None, None);
        self.phase = Phase::Collecting;
        out.news.push(News::Collecting(why));
    }
}

/// What is to be watched from now on may have dependents to show as soon as it has been listed (O2).
fn begin_to_hear(state: &mut State, news: &[News]) {
    for news in news {
        if let News::Start(id, _) = news {
            state.watch_begins(id.source);
        }
    }
}

/// Notes an event: which version it was at, and whether other resources may be served after it (S2).
fn note(monitor: &mut Monitor, version: &str, only_lists: bool, out: &mut Out) {
    if !only_lists {
        monitor.saw(version);
    }
    if monitor.defines_resources() {
        out.news.push(News::Poke(Poke::Changed));
    }
}
