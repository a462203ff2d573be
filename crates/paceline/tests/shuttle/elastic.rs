//! Elastic pools: threads are called and retire while events come, and the pool ends at any moment
//! of that.

use std::ops::RangeInclusive;

use super::*;

const KEEP_ALIVE: Duration = Duration::from_secs(1);

fn elastic_on(world: &Simulation, threads: RangeInclusive<usize>) -> Builder {
    builder_on(world, 0).threads(threads).keep_alive(KEEP_ALIVE)
}

/// L1, L2, H1, H2: every byte comes back to the connection that sent it, in order, while threads
/// come and go; and there are never more than may be.
fn every_byte_while_threads_come_and_go(wake: Wake, order: Order) {
    check(move || {
        const MOST: usize = 4;
        let (world, tally) = (world(), Tally::default());
        let builder = elastic_on(&world, 1..=MOST);
        let pool = builder.wake(wake).order(order).build().unwrap();
        let peers: Vec<_> = (0..3_u8)
            .map(|id| (id, connect(&world, &pool, &tally).1))
            .collect();
        let time = {
            let (world, pool) = (world.clone(), pool.clone());
            thread::spawn(move || {
                for _ in 0..4 {
                    world.clock().advance(KEEP_ALIVE);
                    assert!(pool.snapshot().threads <= MOST);
                    thread::yield_now();
                }
            })
        };
        for round in 0..3_u8 {
            for (id, peer) in &peers {
                peer.send(&[*id, round]);
            }
        }
        for (id, peer) in &peers {
            let expected: Vec<u8> = (0..3).flat_map(|round| [*id, round]).collect();
            assert_eq!(peer.wait_for(6), expected);
            peer.finish();
        }
        time.join().unwrap();
        peers.iter().for_each(|(_, peer)| peer.wait_closed());
        let seen = pool.snapshot();
        assert!(seen.grown >= 1 && seen.retired <= seen.grown, "{seen:?}");
        let report = pool.shutdown(Duration::from_secs(1));
        assert!(report.is_clean(), "{report}");
        assert_eq!(pool.snapshot().threads, 0);
        assert_eq!(tally.closed.load(Ordering::SeqCst), 3);
    });
}

#[test]
fn shuttle_elastic_every_byte_newest() {
    every_byte_while_threads_come_and_go(Wake::Adaptive, Order::Newest);
}

#[test]
fn shuttle_elastic_every_byte_system() {
    every_byte_while_threads_come_and_go(Wake::Adaptive, Order::System);
}

#[test]
fn shuttle_elastic_every_byte_eager() {
    every_byte_while_threads_come_and_go(Wake::Eager, Order::Oldest);
}

/// S1, S2: a shutdown at any moment of the growth. Everyone who was called goes, and is waited for.
#[test]
fn shuttle_elastic_shutdown_at_any_moment() {
    check(|| {
        let (world, tally) = (world(), Tally::default());
        let pool = elastic_on(&world, 1..=4).build().unwrap();
        let peers = [(); 3].map(|()| connect(&world, &pool, &tally).1);
        let guest = {
            let pool = pool.clone();
            thread::spawn(move || drop(pool.join_timeout(KEEP_ALIVE)))
        };
        peers.iter().for_each(|peer| peer.send(b"x"));
        let report = pool.shutdown(Duration::from_secs(1));
        assert!(report.stuck_threads.is_empty(), "{report}");
        guest.join().unwrap();
        assert_eq!(pool.snapshot().threads, 0);
        drop(pool);
        peers.iter().for_each(SimPeer::wait_closed);
        assert_eq!(tally.closed.load(Ordering::SeqCst), 3);
        assert_eq!(tally.dropped.load(Ordering::SeqCst), 3);
    });
}
