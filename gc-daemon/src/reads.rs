//! Owners that are being read. The dependents of one owner come one after the other, so that many workers want the same
//! answer at the same moment: one of them asks, the others wait for what it learns.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use gc_core::Target;

/// The reads of owners that are under way; there are never more than workers.
#[derive(Debug, Default)]
pub struct Reads {
    under_way: Mutex<Vec<Target>>,
    one_ended: Condvar,
}

/// A read that others wait for, until this is dropped: after its reply has told the state, or has failed to.
#[derive(Debug)]
pub struct Reading<'r> {
    reads: &'r Reads,
    target: Target,
}

impl Reads {
    /// Begins to read this owner. Where somebody reads it already, waits until that ends and gives `None`.
    ///
    /// Whoever waits reads nothing meanwhile, so that no two wait for each other; and no read is longer than the
    /// client's own limit.
    pub fn begin(&self, target: &Target) -> Option<Reading<'_>> {
        let mut under_way = self.lock();
        if under_way.contains(target) {
            let ended = self.one_ended.wait_while(under_way, |under_way| under_way.contains(target));
            drop(ended);
            return None;
        }
        under_way.push(target.clone());
        Some(Reading { reads: self, target: target.clone() })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Target>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.reads.lock().retain(|target| *target != self.target);
        self.reads.one_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use gc_core::Resource;

    use super::*;

    fn owner(name: &str) -> Target {
        let resource = Resource {
            group: String::new(),
            version: "v1".into(),
            resource: "configmaps".into(),
            kind: "ConfigMap".into(),
            namespaced: true,
        };
        Target { resource: Arc::new(resource), namespace: "ns".into(), name: name.into() }
    }

    #[test]
    fn d15_one_reads_and_the_others_wait_for_it() {
        let reads = Reads::default();
        let (told, said) = channel();
        std::thread::scope(|scope| {
            let reading = reads.begin(&owner("a")).expect("nobody reads it yet");
            assert!(reads.begin(&owner("b")).is_some(), "another owner is not waited for");
            for _ in 0..3 {
                let (reads, told) = (&reads, told.clone());
                scope.spawn(move || told.send(reads.begin(&owner("a")).is_none()));
            }
            assert!(said.try_recv().is_err(), "while it is being read nobody goes on");
            drop(reading);
            let all: Vec<_> = (0..3).map(|_| said.recv()).collect();
            // A thread that came only after the end reads for itself.
            assert!(all.iter().all(Result::is_ok), "{all:?}");
        });
        assert!(reads.lock().is_empty());
        assert!(reads.begin(&owner("a")).is_some());
    }

    #[test]
    fn r7_a_read_that_panics_ends_as_well() {
        let reads = Reads::default();
        let panicked = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let _reading = reads.begin(&owner("a"));
                panic!("for the test");
            });
            reader.join().is_err()
        });
        assert!(panicked && reads.begin(&owner("a")).is_some());
    }
}
