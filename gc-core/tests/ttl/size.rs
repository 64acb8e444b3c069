//! How much a job costs.

use gc_core::ttl::{End, Engine, Facts, FinishTime, Finished, Limits, Profile, ProfileId, Ttl};
use gc_graph::Uid;
use std::sync::Arc;

/// What the documentation of the engine promises for one job, its name included: most of the time, and just after the
/// tables have grown.
const PROMISES: [(u64, u64); 2] = [(100_000, 200), (135_000, 300)];

#[test]
fn t2_a_job_that_waits_takes_two_hundred_bytes() {
    PROMISES.iter().for_each(|(jobs, bytes_per_job_max)| check(*jobs, *bytes_per_job_max));
}

#[test]
fn t2_the_room_of_a_thousand_jobs_stays_for_the_next_and_that_of_more_is_given_back() {
    let kept_bytes = |jobs| {
        let mut engine = Engine::new(Limits::default());
        let id = engine.add_profile(Arc::new(Profile::batch_job())).unwrap();
        let kept = allocation_counter::measure(|| {
            observe(&mut engine, id, jobs);
            engine.stop(id);
        });
        assert!(engine.is_empty());
        kept.bytes_current
    };
    let (thousand, more) = (kept_bytes(1_024), kept_bytes(1_025));
    assert!(50_000 < thousand, "{thousand} bytes stay");
    assert!(more < 1_000, "{more} bytes stay");
}

fn check(jobs: u64, bytes_per_job_max: u64) {
    let profile = Arc::new(Profile::batch_job());
    let mut engine = Engine::new(Limits::default());
    let id = engine.add_profile(profile).unwrap();
    let used = allocation_counter::measure(|| observe(&mut engine, id, jobs));
    assert_eq!(engine.len() as u64, jobs);
    let per_job = u64::try_from(used.bytes_current).unwrap() / jobs;
    assert!((50..=bytes_per_job_max).contains(&per_job), "{per_job} bytes a job of {jobs}");
    // What went gives its memory back.
    let freed = allocation_counter::measure(|| {
        engine.begin_list(id);
        engine.end_list(id);
    });
    assert!(engine.is_empty());
    assert!(freed.bytes_current < -(used.bytes_current * 9 / 10), "{} given back", freed.bytes_current);
}

/// So many jobs have finished, one a millisecond, with names as long as a CronJob gives them.
fn observe(engine: &mut Engine, id: ProfileId, jobs: u64) {
    for n in 0..jobs {
        let facts = Facts {
            namespace: format!("namespace-{}", n % 100),
            name: format!("nightly-report-{n:08}"),
            uid: Uid::new(&format!("a3f8c1d2-0000-4000-8000-{n:012x}")),
            resource_version: n.to_string(),
            being_deleted: false,
            is_controlled: false,
            is_protected: false,
            finished: Finished::Yes {
                end: End::Success,
                at: FinishTime::AtMs(1_767_268_800_000 + n as i64),
                because: "Complete".into(),
            },
            ttl: Ttl::Seconds(3_600),
        };
        engine.observe(1_767_268_800_000, id, &facts, &mut Vec::new());
    }
}
