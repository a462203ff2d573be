//! What a leader does before it sleeps in the set.

use std::time::Duration;

use crate::{
    pool::Shared,
    sync::{thread, Timestamp},
};

/// A leader that finds nothing looks again before it sleeps: once, after others ran, where that has paid, or for a while, if
/// the pool wants it to.
pub(super) enum BeforeSleep {
    /// It may sleep.
    Over,
    /// It looks, and if there is nothing lets others run: who sends the next request may only need this core.
    First,
    /// Others ran, and it looks once more.
    Second,
    /// It is to look again and again, and has not looked in vain yet.
    Before(Duration),
    /// It looks again until then.
    Until(Timestamp),
}

impl BeforeSleep {
    /// For one wait. On a clock that stands still nobody else runs, and there would be no end to it.
    pub(super) fn new(shared: &Shared, nothing_waits: bool) -> Self {
        match shared.leader_spin {
            _ if !nothing_waits || !shared.clock.is_real() => Self::Over,
            span if !span.is_zero() => Self::Before(span),
            _ if shared.looks.are_worth_it() => Self::First,
            _ => Self::Over,
        }
    }

    /// Until when the next look may sleep, in a wait until `until`.
    pub(super) fn deadline(&self, until: Option<Timestamp>) -> Option<Timestamp> {
        match self {
            Self::Over => until,
            Self::First | Self::Second | Self::Before(_) | Self::Until(_) => Some(Timestamp::PAST),
        }
    }

    /// A look found something.
    pub(super) fn note_found(&self, shared: &Shared) {
        if let Self::Second = self {
            shared.looks.note_found();
        }
    }

    /// A look found nothing.
    pub(super) fn note_nothing(&mut self, shared: &Shared) {
        *self = match *self {
            Self::First => {
                thread::yield_now();
                Self::Second
            }
            Self::Second => {
                shared.looks.note_vain();
                Self::Over
            }
            Self::Before(span) => Self::Until(shared.clock.now().after(span)),
            Self::Until(end) if shared.clock.now() < end => Self::Until(end),
            Self::Over | Self::Until(_) => Self::Over,
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::Pool;

    const LATER: Option<Timestamp> = None;

    fn pool(spin: Duration) -> Pool {
        let pool = Pool::builder().threads(0).leader_spin(spin);
        pool.build().expect("a pool")
    }

    /// How many looks without sleep there are before the one that may sleep.
    fn looks(pool: &Pool, nothing_waits: bool) -> u32 {
        let shared = pool.shared();
        let mut before = BeforeSleep::new(shared, nothing_waits);
        let mut count = 0;
        while before.deadline(LATER).is_some() {
            before.note_nothing(shared);
            count += 1;
        }
        count
    }

    /// Two looks, with others in between. If they were in vain they are left out, the more often the longer that goes on.
    #[test]
    fn it_looks_again_where_that_pays() {
        let pool = pool(Duration::ZERO);
        assert_eq!([(); 6].map(|()| looks(&pool, true)), [2, 0, 2, 0, 0, 0]);
        let second = BeforeSleep::Second;
        second.note_found(pool.shared());
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
        let first = BeforeSleep::new(pool.shared(), true);
        first.note_found(pool.shared());
        assert_eq!([(); 5].map(|()| looks(&pool, true)), [2, 0, 0, 0, 2]);
    }

    /// Who was told to spin spins instead.
    #[test]
    fn a_span_is_used_up() {
        let pool = pool(Duration::from_micros(100));
        assert!(looks(&pool, true) > 1);
        assert!(looks(&pool, true) > 1);
    }
}
