//! A listener that stops at its bound, against connections that end.

use std::net::Ipv4Addr;

use super::*;
use crate::dispatch::{ListenerAddress, OpenConnections, Vacancy};

/// A listener: every unread byte is a connection that waits to be accepted.
struct Bounded {
    world: World,
    open: Arc<OpenConnections>,
}

impl EventHandler<Descriptor> for Bounded {
    fn ready(&mut self, cx: &mut Context<'_, Descriptor>) -> io::Result<Next> {
        if self.open.is_full() && self.open.wait_for_place(cx.handle()) == Vacancy::Awaited {
            return Ok(Next::Continue);
        }
        assert!(!self.open.is_full(), "the listener alone takes places");
        self.world.owned(|world| world.read_from(cx))
    }
}

/// `open` connections are open, which is the bound, and end while the listener finds that out: it
/// accepts the next one.
fn ends_against_full_listener(open: usize, reports: Reports) {
    explore(move || {
        let world = World::reporting(reports);
        let registry = world.registry();
        let address = (Ipv4Addr::LOCALHOST, 1).into();
        let bound = OpenConnections::new(ListenerAddress::Ip(address), Some(open));
        let counters = Arc::new(Counters::default());
        let places: Vec<_> = (0..open).map(|_| bound.admit(&counters)).collect();
        let listener = Bounded {
            world: world.clone(),
            open: Arc::clone(&bound),
        };
        registry
            .register(Descriptor, Interest::READ, listener)
            .unwrap();
        world.send();
        let ends = places
            .into_iter()
            .map(|place| thread::spawn(|| drop(place)));
        let ends: Vec<_> = ends.collect();
        let lead = lead();
        work(&registry, &lead, true);
        ends.into_iter().for_each(|end| end.join().unwrap());
        work(&registry, &lead, true);
        assert_eq!((world.read(), bound.count()), (1, 0));
    });
}

#[test]
fn loom_end_against_full_listener() {
    ends_against_full_listener(1, Reports::Edges);
}

#[test]
fn loom_end_against_full_listener_once() {
    ends_against_full_listener(1, Reports::Once);
}

#[test]
fn loom_two_ends_against_full_listener() {
    ends_against_full_listener(2, Reports::Edges);
}
