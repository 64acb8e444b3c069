//! Both sides at once.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::differential::model::{Snapshot, Step};
use crate::differential::side::Side;
use crate::failure::{Doing, Failure};
use crate::interrupt;

/// Between two looks: each lists five kinds on both servers.
const PAUSE: Duration = Duration::from_millis(100);

/// How long one waits for what.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// So long nothing must change.
    pub quiet: Duration,
    /// After so long without a change nothing more is to be expected.
    pub stale: Duration,
    /// For everything.
    pub deadline: Duration,
}

/// The reference's side on the left, ours on the right.
pub struct Pair {
    left: Side,
    right: Side,
}

/// What is there when nothing changes any more.
#[derive(Default)]
pub struct Settled {
    left: BTreeMap<String, Snapshot>,
    right: BTreeMap<String, Snapshot>,
}

impl Settled {
    /// A history's objects on the reference's side.
    pub fn left(&self, history: &str) -> &Snapshot {
        static NOTHING: Snapshot = Snapshot::new();
        self.left.get(history).unwrap_or(&NOTHING)
    }

    /// A history's objects on our side.
    pub fn right(&self, history: &str) -> &Snapshot {
        static NOTHING: Snapshot = Snapshot::new();
        self.right.get(history).unwrap_or(&NOTHING)
    }
}

impl Pair {
    /// Of two sides.
    pub fn new(sides: Vec<Side>) -> Option<Pair> {
        let mut sides = sides.into_iter();
        Some(Pair { left: sides.next()?, right: sides.next()? })
    }

    /// The reference's side and ours.
    pub fn sides(&mut self) -> [&mut Side; 2] {
        [&mut self.left, &mut self.right]
    }

    /// Leaves the servers' logs where they are.
    pub fn keep_files(&mut self) {
        self.sides().into_iter().for_each(Side::keep_files);
    }

    /// Where all logs are.
    pub fn logs(&self) -> String {
        format!("{}\n{}", self.left.logs(), self.right.logs())
    }

    /// Makes the namespaces of histories.
    ///
    /// # Errors
    ///
    /// When a server refuses.
    pub fn begin(&mut self, histories: &[String]) -> Result<(), Failure> {
        self.both(|side| histories.iter().try_for_each(|history| side.begin(history))).map(|_| ())
    }

    /// Removes what histories left.
    ///
    /// # Errors
    ///
    /// When a server does not answer.
    pub fn end(&mut self, histories: &[String]) -> Result<(), Failure> {
        self.both(|side| {
            let left = side.snapshots()?;
            let nothing = Snapshot::new();
            histories.iter().try_for_each(|history| side.end(history, left.get(history).unwrap_or(&nothing)))
        })
        .map(|_| ())
    }

    /// Does the steps of each history, one history after the other, so that a burst stays one. What a server refused, by
    /// history. Where bursts have a [`Step::Kill`], everything before it is done first, then everything after it; then
    /// collectors are started again, on this thread (see [`crate::process`]).
    ///
    /// # Errors
    ///
    /// When a thread cannot be started, or a collector.
    pub fn execute(&mut self, bursts: &[(String, Vec<Step>)]) -> Result<BTreeMap<String, String>, Failure> {
        let is_kill = |step: &Step| *step == Step::Kill;
        let parts = |(history, steps): &(String, Vec<Step>)| {
            let (before, after) = steps.split_at(steps.iter().position(is_kill).unwrap_or(steps.len()));
            ((history.clone(), before.to_vec()), (history.clone(), after.to_vec()))
        };
        let (before, after): (Vec<_>, Vec<_>) = bursts.iter().map(parts).unzip();
        let mut refused = self.execute_at_once(&before)?;
        if after.iter().any(|(_, steps)| !steps.is_empty()) {
            refused.extend(self.execute_at_once(&after)?);
            self.sides().into_iter().try_for_each(Side::start_collector)?;
        }
        Ok(refused)
    }

    fn execute_at_once(
        &mut self,
        bursts: &[(String, Vec<Step>)],
    ) -> Result<BTreeMap<String, String>, Failure> {
        let (mut refused, right) = self.both(|side| {
            let mut refused = BTreeMap::new();
            for (history, steps) in bursts {
                for step in steps {
                    if let Err(failure) = side.execute(history, step) {
                        refused.insert(history.clone(), format!("{} refuses {step}: {failure}\n", side.name));
                    }
                }
            }
            Ok(refused)
        })?;
        refused.extend(right);
        Ok(refused)
    }

    /// Waits until both sides are equal in these histories, unchanged for long enough, and idle. When the deadline passes,
    /// what is there then; the caller compares.
    ///
    /// # Errors
    ///
    /// When a server does not answer, a collector has ended, or a signal comes.
    pub fn settle(&mut self, histories: &[String], patience: Patience) -> Result<Settled, Failure> {
        let is_equal = |now: &Settled| histories.iter().all(|name| now.left(name) == now.right(name));
        self.settle_when(is_equal, patience)
    }

    /// Waits until what is there satisfies `is_good`, is unchanged for long enough, and both collectors are idle; at the
    /// deadline, or when nothing has changed for very long, what is there then.
    ///
    /// # Errors
    ///
    /// As for [`Pair::settle`].
    pub fn settle_when(
        &mut self,
        is_good: impl Fn(&Settled) -> bool,
        Patience { quiet, stale, deadline }: Patience,
    ) -> Result<Settled, Failure> {
        let start = Instant::now();
        let mut now = self.look()?;
        let mut since = Instant::now();
        loop {
            interrupt::check()?;
            thread::sleep(PAUSE);
            let next = self.look()?;
            if next.left != now.left || next.right != now.right {
                since = Instant::now();
            }
            now = next;
            let is_quiet = since.elapsed() >= if is_good(&now) { quiet } else { stale.max(quiet) };
            if start.elapsed() >= deadline || (is_quiet && self.is_idle()?) {
                return Ok(now);
            }
        }
    }

    fn is_idle(&mut self) -> Result<bool, Failure> {
        let (left, right) = self.both(|side| side.is_idle())?;
        Ok(left && right)
    }

    fn look(&mut self) -> Result<Settled, Failure> {
        let (left, right) = self.both(|side| {
            side.check_alive()?;
            side.snapshots()
        })?;
        Ok(Settled { left, right })
    }

    /// The same on both sides at the same time.
    fn both<T: Send>(
        &mut self,
        act: impl Fn(&mut Side) -> Result<T, Failure> + Sync,
    ) -> Result<(T, T), Failure> {
        let (left, right) = (&mut self.left, &mut self.right);
        thread::scope(|scope| {
            let builder = thread::Builder::new().name("left".into());
            let other = builder.spawn_scoped(scope, || act(left)).doing(|| "cannot start a thread".into())?;
            let right = act(right);
            let left = other.join().map_err(|_| Failure::new("a thread of this program panicked"))?;
            Ok((left?, right?))
        })
    }
}
