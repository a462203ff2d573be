//! A set that reports once: what is wanted is armed, at every interleaving.

use super::*;

/// H1, H2: as [`loom_edge_against_release`](super::loom_edge_against_release), with a set that is silent
/// after each report. The owner arms before it lets go, so the second byte is reported.
#[test]
fn loom_report_against_release() {
    explore(|| {
        let world = World::reporting(Reports::Once);
        let registry = world.registry();
        world.register(&registry, Interest::READ);
        let lead = lead();
        world.send();
        let other = {
            let (registry, lead) = (Arc::clone(&registry), Arc::clone(&lead));
            thread::spawn(move || work(&registry, &lead, false))
        };
        world.send();
        work(&registry, &lead, true);
        other.join().unwrap();
        work(&registry, &lead, true);
        assert_eq!(world.read(), 2);
    });
}

/// H2: interest comes from elsewhere while the peer sends. Whoever is late, the handle is armed and the byte
/// is reported.
#[test]
fn loom_report_against_interest() {
    explore(|| {
        let world = World::reporting(Reports::Once);
        let registry = world.registry();
        let handle = world.register(&registry, Interest::NONE);
        let peer = {
            let world = world.clone();
            thread::spawn(move || world.send())
        };
        let other = thread::spawn(move || handle.set_interest(Interest::READ).unwrap());
        let lead = lead();
        work(&registry, &lead, true);
        peer.join().unwrap();
        other.join().unwrap();
        work(&registry, &lead, true);
        assert_eq!(world.read(), 1);
    });
}

/// H2: interest goes and comes back while the handle is at rest and armed, or being armed.
#[test]
fn loom_report_with_interest_away_and_back() {
    explore(|| {
        let world = World::reporting(Reports::Once);
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        let other = thread::spawn(move || {
            handle.set_interest(Interest::NONE).unwrap();
            handle.set_interest(Interest::READ).unwrap();
        });
        world.send();
        let lead = lead();
        work(&registry, &lead, true);
        other.join().unwrap();
        work(&registry, &lead, true);
        assert_eq!(world.read(), 1);
    });
}
