//! Unit tests of the hub.

use std::time::Duration;

use crate::{
    idle::{Idle, Means},
    Pool, SetKind,
};

/// A poll of some sets costs more than it saves.
#[test]
fn it_does_not_poll_twice_where_that_is_dear() {
    for (set, pays) in [
        (SetKind::Epoll, true),
        (SetKind::OneShot, true),
        (SetKind::Poll, false),
    ] {
        let pool = Pool::builder().threads(0).handle_set(set).build();
        let pool = pool.expect("a pool");
        let idle = pool.hub().begin_idle(true, None);
        assert_eq!(!idle.may_sleep(), pays);
    }
}

/// Each spin is counted when it ends, and those that found nothing apart; set or not.
#[test]
fn spins_are_counted() {
    let pool = Pool::builder().threads(0).build().expect("a pool");
    let hub = pool.hub();
    let counted = || (pool.snapshot().spins, pool.snapshot().spins_in_vain);
    let begun = |means| {
        let mut idle = Idle::Polls(means);
        hub.note_nothing(&mut idle);
        idle
    };
    let spin = |means| {
        let mut idle = begun(means);
        while !idle.may_sleep() {
            hub.note_nothing(&mut idle);
        }
    };
    let span = Duration::from_micros(1);
    hub.note_found(&begun(Means::Spin));
    assert_eq!(counted(), (1, 0));
    spin(Means::Spin);
    assert_eq!(counted(), (2, 1));
    hub.note_found(&begun(Means::SetSpin(span)));
    assert_eq!(counted(), (3, 1));
    spin(Means::SetSpin(span));
    assert_eq!(counted(), (4, 2));
    spin(Means::Yields);
    assert_eq!(counted(), (4, 2));
}
