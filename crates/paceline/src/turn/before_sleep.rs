//! What a leader that finds nothing does before it sleeps in the set. Where that has paid it yields
//! and polls again: once, or for a while. If the builder sets a span it polls again and again, each
//! time.
//!
//! ```text
//!  [new] ---> ToLook --- [note_nothing] others run ---> LooksAgain --- [note_nothing] -------------.
//!    |                                                                                             v
//!    +------> ToTry ---- [note_nothing] others run ---> Tries -------- [note_nothing] is over --> Over: it may sleep
//!    |                                                  |   ^                                      ^
//!    |                                                  '---' [note_nothing] others run            |
//!    '------> ToSpin --- [note_nothing] ---------------> SpinsUntil --- [note_nothing] is over ----'
//! ```

use std::time::Duration;

use super::spin::{LeaderSpin, Spin, UNTOLD};
use crate::{
    pool::Shared,
    sync::{Timestamp, Turn, Yielded, Yielding},
};

/// What the next look is. A turn asks that twice: so its tag is a byte of its own, and not hidden
/// in what it holds.
#[repr(u8)]
pub(super) enum BeforeSleep<'p> {
    /// It may sleep.
    Over,
    /// If there is nothing other threads run: the sender of the next request may only need this
    /// core.
    ToLook,
    /// Others ran.
    LooksAgain(Yielded),
    /// If there is nothing others run, and it looks again and again.
    ToTry,
    /// It does, and others ran.
    Tries(Spin<'p>),
    /// The builder set a span to poll for, and no poll has failed yet.
    ToSpin(Duration),
    /// It looks again until then.
    SpinsUntil(Timestamp),
}

impl<'p> BeforeSleep<'p> {
    /// For one wait until `until`.
    pub(super) fn new(shared: &Shared, nothing_waits: bool, until: Option<Timestamp>) -> Self {
        match shared.leader_spin {
            // On a clock that stands still there would be no end to it.
            LeaderSpin::Told(span) if shared.clock.is_real() => Self::ToSpin(span),
            _ if nothing_waits && may_look(shared, until) => Self::where_it_paid(shared, until),
            _ => Self::Over,
        }
    }

    fn where_it_paid(shared: &Shared, until: Option<Timestamp>) -> Self {
        if may_try(shared, until) && shared.spins.take_turn() == Turn::Look {
            return Self::ToTry;
        }
        match shared.looks.take_turn() {
            Turn::Look => Self::ToLook,
            Turn::LeaveOut => Self::Over,
        }
    }

    /// Until when the next look may sleep, in a wait until `until`.
    pub(super) fn deadline(&self, until: Option<Timestamp>) -> Option<Timestamp> {
        match self {
            Self::Over => until,
            _ => Some(Timestamp::PAST),
        }
    }

    /// A look found something.
    pub(super) fn note_found(&self, shared: &Shared) {
        match self {
            Self::LooksAgain(yielded) => {
                shared.looks.note_found(*yielded);
                note_core(shared, *yielded);
            }
            Self::Tries(spin) => {
                shared.spins.note_found(spin);
                shared.counters.spins.one_more();
                note_core(shared, spin.yielded());
            }
            Self::SpinsUntil(_) => shared.counters.spins.one_more(),
            Self::Over | Self::ToLook | Self::ToTry | Self::ToSpin(_) => {}
        }
    }

    /// A look found nothing.
    pub(super) fn note_nothing(&mut self, shared: &'p Shared) {
        *self = match *self {
            Self::Over => Self::Over,
            Self::ToLook => Self::LooksAgain(Yielding::begin(&shared.clock).let_others_run()),
            Self::LooksAgain(yielded) => {
                shared.looks.note_vain(yielded);
                note_core(shared, yielded);
                Self::Over
            }
            Self::ToTry => Self::Tries(Spin::begin(&shared.clock)),
            Self::Tries(spin) if spin.is_over() => {
                shared.spins.note_vain();
                count_vain(shared);
                note_core(shared, spin.yielded());
                Self::Over
            }
            Self::Tries(spin) => Self::Tries(spin.go_on()),
            Self::ToSpin(span) => Self::SpinsUntil(shared.clock.now().after(span)),
            Self::SpinsUntil(end) if shared.clock.now() < end => Self::SpinsUntil(end),
            Self::SpinsUntil(_) => {
                count_vain(shared);
                Self::Over
            }
        }
    }
}

/// A spin found nothing.
fn count_vain(shared: &Shared) {
    shared.counters.spins.one_more();
    shared.counters.spins_in_vain.one_more();
}

/// A thread that has lost its core in the one way would lose it in the other.
fn note_core(shared: &Shared, yielded: Yielded) {
    if yielded == Yielded::ForLong {
        shared.looks.note_lost_core();
        shared.spins.note_lost_core();
    }
}

/// Whether it makes sense to poll twice in a wait until then. On a clock that does not move no
/// other thread runs meanwhile, but in a checker.
fn may_look(shared: &Shared, until: Option<Timestamp>) -> bool {
    let others_run = shared.clock.is_real() || cfg!(shuttle);
    others_run && shared.registry.is_looked_at_cheaply() && !shared.clock.has_passed(until)
}

/// Whether it may find out if it pays to look for a while. It does not if there is no time for
/// that, or on a clock that stands still.
fn may_try(shared: &Shared, until: Option<Timestamp>) -> bool {
    let clock = &shared.clock;
    let has_time = |until| clock.now().after(UNTOLD) <= until;
    matches!(shared.leader_spin, LeaderSpin::FindsOut)
        && clock.is_real()
        && until.is_none_or(has_time)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Pool, SetKind};

    const NO_DEADLINE: Option<Timestamp> = None;

    fn pool(spin: Duration) -> Pool {
        let pool = Pool::builder().threads(0).leader_spin(spin);
        pool.build().expect("a pool")
    }

    /// A pool without a setting.
    fn untold() -> Pool {
        Pool::builder().threads(0).build().expect("a pool")
    }

    fn would_try(pool: &Pool) -> bool {
        let before = BeforeSleep::new(pool.shared(), true, NO_DEADLINE);
        matches!(before, BeforeSleep::ToTry)
    }

    /// In a spin by the pool's own decision, this long before its end.
    fn trying(pool: &Pool, yielded: Yielded, left: Duration) -> BeforeSleep<'_> {
        BeforeSleep::Tries(Spin::with(&pool.shared().clock, yielded, left))
    }

    fn try_in_vain(pool: &Pool) {
        trying(pool, Yielded::Shortly, Duration::ZERO).note_nothing(pool.shared());
    }

    /// How many looks without sleep there are before the one that may sleep.
    fn looks(pool: &Pool, nothing_waits: bool) -> u32 {
        let shared = pool.shared();
        let mut before = BeforeSleep::new(shared, nothing_waits, NO_DEADLINE);
        let mut count = 0;
        while before.deadline(NO_DEADLINE).is_some() {
            match before {
                // No thread has taken the core, whatever else runs here.
                BeforeSleep::ToLook => before = BeforeSleep::LooksAgain(Yielded::Shortly),
                _ => before.note_nothing(shared),
            }
            count += 1;
        }
        count
    }

    /// Two polls, with a yield in between. If they found nothing they are left out, the more often
    /// the longer that goes on.
    #[test]
    fn it_looks_again_where_that_pays() {
        let pool = pool(Duration::ZERO);
        assert_eq!([(); 6].map(|()| looks(&pool, true)), [2, 0, 2, 0, 0, 0]);
        BeforeSleep::LooksAgain(Yielded::Shortly).note_found(pool.shared());
        assert_eq!([(); 3].map(|()| looks(&pool, true)), [2, 0, 2]);
    }

    /// A leader that has something to do does not poll.
    #[test]
    fn it_does_not_look_while_handles_wait() {
        let pool = pool(Duration::ZERO);
        assert_eq!(looks(&pool, false), 0);
        assert_eq!(looks(&pool, true), 2);
    }

    /// A first look that finds something says nothing of the second.
    #[test]
    fn only_the_second_look_counts() {
        let pool = pool(Duration::ZERO);
        assert_eq!(looks(&pool, true), 2);
        assert_eq!(looks(&pool, true), 0);
        let first = BeforeSleep::new(pool.shared(), true, NO_DEADLINE);
        first.note_found(pool.shared());
        assert_eq!([(); 5].map(|()| looks(&pool, true)), [2, 0, 0, 0, 2]);
    }

    /// A thread that had lost its core finds something, of course.
    #[test]
    fn a_core_that_was_lost_does_not_count() {
        let pool = pool(Duration::ZERO);
        BeforeSleep::LooksAgain(Yielded::ForLong).note_found(pool.shared());
        assert_eq!([(); 1000].map(|()| looks(&pool, true)), [0; 1000]);
    }

    /// A leader that may not wait does not yield either.
    #[test]
    fn it_does_not_look_twice_when_time_is_over() {
        let pool = pool(Duration::ZERO);
        let before = BeforeSleep::new(pool.shared(), true, Some(Timestamp::PAST));
        assert!(matches!(before, BeforeSleep::Over));
    }

    /// A look at these sets costs more than it saves.
    #[test]
    fn it_does_not_look_twice_where_that_is_dear() {
        for (set, count) in [
            (SetKind::Epoll, 2),
            (SetKind::OneShot, 2),
            (SetKind::Poll, 0),
        ] {
            let pool = Pool::builder().threads(0).handle_set(set);
            let pool = pool.leader_spin(Duration::ZERO);
            assert_eq!(looks(&pool.build().expect("a pool"), true), count);
        }
    }

    /// Nor does it try to spin there, while handles wait, or without time for it; and that is no
    /// turn of it.
    #[test]
    fn it_tries_only_where_it_would_sleep() {
        let poll = Pool::builder().threads(0).handle_set(SetKind::Poll);
        assert!(!would_try(&poll.build().expect("a pool")));
        let pool = untold();
        try_in_vain(&pool);
        let soon = pool.shared().clock.now().after(UNTOLD / 2);
        for (nothing_waits, until) in [
            (false, NO_DEADLINE),
            (true, Some(Timestamp::PAST)),
            (true, Some(soon)),
        ] {
            let before = BeforeSleep::new(pool.shared(), nothing_waits, until);
            assert!(!matches!(before, BeforeSleep::ToTry));
        }
        assert_eq!([(); 63].map(|()| would_try(&pool)), [false; 63]);
        assert!(would_try(&pool));
    }

    /// Without a setting the leader spins for a while, and after one that found nothing not for
    /// long; meanwhile it polls twice.
    #[test]
    fn it_spins_untold_where_that_pays() {
        let pool = untold();
        assert!(would_try(&pool));
        try_in_vain(&pool);
        assert_eq!([(); 3].map(|()| looks(&pool, true)), [2, 0, 2]);
        assert_eq!([(); 60].map(|()| would_try(&pool)), [false; 60]);
    }

    /// A spin goes on until its time is over.
    #[test]
    fn a_try_is_one_spin() {
        let pool = untold();
        let mut before = trying(&pool, Yielded::Shortly, Duration::from_secs(3600));
        before.note_nothing(pool.shared());
        assert!(matches!(before, BeforeSleep::Tries(_)));
        let mut before = BeforeSleep::ToTry;
        while !matches!(before, BeforeSleep::Over) {
            before.note_nothing(pool.shared());
        }
        assert!(!would_try(&pool));
    }

    /// Nearly every one has to find something, and then one that does not is forgiven.
    #[test]
    fn a_try_in_vain_is_forgiven_among_many() {
        let pool = untold();
        for _ in 0..28 {
            assert!(would_try(&pool));
            trying(&pool, Yielded::Shortly, UNTOLD).note_found(pool.shared());
        }
        try_in_vain(&pool);
        assert!(would_try(&pool));
    }

    /// What was found before others ran was there anyway.
    #[test]
    fn only_what_is_found_by_a_spin_counts_for_it() {
        let pool = untold();
        (0..28).for_each(|_| BeforeSleep::ToTry.note_found(pool.shared()));
        try_in_vain(&pool);
        assert!(!would_try(&pool));
    }

    /// A thread that has lost its core in the one way does not lose it in the other next.
    #[test]
    fn a_lost_core_counts_for_both() {
        fn note<'p>(mut before: BeforeSleep<'p>, pool: &'p Pool, found: bool) {
            if found {
                before.note_found(pool.shared())
            } else {
                before.note_nothing(pool.shared())
            }
        }
        for found in [true, false] {
            let [looked, tried] = [untold(), untold()];
            let lost = Yielded::ForLong;
            note(BeforeSleep::LooksAgain(lost), &looked, found);
            note(trying(&tried, lost, Duration::ZERO), &tried, found);
            for pool in [looked, tried] {
                assert_eq!([(); 1000].map(|()| looks(&pool, true)), [0; 1000]);
            }
        }
    }

    /// Each is counted when it ends, and those that found nothing apart; set or not.
    #[test]
    fn spins_are_counted() {
        let pool = untold();
        let counted = || (pool.snapshot().spins, pool.snapshot().spins_in_vain);
        trying(&pool, Yielded::Shortly, UNTOLD).note_found(pool.shared());
        assert_eq!(counted(), (1, 0));
        let mut before = trying(&pool, Yielded::Shortly, Duration::from_secs(3600));
        before.note_nothing(pool.shared());
        assert_eq!(counted(), (1, 0));
        try_in_vain(&pool);
        assert_eq!(counted(), (2, 1));
        BeforeSleep::SpinsUntil(Timestamp::PAST).note_found(pool.shared());
        assert_eq!(counted(), (3, 1));
        BeforeSleep::SpinsUntil(Timestamp::PAST).note_nothing(pool.shared());
        assert_eq!(counted(), (4, 2));
        BeforeSleep::LooksAgain(Yielded::Shortly).note_nothing(pool.shared());
        assert_eq!(counted(), (4, 2));
    }

    /// With a span set, the leader spins each time.
    #[test]
    fn a_told_spin_is_never_left_out() {
        let pool = pool(Duration::from_micros(100));
        for _ in 0..2 {
            let before = BeforeSleep::new(pool.shared(), true, NO_DEADLINE);
            assert!(matches!(before, BeforeSleep::ToSpin(_)));
            assert!(looks(&pool, true) > 1);
        }
    }
}
