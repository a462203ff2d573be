//! Clients that claim to be administrators, and have not proved it.

use super::*;

fn full() -> World {
    let mut world = World::new(Settings {
        max_clients: 1,
        ..Settings::default()
    });
    let _one = world.client();
    world
}

fn claim(world: &mut World) -> Result<ClientId, Refusal> {
    let now = world.now;
    let console = Destination::Console;
    world.book.enter(console, None, Privilege::Claimed, now)
}

/// A name is no proof: clients that only say that they are administrators took any number of places
/// beyond `max_client_conn`.
#[test]
fn claims_beyond_a_limit_are_few() {
    let mut world = full();
    let claims: Vec<_> = (0..MOST_CLAIMS)
        .map(|_| claim(&mut world).expect("there is room for a few"))
        .collect();
    assert_eq!(claim(&mut world), Err(Refusal::MaxClients));
    let _ = world.book.leave(claims[0], ms(0), &mut world.orders);
    let again = claim(&mut world).expect("one has left");
    assert_eq!(claim(&mut world), Err(Refusal::MaxClients));
    let _ = world.book.leave(again, ms(0), &mut world.orders);
}

/// An administrator that has proved it makes room for the next one, and stays.
#[test]
fn a_proof_ends_a_claim() {
    let mut world = full();
    for _ in 0..3 * MOST_CLAIMS {
        let client = claim(&mut world).expect("the others have proved it");
        let identified = world.book.identify(client, world.user, Privilege::Exempt);
        assert_eq!(identified, Ok(()));
    }
    let ordinary = Privilege::Ordinary;
    let refused = world
        .book
        .enter(Destination::Console, None, ordinary, ms(0));
    assert_eq!(refused, Err(Refusal::MaxClients));
}

/// A client within the limits takes no place of those that are beyond.
#[test]
fn claims_within_the_limits_are_not_counted() {
    let mut world = World::new(Settings {
        max_clients: 2 * MOST_CLAIMS,
        ..Settings::default()
    });
    for _ in 0..3 * MOST_CLAIMS {
        assert!(claim(&mut world).is_ok());
    }
    assert_eq!(claim(&mut world), Err(Refusal::MaxClients));
}

/// The console has the limit of a database: users that may only look on are subject to it.
#[test]
fn the_console_has_the_limit_of_a_database() {
    let mut world = World::new(Settings {
        max_database_clients: 2,
        ..Settings::default()
    });
    let mut enter = |privilege| {
        let entered = world
            .book
            .enter(Destination::Console, None, privilege, ms(0));
        entered.map(drop)
    };
    assert_eq!(enter(Privilege::Exempt), Ok(()));
    assert_eq!(enter(Privilege::Ordinary), Ok(()));
    let refused = Err(Refusal::MaxDatabaseClients);
    assert_eq!(enter(Privilege::Ordinary), refused);
    assert_eq!(enter(Privilege::Exempt), Ok(()));
}
