//! Counts failed authentications and delays the responses to addresses that fail often, so that guessing keys does
//! not consume the database's time. A valid key is never delayed.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock, DefaultClock};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DefaultKeyedStateStore;
use governor::{Quota, RateLimiter};

/// The number of failures per minute after which further failures of an address are delayed.
const FREE: NonZeroU32 = NonZeroU32::new(20).expect("it is not zero");
/// The delay of the response to a further failure.
const DELAY: Duration = Duration::from_secs(1);
/// The maximum number of addresses that are counted separately. All others are counted together.
const MOST_ADDRESSES: usize = 10_000;

/// The addresses that failed to authenticate in the last minute.
#[derive(Debug)]
pub struct Failures<C: Clock = DefaultClock> {
    limiter: RateLimiter<IpAddr, DefaultKeyedStateStore<IpAddr>, C, NoOpMiddleware<C::Instant>>,
}

impl Default for Failures {
    fn default() -> Self {
        Self::new(DefaultClock::default())
    }
}

impl<C: Clock> Failures<C> {
    fn new(clock: C) -> Self {
        Self { limiter: RateLimiter::new(Quota::per_minute(FREE), DefaultKeyedStateStore::default(), clock) }
    }

    /// Counts a failure and returns how long to delay the response.
    pub fn note(&self, address: Option<IpAddr>) -> Duration {
        metrics::counter!("gleaner_authentication_failures_total").increment(1);
        let Some(mut network) = address.map(network) else { return Duration::ZERO };
        if self.limiter.len() >= MOST_ADDRESSES {
            self.limiter.retain_recent();
            if self.limiter.len() >= MOST_ADDRESSES {
                network = OTHERS;
            }
        }
        if self.limiter.check_key(&network).is_ok() { Duration::ZERO } else { DELAY }
    }
}

/// Represents all addresses that are not counted separately.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Returns the part of an address by which failures are counted: an IPv4 address, or the 64 bits of an IPv6 address
/// that its owner cannot choose.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use governor::clock::FakeRelativeClock;

    use super::*;

    #[test]
    fn an_address_that_fails_often_is_answered_late_for_a_while_and_others_are_not() {
        let clock = FakeRelativeClock::default();
        let failures = Failures::new(clock.clone());
        let (one, other) = (Some([192, 0, 2, 1].into()), Some([192, 0, 2, 2].into()));
        let delays = |address, count| (0..count).map(|_| failures.note(address)).collect::<Vec<_>>();
        assert_eq!(delays(one, 20), [Duration::ZERO; 20]);
        assert_eq!(delays(one, 3), [DELAY; 3]);
        assert_eq!(delays(other, 1), [Duration::ZERO]);
        clock.advance(Duration::from_secs(3));
        assert_eq!(delays(one, 2), [Duration::ZERO, DELAY]);
    }

    #[test]
    fn the_owner_of_a_network_is_one_address_and_the_memory_is_bounded() {
        let failures = Failures::new(FakeRelativeClock::default());
        let v6 =
            |network: u64, host: u64| Some(IpAddr::V6((u128::from(network) << 64 | u128::from(host)).into()));
        for host in 0..20 {
            assert_eq!(failures.note(v6(1, host)), Duration::ZERO);
        }
        assert_eq!(failures.note(v6(1, 77)), DELAY);
        for network in 0..3 * MOST_ADDRESSES as u64 {
            failures.note(v6(network, 1));
        }
        assert!(failures.limiter.len() <= MOST_ADDRESSES + 1);
    }
}
