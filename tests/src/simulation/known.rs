//! Mistakes that somebody has made, and how soon the simulation finds each.

use super::{Check, Mistake, Options, run};

/// A mistake, and what finds it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// What the collector does.
    pub mistake: Mistake,
    /// Checks of requests as they leave do not count where they would see the mistake itself.
    pub ignored: &'static [Check],
    /// It is found within so many seeds from 0. What is rare needs thousands; a change of the worlds moves it.
    pub seeds: u64,
    /// Any of these finds it: they say what harm it does.
    pub checks: &'static [Check],
}

impl Known {
    /// Runs the seeds until one of the checks finds it; gives that seed, or every other check that failed.
    ///
    /// # Errors
    ///
    /// When none does.
    pub fn find(&self) -> Result<u64, Vec<Check>> {
        let options = Options {
            mistake: Some(self.mistake),
            ignored: self.ignored.iter().copied().collect(),
            ..Options::default()
        };
        let mut others = Vec::new();
        for seed in 0..self.seeds {
            match run(seed, &options) {
                Err(failure) if self.checks.contains(&failure.violation.check) => return Ok(seed),
                Err(failure) => others.push(failure.violation.check),
                Ok(_) => {}
            }
        }
        Err(others)
    }
}

const fn found_by(checks: &'static [Check], seeds: u64, mistake: Mistake) -> Known {
    Known { mistake, ignored: &[], seeds, checks }
}

/// All of them. A simulation that finds nothing may be blind.
pub const KNOWN: &[Known] = {
    use gc_builder::Mistake as Builder;
    use gc_core::Mistake as Core;
    &[
        found_by(&[Check::LiveOwner], 200, Mistake::Core(Core::AbsenceByUid)),
        found_by(&[Check::ReferenceLeft], 400, Mistake::Core(Core::EdgeNotLevel)),
        found_by(
            &[Check::LiveOwner, Check::ReferenceRemoved],
            30_000,
            Mistake::Core(Core::ImpossibleIsAbsent),
        ),
        found_by(&[Check::OrphanDeleted], 1_000, Mistake::Core(Core::OrphanedForgotten)),
        found_by(&[Check::OrphanedUnheard], 1_000, Mistake::Core(Core::OrphanedUnheard)),
        found_by(&[Check::LiveOwner], 600, Mistake::Core(Core::ConflictRepeatsDelete)),
        found_by(&[Check::ForegroundTooEarly], 600, Mistake::Core(Core::DependentsNotAskedAgain)),
        found_by(
            &[Check::FinalizerLeft, Check::OrphanedTooEarly, Check::LiveOwner, Check::ReferenceRemoved],
            1_000,
            Mistake::Core(Core::DeniedOnce),
        ),
        found_by(&[Check::ReferenceRemoved], 200, Mistake::Core(Core::StrategicTakesAll)),
        Known {
            ignored: &[Check::Precondition],
            ..found_by(&[Check::LiveOwner], 600, Mistake::DeleteWithoutVersion)
        },
        found_by(
            &[Check::LiveOwner, Check::ReferenceLeft, Check::FinalizerLeft],
            5_000,
            Mistake::Any404IsProof,
        ),
        found_by(
            &[
                Check::LiveOwner,
                Check::ReferenceRemoved,
                Check::ReferenceLeft,
                Check::FinalizerLeft,
                Check::NotCollected,
            ],
            30_000,
            Mistake::ReadsFromCache,
        ),
        found_by(
            &[Check::LiveOwner, Check::ForegroundTooEarly],
            5_000,
            Mistake::Builder(Builder::EmptyDiscoveryIsTruth),
        ),
        found_by(
            &[Check::FinalizerLeft, Check::LiveOwner, Check::Graph],
            30_000,
            Mistake::Builder(Builder::RestoreUnnoticed),
        ),
        found_by(
            &[Check::FinalizerLeft, Check::LiveOwner, Check::Graph],
            30_000,
            Mistake::Builder(Builder::OnlyListsCount),
        ),
        found_by(&[Check::Graph, Check::NotCollected], 200, Mistake::Builder(Builder::ListsSweepNothing)),
        found_by(
            &[Check::FinalizerLeft, Check::NoRest, Check::NotCollected],
            1_000,
            Mistake::HalfListIsWhole,
        ),
        // One world in ten has jobs.
        found_by(&[Check::ExpiredTooEarly], 1_000, Mistake::ExpireByUid),
        found_by(&[Check::ExpiredTooEarly], 1_000, Mistake::ExpireByName),
        found_by(&[Check::ExpiredTooEarly], 200, Mistake::ExpireAsObserved),
        found_by(&[Check::ExpiredTooEarly], 1_000, Mistake::ExpireByOwnClock),
        found_by(&[Check::ExpiredLeft], 30_000, Mistake::ExpireDeniedOnce),
    ]
};
