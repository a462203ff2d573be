//! What the server reports, as events of the crate `tracing`: with the feature of this name, to a
//! subscriber of our own.

mod support;

use std::{
    fmt,
    fs::{self, File},
    io::{self, Write},
    net::TcpListener,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use paceline_server::{codec::line, Dialer, Limits, Listen, Room, Server};
use support::{
    actor::Actor,
    bounded,
    tls::Identity,
    wait_until_or,
    world::{assert_gets, finish, on_both_engines, on_leader_followers, World},
};
use tracing::{
    field::{Field, Visit},
    span, Event, Level, Metadata, Subscriber,
};

/// Level and target, and all fields with their values.
type Report = (Level, String);

/// Events come from the threads of the server, so the subscriber is the whole process's.
static REPORTS: OnceLock<Arc<Mutex<Vec<Report>>>> = OnceLock::new();

struct Collector(Arc<Mutex<Vec<Report>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Collector {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG && metadata.target().starts_with("paceline")
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(format!("{} ", event.metadata().target()));
        event.record(&mut text);
        self.0
            .lock()
            .unwrap()
            .push((*event.metadata().level(), text.0));
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

fn collect() {
    REPORTS.get_or_init(|| {
        let reports = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::set_global_default(Collector(Arc::clone(&reports))).unwrap();
        reports
    });
}

fn reports() -> Vec<Report> {
    REPORTS.get().unwrap().lock().unwrap().clone()
}

/// Waits for a report of this level that contains all `parts`, and returns it.
#[track_caller]
fn wait_for(level: Level, parts: &[&str]) -> String {
    let found = || {
        let fits = |text: &str| parts.iter().all(|part| text.contains(part));
        let mut all = reports().into_iter();
        all.find(|(found, text)| *found == level && fits(text))
    };
    let instead = || format!("no {level} with {parts:?} among {:#?}", reports());
    wait_until_or(|| found().is_some(), instead);
    found().unwrap().1
}

/// A server with a listener of this name.
fn serve(world: &World, name: &str, limits: Limits) -> Server {
    let calls = world.calls.clone();
    let listen = Listen::simulated(&world.inlet).name(name).limits(limits);
    let builder = world.builder().listener(listen, line(80), move |_| {
        Actor::new(&calls).on_item(|item, cx| match item.as_str()?.split_once(' ') {
            Some(("panic", text)) => panic!("{text}"),
            _ => cx.reply(item).map(|()| paceline_server::Next::Continue),
        })
    });
    world.start(builder)
}

/// A connection is reported when it stands and when it ends, with what it did.
#[test]
fn a_connection_from_its_beginning_to_its_end() {
    collect();
    on_both_engines(|world| {
        let name = format!("whole {}", world.is_half_sync());
        let _server = serve(&world, &name, Limits::default());
        let peer = world.inlet.connect();
        let service = format!("service=\"{name}\"");
        wait_for(
            Level::DEBUG,
            &[&service, "a connection is open", "peer=simulated"],
        );
        peer.send(b"one\ntwo\n");
        assert_gets(&peer, "one\r\ntwo\r\n");
        finish(&peer);
        let parts = [
            service.as_str(),
            "a connection ended ",
            "connection=",
            "items=2 bytes_in=8",
            "reason=\"by_peer\"",
        ];
        let report = wait_for(Level::DEBUG, &parts);
        assert!(report.starts_with("paceline_server "), "{report}");
    });
}

/// Ends that an operator looks for have a higher level, and the limit has its name.
#[test]
fn early_ends_have_a_higher_level() {
    collect();
    on_both_engines(|world| {
        let name = format!("early {}", world.is_half_sync());
        let service = format!("service=\"{name}\"");
        let _server = serve(&world, &name, Limits::default());
        let (idle, long) = (world.inlet.connect(), world.inlet.connect());
        idle.send(b"a\n");
        assert_gets(&idle, "a\r\n");
        long.send(&[b'x'; 100]);
        wait_until_or(|| long.is_output_ended(), || "it goes on".to_owned());
        finish(&long);
        wait_for(
            Level::INFO,
            &[&service, "reason=\"malformed\"", "longer than 80 bytes"],
        );
        world.pass_seconds(80);
        wait_for(
            Level::INFO,
            &[&service, "reason=\"limit\"", "detail=limit idle"],
        );
        let panics = world.inlet.connect();
        panics.send(b"panic a\x1b[2Jb\n");
        panics.wait_closed();
        let report = wait_for(Level::ERROR, &[&service, "reason=\"panicked\""]);
        assert!(report.contains("a\\u{1b}[2Jb"), "{report}");
    });
}

/// The pool of the server reports too: here the panic of a handler.
#[test]
fn the_pool_reports_too() {
    collect();
    on_leader_followers(|world| {
        let _server = serve(&world, "of the pool", Limits::default());
        let peer = world.inlet.connect();
        peer.send(b"panic of a session of a pool\n");
        peer.wait_closed();
        let parts = ["pool=main", "a handler panicked", "of a session of a pool"];
        let report = wait_for(Level::ERROR, &parts);
        assert!(report.starts_with("paceline "), "{report}");
    });
}

/// Where it listens, when it begins to end, and how it has ended.
#[test]
fn the_life_of_a_server() {
    collect();
    on_leader_followers(|world| {
        let server = serve(&world, "alive", Limits::default());
        wait_for(
            Level::INFO,
            &["the server listens", "service=\"alive\"", "place="],
        );
        let within = Duration::from_secs(4321);
        assert!(server.drain(within).is_clean());
        wait_for(Level::INFO, &["the server drains", "within=4321s"]);
        wait_for(
            Level::INFO,
            &["the server has ended", "cut=0 is_clean=true"],
        );
    });
}

/// A bad file is an error that names it, and good ones are reported too.
#[test]
fn certificates_that_are_read_anew() {
    collect();
    let identity = Identity::new("localhost");
    let tls = identity.tls();
    tls.reload().unwrap();
    let key = identity.key();
    let path = format!("{key:?}");
    wait_for(Level::INFO, &["certificates were read anew", &path]);
    let mut file = File::create(&key).unwrap();
    file.write_all(b"nonsense").unwrap();
    tls.reload().unwrap_err();
    let file = fs::canonicalize(&key).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    wait_for(Level::ERROR, &["could not be read anew", &path, name]);
}

/// An outgoing connection that can't be made has no number yet, and is reported.
#[test]
fn a_connection_that_is_not_made() {
    collect();
    bounded(|| {
        let nowhere = TcpListener::bind("127.0.0.1:0").unwrap().local_addr();
        let calls = support::actor::Calls::default();
        let dialer = Dialer::new("to nowhere");
        let _server = Server::builder().dialer(&dialer).start().unwrap();
        let made = dialer.connect(nowhere.unwrap(), line(80), Actor::new(&calls));
        if made.is_ok() {
            wait_for(
                Level::INFO,
                &["service=\"to nowhere\"", "could not be made"],
            );
        }
        io::Result::Ok(())
    })
    .unwrap();
}

/// A member without a place for a message.
#[test]
fn a_message_that_misses() {
    collect();
    on_leader_followers(|world| {
        let room = Room::new();
        let (calls, joined) = (world.calls.clone(), room.clone());
        let listen = Listen::simulated(&world.inlet).name("full");
        let listen = listen.limits(Limits::default().mailbox(10));
        let builder = world.builder().listener(listen, line(80), move |_| {
            let room = joined.clone();
            Actor::new(&calls).on_start(move |cx| {
                room.join(cx);
                Ok(paceline_server::Next::Continue)
            })
        });
        let _server = world.start(builder);
        let _peer = world.inlet.connect();
        world.calls.wait_for("start");
        room.send(&b"more than ten bytes"[..]);
        wait_for(Level::DEBUG, &["service=\"full\"", "a message missed"]);
    });
}
