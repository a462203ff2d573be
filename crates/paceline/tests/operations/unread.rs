//! A handler that leaves its input unread is called again and again: that is counted, and reported
//! by name.

use std::{
    io,
    sync::{Arc, Mutex},
};

use crate::support::{
    bounded,
    by_hand::{self, lead, turn},
};
use paceline::{
    observe::{open_metrics, Observer, Unread},
    simulated::{SimPeer, SimStream, Simulation},
    Context, EventHandler, GroupHandler, Handle, Interest, Members, Next, Pool, SetKind,
};

/// After so many calls in a row.
const LIMIT: u32 = 5;

/// A pool without threads that reports unread input, and what it has reported.
struct Reported {
    world: Simulation,
    pool: Pool,
    reports: Arc<Mutex<Vec<Unread>>>,
}

struct Reports(Arc<Mutex<Vec<Unread>>>);

impl Observer for Reports {
    fn unread(&self, unread: &Unread) {
        self.0.lock().unwrap().push(*unread);
    }
}

impl Reported {
    fn new() -> Self {
        let (world, reports) = (Simulation::new(1), Arc::default());
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()))
            .unread_limit(LIMIT)
            .observer(Reports(Arc::clone(&reports)));
        Self {
            pool: pool.build().unwrap(),
            world,
            reports,
        }
    }

    /// A handle with this handler, and with input.
    fn serve(&self, handler: impl EventHandler<SimStream>) -> (Handle, SimPeer) {
        let (stream, peer) = self.world.stream();
        let handle = self.pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"unread");
        (handle, peer)
    }

    /// So many turns, for each of which something must be ready.
    fn turns(&self, count: u32) {
        let mut follower = self.pool.enter().unwrap();
        for _ in 0..count {
            follower = turn(follower);
        }
    }

    fn counted(&self) -> u64 {
        self.pool.snapshot().unread_calls
    }

    fn reported(&self) -> Vec<Unread> {
        self.reports.lock().unwrap().clone()
    }
}

/// A handler that never reads.
fn deaf(_: &mut Context<'_, SimStream>) -> io::Result<Next> {
    Ok(Next::Continue)
}

/// A service forgot to read in one of its states: its handler was called 700,000 times a second, a
/// core was busy, and no counter said why. Now the calls count from the limit on, and the handle is
/// reported once, with its handler's type.
#[test]
fn a_handler_that_never_reads_is_reported_once() {
    bounded(|| {
        let reported = Reported::new();
        let (handle, _peer) = reported.serve(deaf);
        reported.turns(LIMIT - 1);
        assert_eq!((reported.counted(), reported.reported().len()), (0, 0));
        reported.turns(1);
        assert_eq!(reported.counted(), 1);
        let [unread] = reported.reported()[..] else {
            panic!("{:?}", reported.reported())
        };
        assert_eq!((unread.handle, unread.calls), (handle.id(), LIMIT));
        assert!(unread.handler.contains("deaf"), "{unread}");
        assert!(unread.to_string().contains("5 calls"), "{unread}");
        reported.turns(3 * LIMIT);
        assert_eq!(reported.counted(), u64::from(3 * LIMIT + 1));
        assert_eq!(reported.reported().len(), 1);
        let text = open_metrics(&[("it", &reported.pool)]);
        assert!(text.contains("paceline_unread_calls_total{pool=\"it\"} 16"));
    });
}

/// Each handle is reported for itself.
#[test]
fn handles_are_told_apart() {
    bounded(|| {
        let reported = Reported::new();
        let handles = [(); 2].map(|()| reported.serve(deaf));
        reported.turns(2 * LIMIT - 1);
        assert_eq!(reported.reported().len(), 1, "they take turns");
        reported.turns(1);
        let of = |unread: &Unread| unread.handle;
        let expected = handles.map(|(handle, _)| handle.id());
        assert_eq!(
            reported.reported().iter().map(of).collect::<Vec<_>>(),
            expected
        );
    });
}

/// A handler that answers "would block" of its output leaves its input unread as well, and is
/// called again.
#[test]
fn waiting_for_room_with_input_unread_counts() {
    bounded(|| {
        let reported = Reported::new();
        let (_handle, _peer) = reported.serve(|cx: &mut Context<'_, SimStream>| {
            while cx.write_now(&[0; 100])? > 0 {}
            Ok(Next::Continue)
        });
        reported.turns(LIMIT);
        assert_eq!((reported.counted(), reported.reported().len()), (1, 1));
    });
}

/// What ends a row: one call that reads, however little. A handler that reads a byte in every
/// fourth call is slow, not deaf; and one that asks to be called again has its reasons.
#[test]
fn a_call_that_reads_ends_the_row() {
    bounded(|| {
        let reported = Reported::new();
        let mut calls = 0;
        let now_and_then = move |cx: &mut Context<'_, SimStream>| {
            calls += 1;
            if calls % LIMIT == 0 {
                cx.read(&mut [0])?;
            }
            Ok(Next::Continue)
        };
        let (_handle, _peer) = reported.serve(now_and_then);
        reported.turns(6 * LIMIT);
        assert_eq!((reported.counted(), reported.reported().len()), (0, 0));
        let again = |_: &mut Context<'_, SimStream>| Ok(Next::Again);
        let (_handle, _peer) = reported.serve(again);
        reported.turns(2 * LIMIT);
        assert_eq!((reported.counted(), reported.reported().len()), (0, 0));
    });
}

/// A row that was ended begins from one. A handle that was reported is counted, and not reported
/// again.
#[test]
fn a_second_row_is_counted_and_not_reported() {
    bounded(|| {
        let reported = Reported::new();
        let mut calls = 0;
        let (_handle, _peer) = reported.serve(move |cx: &mut Context<'_, SimStream>| {
            calls += 1;
            if calls == LIMIT + 1 {
                cx.read(&mut [0])?;
            }
            Ok(Next::Continue)
        });
        reported.turns(LIMIT + 1 + LIMIT - 1);
        assert_eq!(reported.counted(), 1);
        reported.turns(1);
        assert_eq!((reported.counted(), reported.reported().len()), (2, 1));
    });
}

/// Handlers that read what is there are not counted, however often they are called, nor is one that
/// waits.
#[test]
fn a_handler_that_reads_is_never_counted() {
    bounded(|| {
        let reported = Reported::new();
        let (_handle, peer) = reported.serve(by_hand::echo);
        reported.turns(1);
        assert_eq!(peer.received(), b"unread");
        for _ in 0..4 * LIMIT {
            peer.send(b"x");
            reported.turns(1);
            assert_eq!(peer.received(), b"x");
        }
        assert_eq!((reported.counted(), reported.reported().len()), (0, 0));
        drop(by_hand::find_nothing(lead(&reported.pool)));
    });
}

/// A group's handler that never reads from one of its members is reported with that member, under
/// the handler's name.
#[test]
fn a_member_of_a_group_is_reported() {
    struct Deaf;
    impl GroupHandler<SimStream> for Deaf {
        fn ready(
            &mut self,
            _: &mut Context<'_, SimStream>,
            _: &mut Members<'_, SimStream>,
        ) -> io::Result<Next> {
            Ok(Next::Continue)
        }
    }
    bounded(|| {
        let reported = Reported::new();
        let group = reported.pool.group(Deaf).unwrap();
        let (stream, peer) = reported.world.stream();
        let handle = group.register(stream, Interest::READ).unwrap();
        by_hand::serve_all(&reported.pool);
        peer.send(b"unread");
        reported.turns(LIMIT);
        assert_eq!(reported.counted(), 1);
        let [unread] = reported.reported()[..] else {
            panic!("{:?}", reported.reported())
        };
        assert_eq!(unread.handle, handle.id());
        assert!(unread.handler.contains("Deaf"), "{unread}");
    });
}

/// A handler that closes its handle need not read what is there.
#[test]
fn a_call_that_closes_is_not_counted() {
    bounded(|| {
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()))
            .unread_limit(1)
            .build()
            .unwrap();
        let (stream, peer) = world.stream();
        let closes = |_: &mut Context<'_, SimStream>| Ok(Next::Close);
        pool.register(stream, Interest::READ, closes).unwrap();
        peer.send(b"unread");
        assert_eq!(by_hand::serve_all(&pool), 1);
        assert_eq!(pool.snapshot().unread_calls, 0);
    });
}

/// A limit of zero would report everyone, so it is refused.
#[test]
fn no_call_at_all_is_no_limit() {
    let error = Pool::builder().unread_limit(0).build().unwrap_err();
    assert!(error.to_string().contains("unread_limit(0)"), "{error}");
}
