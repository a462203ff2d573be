//! What goes out of a multiplexed connection when the peer is slow, and what happens when the
//! connection ends: losses, closing, and connections that follow.

use std::{
    io::{self, IoSlice, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, BorrowedFd},
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc, Barrier,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bound::{call, frame, mux, mux_of, wait_asleep, Framed, Peer, PEERS_OWN},
    bounded, tcp_pair, wait_until, LONG,
};
use paceline::bound::{Builder, Callers, Mux, Stream};

const MEGABYTE: usize = 1024 * 1024;

/// The peer reads nothing for a while. Sending never blocks: what the socket does not take is kept,
/// up to a bound, and beyond that a request is refused and given back. Whoever leads sends what was
/// kept as soon as there is room, while it reads.
#[test]
fn what_the_socket_does_not_take_is_kept() {
    bounded(|| {
        let (mux, mut peer) = mux_of(Builder::new().unsent(8 * MEGABYTE), Framed::default());
        let leader = {
            let mux = mux.clone();
            thread::spawn(move || call(&mux, b"leader"))
        };
        let (leader_id, _) = peer.request();
        wait_asleep(&mux, 0);
        let request = vec![7; MEGABYTE];
        let mut sent = Vec::new();
        let refused = loop {
            match mux.prepare().unwrap().send(&request) {
                Ok(call) => sent.push(call),
                Err(refused) => break refused,
            }
            assert!(sent.len() < 100, "there is no bound");
        };
        assert_eq!(refused.error.kind(), io::ErrorKind::QuotaExceeded);
        assert!(sent.len() >= 8);
        let seen = mux.snapshot();
        assert_eq!(seen.refused_sends, 1);
        assert!(seen.output_kept >= 1);
        let count = sent.len();
        let answering = thread::spawn(move || {
            for _ in 0..count {
                let (id, body) = peer.request();
                peer.reply(id, &body[..1]);
            }
            peer.reply(leader_id, b"l");
            peer
        });
        for call in sent {
            assert_eq!(*call.join(LONG).unwrap(), [7]);
        }
        assert_eq!(leader.join().unwrap().unwrap(), b"l");
        // There is room again.
        let again = refused.value.send(b"small").unwrap();
        let mut peer = answering.join().unwrap();
        let (id, _) = peer.request();
        peer.reply(id, b"s");
        assert_eq!(*again.join(LONG).unwrap(), *b"s");
    });
}

/// Found by stress: the socket was full, everyone who had sent gave up and went, and their requests
/// took all the room. So nobody could call, nobody led, and what was kept was never sent, for ever.
/// Now whoever wants to call, or to send, sends what is kept if nobody leads.
#[test]
fn kept_output_of_those_who_went_is_sent() {
    bounded(|| {
        let (mux, mut peer) = mux_of(Builder::new().calls(8), Framed::default());
        let request = vec![7; 100_000];
        while let Ok(expected) = mux.prepare() {
            drop(expected.send(&request));
            if mux.snapshot().refused_sends > 0 {
                break;
            }
        }
        assert!(mux.snapshot().output_kept > 0);
        let reading = thread::spawn(move || {
            while let Ok((id, body)) = peer.try_request() {
                if body == b"at last" {
                    peer.reply(id, b"");
                    return peer;
                }
            }
            peer
        });
        let mut room = None;
        wait_until(|| {
            room = mux.prepare().ok().and_then(|it| it.send(b"at last").ok());
            room.is_some()
        });
        room.unwrap().join(LONG).unwrap();
        reading.join().unwrap();
    });
}

/// A leader waits long for its own reply, and meanwhile others come, give up and go, more of them
/// than there is room for. Nobody answers them. Those who went give way.
#[test]
fn those_who_gave_up_give_way() {
    bounded(|| {
        let (mux, mut peer) = mux_of(Builder::new().calls(4), Framed::default());
        let leader = {
            let mux = mux.clone();
            thread::spawn(move || call(&mux, b"leader"))
        };
        let (leader_id, _) = peer.request();
        wait_asleep(&mux, 0);
        for _ in 0..20 {
            let told = mux.call(b"x", Duration::from_millis(2)).unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        }
        // And one that comes after them sleeps in the place of one of them, is found there, and
        // woken.
        let last = {
            let mux = mux.clone();
            thread::spawn(move || call(&mux, b"last"))
        };
        let last_id = loop {
            match peer.request() {
                (id, body) if body == b"last" => break id,
                _ => {}
            }
        };
        wait_asleep(&mux, 1);
        peer.reply(leader_id, b"");
        leader.join().unwrap().unwrap();
        wait_asleep(&mux, 0);
        peer.reply(last_id, b"");
        last.join().unwrap().unwrap();
    });
}

/// A leader in its wait is called once when output is kept, and then watches for room by itself.
#[test]
fn a_leader_is_called_once_for_kept_output() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let leader = {
            let mux = mux.clone();
            thread::spawn(move || call(&mux, b"leader"))
        };
        let (leader_id, _) = peer.request();
        wait_asleep(&mux, 0);
        let mut sent = Vec::new();
        let request = vec![7; 100_000];
        while mux.snapshot().output_kept == 0 {
            sent.push(mux.prepare().unwrap().send(&request).unwrap());
            assert!(sent.len() < 1000, "the socket takes everything");
        }
        wait_until(|| mux.callers().waits);
        let kicks = mux.snapshot().kicks;
        assert!(kicks <= 1, "{kicks}");
        for _ in 0..5 {
            sent.push(mux.prepare().unwrap().send(b"behind it").unwrap());
        }
        assert_eq!(mux.snapshot().kicks, kicks, "it knows already");
        for _ in 0..sent.len() {
            let (id, _) = peer.request();
            peer.reply(id, b"");
        }
        peer.reply(leader_id, b"");
        for call in sent {
            call.join(LONG).unwrap();
        }
        leader.join().unwrap().unwrap();
    });
}

/// Many threads send at once, to a peer that answers only when it has all: each request arrives
/// whole and once, and there were not more writes than requests.
#[test]
fn senders_combine() {
    const THREADS: usize = 16;
    bounded(|| {
        let (mux, mut peer) = mux();
        let begin = Arc::new(Barrier::new(THREADS));
        let callers: Vec<_> = (0..THREADS as u8)
            .map(|number| {
                let (mux, begin) = (mux.clone(), Arc::clone(&begin));
                thread::spawn(move || {
                    begin.wait();
                    assert_eq!(call(&mux, &[number; 100]).unwrap(), [number]);
                })
            })
            .collect();
        let requests: Vec<_> = (0..THREADS).map(|_| peer.request()).collect();
        for (id, body) in requests {
            assert!(body.iter().all(|byte| *byte == body[0]));
            peer.reply(id, &body[..1]);
        }
        callers
            .into_iter()
            .for_each(|caller| caller.join().unwrap());
        let seen = mux.snapshot();
        assert!(seen.writes <= THREADS as u64);
        assert_eq!(seen.bytes_written, THREADS as u64 * 108);
    });
}

/// Closing tells everyone who waits, also a leader that sleeps; it is for good.
#[test]
fn close_tells_everyone() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let callers: Vec<_> = (0..3)
            .map(|_| {
                let mux_of_caller = mux.clone();
                let caller = thread::spawn(move || call(&mux_of_caller, b"x"));
                peer.request();
                caller
            })
            .collect();
        wait_asleep(&mux, 2);
        mux.close();
        for caller in callers {
            let told = caller.join().unwrap().unwrap_err();
            assert_eq!(told.kind(), io::ErrorKind::NotConnected);
            assert!(told.to_string().contains("closed"), "{told}");
        }
        assert_eq!(
            peer.0.read_to_end(&mut Vec::new()).unwrap(),
            0,
            "the peer sees the end"
        );
        let (near, _far) = tcp_pair();
        let refused = mux.reconnect(near).unwrap_err();
        assert_eq!(refused.error.kind(), io::ErrorKind::NotConnected);
        assert_eq!(
            mux.prepare().unwrap_err().kind(),
            io::ErrorKind::NotConnected
        );
        mux.close();
    });
}

/// `waiter_on_replaced_set_is_moved` (gRPC 14217): a waiter stayed on a set that was replaced, for
/// ever. Here whoever waits on a connection that is replaced was told that it is lost; nobody is
/// moved to the new one without knowing. Its request may have been carried out.
#[test]
fn waiter_on_replaced_connection_is_told() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let unsent = mux.prepare().unwrap();
        let not_joined = mux.prepare().unwrap().send(b"not joined").unwrap();
        let waiting = {
            let mux = mux.clone();
            thread::spawn(move || call(&mux, b"waiting"))
        };
        peer.request();
        peer.request();
        wait_asleep(&mux, 0);
        let (near, far) = tcp_pair();
        let refused = mux.reconnect(near).unwrap_err();
        assert_eq!(refused.error.kind(), io::ErrorKind::AlreadyExists);
        drop(peer);
        assert!(waiting.join().unwrap().is_err());
        wait_until(|| mux.is_lost());
        mux.reconnect(refused.value).unwrap();
        let mut peer = Peer(far);
        assert!(not_joined.join(LONG).is_err(), "it is not moved");
        // What was never sent has nothing to lose.
        let sent = unsent.send(b"new").unwrap();
        let (id, body) = peer.request();
        assert_eq!(body, b"new");
        peer.reply(id, b"there");
        assert_eq!(*sent.join(LONG).unwrap(), *b"there");
        let seen = mux.snapshot();
        assert_eq!((seen.losses, seen.reconnects), (1, 1));
        assert_eq!(mux.callers(), Callers::default());
    });
}

/// `concurrent_connects_coalesce` (TAO 2935): several threads that wanted the same peer made a
/// connection each. Here those who find the connection lost at the same time make one; an attempt
/// that fails is shared as well.
#[test]
fn concurrent_connects_coalesce() {
    const THREADS: usize = 8;
    bounded(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let connect = move || {
            // So slow that all of them come meanwhile.
            let number = counted.fetch_add(1, Ordering::SeqCst);
            if number > 0 {
                thread::sleep(Duration::from_millis(300));
            }
            match number {
                1 => Err(io::Error::new(io::ErrorKind::TimedOut, "not this time")),
                _ => std::net::TcpStream::connect(address),
            }
        };
        let builder = Builder::new();
        let mux = builder.connect_with(connect, Framed::default()).unwrap();
        drop(listener.accept().unwrap());
        assert!(mux.call(b"finds it lost", LONG).is_err());
        let all_at_once = || {
            let begin = Arc::new(Barrier::new(THREADS));
            let callers: Vec<_> = (0..THREADS)
                .map(|_| {
                    let (mux, begin) = (mux.clone(), Arc::clone(&begin));
                    thread::spawn(move || {
                        begin.wait();
                        mux.prepare().map(drop)
                    })
                })
                .collect();
            callers.into_iter().map(|caller| caller.join().unwrap())
        };
        let told: Vec<_> = all_at_once().collect();
        let failed = told.iter().filter(|told| told.is_err()).count();
        // A thread that the system held up for so long made an attempt of its own.
        assert!(failed >= 1 && attempts.load(Ordering::SeqCst) <= 3);
        let told: Vec<_> = all_at_once().collect();
        assert!(told.iter().all(Result::is_ok));
        let made = attempts.load(Ordering::SeqCst);
        assert!((3..=4).contains(&made), "{made} attempts");
        assert_eq!(mux.snapshot().reconnects, 1);
        let (server, _) = listener.accept().unwrap();
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "one connection for all");
        let answering = thread::spawn(move || {
            let mut peer = Peer(server);
            let (id, body) = peer.request();
            peer.reply(id, &body);
        });
        assert_eq!(call(&mux, b"on it").unwrap(), b"on it");
        answering.join().unwrap();
    });
}

/// A connection that was lost is made anew by whoever calls next; the address is kept.
#[test]
fn a_lost_connection_is_made_anew() {
    bounded(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mux = Mux::connect(address, LONG, Framed::default()).unwrap();
        for round in 0..3 {
            let (server, _) = listener.accept().unwrap();
            let mut peer = Peer(server);
            let answering = thread::spawn(move || {
                let (id, body) = peer.request();
                peer.reply(id, &body);
            });
            assert_eq!(call(&mux, b"x").unwrap(), b"x");
            // And now it is gone: the next call finds that out, the one after it connects.
            answering.join().unwrap();
            assert!(call(&mux, b"y").is_err());
            if round < 2 {
                drop(mux.prepare().unwrap());
            }
        }
        drop(listener);
        assert!(mux.prepare().is_err(), "nobody listens any more");
        let seen = mux.snapshot();
        assert_eq!((seen.losses, seen.reconnects), (3, 2));
    });
}

/// The connection is lost with requests in the queue that the socket never took: their callers are
/// told, and on the next connection there is room.
#[test]
fn kept_output_is_lost_with_its_connection() {
    bounded(|| {
        let (mux, peer) = mux();
        let request = vec![7; 100_000];
        let mut sent = Vec::new();
        while mux.snapshot().output_kept == 0 {
            sent.push(mux.prepare().unwrap().send(&request).unwrap());
        }
        sent.push(mux.prepare().unwrap().send(b"in the queue").unwrap());
        drop(peer);
        for call in sent {
            assert!(call.join(LONG).is_err());
        }
        let (near, far) = tcp_pair();
        mux.reconnect(near).unwrap();
        let mut peer = Peer(far);
        let answering = thread::spawn(move || {
            let (id, body) = peer.request();
            peer.0.write_all(&frame(id, &body)).unwrap();
        });
        assert_eq!(call(&mux, &request).unwrap(), request);
        answering.join().unwrap();
        assert_eq!(mux.callers(), Callers::default());
    });
}

/// A stream of the user's own, with a mistake.
struct Fragile {
    stream: TcpStream,
    panics: Arc<AtomicBool>,
}

impl AsFd for Fragile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Stream for Fragile {
    fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(into)
    }

    fn write_some(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        assert!(!self.panics.load(Ordering::Acquire), "a mistake");
        (&self.stream).write_vectored(bytes)
    }
}

/// L5, B2: a stream of the user's own panics in the middle of a write. Whoever wrote was writing
/// for all: it must not keep the pen. Everyone is told that the connection is lost, and the next
/// one is as good as new.
#[test]
fn a_stream_that_panics_does_not_keep_the_pen() {
    bounded(|| {
        let panics = Arc::new(AtomicBool::new(false));
        let connect = || {
            let (stream, far) = tcp_pair();
            let panics = Arc::clone(&panics);
            (Fragile { stream, panics }, Peer(far))
        };
        let (stream, mut peer) = connect();
        let mux = Mux::new(stream, Framed::default()).unwrap();
        let waits = {
            let mux = mux.clone();
            thread::spawn(move || call(&mux, b"waits"))
        };
        peer.request();
        wait_asleep(&mux, 0);
        panics.store(true, Ordering::Release);
        let error = call(&mux, b"writes").unwrap_err();
        assert!(error.to_string().contains("a mistake"), "{error}");
        waits.join().unwrap().unwrap_err();
        panics.store(false, Ordering::Release);
        let (stream, mut peer) = connect();
        mux.reconnect(stream).unwrap();
        let asks = thread::spawn(move || call(&mux, b"again"));
        let (id, _) = peer.request();
        peer.reply(id, b"new");
        assert_eq!(asks.join().unwrap().unwrap(), b"new");
    });
}

/// A stream that can take nothing, and from which the peer's own messages come without end.
struct Talkative {
    stream: TcpStream,
    is_full: Arc<AtomicBool>,
    talks: Arc<AtomicBool>,
}

impl AsFd for Talkative {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Stream for Talkative {
    fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        let message = frame(PEERS_OWN, b"news");
        if self.talks.load(Ordering::Acquire) {
            (&mut &message[..]).read(into)
        } else {
            (&self.stream).read(into)
        }
    }

    fn write_some(&self, bytes: &[IoSlice<'_>]) -> io::Result<usize> {
        if self.is_full.load(Ordering::Acquire) {
            Err(io::ErrorKind::WouldBlock.into())
        } else {
            (&self.stream).write_vectored(bytes)
        }
    }
}

/// B2: a leader to whom much comes looks before it sleeps; if there is always something, it never
/// sleeps. What was kept is sent all the same, as soon as there is room.
#[test]
fn kept_output_is_sent_however_much_comes() {
    bounded(|| {
        let (stream, far) = tcp_pair();
        let [is_full, talks] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let stream = Talkative {
            stream,
            is_full: Arc::clone(&is_full),
            talks: Arc::clone(&talks),
        };
        let (mux, mut peer) = (Mux::new(stream, Framed::default()).unwrap(), Peer(far));
        let caller = |name: &'static [u8]| {
            let mux = mux.clone();
            thread::spawn(move || call(&mux, name))
        };
        // Many get their replies at once.
        let many: Vec<_> = (0..8).map(|_| caller(b"one of many")).collect();
        let requests: Vec<_> = many.iter().map(|_| peer.request()).collect();
        wait_asleep(&mux, many.len() - 1);
        let replies = requests.iter().map(|(id, body)| frame(*id, body));
        peer.send(&replies.collect::<Vec<_>>().concat());
        many.into_iter().for_each(|it| drop(it.join().unwrap()));
        is_full.store(true, Ordering::Release);
        talks.store(true, Ordering::Release);
        // So the system says that there is something, too.
        peer.send(&frame(PEERS_OWN, b"unread"));
        let last = caller(b"kept");
        wait_until(|| mux.snapshot().output_kept > 0 && mux.snapshot().peer_messages > 10);
        is_full.store(false, Ordering::Release);
        let (id, body) = peer.request();
        assert_eq!(body, b"kept");
        talks.store(false, Ordering::Release);
        peer.reply(id, &body);
        assert_eq!(last.join().unwrap().unwrap(), b"kept");
    });
}
