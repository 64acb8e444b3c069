//! TTL after finished (T1 to T5): objects that have ended go some time after it.
//!
//! The parts, each plain data that the caller drives:
//!
//! - A [`Profile`] says of one kind what "finished" means, when it was, and where the TTL stands. Two are built in,
//!   `batch/v1` and Volcano's Job; [`Profile::new`] makes others from a [`ProfileSpec`]. [`Profile::paths`] are the
//!   fields to read, [`Profile::facts`] is what they say, and [`Profile::verdict`] is what follows: a pure function.
//! - The [`Engine`] holds what waits. Watches tell it what they see, it says when the next job is due
//!   ([`Engine::next_due_ms`]: one timer, however many jobs) and gives out those that are ([`Engine::take_due`]).
//! - An [`Attempt`] reads one of these afresh, decides again, and deletes it with the UID and the resourceVersion that
//!   were read; a TTL that is raised in between wins (T2). Its [`Outcome`] goes back to the engine.
//! - A [`Report`] is what a person should hear about, once for each object.
//!
//! Time is the wall clock, in Unix milliseconds, since finish times are. It may jump: due times stay what they are, and
//! back-offs end no later than they would have.
//!
//! Nothing is deleted on what a watch has shown, so neither a watch that lags nor a server that was restored from a
//! backup can make a wrong deletion: at worst a job is read once too often.
//!
//! ```
//! use std::sync::Arc;
//! use gc_core::Resource;
//! use gc_core::ttl::{Attempt, Engine, Field, Limits, Meta, Outcome, Profile, Reply, Request, Step};
//! use serde_json::json;
//!
//! let profile = Arc::new(Profile::batch_job());
//! assert_eq!(profile.paths(), [["status", "conditions"], ["spec", "ttlSecondsAfterFinished"]]);
//! let mut engine = Engine::new(Limits::default());
//! let id = engine.add_profile(profile.clone()).unwrap();
//!
//! // A watch shows a job that has finished at 12:00:00, with a TTL of ten seconds.
//! let meta = Meta { namespace: "ns", name: "pi", uid: "u-1", resource_version: "7", ..Meta::default() };
//! let conditions = json!([{"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T12:00:00Z"}]);
//! let facts = profile.facts(&meta, &[Field::Value(&conditions), Field::Value(&json!(10))]);
//! let noon_ms = 1_767_268_800_000;
//! let mut reports = Vec::new();
//! engine.observe(noon_ms, id, &facts, &mut reports);
//! assert_eq!(engine.next_due_ms(), Some(noon_ms + 10_000));
//!
//! // Ten seconds later it is due. It is read afresh, and goes.
//! let now_ms = noon_ms + 10_000;
//! let mut due = Vec::new();
//! engine.take_due(now_ms, 100, &mut due);
//! let jobs = Resource {
//!     group: "batch".into(), version: "v1".into(), resource: "jobs".into(), kind: "Job".into(), namespaced: true,
//! };
//! let mut attempt = Attempt::new(profile, Arc::new(jobs), due[0].clone());
//! let Step::Call(Request::Read(target)) = attempt.step(now_ms, None) else { panic!() };
//! assert_eq!(target.to_string(), "jobs.batch ns/pi");
//! let read = Reply::Object { facts: Box::new(facts), server_ms: None };
//! let Step::Call(Request::Delete { resource_version, .. }) = attempt.step(now_ms, Some(read)) else { panic!() };
//! assert_eq!(resource_version, "7");
//! let Step::Done(outcome) = attempt.step(now_ms + 20, Some(Reply::Deleted)) else { panic!() };
//! assert_eq!(outcome, Outcome::Deleted { due_ms: now_ms, lateness_ms: 20 });
//! engine.finish(now_ms + 20, &due[0], &outcome, &mut reports);
//! assert!(reports.is_empty());
//! ```

mod attempt;
mod engine;
mod facts;
mod profile;
mod report;
mod spec;
mod table;
mod verdict;

pub use attempt::{Attempt, Gone, Outcome, Reply, Request, Step};
pub use engine::{Counts, Due, Engine, EngineFull, JobView, Limits, ProfileId};
pub use facts::{End, Facts, Field, FinishTime, Finished, Meta, Ttl};
pub use profile::Profile;
pub use report::{Reason, Report};
pub use spec::{
    DefaultSpec, FinishedSpec, ProfileError, ProfileSpec, SECONDS_MAX, SecondsSpec, TtlSpec, parse_path,
};
pub use table::Stage;
pub use verdict::Verdict;
