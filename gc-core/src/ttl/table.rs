//! The jobs that wait, compactly: by name for the watches, by time for the timer.

use std::collections::BTreeSet;
use std::hash::BuildHasher as _;

use gc_graph::Uid;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::ttl::ProfileId;

/// Where a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Its time is known, and has not come or is just coming.
    Waiting,
    /// Something went wrong, and it is tried again after a while.
    Retrying,
    /// An attempt at it is under way.
    InFlight,
    /// The server has taken the deletion, or says that it is gone; its watch is to show that. If it does not, the job
    /// is looked at again.
    Confirming,
}

/// What a watch has shown of a job while an attempt at it was under way. It may be older than what the attempt read, or
/// newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    Nothing,
    /// It waits; its due time has been noted.
    Waits,
    /// It is gone, or does not wait any more.
    Left,
}

/// One job. Its name and its UID are all that is kept of the object.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// `namespace/name`, or the name alone for a cluster-scoped object, as client-go's keys are.
    key: Box<str>,
    pub(crate) uid: Uid,
    /// When it is due, in Unix milliseconds, as last observed or read; `None` when nobody knows.
    pub(crate) due_ms: Option<i64>,
    /// When it is looked at; ordered by this while no attempt is under way.
    at_ms: i64,
    /// When it finished, in Unix seconds: enough to notice that it has moved.
    pub(crate) finished_s: u32,
    pub(crate) profile: ProfileId,
    pub(crate) stage: Stage,
    pub(crate) meanwhile: Meanwhile,
    /// How often in a row something went wrong.
    pub(crate) tries: u8,
    /// How often the server took its deletion, or denied it, and no watch has shown that.
    pub(crate) confirms: u8,
    /// How often in a row the server said that it does not exist.
    pub(crate) denials: u8,
    /// Whether the list under way, or a watch since, has shown it.
    pub(crate) is_listed: bool,
}

impl Job {
    pub(crate) fn new(profile: ProfileId, namespace: &str, name: &str, uid: Uid) -> Job {
        let key = if namespace.is_empty() { name.into() } else { [namespace, "/", name].concat() };
        Job {
            key: key.into(),
            uid,
            due_ms: None,
            at_ms: 0,
            finished_s: 0,
            profile,
            stage: Stage::Waiting,
            meanwhile: Meanwhile::Nothing,
            tries: 0,
            confirms: 0,
            denials: 0,
            is_listed: true,
        }
    }

    /// Namespace and name.
    pub(crate) fn names(&self) -> (&str, &str) {
        self.key.split_once('/').unwrap_or(("", &self.key))
    }

    pub(crate) fn at_ms(&self) -> i64 {
        self.at_ms
    }
}

/// The place of a job in the table.
pub(crate) type Place = u32;

/// All jobs. Each that is not in flight stands in `by_time` once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    jobs: Vec<Option<Job>>,
    free: Vec<Place>,
    by_name: HashTable<Place>,
    by_time: BTreeSet<(i64, Place)>,
    hasher: DefaultHashBuilder,
}

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(crate) fn find(&self, profile: ProfileId, namespace: &str, name: &str) -> Option<Place> {
        let hash = self.hasher.hash_one((profile, namespace, name));
        let is_it = |place: &Place| {
            self.get(*place).is_some_and(|job| job.profile == profile && job.names() == (namespace, name))
        };
        self.by_name.find(hash, is_it).copied()
    }

    pub(crate) fn get(&self, place: Place) -> Option<&Job> {
        self.jobs.get(place as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, place: Place) -> Option<&mut Job> {
        self.jobs.get_mut(place as usize)?.as_mut()
    }

    /// Puts a job that is not in it at the end of the line, to be looked at at `at_ms`. `None` when every place is taken.
    pub(crate) fn insert(&mut self, mut job: Job, at_ms: i64) -> Option<Place> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => Place::try_from(self.jobs.len()).ok()?,
        };
        let (namespace, name) = job.names();
        let hash = self.hasher.hash_one((job.profile, namespace, name));
        job.at_ms = at_ms;
        self.by_time.insert((at_ms, place));
        if place as usize == self.jobs.len() {
            self.jobs.push(Some(job));
        } else if let Some(slot) = self.jobs.get_mut(place as usize) {
            *slot = Some(job);
        }
        let (jobs, hasher) = (&self.jobs, &self.hasher);
        self.by_name.insert_unique(hash, place, |place| hash_at(jobs, hasher, *place));
        Some(place)
    }

    pub(crate) fn remove(&mut self, place: Place) -> Option<Job> {
        let hash = hash_at(&self.jobs, &self.hasher, place);
        let job = self.jobs.get_mut(place as usize)?.take()?;
        self.by_time.remove(&(job.at_ms, place));
        if let Ok(entry) = self.by_name.find_entry(hash, |other| *other == place) {
            entry.remove();
        }
        self.free.push(place);
        self.shrink();
        Some(job)
    }

    /// Looks at it at this time, in this stage.
    pub(crate) fn schedule(&mut self, place: Place, stage: Stage, at_ms: i64) {
        let Some(job) = self.jobs.get_mut(place as usize).and_then(Option::as_mut) else { return };
        self.by_time.remove(&(job.at_ms, place));
        job.stage = stage;
        job.at_ms = at_ms;
        if stage != Stage::InFlight {
            self.by_time.insert((at_ms, place));
        }
    }

    pub(crate) fn first(&self) -> Option<(i64, Place)> {
        self.by_time.first().copied()
    }

    /// Those that are to be looked at by now, the first ones first.
    pub(crate) fn until(&self, now_ms: i64) -> impl Iterator<Item = Place> {
        self.by_time.range(..=(now_ms, Place::MAX)).map(|(_, place)| *place)
    }

    /// Every place, taken or not.
    pub(crate) fn slots(&self) -> &[Option<Job>] {
        &self.jobs
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.iter().flatten()
    }

    pub(crate) fn places(&self, profile: ProfileId) -> Vec<Place> {
        let is_of = |place: &Place| self.get(*place).is_some_and(|job| job.profile == profile);
        (0..self.jobs.len() as Place).filter(is_of).collect()
    }

    /// What ten thousand jobs took is given back when they are gone.
    fn shrink(&mut self) {
        if self.by_name.is_empty() && 1_024 < self.jobs.len() {
            *self = Table::default();
        }
    }
}

fn hash_at(jobs: &[Option<Job>], hasher: &DefaultHashBuilder, place: Place) -> u64 {
    let job = jobs.get(place as usize).and_then(Option::as_ref);
    job.map_or(0, |job| {
        let (namespace, name) = job.names();
        hasher.hash_one((job.profile, namespace, name))
    })
}
