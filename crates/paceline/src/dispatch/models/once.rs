//! A set that reports once: what is wanted is armed, at every interleaving.

use super::*;

/// H1, H2: the same as with edges, but the set is silent after each report. The owner arms before
/// it lets go, so the second byte is reported.
#[test]
fn loom_report_against_release() {
    edge_against_release(Reports::Once);
}

/// H2: interest comes from elsewhere while the peer sends. In either order, the handle is armed and
/// the byte is reported.
#[test]
fn loom_report_against_interest() {
    edge_against_interest(Reports::Once);
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
