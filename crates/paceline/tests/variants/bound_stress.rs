//! Many callers on few connections that are lost again and again, deadlines of every length,
//! replies in any order, doubled and made-up ones among them: every reply is its caller's own, and
//! nothing is left behind.

use std::{
    env, io,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bound::{self, frame, Framed, Peer},
    bounded_by, Random, LONG,
};
use paceline::bound::{Builder, Elect, Mux};

const THREADS: u64 = 12;

/// As many calls as the environment asks for.
fn calls() -> u64 {
    let calls = env::var("PACELINE_BOUND_CALLS").ok();
    calls.map_or(3000, |text| text.parse().expect("a number of calls"))
}

/// What the threads have seen.
#[derive(Default)]
struct Tally {
    replied: AtomicU64,
    timed_out: AtomicU64,
    lost: AtomicU64,
    no_room: AtomicU64,
    forgotten: AtomicU64,
    read: AtomicU64,
}

#[test]
fn every_reply_is_its_callers_own() {
    bounded_by(Duration::from_secs(120), || {
        // With ample room, and with so little that who was forgotten must give way.
        for (elect, room) in [(Elect::Oldest, 64), (Elect::Newest, 20)] {
            run(elect, room);
        }
    });
}

fn run(elect: Elect, room: u32) {
    let over = Arc::new(AtomicBool::new(false));
    let (address, server) = server(Arc::clone(&over));
    let builder = Builder::new().calls(room).elect(elect);
    let mux = builder.connect(address, LONG, Framed::default()).unwrap();
    let tally = Arc::new(Tally::default());
    let callers: Vec<_> = (0..THREADS)
        .map(|number| {
            let (mux, tally) = (mux.clone(), Arc::clone(&tally));
            thread::spawn(move || {
                let mut random = Random::new(number + 1);
                for round in 0..calls() / THREADS {
                    one_call(&mux, number, round, &mut random, &tally);
                }
            })
        })
        .collect();
    callers
        .into_iter()
        .for_each(|caller| caller.join().unwrap());
    mux.close();
    let callers = mux.callers();
    assert_eq!((callers.under_way, callers.forgotten), (0, 0));
    assert!(!callers.led);
    let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert!(get(&tally.replied) > calls() / 4 && get(&tally.read) > 0);
    assert!(get(&tally.no_room) < calls() / 2);
    let seen = mux.snapshot();
    eprintln!(
        "{elect:?}: {} replied, {} read, {} timed out, {} lost, {} without room, {} forgotten; {seen:?}",
        get(&tally.replied),
        get(&tally.read),
        get(&tally.timed_out),
        get(&tally.lost),
        get(&tally.no_room),
        get(&tally.forgotten),
    );
    over.store(true, Ordering::SeqCst);
    drop(TcpStream::connect(address));
    server.join().unwrap();
}

/// One call, in one of several ways.
fn one_call(mux: &Mux<Framed>, thread: u64, round: u64, random: &mut Random, tally: &Tally) {
    let mut request = vec![0; 16 + random.below(300) as usize];
    request[..8].copy_from_slice(&thread.to_be_bytes());
    request[8..16].copy_from_slice(&round.to_be_bytes());
    let told = attempt(mux, &request, random, tally);
    match told.map_err(|error| error.kind()) {
        Ok(()) => {}
        Err(io::ErrorKind::TimedOut) => {
            tally.timed_out.fetch_add(1, Ordering::Relaxed);
        }
        Err(io::ErrorKind::QuotaExceeded) => {
            tally.no_room.fetch_add(1, Ordering::Relaxed);
        }
        Err(_) => {
            tally.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn attempt(
    mux: &Mux<Framed>,
    request: &[u8],
    random: &mut Random,
    tally: &Tally,
) -> io::Result<()> {
    let expected = mux.prepare()?;
    if random.once_in(20) {
        return Ok(());
    }
    let sent = expected.send(request)?;
    if random.once_in(20) {
        tally.forgotten.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    let deadline = match random.below(4) {
        0 => Duration::from_micros(random.below(500)),
        _ => LONG,
    };
    if random.once_in(4) {
        let mut body = sent.join_to_read(deadline)?;
        let mut read = Vec::new();
        if random.once_in(4) {
            let mut part = [0; 10];
            body.read_exact(&mut part)?;
            assert_eq!(part, request[..10], "another's reply (B1)");
            return Ok(());
        }
        body.read_to_end(&mut read)?;
        assert!(read == request, "another's reply (B1)");
        tally.read.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    }
    let reply = match sent.join(deadline) {
        Ok(reply) => reply,
        // Once more, or never again.
        Err(told) if random.once_in(2) => told.value.join(LONG)?,
        Err(told) => return Err(told.error),
    };
    assert!(*reply == *request, "another's reply (B1)");
    tally.replied.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

/// Answers out of order, doubles, makes up, and ends connections in the middle of something.
fn server(over: Arc<AtomicBool>) -> (SocketAddr, thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let thread = thread::spawn(move || {
        let mut random = Random::new(77);
        loop {
            let (stream, _) = listener.accept().unwrap();
            if over.load(Ordering::SeqCst) {
                return;
            }
            stream.set_nodelay(true).unwrap();
            // Whatever ends the connection, there will be another.
            let _ = serve(Peer(stream), &mut random);
        }
    });
    (address, thread)
}

fn serve(mut peer: Peer, random: &mut Random) -> io::Result<()> {
    let mut waiting = Vec::new();
    let most = 200 + random.below(800);
    for _ in 0..most {
        // Those who wait for a reply send no request: if nothing comes, it is their turn.
        let timeout = Duration::from_micros(200);
        peer.0.set_read_timeout(Some(timeout))?;
        let nothing_comes = match peer.0.peek(&mut [0]) {
            Ok(0) => return Ok(()),
            Ok(_) => false,
            Err(_) => true,
        };
        peer.0.set_read_timeout(Some(LONG))?;
        if !nothing_comes {
            waiting.push(peer.try_request()?);
        }
        while !waiting.is_empty() && (nothing_comes || random.once_in(2)) {
            let which = random.below(waiting.len() as u64) as usize;
            let (id, body) = waiting.swap_remove(which);
            let mut bytes = frame(id, &body);
            if random.once_in(10) {
                bytes.extend(frame(id, b"doubled"));
            }
            if random.once_in(10) {
                bytes.extend(frame(random.next() as u32 >> 1 | 1 << 20, b"made up"));
            }
            if random.once_in(10) {
                bytes.extend(frame(bound::PEERS_OWN, b"by the way"));
            }
            let (one, other) = bytes.split_at(random.below(bytes.len() as u64) as usize);
            peer.0.write_all(one)?;
            peer.0.write_all(other)?;
        }
    }
    // In the middle of a reply.
    peer.0.write_all(&frame(1, b"half")[..6])
}
