//! Hosts that are asked.

use super::*;
use crate::front::tests::{wait_until, Host, World};

/// Another thread has marked a host as being asked, and then has notified its probe. If the connection
/// of that had just ended, the question was lost: the host was never asked again, stayed down, and its
/// clients stayed parked.
#[test]
fn a_lost_question_is_asked_by_the_next_probe() {
    let host = Host::new();
    let world = World::new(&format!(
        "host=127.0.0.1 port={} roles=auto",
        host.address.port()
    ));
    let site = world.database().site().expect("it has roles");
    world.open_idle();
    let timeline = || site.inner().hosts.row(0).timeline;
    wait_until("the host is asked", || timeline() == Some(1));
    assert_eq!(host.connections(), 2, "the client's, and the probe's");
    // The other thread is here: it has marked the host, and the probe does not know it yet.
    let mut due = Vec::new();
    let later = world.front.now() + Duration::from_secs(10);
    site.inner().hosts.due(later, &mut due);
    assert_eq!(due, [0]);
    for connection in 0..host.connections() {
        host.cut(connection);
    }
    wait_until("the host is asked again", || {
        let probes = site.inner().probes.len();
        host.connections() == 3 && probes == 1
    });
    wait_until("the answer is there", || {
        site.inner().hosts.next_probe().is_some()
    });
}
