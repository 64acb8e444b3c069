//! The scenarios, by theme. Each has a name, a sentence, and a function.

mod chains;
mod custom;
mod deletion;
mod references;
mod safety;
mod simulator;
mod survival;
mod trouble;
mod ttl;

use crate::e2e::world::World;
use crate::failure::Failure;

/// One end-to-end scenario.
pub struct Scenario {
    /// As printed, and as `--only` matches it.
    pub name: &'static str,
    /// What must be so.
    pub sentence: &'static str,
    /// Whose collector it runs with.
    pub collector: Needs,
    /// Whether it looks into the rig's own files.
    pub needs_the_rig: bool,
    /// Why the reference cannot pass it; empty when it can.
    pub reference_cannot: &'static str,
    /// The scenario itself.
    pub run: fn(&mut World<'_>) -> Result<(), Failure>,
}

/// Whose collector a scenario runs with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// The one that all such scenarios share, with default settings.
    SharedCollector,
    /// None at first: it starts, kills and stops its own.
    ItsOwnCollector,
}

/// Every scenario. Those that kill collectors come last, so that the shared one is started once.
pub const ALL: &[Scenario] = &[
    shared(
        "experiment",
        "an owner and a held dependent under each of the three policies",
        chains::experiment,
    ),
    shared("chain_background", "a chain three deep goes from the top", chains::background),
    shared("chain_foreground", "a chain three deep goes from the bottom", chains::foreground),
    shared("chain_orphan", "only the first dependents lose their owner", chains::orphan),
    shared("two_owners_one_going", "a dependent stays as long as one owner lives", references::two_owners),
    shared(
        "two_owners_one_going_in_the_foreground",
        "a blocking dependent with another owner is let go, not deleted",
        references::two_owners_foreground,
    ),
    shared("owner_never_existed", "such a dependent is garbage", references::owner_never_existed),
    shared(
        "owner_in_another_namespace",
        "such an owner does not count, and an event says so",
        references::owner_in_another_namespace,
    ),
    shared(
        "owner_replaced_under_its_name",
        "another UID is another object, and only its own dependents stay",
        references::owner_replaced,
    ),
    shared(
        "cluster_scoped_dependent",
        "one of a namespaced owner stays, an event says so, nobody goes round in circles",
        references::cluster_scoped_dependent,
    ),
    shared(
        "namespaced_dependent",
        "one of a cluster-scoped owner goes with it",
        references::namespaced_dependent,
    ),
    shared("cycle_of_three_foreground", "a cycle does not hold itself", deletion::cycle_of_three),
    shared(
        "non_blocking_dependent",
        "it does not hold its owner, and goes all the same",
        deletion::non_blocking_dependent,
    ),
    shared(
        "second_foreground_delete",
        "a finalizer added again while another one holds the object is removed again",
        deletion::second_foreground_delete,
    ),
    shared(
        "busy_dependent",
        "written a hundred times a second, it goes all the same",
        safety::busy_dependent,
    ),
    shared(
        "custom_resource",
        "as owner and as dependent, its definition created late, deleted, and created again",
        custom::comes_and_goes,
    ),
    Scenario {
        needs_the_rig: true,
        ..shared(
            "ttl_batch_job",
            "Jobs go when their TTL says, as it stands then, and not before; those without one stay",
            ttl::batch,
        )
    },
    Scenario {
        needs_the_rig: true,
        ..shared("ttl_cascade", "a Job goes at its time, in the foreground, after its Pods", ttl::cascade)
    },
    Scenario {
        needs_the_rig: true,
        reference_cannot: "it tells its log only",
        ..shared(
            "ttl_without_a_deadline",
            "a Job that does not say when it finished, or says a time to come, stays, and an event says so",
            ttl::warnings,
        )
    },
    Scenario {
        needs_the_rig: true,
        reference_cannot: "it answers no questions",
        ..shared("ttl_list", "the program says of each Job when it is due, or why never", ttl::list)
    },
    Scenario {
        reference_cannot: "it knows no other kinds",
        ..shared("ttl_volcano_job", "as Jobs do, once they are defined, and once more", ttl::volcano)
    },
    Scenario {
        reference_cannot: "it knows no other kinds",
        ..shared("ttl_custom_kind", "one of which the collector knows by a file", ttl::invented)
    },
    own(
        "broken_conversion_webhook",
        "a kind that cannot be listed stops nothing else, not even a start",
        trouble::broken_conversion_webhook,
    ),
    own(
        "aggregated_api_down",
        "it stops nothing else, and its objects are not taken for absent",
        trouble::aggregated_api_down,
    ),
    own("orphan_1000_killed_half_way", "none is deleted, all lose their owner", survival::orphan_thousand),
    own("killed_ten_times", "SIGKILL at ten random moments of a cascade", survival::killed_ten_times),
    Scenario {
        needs_the_rig: true,
        ..own(
            "ttl_restart",
            "a killed collector's successor keeps each deadline, and hears of those that changed meanwhile",
            ttl::restart,
        )
    },
    Scenario {
        reference_cannot: "it leaves SIGTERM to the operating system",
        ..own(
            "sigterm",
            "ends with 0 within 5 s in the middle of work, which a restart completes",
            survival::sigterm,
        )
    },
    Scenario {
        needs_the_rig: true,
        reference_cannot: "it falls back to the UID alone",
        ..own(
            "every_delete_is_conditional",
            "since the start of the suite, each named the UID and the resourceVersion it was decided on",
            safety::every_delete_is_conditional,
        )
    },
    // Its objects have owners that never were, so no collector may run any more.
    Scenario {
        needs_the_rig: true,
        ..own(
            "simulator_is_true",
            "the server answers hundreds of requests as the simulator does, to the letter",
            simulator::answers_as_the_server_does,
        )
    },
];

type Run = fn(&mut World<'_>) -> Result<(), Failure>;

const fn shared(name: &'static str, sentence: &'static str, run: Run) -> Scenario {
    Scenario {
        name,
        sentence,
        collector: Needs::SharedCollector,
        needs_the_rig: false,
        reference_cannot: "",
        run,
    }
}

const fn own(name: &'static str, sentence: &'static str, run: Run) -> Scenario {
    Scenario {
        name,
        sentence,
        collector: Needs::ItsOwnCollector,
        needs_the_rig: false,
        reference_cannot: "",
        run,
    }
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn names_are_unique_and_fit_into_a_namespace() {
        for (index, scenario) in ALL.iter().enumerate() {
            let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(scenario.name.chars().all(is_plain), "{}", scenario.name);
            // "e2e-" before it and "-second" after it still make a DNS label.
            assert!(scenario.name.len() <= 63 - 20, "{}", scenario.name);
            assert!(ALL[..index].iter().all(|other| other.name != scenario.name), "{} twice", scenario.name);
        }
    }
}
