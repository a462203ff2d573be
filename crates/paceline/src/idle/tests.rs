//! Unit tests of the idle policy.

use super::*;

const NO_DEADLINE: Option<Timestamp> = None;

/// A policy that yields once and never spins.
fn yields() -> IdlePolicy {
    IdlePolicy::new(1, Some(Duration::ZERO))
}

/// A policy that yields once, and learns whether a spin pays.
fn learns() -> IdlePolicy {
    IdlePolicy::new(1, None)
}

fn would_spin(policy: &IdlePolicy) -> bool {
    let idle = policy.begin(true, &Clock::monotonic(), NO_DEADLINE);
    matches!(idle, Idle::Polls(Means::Spin))
}

/// An attempt after a yield that was like that, this long before its end.
fn attempt(clock: &Clock, means: Means, last: Yielded, left: Duration) -> Idle<'_> {
    let yielding = Yielding::begin(clock);
    let end = match means {
        Means::Yields => End::After(0),
        _ => End::At(yielding.now().after(left)),
    };
    Idle::Yields(Attempt {
        means,
        yielding,
        last,
        end,
    })
}

fn spins(clock: &Clock, left: Duration) -> Idle<'_> {
    attempt(clock, Means::Spin, Yielded::Shortly, left)
}

fn spin_finds_nothing(policy: &IdlePolicy) {
    let clock = Clock::monotonic();
    let ended = spins(&clock, Duration::ZERO).note_nothing(policy, &clock);
    assert_eq!(ended, Ended::Spin);
}

/// How many polls without sleep there are before the one that may sleep.
fn polls(policy: &IdlePolicy, may_pay: bool) -> u32 {
    let clock = Clock::monotonic();
    let mut idle = policy.begin(may_pay, &clock, NO_DEADLINE);
    let mut count = 0;
    while !idle.may_sleep() {
        match idle {
            // No thread has taken the core, whatever else runs here.
            Idle::Polls(Means::Yields) => {
                idle = attempt(&clock, Means::Yields, Yielded::Shortly, Duration::ZERO);
            }
            _ => {
                let _ = idle.note_nothing(policy, &clock);
            }
        }
        count += 1;
    }
    count
}

/// Two polls, with a yield in between. If they found nothing they are left out, the more often the
/// longer that goes on.
#[test]
fn it_polls_again_where_that_pays() {
    let (policy, clock) = (yields(), Clock::monotonic());
    assert_eq!([(); 6].map(|()| polls(&policy, true)), [2, 0, 2, 0, 0, 0]);
    let idle = attempt(&clock, Means::Yields, Yielded::Shortly, Duration::ZERO);
    assert_eq!(idle.note_found(&policy), Ended::Yields);
    assert_eq!([(); 3].map(|()| polls(&policy, true)), [2, 0, 2]);
}

/// A thread that has something to do does not poll.
#[test]
fn it_does_not_poll_while_handles_wait() {
    let policy = yields();
    assert_eq!(polls(&policy, false), 0);
    assert_eq!(polls(&policy, true), 2);
}

/// A first poll that finds something says nothing of the second.
#[test]
fn only_the_second_poll_counts() {
    let (policy, clock) = (yields(), Clock::monotonic());
    assert_eq!(polls(&policy, true), 2);
    assert_eq!(polls(&policy, true), 0);
    let first = policy.begin(true, &clock, NO_DEADLINE);
    assert_eq!(first.note_found(&policy), Ended::Nothing);
    assert_eq!([(); 5].map(|()| polls(&policy, true)), [2, 0, 0, 0, 2]);
}

/// A thread that had lost its core finds something, of course.
#[test]
fn a_core_that_was_lost_does_not_count() {
    let (policy, clock) = (yields(), Clock::monotonic());
    let idle = attempt(&clock, Means::Yields, Yielded::ForLong, Duration::ZERO);
    assert_eq!(idle.note_found(&policy), Ended::Yields);
    assert_eq!([(); 1000].map(|()| polls(&policy, true)), [0; 1000]);
}

/// A thread that may not wait does not yield either.
#[test]
fn it_does_not_poll_twice_when_time_is_over() {
    let clock = Clock::monotonic();
    let idle = yields().begin(true, &clock, Some(Timestamp::PAST));
    assert!(idle.may_sleep());
}

/// Several yields end early if one of them took long.
#[test]
fn it_yields_so_often() {
    let clock = Clock::monotonic();
    let count = |last| {
        let mut count = 0;
        let mut attempt = Attempt {
            means: Means::Yields,
            yielding: Yielding::begin(&clock),
            last,
            end: End::After(3),
        };
        while attempt.goes_on() {
            attempt.last = Yielded::Shortly;
            count += 1;
        }
        count
    };
    assert_eq!((count(Yielded::Shortly), count(Yielded::ForLong)), (3, 0));
}

/// It spins only where it would sleep, with time for it; and a wait without is no turn of it.
#[test]
fn it_spins_only_where_it_would_sleep() {
    let (policy, clock) = (learns(), Clock::monotonic());
    spin_finds_nothing(&policy);
    let soon = clock.now().after(SPIN / 2);
    for (may_pay, until) in [
        (false, NO_DEADLINE),
        (true, Some(Timestamp::PAST)),
        (true, Some(soon)),
    ] {
        let idle = policy.begin(may_pay, &clock, until);
        assert!(!matches!(idle, Idle::Polls(Means::Spin)));
    }
    assert_eq!([(); 63].map(|()| would_spin(&policy)), [false; 63]);
    assert!(would_spin(&policy));
}

/// Without a setting the thread spins for a while, and after one that found nothing not for long;
/// meanwhile it polls twice.
#[test]
fn it_spins_where_that_pays() {
    let policy = learns();
    assert!(would_spin(&policy));
    spin_finds_nothing(&policy);
    assert_eq!([(); 3].map(|()| polls(&policy, true)), [2, 0, 2]);
    assert_eq!([(); 60].map(|()| would_spin(&policy)), [false; 60]);
}

/// A spin goes on until its time is over.
#[test]
fn an_attempt_is_one_spin() {
    let (policy, clock) = (learns(), Clock::monotonic());
    let mut idle = spins(&clock, Duration::from_secs(3600));
    assert_eq!(idle.note_nothing(&policy, &clock), Ended::Nothing);
    assert!(matches!(idle, Idle::Yields(_)));
    let before = clock.now();
    let mut idle = Idle::Polls(Means::Spin);
    while !idle.may_sleep() {
        let _ = idle.note_nothing(&policy, &clock);
    }
    assert!(clock.now() >= before.after(SPIN));
    assert!(!would_spin(&policy));
}

/// Nearly every one has to find something, and then one that does not is forgiven.
#[test]
fn a_spin_without_a_find_is_forgiven_among_many() {
    let (policy, clock) = (learns(), Clock::monotonic());
    for _ in 0..28 {
        assert!(would_spin(&policy));
        let far = Duration::from_secs(3600);
        assert_eq!(spins(&clock, far).note_found(&policy), Ended::Spin);
    }
    spin_finds_nothing(&policy);
    assert!(would_spin(&policy));
}

/// What was found before others ran was there anyway.
#[test]
fn only_what_is_found_by_a_spin_counts_for_it() {
    let policy = learns();
    for _ in 0..28 {
        let ended = Idle::Polls(Means::Spin).note_found(&policy);
        assert_eq!(ended, Ended::Nothing);
    }
    spin_finds_nothing(&policy);
    assert!(!would_spin(&policy));
}

/// What is found later, because others ran for longer, shows nothing.
#[test]
fn what_is_found_when_time_is_over_does_not_count() {
    let clock = Clock::monotonic();
    for (left, forgiven) in [(Duration::from_secs(3600), true), (Duration::ZERO, false)] {
        let policy = learns();
        (0..27).for_each(|_| policy.spin_stats.note(true));
        let _ = spins(&clock, left).note_found(&policy);
        spin_finds_nothing(&policy);
        assert_eq!(would_spin(&policy), forgiven);
    }
}

/// A thread that has lost its core by one means does not lose it by the other next.
#[test]
fn a_lost_core_counts_for_both() {
    let clock = Clock::monotonic();
    for means in [Means::Yields, Means::Spin] {
        for found in [true, false] {
            let policy = learns();
            let mut idle = attempt(&clock, means, Yielded::ForLong, Duration::ZERO);
            let _ = if found {
                idle.note_found(&policy)
            } else {
                idle.note_nothing(&policy, &clock)
            };
            assert_eq!([(); 1000].map(|()| polls(&policy, true)), [0; 1000]);
        }
    }
}

/// A span that was set is spun each time, also where a poll is dear.
#[test]
fn a_set_spin_is_never_left_out() {
    let (policy, clock) = (IdlePolicy::new(1, Some(SPIN)), Clock::monotonic());
    for may_pay in [true, false] {
        let idle = policy.begin(may_pay, &clock, NO_DEADLINE);
        assert!(matches!(idle, Idle::Polls(Means::SetSpin(SPIN))));
        assert!(polls(&policy, may_pay) > 1);
    }
}
