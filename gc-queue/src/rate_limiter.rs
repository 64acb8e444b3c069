//! How long an item waits before it is tried again.

use std::time::Duration;

use crate::time::{Nanos, to_duration, to_nanos};

/// A rule that turns the number of an item's requeues into a delay.
///
/// ```
/// use gc_queue::{Limit, RateLimiter, TokenBucket};
/// use std::time::Duration;
///
/// let now = Duration::ZERO;
/// let mut limiter = RateLimiter::new(Limit::MaxOf(vec![
///     Limit::Exponential { base: Duration::from_millis(5), max: Duration::from_secs(1000) },
///     Limit::TokenBucket(TokenBucket::per_second(10, 2)),
/// ]));
/// assert_eq!(limiter.when(now, 0), Duration::from_millis(5));
/// assert_eq!(limiter.when(now, 1), Duration::from_millis(10));
/// assert_eq!(limiter.when(now, 2), Duration::from_millis(100), "the bucket of two is empty");
/// ```
#[derive(Clone, Debug)]
pub enum Limit {
    /// `base × 2ⁿ` for an item that has been requeued `n` times, at most `max`. A base of zero is no
    /// delay at all.
    Exponential {
        /// The delay of the first requeue.
        base: Duration,
        /// The longest delay. The power can never overflow past it.
        max: Duration,
    },
    /// All items share one bucket of tokens.
    TokenBucket(TokenBucket),
    /// `fast` for the first `max_fast_attempts` requeues of an item, `slow` from then on.
    FastSlow {
        /// The delay of the first requeues.
        fast: Duration,
        /// The delay of all later ones.
        slow: Duration,
        /// How many requeues are fast.
        max_fast_attempts: u32,
    },
    /// The longest delay of several limits, each of which is asked every time. Of none: no delay.
    MaxOf(Vec<Limit>),
}

/// A bucket of tokens that fills at an even pace. Whoever finds it empty gets the next free moment.
///
/// ```
/// use gc_queue::{Limit, RateLimiter, TokenBucket};
/// use std::time::Duration;
///
/// let mut limiter = RateLimiter::new(Limit::TokenBucket(TokenBucket::per_second(10, 1)));
/// assert_eq!(limiter.when(Duration::ZERO, 0), Duration::ZERO);
/// assert_eq!(limiter.when(Duration::ZERO, 0), Duration::from_millis(100));
/// assert_eq!(limiter.when(Duration::from_millis(150), 0), Duration::from_millis(50));
/// ```
#[derive(Clone, Debug)]
pub struct TokenBucket {
    /// The time in which one token flows in; zero is no limit.
    interval: Nanos,
    burst: u32,
    /// When the bucket will be full again (the generic cell rate algorithm keeps nothing else, and
    /// whole nanoseconds cannot drift as a fractional number of tokens can).
    full_at: Nanos,
}

/// Turns requeues into delays: a [`Limit`], and optionally a cap and jitter.
///
/// A limiter belongs to one queue and is moved into it, so two queues cannot spoil each other's counts
/// (virtual-kubelet#953). The numbers of requeues are the queue's; the limiter is only told them.
///
/// The default is client-go's for controllers: the longer of 5 ms × 2ⁿ up to 1000 s for the item and a
/// bucket of 100 tokens at 10 a second for all items together.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    limit: Limit,
    max_delay: Duration,
    jitter: Option<Jitter>,
}

#[derive(Clone, Debug)]
struct Jitter {
    max_percent: u32,
    random: u64,
}

impl Default for RateLimiter {
    fn default() -> Self {
        Self::new(Limit::MaxOf(vec![
            Limit::Exponential { base: Duration::from_millis(5), max: Duration::from_secs(1000) },
            Limit::TokenBucket(TokenBucket::per_second(10, 100)),
        ]))
    }
}

impl RateLimiter {
    /// A limiter with this limit, without a further cap, without jitter.
    pub fn new(limit: Limit) -> Self {
        Self { limit, max_delay: Duration::MAX, jitter: None }
    }

    /// No delay is longer than this, whatever the limit says (before jitter).
    #[must_use]
    pub fn with_max_delay(mut self, max_delay: Duration) -> Self {
        self.max_delay = max_delay;
        self
    }

    /// Makes each delay longer by a random part of up to `max_percent` (at most 100), so that items that
    /// failed together do not come back together. The same seed gives the same delays.
    ///
    /// ```
    /// use gc_queue::{Limit, RateLimiter};
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// let limit = Limit::FastSlow { fast: second, slow: second, max_fast_attempts: 0 };
    /// let mut limiter = RateLimiter::new(limit).with_jitter(10, 42);
    /// let mut again = limiter.clone();
    /// let delay = limiter.when(Duration::ZERO, 0);
    /// assert!((second..second * 11 / 10).contains(&delay));
    /// assert_eq!(delay, again.when(Duration::ZERO, 0));
    /// ```
    #[must_use]
    pub fn with_jitter(mut self, max_percent: u32, seed: u64) -> Self {
        self.jitter = Some(Jitter { max_percent: max_percent.min(100), random: seed });
        self
    }

    /// The delay for an item that was requeued `requeues` times before. Takes a token of every bucket.
    ///
    /// `now` is the time since the same arbitrary start in every call.
    pub fn when(&mut self, now: Duration, requeues: u32) -> Duration {
        let delay = self.limit.when(to_nanos(now), requeues).min(self.max_delay);
        match &mut self.jitter {
            Some(jitter) => jitter.stretch(delay),
            None => delay,
        }
    }

    /// Gives back the token that the last [`when`](Self::when) of some item took, because its delay will
    /// not be waited for after all.
    pub fn give_back(&mut self) {
        self.limit.give_back();
    }
}

impl Limit {
    fn when(&mut self, now: Nanos, requeues: u32) -> Duration {
        match self {
            Self::Exponential { base, max } => exponential(*base, *max, requeues),
            Self::TokenBucket(bucket) => to_duration(bucket.take(now)),
            Self::FastSlow { fast, slow, max_fast_attempts } => {
                if requeues < *max_fast_attempts {
                    *fast
                } else {
                    *slow
                }
            }
            Self::MaxOf(limits) => {
                limits.iter_mut().map(|limit| limit.when(now, requeues)).max().unwrap_or(Duration::ZERO)
            }
        }
    }

    fn give_back(&mut self) {
        match self {
            Self::Exponential { .. } | Self::FastSlow { .. } => {}
            Self::TokenBucket(bucket) => bucket.give_back(),
            Self::MaxOf(limits) => limits.iter_mut().for_each(Self::give_back),
        }
    }
}

/// `base × 2ⁿ`, at most `max`. A shift that would push a bit out is more than any `max` that fits.
fn exponential(base: Duration, max: Duration, requeues: u32) -> Duration {
    let base_ns = to_nanos(base);
    if base_ns == 0 {
        return Duration::ZERO;
    }
    if requeues >= base_ns.leading_zeros() {
        return max;
    }
    to_duration(base_ns << requeues).min(max)
}

impl TokenBucket {
    /// A full bucket of `burst` tokens (zero counts as one) into which `tokens_per_second` flow; zero is
    /// no limit.
    pub fn per_second(tokens_per_second: u32, burst: u32) -> Self {
        let interval = Nanos::from(1_000_000_000_u32).checked_div(Nanos::from(tokens_per_second));
        Self { interval: interval.unwrap_or(0), burst: burst.max(1), full_at: 0 }
    }

    /// Takes a token, in advance if need be, and returns how long to wait for it.
    fn take(&mut self, now: Nanos) -> Nanos {
        self.full_at = self.full_at.max(now).saturating_add(self.interval);
        let headroom = self.interval.saturating_mul(Nanos::from(self.burst));
        self.full_at.saturating_sub(headroom).saturating_sub(now)
    }

    fn give_back(&mut self) {
        self.full_at = self.full_at.saturating_sub(self.interval);
    }
}

impl Jitter {
    fn stretch(&mut self, delay: Duration) -> Duration {
        let part = u128::from(self.next_random() >> 32);
        let extra = (u128::from(to_nanos(delay)) * u128::from(self.max_percent) * part / 100) >> 32;
        delay.saturating_add(to_duration(Nanos::try_from(extra).unwrap_or(Nanos::MAX)))
    }

    /// One step of splitmix64: enough to spread retries, and the same on every machine.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: Duration = Duration::ZERO;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn delays(limiter: &mut RateLimiter, requeues: impl IntoIterator<Item = u32>) -> Vec<Duration> {
        requeues.into_iter().map(|n| limiter.when(START, n)).collect()
    }

    /// client-go: `TestItemExponentialFailureRateLimiter`.
    #[test]
    fn q2_exponential_doubles_from_the_base() {
        let mut limiter = RateLimiter::new(Limit::Exponential { base: ms(1), max: ms(1000) });
        assert_eq!(delays(&mut limiter, 0..5), [ms(1), ms(2), ms(4), ms(8), ms(16)]);
        assert_eq!(delays(&mut limiter, [9, 10, 11]), [ms(512), ms(1000), ms(1000)]);
    }

    /// client-go: `TestItemExponentialFailureRateLimiterOverFlow`. An overflow once made zero delays and
    /// so a hot loop.
    #[test]
    fn kubernetes_31396_ten_thousand_failures_stay_at_the_longest_delay() {
        for (base, max) in [(ms(1), ms(1_000_000)), (ms(60_000), Duration::MAX), (Duration::MAX, ms(7))] {
            let mut limiter = RateLimiter::new(Limit::Exponential { base, max });
            let all = delays(&mut limiter, 0..10_000);
            assert!(all.is_sorted(), "delays never shrink");
            assert_eq!(all.last(), Some(&max));
            assert_eq!(limiter.when(START, u32::MAX), max);
        }
    }

    /// client-go: `TestItemFastSlowRateLimiter`.
    #[test]
    fn q2_fast_slow_is_fast_for_a_number_of_attempts() {
        let limit = Limit::FastSlow { fast: ms(5), slow: ms(10_000), max_fast_attempts: 3 };
        let mut limiter = RateLimiter::new(limit);
        assert_eq!(delays(&mut limiter, 0..5), [ms(5), ms(5), ms(5), ms(10_000), ms(10_000)]);
    }

    /// client-go: `TestMaxOfRateLimiter`.
    #[test]
    fn q2_max_of_takes_the_longest() {
        let mut limiter = RateLimiter::new(Limit::MaxOf(vec![
            Limit::FastSlow { fast: ms(5), slow: ms(3000), max_fast_attempts: 3 },
            Limit::Exponential { base: ms(1), max: ms(1000) },
        ]));
        assert_eq!(delays(&mut limiter, 0..5), [ms(5), ms(5), ms(5), ms(3000), ms(3000)]);
        assert_eq!(RateLimiter::new(Limit::MaxOf(vec![])).when(START, 9), START);
    }

    /// client-go: `TestWithMaxWaitRateLimiter`.
    #[test]
    fn q2_a_cap_holds_whatever_the_limit_says() {
        let limit = Limit::FastSlow { fast: ms(5), slow: ms(1_000_000), max_fast_attempts: 100 };
        let mut limiter = RateLimiter::new(limit).with_max_delay(ms(500_000));
        assert!(delays(&mut limiter, 0..100).iter().all(|&delay| delay == ms(5)));
        assert!(delays(&mut limiter, 100..200).iter().all(|&delay| delay == ms(500_000)));
    }

    #[test]
    fn q2_the_default_is_the_longer_of_exponential_and_bucket() {
        let mut limiter = RateLimiter::default();
        let first_hundred = delays(&mut limiter, std::iter::repeat_n(0, 100));
        assert!(first_hundred.iter().all(|&delay| delay == ms(5)), "the burst is 100");
        assert_eq!(delays(&mut limiter, [0, 0, 20]), [ms(100), ms(200), Duration::from_secs(1000)]);
    }

    /// The numbers that the authors of splitmix64 give for this seed: the same on every machine, and well spread.
    #[test]
    fn q4_jitter_is_drawn_from_splitmix64() {
        let mut jitter = Jitter { max_percent: 10, random: 1_234_567 };
        let drawn = [(); 5].map(|()| jitter.next_random());
        assert_eq!(
            drawn,
            [
                6_457_827_717_110_365_317,
                3_203_168_211_198_807_973,
                9_817_491_932_198_370_423,
                4_593_380_528_125_082_431,
                16_408_922_859_458_223_821,
            ]
        );
    }

    #[test]
    fn q2_jitter_spreads_delays_evenly_over_what_it_may_add() {
        let limit = Limit::FastSlow { fast: ms(1_000), slow: ms(1_000), max_fast_attempts: 0 };
        let mut limiter = RateLimiter::new(limit).with_jitter(50, 7);
        let mut tenths = [0; 10];
        for delay in delays(&mut limiter, 0..10_000) {
            let extra_ms = (delay - ms(1_000)).as_millis();
            tenths[usize::try_from(extra_ms / 50).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (900..1_100).contains(count)), "{tenths:?}");
    }

    #[test]
    fn q2_a_token_given_back_is_there_for_the_next() {
        let mut limiter = RateLimiter::new(Limit::TokenBucket(TokenBucket::per_second(10, 1)));
        assert_eq!(delays(&mut limiter, [0, 0]), [ms(0), ms(100)]);
        limiter.give_back();
        assert_eq!(limiter.when(START, 0), ms(100));
    }

    #[test]
    fn q2_no_rate_is_no_limit() {
        let mut limiter = RateLimiter::new(Limit::TokenBucket(TokenBucket::per_second(0, 0)));
        assert!(delays(&mut limiter, 0..1000).iter().all(Duration::is_zero));
    }

    proptest! {
        /// Whatever the pattern of calls, no window sees more than the burst and what flowed in.
        #[test]
        fn q2_a_bucket_never_lets_through_more_than_burst_and_rate(
            burst in 1u32..20,
            gaps_ms in prop::collection::vec(0u64..150, 1..200),
        ) {
            let mut bucket = TokenBucket::per_second(10, burst);
            let mut now = 0;
            let mut fired: Vec<Nanos> = Vec::new();
            for gap in gaps_ms {
                now += gap * 1_000_000;
                fired.push(now + bucket.take(now));
            }
            prop_assert!(fired.is_sorted(), "first come, first served");
            for (first, start) in fired.iter().enumerate() {
                for (last, end) in fired.iter().enumerate().skip(first) {
                    let flowed_in = (end - start) / 100_000_000;
                    prop_assert!((last - first) as u64 <= u64::from(burst) + flowed_in);
                }
            }
        }

        #[test]
        fn q2_jitter_stays_within_its_part(seed: u64, percent in 0u32..200, delay: Duration) {
            let limit = Limit::FastSlow { fast: delay, slow: delay, max_fast_attempts: 0 };
            let stretched = RateLimiter::new(limit).with_jitter(percent, seed).when(START, 0);
            let part = (delay / 100 * percent.min(100)).saturating_add(Duration::from_nanos(100));
            let longest = delay.saturating_add(part);
            prop_assert!(delay <= stretched && stretched <= longest);
        }
    }
}
