//! What a leader that finds nothing does before it sleeps in the set: it looks again, once, when others have run, where that
//! has paid; or for a while, if the pool wants it to.
//!
//! ```text
//!   ToLook ---- nothing: others run ---> LooksAgain ---- nothing ----.
//!                                                                    v
//!   ToSpin ---- nothing ---------------> SpinsUntil ---- over ----> Over: it may sleep
//! ```

use std::time::Duration;

use crate::{
    pool::Shared,
    sync::{Timestamp, Turn, Yielded, Yielding},
};

/// What the next look is.
pub(super) enum BeforeSleep {
    /// It may sleep.
    Over,
    /// If there is nothing others run: who sends the next request may only need this core.
    ToLook,
    /// Others ran.
    LooksAgain(Yielded),
    /// It is to look again and again for so long, and has not looked in vain yet.
    ToSpin(Duration),
    /// It looks again until then.
    SpinsUntil(Timestamp),
}

impl BeforeSleep {
    /// For one wait until `until`.
    pub(super) fn new(shared: &Shared, nothing_waits: bool, until: Option<Timestamp>) -> Self {
        match shared.leader_spin {
            // On a clock that stands still there would be no end to it.
            span if !span.is_zero() && shared.clock.is_real() => Self::ToSpin(span),
            _ if nothing_waits && may_look(shared, until) => match shared.looks.take_turn() {
                Turn::Look => Self::ToLook,
                Turn::LeaveOut => Self::Over,
            },
            _ => Self::Over,
        }
    }

    /// Until when the next look may sleep, in a wait until `until`.
    pub(super) fn deadline(&self, until: Option<Timestamp>) -> Option<Timestamp> {
        match self {
            Self::Over => until,
            Self::ToLook | Self::LooksAgain(_) | Self::ToSpin(_) | Self::SpinsUntil(_) => {
                Some(Timestamp::PAST)
            }
        }
    }

    /// A look found something.
    pub(super) fn note_found(&self, shared: &Shared) {
        if let Self::LooksAgain(yielded) = self {
            shared.looks.note_found(*yielded);
        }
    }

    /// A look found nothing.
    pub(super) fn note_nothing(&mut self, shared: &Shared) {
        *self = match *self {
            Self::ToLook => Self::LooksAgain(Yielding::begin(&shared.clock).let_others_run()),
            Self::LooksAgain(yielded) => {
                shared.looks.note_vain(yielded);
                Self::Over
            }
            Self::ToSpin(span) => Self::SpinsUntil(shared.clock.now().after(span)),
            Self::SpinsUntil(end) if shared.clock.now() < end => Self::SpinsUntil(end),
            Self::Over | Self::SpinsUntil(_) => Self::Over,
        }
    }
}

/// Whether it makes sense to look twice in a wait until then. On a clock that stands still nobody runs meanwhile, but in a
/// checker.
fn may_look(shared: &Shared, until: Option<Timestamp>) -> bool {
    let others_run = shared.clock.is_real() || cfg!(shuttle);
    others_run && shared.registry.is_looked_at_cheaply() && !shared.clock.has_passed(until)
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

    /// How many looks without sleep there are before the one that may sleep.
    fn looks(pool: &Pool, nothing_waits: bool) -> u32 {
        let shared = pool.shared();
        let mut before = BeforeSleep::new(shared, nothing_waits, NO_DEADLINE);
        let mut count = 0;
        while before.deadline(NO_DEADLINE).is_some() {
            match before {
                // Nobody has taken the core, whatever else runs here.
                BeforeSleep::ToLook => before = BeforeSleep::LooksAgain(Yielded::Shortly),
                _ => before.note_nothing(shared),
            }
            count += 1;
        }
        count
    }

    /// Two looks, with others in between. If they were in vain they are left out, the more often the longer that goes on.
    #[test]
    fn it_looks_again_where_that_pays() {
        let pool = pool(Duration::ZERO);
        assert_eq!([(); 6].map(|()| looks(&pool, true)), [2, 0, 2, 0, 0, 0]);
        BeforeSleep::LooksAgain(Yielded::Shortly).note_found(pool.shared());
        assert_eq!([(); 3].map(|()| looks(&pool, true)), [2, 0, 2]);
    }

    /// Who has something to do does not ask.
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

    /// Who had lost its core finds something, of course.
    #[test]
    fn a_core_that_was_lost_does_not_count() {
        let pool = pool(Duration::ZERO);
        BeforeSleep::LooksAgain(Yielded::ForLong).note_found(pool.shared());
        assert_eq!([(); 1000].map(|()| looks(&pool, true)), [0; 1000]);
    }

    /// Who may not wait does not let others run either.
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
            assert_eq!(looks(&pool.build().expect("a pool"), true), count);
        }
    }

    /// Who was told to spin spins instead, each time.
    #[test]
    fn a_spin_is_never_left_out() {
        let pool = pool(Duration::from_micros(100));
        for _ in 0..2 {
            let before = BeforeSleep::new(pool.shared(), true, NO_DEADLINE);
            assert!(matches!(before, BeforeSleep::ToSpin(_)));
            assert!(looks(&pool, true) > 1);
        }
    }
}
