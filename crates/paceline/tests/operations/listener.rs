//! A listener survives everything that can happen to it; who is not served is told.

use std::{
    env,
    fs::File,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    process::Command,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc, Arc, RwLock,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    example::{self, expect_echo, Server},
    name_of, wait_until, LONG,
};
use paceline::{Context, Interest, Next, Pool, Wake};
use socket2::{Domain, SockRef, Socket, Type};

fn echo(cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
    let mut buffer = [0; 512];
    let count = cx.read(&mut buffer)?;
    cx.write_all(&buffer[..count])?;
    Ok(match count {
        0 => Next::Close,
        _ => Next::Continue,
    })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream
}

/// Whether the other side has ended this connection.
fn is_refused(mut stream: &TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

/// A pool with one thread, which is held until the sender is used.
fn held() -> (Pool, mpsc::Sender<()>) {
    let pool = Pool::builder().threads(1).build().unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    let (gate, open) = mpsc::channel();
    let (entered, has_entered) = mpsc::channel();
    // It stays open, so that its descriptor does not become free when the thread does.
    let handler = move |cx: &mut Context<'_, UnixStream>| {
        if cx.read(&mut [0])? > 0 {
            entered.send(()).unwrap();
            open.recv_timeout(LONG).unwrap();
        }
        Ok(Next::Continue)
    };
    pool.register(near, Interest::READ, handler).unwrap();
    far.write_all(b"x").unwrap();
    has_entered.recv_timeout(LONG).unwrap();
    (pool, gate)
}

/// More connections wait than one call accepts: all of them are served, though there is one edge
/// for all.
#[test]
fn more_than_a_batch_is_accepted() {
    bounded(|| {
        let (pool, gate) = held();
        let listener = pool.listen("127.0.0.1:0", |_, _| Some(echo)).unwrap();
        let mut clients: Vec<_> = (0..100).map(|_| connect(listener.local_addr())).collect();
        gate.send(()).unwrap();
        for (number, client) in clients.iter_mut().enumerate() {
            expect_echo(client, &[number as u8]);
        }
        assert_eq!(pool.snapshot().accepted, 100);
        assert_eq!(pool.snapshot().refused, 0);
    });
}

/// `None` refuses one connection: it is closed, counted, and the next one is asked about anew. A
/// factory that panics refuses that connection too, and no other.
#[test]
fn the_factory_refuses() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let mut asked = 0;
        let listener = pool.listen("127.0.0.1:0", move |_, peer| {
            assert!(peer.ip().is_loopback());
            asked += 1;
            match asked % 3 {
                0 => panic!("the factory's own mistake"),
                1 => None,
                _ => Some(echo),
            }
        });
        let address = listener.unwrap().local_addr();
        for _ in 0..5 {
            assert!(is_refused(&connect(address)));
            expect_echo(&mut connect(address), b"served");
            assert!(is_refused(&connect(address)));
        }
        wait_until(|| pool.snapshot().refused == 10);
        assert_eq!(pool.snapshot().accepted, 15);
        assert_eq!(pool.snapshot().panics, 5);
    });
}

/// Its handle is closed: nobody is accepted any more, and those that were are still served.
#[test]
fn a_closed_listener_leaves_its_connections() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let listener = pool.listen("127.0.0.1:0", |_, _| Some(echo)).unwrap();
        let mut client = connect(listener.local_addr());
        expect_echo(&mut client, b"before");
        listener.handle().close().unwrap();
        // If it was just accepting, the thread that did closes it now.
        wait_until(|| {
            let told = TcpStream::connect(listener.local_addr());
            told.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
        });
        assert_eq!(pool.snapshot().accepted, 1);
        expect_echo(&mut client, b"after");
    });
}

/// Clients that are gone before they are accepted: the others are served.
#[test]
fn clients_that_reset_at_once() {
    bounded(|| {
        let (pool, gate) = held();
        let listener = pool.listen("127.0.0.1:0", |_, _| Some(echo)).unwrap();
        for _ in 0..20 {
            let gone = connect(listener.local_addr());
            SockRef::from(&gone)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
        }
        let mut client = connect(listener.local_addr());
        gate.send(()).unwrap();
        expect_echo(&mut client, b"served");
        expect_echo(&mut connect(listener.local_addr()), b"served");
    });
}

/// One aborted connection made `accept` fail, and that ended the whole server (tiny_http 283).
/// Linux seldom does it by itself, so strace makes every second `accept4` of the example fail that
/// way: all clients are served.
#[test]
fn econnaborted_does_not_stop_accepting() {
    let tracer = Command::new("strace")
        .args(["-o", "/dev/null", "true"])
        .status();
    if !tracer.is_ok_and(|status| status.success()) {
        eprintln!("listener: skipped: aborted connections need strace");
        return;
    }
    bounded(|| {
        let server = Server::start(
            Command::new("strace")
                .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=accept4"])
                .args(["-e", "inject=accept4:error=ECONNABORTED:when=1+2"])
                .arg(example::echo())
                .args(["--listen", "127.0.0.1:0", "--threads", "2"]),
        );
        for _ in 0..10 {
            expect_echo(&mut server.connect(), b"served");
        }
        example::signal("TERM", server.child_id());
        let output = server.output();
        assert!(output.status.success(), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("10 connections"), "{said}");
    });
}

/// The name of a variable that tells a copy of this program which test it is for.
const CHILD: &str = "PACELINE_FEW_DESCRIPTORS";

/// Runs `body` in a process of its own that may have 64 descriptors.
fn with_few_descriptors(name: &str, body: impl FnOnce() + Send + 'static) {
    if env::var_os(CHILD).is_some_and(|child| child == name) {
        return bounded(body);
    }
    let me = env::current_exe().unwrap();
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -n 64 && exec \"$0\" \"$@\""])
        .arg(me)
        .args(["--exact", &name_of(module_path!(), name), "--nocapture"])
        .env(CHILD, name);
    let output = bounded(move || example::run(&mut command));
    let said = String::from_utf8_lossy(&output.stdout);
    let all = format!("{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{all}");
    assert!(said.contains("1 passed"), "{all}");
}

/// Opens files until the table is full.
fn fill_the_table() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// The descriptor table is full when five connections wait: two descriptors become free, so the
/// first two are served; the others are accepted with the spare descriptor and closed at once, and
/// counted. Later ones are served again.
#[test]
fn a_full_descriptor_table_refuses_and_goes_on() {
    with_few_descriptors("a_full_descriptor_table_refuses_and_goes_on", || {
        let (pool, gate) = held();
        let listener = pool.listen("127.0.0.1:0", |_, _| Some(echo)).unwrap();
        let mut clients: Vec<_> = (0..5).map(|_| connect(listener.local_addr())).collect();
        let mut full = fill_the_table();
        assert!(full.len() > 5);
        full.truncate(full.len() - 2);
        gate.send(()).unwrap();
        for client in &mut clients[..2] {
            expect_echo(client, b"served");
        }
        assert!(clients[2..].iter().all(is_refused));
        wait_until(|| pool.snapshot().refused == 3);
        assert_eq!(pool.snapshot().accepted, 2);
        drop(full);
        for _ in 0..3 {
            expect_echo(&mut connect(listener.local_addr()), b"served again");
        }
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// As before, and somebody else snatches the spare descriptor whenever it is given up: then there
/// is not even one to refuse with. The connections wait, the listener does not give up, and in the
/// end each is served or refused.
#[test]
fn the_spare_descriptor_is_snatched() {
    with_few_descriptors("the_spare_descriptor_is_snatched", || {
        let (pool, gate) = held();
        let listener = pool.listen("127.0.0.1:0", |_, _| Some(echo)).unwrap();
        let clients: Vec<_> = (0..5).map(|_| connect(listener.local_addr())).collect();
        let mut full = fill_the_table();
        let stop = Arc::new(AtomicBool::new(false));
        let snatched = Arc::new(AtomicUsize::new(0));
        let snatcher = thread::spawn({
            let (stop, snatched) = (Arc::clone(&stop), Arc::clone(&snatched));
            move || {
                while !stop.load(Ordering::SeqCst) {
                    let more = fill_the_table();
                    snatched.fetch_add(more.len(), Ordering::SeqCst);
                    full.extend(more);
                }
            }
        });
        gate.send(()).unwrap();
        // It has the spare one, or all were refused before it could.
        wait_until(|| snatched.load(Ordering::SeqCst) > 0 || pool.snapshot().refused == 5);
        stop.store(true, Ordering::SeqCst);
        snatcher.join().unwrap();
        let served = clients.iter().filter(|client| is_served(client)).count() as u64;
        wait_until(|| pool.snapshot().refused == 5 - served);
        assert_eq!(pool.snapshot().accepted, served);
        expect_echo(&mut connect(listener.local_addr()), b"served again");
    });
}

/// A pool that passes connections on took its own listener's spare descriptor, which then had none
/// to refuse with: under a full table clients waited until somebody left. What the pool opens
/// itself leaves the spare one alone.
#[test]
fn the_pool_does_not_snatch_its_own_spare_descriptor() {
    with_few_descriptors("the_pool_does_not_snatch_its_own_spare_descriptor", || {
        // Eager: there is no standby. A standby asks the system about other threads, by a file that
        // is open for a moment; closed, it would leave a place in the table that nothing has given
        // up.
        let pool = Pool::builder()
            .threads(2)
            .wake(Wake::Eager)
            .build()
            .unwrap();
        let listener = pool.listen("127.0.0.1:0", |_, _| Some(echo)).unwrap();
        let address = listener.local_addr();
        let clients = || {
            let client = |_| Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            (0..20).map(client).collect::<Vec<_>>()
        };
        let mut held = (clients(), fill_the_table());
        let (stop, table_is_full) = (AtomicBool::new(false), RwLock::new(()));
        let snatch = || {
            while !stop.load(Ordering::SeqCst) {
                let _full = table_is_full.read().unwrap();
                assert!(pool.connect(address, LONG, echo).is_err(), "snatched");
            }
        };
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(snatch);
            }
            for round in 1..=100 {
                for client in &held.0 {
                    client.set_read_timeout(Some(LONG)).unwrap();
                    client.connect(&address.into()).unwrap();
                    let told = (&*client).read(&mut [0]);
                    assert!(matches!(told, Ok(0)), "{told:?}");
                }
                // Then the spare one is back in its place.
                wait_until(|| pool.snapshot().refused == 20 * round);
                let _while_it_is_not = table_is_full.write().unwrap();
                held.0.clear();
                held.0 = clients();
                held.1.extend(fill_the_table());
            }
            stop.store(true, Ordering::SeqCst);
        });
    });
}

/// Whether a connection is answered; if not, it was ended.
fn is_served(mut stream: &TcpStream) -> bool {
    let _ = stream.write_all(b"x");
    match stream.read(&mut [0]) {
        Ok(count) => count == 1,
        Err(error) => {
            let kind = error.kind();
            assert_eq!(kind, ErrorKind::ConnectionReset, "neither of both");
            false
        }
    }
}

/// A socket that listens already, with options of its own: it is served like any other, and given
/// back with the maker if it can't be.
#[test]
fn a_socket_that_listens_already() {
    bounded(|| {
        let pool = Pool::builder().threads(1).build().unwrap();
        let socket = || TcpListener::bind("127.0.0.1:0").unwrap();
        let given = socket();
        let address = given.local_addr().unwrap();
        let listener = pool.listener().on(given, |_, _| Some(echo)).unwrap();
        assert_eq!(listener.local_addr(), address);
        let mut client = connect(address);
        client.write_all(b"x").unwrap();
        client.read_exact(&mut [0]).unwrap();
        drop(client);
        let _ = pool.shutdown(LONG);
        let given = socket();
        let address = given.local_addr().unwrap();
        let rejected = pool.listener().on(given, |_, _| Some(echo)).unwrap_err();
        assert_eq!(rejected.value.0.local_addr().unwrap(), address);
    });
}
