//! From a run that fails to a small one that fails at the same check.

use std::collections::BTreeSet;

use super::{Failure, Options, run};

/// Each try is a run of some milliseconds.
const TRIES_MAX: u32 = 600;

/// The smallest world found in which the seed still fails at the same check: fewer steps under faults, fewer objects
/// at the start, no faults of requests, and without the disturbances that do not matter.
pub fn shrink(seed: u64, options: &Options, failure: &Failure) -> (Options, Failure) {
    let mut search = Search { seed, best: options.clone(), failure: failure.clone(), tries: 0 };
    search.fewer_steps();
    search.fewer_objects();
    if search.best.has_faults {
        search.try_with(|options| options.has_faults = false);
    }
    search.fewer_disturbances();
    search.fewer_steps();
    (search.best, search.failure)
}

struct Search {
    seed: u64,
    best: Options,
    failure: Failure,
    tries: u32,
}

impl Search {
    /// Keeps the change if the run still fails at the same check.
    fn try_with(&mut self, change: impl FnOnce(&mut Options)) -> bool {
        if TRIES_MAX <= self.tries {
            return false;
        }
        self.tries += 1;
        let mut options = self.best.clone();
        change(&mut options);
        match run(self.seed, &options) {
            Err(failure) if failure.violation.check == self.failure.violation.check => {
                (self.best, self.failure) = (options, *failure);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// The fewest, as far as halving finds them.
    fn fewer_steps(&mut self) {
        let most = u32::try_from(self.failure.step).unwrap_or(u32::MAX).min(self.best.steps_max);
        let (mut fails, mut holds) = (most, 0);
        while holds + 1 < fails {
            let middle = holds.midpoint(fails);
            if self.try_with(|options| options.steps_max = middle) { fails = middle } else { holds = middle }
        }
    }

    fn fewer_objects(&mut self) {
        for objects in 0..12.min(self.best.objects_max) {
            if self.try_with(|options| options.objects_max = objects) {
                return;
            }
        }
    }

    /// Leaves out halves, then quarters, down to single ones, for as long as that finds anything.
    fn fewer_disturbances(&mut self) {
        let mut size = self.failure.disturbances.div_ceil(2).max(1);
        loop {
            let before = self.best.skip.len();
            let mut first = 0;
            while first < self.failure.disturbances {
                let chunk: BTreeSet<u32> = (first..first + size).collect();
                if !chunk.is_subset(&self.best.skip) {
                    self.try_with(|options| options.skip.extend(chunk));
                }
                first += size;
            }
            match size {
                1 if before == self.best.skip.len() => return,
                1 => {}
                _ => size = size.div_ceil(2),
            }
            if TRIES_MAX <= self.tries {
                return;
            }
        }
    }
}
