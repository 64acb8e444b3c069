//! The queue against a model that is too simple to be wrong: an item is four fields, and everything is
//! searched for.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_queue::{Limit, RateLimiter, TokenBucket, WorkQueue};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Add(u8),
    AddAfter(u8, Duration),
    AddRateLimited(u8),
    RescheduleAfter(u8, Duration),
    Get,
    Done(u8),
    Forget(u8),
    Pass(Duration),
    ShutDown,
}

fn step() -> impl Strategy<Value = Step> {
    let item = 0u8..6;
    let delay = (0u64..40).prop_map(Duration::from_millis);
    prop_oneof![
        6 => item.clone().prop_map(Step::Add),
        4 => (item.clone(), delay.clone()).prop_map(|(item, delay)| Step::AddAfter(item, delay)),
        4 => item.clone().prop_map(Step::AddRateLimited),
        2 => (item.clone(), delay.clone()).prop_map(|(item, delay)| Step::RescheduleAfter(item, delay)),
        10 => Just(Step::Get),
        9 => item.clone().prop_map(Step::Done),
        2 => item.prop_map(Step::Forget),
        6 => delay.prop_map(Step::Pass),
        1 => Just(Step::ShutDown),
    ]
}

fn limiter() -> RateLimiter {
    RateLimiter::new(Limit::MaxOf(vec![
        Limit::Exponential { base: Duration::from_millis(1), max: Duration::from_millis(20) },
        Limit::TokenBucket(TokenBucket::per_second(20, 2)),
    ]))
}

#[derive(Default)]
struct Item {
    pending: bool,
    processing: bool,
    /// The moment, the number of the call that set it, and whether it holds a token.
    waiting: Option<(Duration, usize, bool)>,
    requeues: u32,
}

struct Model {
    items: BTreeMap<u8, Item>,
    ready: Vec<u8>,
    limiter: RateLimiter,
    now: Duration,
    calls: usize,
    adds: u64,
    shut_down: bool,
}

impl Model {
    fn new() -> Self {
        let items = (0..6).map(|item| (item, Item::default())).collect();
        let (ready, now) = (Vec::new(), Duration::ZERO);
        Self { items, ready, limiter: limiter(), now, calls: 0, adds: 0, shut_down: false }
    }

    fn item(&mut self, item: u8) -> &mut Item {
        self.items.entry(item).or_default()
    }

    fn add(&mut self, item: u8) {
        if let Some((.., true)) = self.item(item).waiting.take() {
            self.limiter.give_back();
        }
        if !self.item(item).pending {
            self.item(item).pending = true;
            self.adds += 1;
            if !self.item(item).processing {
                self.ready.push(item);
            }
        }
    }

    fn wait(&mut self, item: u8, delay: Duration, replace: bool, token: bool) {
        self.calls += 1;
        let moment = (self.now + delay, self.calls, token);
        let earlier = self.item(item).waiting.is_some_and(|waiting| waiting.0 <= moment.0);
        if delay.is_zero() && !self.item(item).pending {
            self.add(item);
        } else if self.item(item).pending || (earlier && !replace) {
            if token {
                self.limiter.give_back();
            }
        } else if let Some((.., true)) = self.item(item).waiting.replace(moment) {
            self.limiter.give_back();
        }
    }

    fn add_rate_limited(&mut self, item: u8) {
        let requeues = self.item(item).requeues;
        self.item(item).requeues += 1;
        if !self.item(item).pending {
            let mut held = false;
            if let Some((.., token)) = &mut self.item(item).waiting {
                held = std::mem::take(token);
            }
            if held {
                self.limiter.give_back();
            }
            let delay = self.limiter.when(self.now, requeues);
            let at = self.now + delay;
            match self.item(item).waiting {
                Some((moment, call, _)) if held && moment <= at => {
                    self.item(item).waiting = Some((moment, call, true));
                }
                _ => self.wait(item, delay, false, true),
            }
        }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        loop {
            let due = self.items.iter().filter_map(|(&item, state)| Some((state.waiting?, item)));
            let Some((moment, item)) = due.min().filter(|(moment, _)| moment.0 <= self.now) else { break };
            assert!(moment.0 > self.now - time, "a moment is not in the past");
            self.item(item).waiting = None;
            self.add(item);
        }
    }

    fn get(&mut self) -> Option<u8> {
        let item = (!self.ready.is_empty()).then(|| self.ready.remove(0))?;
        let state = self.item(item);
        assert!(!state.processing, "never with two workers");
        (state.pending, state.processing) = (false, true);
        Some(item)
    }

    fn done(&mut self, item: u8) -> bool {
        let was = std::mem::take(&mut self.item(item).processing);
        if was && self.item(item).pending {
            self.ready.push(item);
        }
        was
    }

    fn shut_down(&mut self) {
        self.shut_down = true;
        for state in self.items.values_mut() {
            if state.waiting.take().is_some() && !state.pending && !state.processing {
                state.requeues = 0;
            }
        }
    }

    fn next_ready(&self) -> Option<Duration> {
        if !self.ready.is_empty() {
            return Some(self.now);
        }
        self.items.values().filter_map(|state| Some(state.waiting?.0)).min()
    }

    fn count(&self, which: impl Fn(&Item) -> bool) -> usize {
        self.items.values().filter(|state| which(state)).count()
    }
}

/// Takes the step on both and compares the answers.
fn take(queue: &mut WorkQueue<u8>, model: &mut Model, step: &Step) -> Result<(), TestCaseError> {
    let now = model.now;
    let ready_before = model.ready.len();
    let mut became_ready = None;
    match *step {
        Step::Add(item) => {
            became_ready = Some(queue.add(now, item));
            if !model.shut_down {
                model.add(item);
            }
        }
        Step::AddAfter(item, delay) => {
            became_ready = Some(queue.add_after(now, item, delay));
            if !model.shut_down {
                model.wait(item, delay, false, false);
            }
        }
        Step::AddRateLimited(item) => {
            became_ready = Some(queue.add_rate_limited(now, item));
            if !model.shut_down {
                model.add_rate_limited(item);
            }
        }
        Step::RescheduleAfter(item, delay) => {
            became_ready = Some(queue.reschedule_after(now, item, delay));
            if !model.shut_down {
                model.wait(item, delay, true, false);
            }
        }
        Step::Get => prop_assert_eq!(queue.get(now), model.get()),
        Step::Done(item) => prop_assert_eq!(queue.done(now, &item), model.done(item)),
        Step::Forget(item) => {
            queue.forget(&item);
            model.item(item).requeues = 0;
        }
        Step::Pass(time) => {
            model.pass(time);
            queue.advance(model.now);
        }
        Step::ShutDown => {
            queue.shut_down();
            model.shut_down();
        }
    }
    if let Some(became_ready) = became_ready {
        prop_assert_eq!(became_ready, model.ready.len() > ready_before);
    }
    Ok(())
}

fn compare(queue: &mut WorkQueue<u8>, model: &Model) -> Result<(), TestCaseError> {
    prop_assert_eq!((queue.len(), queue.is_empty()), (model.ready.len(), model.ready.is_empty()));
    prop_assert_eq!(queue.waiting_len(), model.count(|state| state.waiting.is_some()));
    prop_assert_eq!(queue.processing_len(), model.count(|state| state.processing));
    prop_assert_eq!(queue.next_ready(model.now), model.next_ready());
    let drained = model.shut_down && model.ready.is_empty() && queue.processing_len() == 0;
    prop_assert_eq!(queue.is_drained(), drained);
    for (item, state) in &model.items {
        prop_assert_eq!(queue.num_requeues(item), state.requeues, "item {}", item);
    }
    let metrics = queue.metrics(model.now);
    prop_assert_eq!(metrics.depth, model.ready.len());
    prop_assert_eq!(metrics.pending_again, model.count(|state| state.pending && state.processing));
    prop_assert_eq!(metrics.adds_total, model.adds);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every answer and every count, after every step.
    #[test]
    fn q1_the_queue_agrees_with_the_model(steps in prop::collection::vec(step(), 1..120)) {
        let (mut queue, mut model) = (WorkQueue::new(limiter()), Model::new());
        for step in &steps {
            take(&mut queue, &mut model, step)?;
            compare(&mut queue, &model)?;
        }
    }

    /// Nothing is forgotten: whoever adds an item, in whatever way, sees it handed out afterwards. Does not
    /// use the model.
    #[test]
    fn q1_every_add_is_followed_by_a_get(steps in prop::collection::vec(step(), 1..120)) {
        let mut queue = WorkQueue::new(limiter());
        let mut now = Duration::ZERO;
        let mut owed = [false; 6];
        let mut out = [false; 6];
        for step in steps {
            match step {
                Step::Add(item) => _ = queue.add(now, item),
                Step::AddAfter(item, delay) => _ = queue.add_after(now, item, delay),
                Step::AddRateLimited(item) => _ = queue.add_rate_limited(now, item),
                Step::RescheduleAfter(item, delay) => _ = queue.reschedule_after(now, item, delay),
                Step::Get => {
                    if let Some(item) = queue.get(now) {
                        prop_assert!(owed[item as usize], "handed out though nobody added it");
                        prop_assert!(!out[item as usize], "with two workers");
                        (owed[item as usize], out[item as usize]) = (false, true);
                    }
                }
                Step::Done(item) => {
                    prop_assert_eq!(queue.done(now, &item), out[item as usize]);
                    out[item as usize] = false;
                }
                Step::Forget(item) => queue.forget(&item),
                Step::Pass(time) => now += time,
                Step::ShutDown => {}
            }
            if let Step::Add(item) | Step::AddAfter(item, _) | Step::AddRateLimited(item)
                | Step::RescheduleAfter(item, _) = step
            {
                owed[item as usize] = true;
            }
        }
        for item in 0..6 {
            queue.done(now, &item);
        }
        while let Some(next) = queue.next_ready(now) {
            now = next;
            let item = queue.get(now).expect("next_ready promised one");
            prop_assert!(std::mem::take(&mut owed[item as usize]), "handed out though nobody added it");
            queue.done(now, &item);
        }
        prop_assert_eq!(owed, [false; 6]);
        prop_assert_eq!((queue.len(), queue.waiting_len(), queue.processing_len()), (0, 0, 0));
    }

    /// The same run gives the same answers: no clock, no hash order, no chance is in the queue.
    #[test]
    fn q4_a_run_can_be_repeated(steps in prop::collection::vec(step(), 1..60)) {
        let run = || {
            let mut queue = WorkQueue::new(limiter().with_jitter(50, 7));
            let mut now = Duration::ZERO;
            let mut answers = Vec::new();
            for step in &steps {
                match *step {
                    Step::Add(item) => _ = queue.add(now, item),
                    Step::AddAfter(item, delay) => _ = queue.add_after(now, item, delay),
                    Step::AddRateLimited(item) => _ = queue.add_rate_limited(now, item),
                    Step::RescheduleAfter(item, delay) => _ = queue.reschedule_after(now, item, delay),
                    Step::Done(item) => _ = queue.done(now, &item),
                    Step::Pass(time) => now += time,
                    Step::Get | Step::Forget(_) | Step::ShutDown => answers.push(queue.get(now)),
                }
            }
            (answers, queue.next_ready(now))
        };
        prop_assert_eq!(run(), run());
    }
}
