//! L1: at most one thread holds the lead of a handle set.

use std::{
    collections::HashSet,
    io::{Read, Write},
};

use crate::support::{bounded, tcp_pair, Witness};
use paceline::{observe::Role, Context, Interest, Next, Order, Pool, Wake};

/// Many threads, many events, under every wake policy and in every order: whoever is told to lead
/// leads alone. The paper says "exactly one leader at all times" (E18); it is at most one: while
/// all threads process, nobody leads.
#[test]
fn never_two_leaders_under_load() {
    bounded(|| {
        for wake in [Wake::Eager, Wake::Adaptive] {
            for order in [Order::Newest, Order::Oldest, Order::Priority, Order::System] {
                let leaders = leaders_under_load(wake, order);
                // Adaptive and newest first, one thread may suffice; so it may by priority, where
                // all are equal and whoever comes back goes first. Otherwise the lead changes
                // hands.
                let goes_on = matches!(order, Order::Newest | Order::Priority);
                let one_suffices = wake == Wake::Adaptive && goes_on;
                assert!(one_suffices || leaders > 1, "{wake:?} {order:?}: {leaders}");
            }
        }
    });
}

/// How many threads led at one time or another.
fn leaders_under_load(wake: Wake, order: Order) -> usize {
    let witness = Witness::default();
    let pool = Pool::builder().threads(8).wake(wake).order(order);
    let pool = pool.observer(witness.clone()).build().unwrap();
    let clients: Vec<_> = (0..16)
        .map(|_| {
            let (near, far) = tcp_pair();
            pool.register(near, Interest::READ, |cx: &mut Context<'_, _>| {
                let mut buffer = [0; 64];
                let count = cx.read(&mut buffer)?;
                cx.write_all(&buffer[..count])?;
                Ok(Next::Continue)
            })
            .unwrap();
            far
        })
        .collect();
    for round in 0..50_u8 {
        for mut client in &clients {
            client.write_all(&[round]).unwrap();
        }
        for mut client in &clients {
            let mut answer = [0];
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [round]);
        }
    }
    assert_eq!(witness.most_leaders(), 1);
    let leaders = witness
        .log()
        .into_iter()
        .filter(|(_, role)| *role == Role::Leader);
    leaders
        .map(|(thread, _)| thread)
        .collect::<HashSet<_>>()
        .len()
}
