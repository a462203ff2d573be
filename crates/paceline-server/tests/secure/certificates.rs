//! Certificates: names, reloading, bad files, application protocols.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc,
    },
    thread,
};

use paceline_server::{
    codec::line,
    tls::{rustls, Tls, TlsClient},
    Dialer, Limits, Listen, Next, Server,
};

use super::handshakes::serve;
use crate::support::{
    actor::{Actor, Calls},
    bounded, patience,
    tls::{Identity, TlsPeer},
    wait_until,
    world::on_both_engines,
};

/// Certificates are read anew while connections come and go: no handshake fails, those that stand go
/// on, and new ones get the new certificate. A bad file keeps the old one, and is named.
#[test]
fn reload_under_load() {
    bounded(|| {
        let identity = Identity::new("localhost");
        let tls = identity.tls();
        let calls = Calls::default();
        let listen = Listen::tcp("127.0.0.1:0").tls(&tls);
        let make = move |_: &_| Actor::new(&calls);
        let server = Server::builder().listener(listen, line(80), make);
        let server = server.start().unwrap();
        let address = server.local_addr().unwrap();
        let old = identity.client();
        let mut stands = connect(address, &old).unwrap();
        ask(&mut stands);
        let (is_over, served) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let load = {
            let (is_over, served, old) = (is_over.clone(), served.clone(), old.clone());
            thread::spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    ask(&mut connect(address, &old).expect("no handshake fails"));
                    served.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let wait_for_more = || {
            let before = served.load(Ordering::Relaxed);
            wait_until(|| served.load(Ordering::Relaxed) > before + 1 || load.is_finished());
        };
        for _ in 0..3 {
            tls.reload().unwrap();
            wait_for_more();
        }
        let good = fs::read(identity.key()).unwrap();
        fs::write(identity.key(), "nonsense").unwrap();
        let error = tls.reload().unwrap_err();
        assert!(error.to_string().contains("key.pem"), "{error}");
        wait_for_more();
        // A key that belongs to another certificate.
        fs::copy(Identity::new("other").key(), identity.key()).unwrap();
        assert!(tls.reload().is_err());
        wait_for_more();
        fs::write(identity.key(), good).unwrap();
        is_over.store(true, Ordering::Relaxed);
        load.join().unwrap();
        identity.write("localhost");
        tls.reload().unwrap();
        ask(&mut stands);
        ask(&mut connect(address, &identity.client()).unwrap());
        assert!(connect(address, &old).is_err());
    });
}

type Secured = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

fn connect(
    address: std::net::SocketAddr,
    config: &Arc<rustls::ClientConfig>,
) -> std::io::Result<Secured> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(patience()))?;
    let name = "localhost".try_into().unwrap();
    let mut connection = rustls::ClientConnection::new(Arc::clone(config), name).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(rustls::StreamOwned::new(connection, stream))
}

fn ask(stream: &mut Secured) {
    stream.write_all(b"hello\n").unwrap();
    let mut answer = [0; 7];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"hello\r\n");
}

/// Each name has its certificate; a name below a wildcard has that one; others have the first.
#[test]
fn names_choose_certificates() {
    on_both_engines(|world| {
        let first = Identity::new("first.test");
        let exact = Identity::new("exact.test");
        let wild = Identity::new("a.wild.test");
        let tls = Tls::builder(first.certificate(), first.key())
            .named("EXACT.test", exact.certificate(), exact.key())
            .named("*.wild.test", wild.certificate(), wild.key())
            .build()
            .unwrap();
        let _server = serve(&world, &tls, Limits::default());
        for (identity, name) in [
            (&first, "first.test"),
            (&exact, "exact.test"),
            (&wild, "a.wild.test"),
        ] {
            let peer = world.inlet.connect();
            let mut client = TlsPeer::connected(peer, &identity.client(), name);
            client.send(b"hello\n");
            client.assert_gets("hello\r\n");
        }
    });
}

/// The server's preferred protocol of those that the client offers is agreed on; a client that
/// offers others only is refused, and one that offers none is served without.
#[test]
fn application_protocols() {
    on_both_engines(|world| {
        let identity = Identity::new("localhost");
        let tls = Tls::builder(identity.certificate(), identity.key());
        let tls = tls.alpn(["second", "first"]).build().unwrap();
        let limits = Limits::default();
        let listen = world.listen().limits(limits).tls(&tls);
        let calls = world.calls.clone();
        let builder = world.builder().listener(listen, line(80), move |_| {
            Actor::new(&calls).on_item(|_, cx| {
                let agreed = cx.tls().and_then(|tls| tls.alpn.clone());
                cx.reply(agreed.unwrap_or_else(|| b"none".to_vec()))?;
                Ok(Next::Continue)
            })
        });
        let _server = world.start(builder);
        let offering = |protocols: &[&str]| {
            let mut config = (*identity.client()).clone();
            config.alpn_protocols = protocols
                .iter()
                .map(|name| name.as_bytes().to_vec())
                .collect();
            Arc::new(config)
        };
        for (offered, agreed) in [
            (&["first", "second"][..], "second\r\n"),
            (&["other", "first"], "first\r\n"),
            (&[], "none\r\n"),
        ] {
            let config = offering(offered);
            let mut client = TlsPeer::connected(world.inlet.connect(), &config, "localhost");
            client.send(b"?\n");
            client.assert_gets(agreed);
        }
        let mut stranger = TlsPeer::new(world.inlet.connect(), &offering(&["other"]), "localhost");
        let hello = stranger.outgoing();
        stranger.peer.send(&hello);
        stranger.peer.finish();
        stranger.peer.wait_closed();
        world.settle();
        assert_eq!(world.calls.count("start"), 3);
    });
}

/// Files that are missing, have nothing, or do not belong together are named, before the start.
#[test]
fn bad_files_are_named() {
    let (good, other) = (Identity::new("localhost"), Identity::new("localhost"));
    let empty = other.certificate().with_file_name("empty.pem");
    fs::write(&empty, "").unwrap();
    let missing = other.certificate().with_file_name("missing.pem");
    for (certificate, key, name) in [
        (&missing, &good.key(), "missing.pem"),
        (&empty, &good.key(), "empty.pem"),
        (&good.certificate(), &missing, "missing.pem"),
        (&good.certificate(), &empty, "empty.pem"),
        (&good.certificate(), &other.key(), "key.pem"),
    ] {
        let error = Tls::pem(certificate, key).unwrap_err().to_string();
        assert!(error.contains(name), "{name}: {error}");
    }
}

/// An outgoing connection with TLS: trusted peers are served, others end with the reason.
#[test]
fn a_dialer_with_tls() {
    bounded(|| {
        let identity = Identity::new("localhost");
        let calls = Calls::default();
        let noted = calls.clone();
        let listen = Listen::tcp("127.0.0.1:0").tls(&identity.tls());
        let echo = Server::builder().listener(listen, line(80), move |_| Actor::new(&noted));
        let echo = echo.start().unwrap();
        let trusted = TlsClient::pem(identity.certificate()).unwrap();
        let stranger = TlsClient::pem(Identity::new("localhost").certificate()).unwrap();
        let good = Dialer::new("good").tls(&trusted, "localhost");
        let wrong_name = Dialer::new("wrong name").tls(&trusted, "example.org");
        let untrusted = Dialer::new("untrusted").tls(&stranger, "localhost");
        let dialers = [&good, &wrong_name, &untrusted];
        let builder = dialers
            .iter()
            .fold(Server::builder(), |builder, dialer| builder.dialer(dialer));
        let _server = builder.start().unwrap();
        for (dialer, expected) in dialers.iter().zip([3, 1, 1]) {
            let calls = Calls::default();
            let session = Actor::new(&calls)
                .on_start(|cx| {
                    assert!(cx.tls().is_some());
                    cx.reply("question")?;
                    Ok(Next::Continue)
                })
                .on_item(|_, _| Ok(Next::Close));
            dialer
                .connect(echo.local_addr().unwrap(), line(80), session)
                .unwrap();
            wait_until(|| calls.count("closed") == 1);
            assert_eq!(calls.all().len(), expected, "{:?}", calls.all());
        }
    });
}
