//! How much a job costs.

use gc_core::ttl::{End, Engine, Facts, FinishTime, Finished, Limits, Profile, Ttl};
use gc_graph::Uid;
use std::sync::Arc;

/// What the documentation of the engine promises for one job, its name included.
const BYTES_PER_JOB_MAX: u64 = 200;

#[test]
fn t2_a_job_that_waits_takes_two_hundred_bytes() {
    const JOBS: u64 = 100_000;
    let profile = Arc::new(Profile::batch_job());
    let mut engine = Engine::new(Limits::default());
    let id = engine.add_profile(profile).unwrap();
    let used = allocation_counter::measure(|| {
        for n in 0..JOBS {
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
    });
    assert_eq!(engine.len() as u64, JOBS);
    let per_job = u64::try_from(used.bytes_current).unwrap() / JOBS;
    assert!((50..=BYTES_PER_JOB_MAX).contains(&per_job), "{per_job} bytes a job");
    // What went gives its memory back.
    let freed = allocation_counter::measure(|| {
        engine.begin_list(id);
        engine.end_list(id);
    });
    assert!(engine.is_empty());
    assert!(freed.bytes_current < -(used.bytes_current * 9 / 10), "{} given back", freed.bytes_current);
}
