//! The places of a connection: how calls whose callers have gone give them back.

use std::{
    collections::VecDeque,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::{Arc, Barrier},
    thread,
    time::Duration,
};

use paceline::{
    bound::{Builder, Header, Mux, Protocol, Whose},
    Pool,
};

use crate::support::{bound::Plain, bounded, gate::Gate, LONG};

/// An id of so many bits in one byte, then a number of four bytes, in both directions.
struct Narrow<const BITS: u32>;

impl<const BITS: u32> Protocol for Narrow<BITS> {
    type Request = u32;
    const ID_BITS: u32 = BITS;

    fn encode(&self, request: &u32, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        assert!(id < 1 << BITS);
        out.push(id as u8);
        out.extend(request.to_be_bytes());
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        Ok(bytes.first().map(|id| Header {
            whose: Whose::Call((*id).into()),
            skip: 1,
            length: 4,
        }))
    }
}

/// A connection on which what was written can be read at once, and the other end.
fn connected<P: Protocol>(builder: Builder, protocol: P) -> (Mux<P>, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    (builder.build(near, protocol).unwrap(), far)
}

/// The number that a reply of [`Narrow`] consists of.
fn number(reply: &[u8]) -> u32 {
    u32::from_be_bytes(reply.try_into().unwrap())
}

/// Sends so many calls that nobody joins, and answers them.
fn forget_and_answer(mux: &Mux<Plain>, peer: &mut UnixStream, count: usize) {
    for _ in 0..count {
        drop(mux.prepare().unwrap().send(b"x").unwrap());
    }
    let mut requests = vec![0; 2 * count];
    peer.read_exact(&mut requests).unwrap();
    peer.write_all(&requests).unwrap();
}

/// B2: the server paused, all calls timed out and were dropped, and then the server answered all of
/// them. No caller was left to read the replies, so every further call was refused for ever. Now a
/// call that finds no place reads first.
#[test]
fn replies_that_nobody_reads_make_room() {
    bounded(|| {
        let (mux, mut peer) = connected(Builder::new().calls(3), Plain);
        for _ in 0..3 {
            forget_and_answer(&mux, &mut peer, 3);
            let calls = [(); 3].map(|()| mux.prepare().unwrap().send(b"y").unwrap());
            assert_eq!(
                mux.prepare().unwrap_err().kind(),
                io::ErrorKind::QuotaExceeded
            );
            let mut requests = [0; 6];
            peer.read_exact(&mut requests).unwrap();
            peer.write_all(b"\x01a\x01b\x01c").unwrap();
            let replies = calls.map(|call| call.join(LONG).unwrap().to_vec());
            assert_eq!(replies, [b"a", b"b", b"c"]);
        }
        assert_eq!(mux.snapshot().late_replies, 9);
    });
}

/// Before the reply that makes room the peer says more than one read brings: one refusal reads on
/// until there is a place.
#[test]
fn what_comes_before_a_reply_is_read_too() {
    bounded(|| {
        let (mux, mut peer) = connected(Builder::new().calls(1), Wide);
        drop(mux.prepare().unwrap().send(&()).unwrap());
        peer.read_exact(&mut [0]).unwrap();
        let length = 70_000_u32;
        peer.write_all(&(length | PEERS_OWN).to_be_bytes()).unwrap();
        peer.write_all(&vec![0; length as usize]).unwrap();
        peer.write_all(&[0, 0, 0, 1, 7]).unwrap();
        let call = mux.prepare().unwrap().send(&()).unwrap();
        peer.write_all(&[0, 0, 0, 1, 8]).unwrap();
        assert_eq!(call.join(LONG).unwrap()[..], [8]);
    });
}

/// A request is one byte. A reply is its length in four bytes, and so many bytes; with this bit it
/// is the peer's own message.
struct Wide;

const PEERS_OWN: u32 = 1 << 31;

impl Protocol for Wide {
    type Request = ();
    const ID_BITS: u32 = 0;

    fn encode(&self, (): &(), _: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.push(b'?');
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        let length = bytes
            .first_chunk()
            .map(|length| u32::from_be_bytes(*length));
        Ok(length.map(|length| Header {
            whose: if length & PEERS_OWN == 0 {
                Whose::Oldest
            } else {
                Whose::Peer
            },
            skip: 4,
            length: (length & !PEERS_OWN) as usize,
        }))
    }
}

/// The same where a pool reads the connection, and all its threads are busy: the caller need not
/// wait for them.
#[test]
fn replies_make_room_while_the_pool_is_busy() {
    bounded(|| {
        let (mux, mut peer) = connected(Builder::new().calls(2), Plain);
        let pool = Pool::builder().threads(1).build().unwrap();
        pool.attach(&mux).unwrap();
        let gate = Gate::shut();
        let inside = Arc::clone(&gate);
        pool.post(move |_| inside.pass()).unwrap();
        gate.wait_for(1);
        forget_and_answer(&mux, &mut peer, 2);
        let call = mux.prepare().unwrap().send(b"y").unwrap();
        peer.read_exact(&mut [0; 2]).unwrap();
        peer.write_all(b"\x01z").unwrap();
        assert_eq!(call.join(LONG).unwrap()[..], *b"z");
        gate.let_through(1);
    });
}

/// Many callers find no place at the same moment, and all replies have come. One of them reads; the
/// others are not refused meanwhile.
#[test]
fn all_who_find_no_place_get_one() {
    const CALLERS: usize = 4;
    bounded(|| {
        let (mux, mut peer) = connected(Builder::new().calls(CALLERS as u32), Plain);
        for _ in 0..10 {
            forget_and_answer(&mux, &mut peer, CALLERS);
            let [together, done] = [(); 2].map(|()| Barrier::new(CALLERS));
            thread::scope(|scope| {
                for _ in 0..CALLERS {
                    scope.spawn(|| {
                        together.wait();
                        let call = mux.prepare();
                        done.wait();
                        drop(call.unwrap());
                    });
                }
            });
        }
    });
}

/// B2: more was kept than a connection may keep, and no caller was left to send it when the peer
/// read again: every further request was refused for ever. Now a request that finds no room sends
/// what was kept first.
#[test]
fn output_that_nobody_sends_makes_room() {
    bounded(|| {
        let (mux, mut peer) = connected(Builder::new().unsent(1000), Plain);
        let request = [7; 200];
        let refused = fill(&mux, &request);
        assert_eq!(refused.kind(), io::ErrorKind::QuotaExceeded);
        let sent = mux.snapshot().calls as usize;
        // The peer reads as much as the system had taken.
        let mut requests = vec![0; mux.snapshot().bytes_written as usize];
        peer.read_exact(&mut requests).unwrap();
        let call = mux.prepare().unwrap().send(&request).unwrap();
        let mut others = vec![0; 201 * (sent + 1) - requests.len()];
        peer.read_exact(&mut others).unwrap();
        for _ in 0..sent {
            peer.write_all(b"\x01-").unwrap();
        }
        peer.write_all(b"\x01y").unwrap();
        assert_eq!(call.join(LONG).unwrap()[..], *b"y");
    });
}

/// Sends calls that nobody joins until one is refused.
fn fill(mux: &Mux<Plain>, request: &[u8]) -> io::Error {
    loop {
        if let Err(refused) = mux.prepare().unwrap().send(request) {
            return refused.error;
        }
    }
}

/// The same while the peer can't read, because nobody reads its replies: what has come is read
/// before a request is refused.
#[test]
fn a_peer_that_waits_for_its_reader_goes_on() {
    bounded(|| {
        let (mux, mut peer) = connected(Builder::new().calls(100_000).unsent(1000), Plain);
        let echo = thread::spawn(move || {
            let mut bytes = [0; 1000];
            while let Ok(count @ 1..) = peer.read(&mut bytes) {
                if peer.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
        });
        let request = [7; 200];
        // Both directions are full sooner or later, if nobody reads.
        let mut accepted = 0;
        while accepted < 5_000 {
            match mux.prepare().unwrap().send(&request) {
                Ok(_) => accepted += 1,
                Err(_) => thread::yield_now(),
            }
        }
        assert_eq!(mux.call(&request, LONG).unwrap()[..], request);
        drop(mux);
        echo.join().unwrap();
    });
}

/// Ids of few bits: places were lost for good when calls timed out, although the server answered
/// all of them. Now the id of a late reply is free again.
#[test]
fn ids_of_few_bits_do_not_run_out() {
    fn for_bits<const BITS: u32>(calls: u32) {
        let (mux, mut peer) = connected(Builder::new().calls(calls), Narrow::<BITS>);
        let mut next = 0;
        for _ in 0..3 {
            // Until no id is left that could be used.
            let mut requests = 0;
            while let Ok(expected) = mux.prepare() {
                drop(expected.send(&next).unwrap());
                next += 1;
                requests += 1;
            }
            assert!(requests <= 1 << BITS, "ids were used twice");
            assert!(requests >= 1 << (BITS - 1), "ids were lost");
            let mut bytes = vec![0; 5 * requests];
            peer.read_exact(&mut bytes).unwrap();
            peer.write_all(&bytes).unwrap();
            for _ in 0..1 << BITS {
                let call = mux.prepare().unwrap().send(&next).unwrap();
                let mut bytes = [0; 5];
                peer.read_exact(&mut bytes).unwrap();
                peer.write_all(&bytes).unwrap();
                assert_eq!(number(&call.join(LONG).unwrap()), next);
                next += 1;
            }
        }
        assert_eq!(mux.callers().forgotten, 0);
    }
    bounded(|| {
        for_bits::<4>(1);
        for_bits::<4>(4);
        for_bits::<4>(8);
        for_bits::<8>(1);
        for_bits::<8>(100);
    });
}

/// B1, with ids so few that they are used again and again: calls are sent, joined and dropped, and
/// the server answers them late, early and in any order. Each caller has the number that it asked
/// for, and in the end all ids are there.
#[test]
fn late_replies_reach_no_newer_call() {
    fn for_bits<const BITS: u32>(calls: u32) {
        let (mux, mut peer) = connected(Builder::new().calls(calls), Narrow::<BITS>);
        peer.set_nonblocking(true).unwrap();
        let mut unanswered: Vec<[u8; 5]> = Vec::new();
        let mut waiting = VecDeque::new();
        let mut random = BITS + calls;
        let mut dice = |sides: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) as usize % sides
        };
        let (mut next, mut replied) = (0, 0);
        for _ in 0..3_000 {
            match dice(6) {
                0 | 1 => {
                    if let Ok(expected) = mux.prepare() {
                        waiting.push_back((expected.send(&next).unwrap(), next));
                        next += 1;
                    }
                }
                // Dropped: it is answered late, or never.
                2 => drop(waiting.pop_back()),
                3 => {
                    if let Some((call, asked)) = waiting.pop_front() {
                        match call.join(Duration::ZERO) {
                            Ok(reply) => {
                                assert_eq!(number(&reply), asked, "the reply of another call");
                                replied += 1;
                            }
                            Err(rejected) => waiting.push_back((rejected.value, asked)),
                        }
                    }
                }
                _ => {
                    let mut bytes = [0; 5];
                    if let Ok(5) = peer.read(&mut bytes) {
                        unanswered.push(bytes);
                    }
                    if !unanswered.is_empty() {
                        let reply = unanswered.swap_remove(dice(unanswered.len()));
                        peer.write_all(&reply).unwrap();
                    }
                }
            }
        }
        assert!(replied > 100, "{replied} replies");
        waiting.clear();
        let mut bytes = [0; 5];
        while let Ok(5) = peer.read(&mut bytes) {
            unanswered.push(bytes);
        }
        peer.write_all(&unanswered.concat()).unwrap();
        let all: Vec<_> = (0..calls).map(|_| mux.prepare().unwrap()).collect();
        assert_eq!(mux.callers().forgotten, 0);
        drop(all);
    }
    bounded(|| {
        for_bits::<3>(1);
        for_bits::<3>(4);
        for_bits::<5>(3);
        for_bits::<8>(5);
    });
}
