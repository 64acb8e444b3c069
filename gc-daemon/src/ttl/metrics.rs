//! What the TTL controllers count, by profile. A profile's name (`jobs.batch`) is a label, since there are as many as the
//! configuration names.

use std::fmt;

use gc_core::ttl::Profile;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// What is counted. Each profile shows up when it begins to be watched; a program without TTL controllers shows none.
#[derive(Clone)]
pub struct TtlMetrics {
    /// The reference's, which has no labels and knows `batch/v1` only.
    reference: Family<NoLabels, Histogram, fn() -> Histogram>,
    lateness: Family<ProfileLabel, Histogram, fn() -> Histogram>,
    outcomes: Family<OutcomeLabels, Counter>,
    jobs: Family<StateLabels, Gauge>,
}

type NoLabels = [(&'static str, &'static str); 0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProfileLabel {
    profile: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    profile: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    profile: String,
    state: &'static str,
}

/// The reference's buckets: 0.1 s, doubled to 27 minutes.
fn lateness() -> Histogram {
    Histogram::new(exponential_buckets(0.1, 2.0, 14))
}

impl TtlMetrics {
    pub(crate) fn register(registry: &mut Registry) -> TtlMetrics {
        let metrics = TtlMetrics {
            reference: Family::new_with_constructor(lateness),
            lateness: Family::new_with_constructor(lateness),
            outcomes: Family::default(),
            jobs: Family::default(),
        };
        registry.register(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "The time it took to delete the job since it became eligible for deletion",
            metrics.reference.clone(),
        );
        registry.register(
            "gc_ttl_deletion_duration_seconds",
            "The time it took to delete an object since its TTL had expired, by profile",
            metrics.lateness.clone(),
        );
        registry.register(
            "gc_ttl_attempts",
            "How attempts at objects whose TTL had expired ended, by profile and outcome",
            metrics.outcomes.clone(),
        );
        registry.register(
            "gc_ttl_jobs",
            "Finished objects that wait for their TTL, by profile and state; a second old at most",
            metrics.jobs.clone(),
        );
        metrics
    }

    /// A profile is watched from now on: it shows up with zeros.
    pub(crate) fn begin(&self, profile: &str) {
        if profile == Profile::batch_job().name() {
            drop(self.reference.get_or_create(&[]));
        }
        drop(self.lateness.get_or_create(&ProfileLabel { profile: profile.into() }));
        for outcome in ["deleted", "refused"] {
            drop(self.outcomes.get_or_create(&OutcomeLabels { profile: profile.into(), outcome }));
        }
    }

    /// An attempt has ended.
    pub(crate) fn outcome(&self, profile: &str, outcome: &'static str) {
        self.outcomes.get_or_create(&OutcomeLabels { profile: profile.into(), outcome }).inc();
    }

    /// An object was deleted so long after its TTL had expired.
    pub(crate) fn late(&self, profile: &str, lateness_ms: i64) {
        let seconds = lateness_ms as f64 / 1e3;
        if profile == Profile::batch_job().name() {
            self.reference.get_or_create(&[]).observe(seconds);
        }
        self.lateness.get_or_create(&ProfileLabel { profile: profile.into() }).observe(seconds);
    }

    /// How many objects there are, by state.
    pub(crate) fn jobs(&self, profile: &str, counts: [(&'static str, usize); 5]) {
        for (state, count) in counts {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.jobs.get_or_create(&StateLabels { profile: profile.into(), state }).set(count);
        }
    }
}

impl fmt::Debug for TtlMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TtlMetrics")
    }
}
