//! Servers that are given to clients that have left.

use std::{
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

use paceline::{Group, HandleId};

use super::*;
use crate::{
    front::{
        client::{Delivery, Ended, Given, Pressure, Way},
        server::Errand,
        sockets::Address,
        tests::{wait_until, Host, World},
    },
    pools::{Ask, Order, Refusal},
};

/// A world with one idle server.
fn world() -> World {
    let host = Host::new();
    let world = World::new(&format!("host=127.0.0.1 port={}", host.address.port()));
    world.open_idle();
    world
}

/// A client asks, and the book gives it the idle server.
fn taken(world: &World) -> (ClientId, Arc<Server>) {
    match world.ask() {
        (client, Ask::Server { connection, .. }, _) => (client, connection),
        (_, other, _) => unreachable!("a server is idle: {other:?}"),
    }
}

fn new_client(world: &World) -> Arc<Client> {
    let front = &world.front;
    let address = Address::Unix {
        port: 1,
        process: None,
    };
    let client = Arc::new(Client::new(front.next_number(), address, front.now()));
    front.clients().add(Arc::clone(&client));
    client
}

/// Reports which members it gets.
struct Recorder(Sender<HandleId>);

impl GroupHandler<Stream> for Recorder {
    fn joined(
        &mut self,
        cx: &mut Context<'_, Stream>,
        _members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        // The test may have seen enough.
        let _ = self.0.send(cx.handle().id());
        Ok(Next::Continue)
    }

    fn ready(
        &mut self,
        _cx: &mut Context<'_, Stream>,
        _members: &mut Members<'_, Stream>,
    ) -> io::Result<Next> {
        Ok(Next::Continue)
    }
}

fn recorder(world: &World) -> (Group<Stream>, Receiver<HandleId>) {
    let (tell, told) = mpsc::channel();
    let group = world.threads.group(Recorder(tell));
    (group.expect("a slot"), told)
}

/// A client that waits for a server, as the book and the front know it.
fn waiting(world: &World, group: &Group<Stream>) -> Arc<Client> {
    let client = new_client(world);
    client.settle(group.clone());
    let (id, asked, orders) = world.ask();
    assert!(matches!(asked, Ask::Waiting), "{asked:?}");
    assert!(orders.is_empty(), "the pool is full");
    world.front.clients().name(id, Arc::clone(&client));
    client
}

/// The group of a client ends while its mail is still open. Its server was forgotten with its
/// connection open; now the next client that waits gets it.
#[test]
fn a_server_for_a_group_that_has_ended_is_given_on() {
    let world = world();
    let (_, server) = taken(&world);
    let (ended, _) = recorder(&world);
    let _first = waiting(&world, &ended);
    ended.close().expect("it is there");
    while ended.notify().is_ok() {
        std::thread::yield_now();
    }
    let (alive, told) = recorder(&world);
    let _second = waiting(&world, &alive);
    server.core().errand = Errand::GiveBack;
    server.home().notify().expect("the home is there");
    let arrived = told.recv_timeout(Duration::from_secs(30));
    assert_eq!(arrived.ok(), Some(server.handle().id()));
}

/// A client left before it had fetched an idle server that the book had given to it: the server
/// belonged to nobody, and counted for the pool for ever.
#[test]
fn a_server_that_is_not_fetched_goes_back() {
    let world = world();
    let (_, server) = taken(&world);
    let client = new_client(&world);
    let session = Session::new(Arc::clone(&world.front), Arc::clone(&client), None);
    let given = Given {
        server,
        way: Way::Fetch,
    };
    assert_eq!(client.give(given), Delivery::Done);
    assert!(session.close_mail().is_none(), "nothing comes by itself");
    world.wait_until("it is idle again", |idle, _| idle == 1);
}

/// A session that needs no server gets one: it closed a healthy connection.
#[test]
fn a_server_that_is_not_wanted_goes_back() {
    let world = world();
    let (id, server) = taken(&world);
    let client = new_client(&world);
    world.front.clients().name(id, Arc::clone(&client));
    let session = Session::new(Arc::clone(&world.front), Arc::clone(&client), None);
    let group = world.threads.group(session).expect("a slot");
    let (ours, _theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let ours = crate::front::sockets::from_unix(ours);
    group.register(ours, Interest::READ).expect("a member");
    wait_until("the session has begun", || client.group().is_some());
    let number = server.number;
    world.front.carry_out(vec![Order::Give {
        client: id,
        server: server.id,
        connection: server,
        binding: 0,
    }]);
    world.wait_until("it is idle again", |idle, _| idle == 1);
    let servers = world.front.servers();
    let numbers: Vec<_> = servers.values().map(|server| server.number).collect();
    assert_eq!(numbers, [number], "the same connection");
}

/// A session whose connection could not be registered was listed for ever.
#[test]
fn a_session_without_a_connection_is_forgotten() {
    let world = world();
    let before = world.front.clients().len();
    let client = new_client(&world);
    drop(Session::new(Arc::clone(&world.front), client, None));
    assert_eq!(world.front.clients().len(), before);
}

/// A client does not take the end of a large result: it counted as one that holds up its shared
/// connection, and was closed, although the connection served others.
#[test]
fn a_client_whose_replies_are_complete_holds_up_no_others() {
    let world = World::new("host=127.0.0.1");
    let client = new_client(&world);
    let (trunk, _) = recorder(&world);
    let now = world.front.now();
    let pressure = client.add_replies(&vec![0; 2 << 20], None, &trunk, now);
    assert_eq!(pressure, Pressure::High);
    assert!(client.is_behind());
    let ended = Ended::Refused(Refusal::Killed);
    let pressure = client.add_replies(&[], Some(ended), &trunk, now);
    assert_eq!(pressure, Pressure::Low);
    assert!(!client.is_behind());
}
