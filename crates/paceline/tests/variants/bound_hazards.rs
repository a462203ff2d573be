//! What other people's multiplexed connections got wrong, and ours must not: the hazards' names are
//! in the tests or in their first lines. And the hand-over of the event: a caller that reads its
//! reply by itself.

use std::{
    io::{self, Read, Write},
    thread,
    time::{Duration, Instant},
};

use crate::support::{
    bound::{call, frame, mux, mux_of, wait_asleep, Framed},
    bounded, wait_until, LONG,
};
use paceline::bound::{Builder, Callers, Header, Mux, Protocol, Whose};

const SHORT: Duration = Duration::from_millis(20);

/// A thread that calls.
fn caller(mux: &Mux<Framed>) -> thread::JoinHandle<io::Result<Vec<u8>>> {
    let mux = mux.clone();
    thread::spawn(move || call(&mux, b"x"))
}

/// `reply_before_waiter_joins` (TAO 2005): the reply was there before the waiter, who then waited
/// for it for ever. Here another thread has read it, or it is still in the socket: found either
/// way, and at once.
#[test]
fn reply_before_waiter_joins() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let [read, unread] = [(); 2].map(|()| mux.prepare().unwrap().send(b"x").unwrap());
        let [(read_id, _), (unread_id, _)] = [peer.request(), peer.request()];
        let other = caller(&mux);
        let (other_id, _) = peer.request();
        peer.reply(read_id, b"read");
        peer.reply(other_id, b"");
        other.join().unwrap().unwrap();
        peer.reply(unread_id, b"unread");
        assert_eq!(*read.join(Duration::ZERO).unwrap(), *b"read");
        assert_eq!(*unread.join(LONG).unwrap(), *b"unread");
        assert_eq!(mux.callers(), Callers::default());
    });
}

/// `reply_before_leader_loop_rechecked` (TAO 2001): a leader found its own reply among others that
/// it had read, and waited for it once more. Here all that was read is given out, and then the
/// leader looks for its own.
#[test]
fn reply_before_leader_loop_rechecked() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let leader = caller(&mux);
        let (leader_id, _) = peer.request();
        wait_asleep(&mux, 0);
        let sleeper = caller(&mux);
        let (sleeper_id, _) = peer.request();
        wait_asleep(&mux, 1);
        // In one piece, its own in the middle.
        let all = [
            frame(sleeper_id, b"s"),
            frame(leader_id, b"l"),
            frame(99_999, b"unknown"),
        ];
        peer.send(&all.concat());
        assert_eq!(leader.join().unwrap().unwrap(), b"l");
        assert_eq!(sleeper.join().unwrap().unwrap(), b"s");
        assert_eq!(mux.callers(), Callers::default());
        let seen = mux.snapshot();
        assert_eq!((seen.elections, seen.unknown_replies), (0, 1));
    });
}

/// `timeout_races_reply_dispatch` (TAO 2001): a reply slot was left dangling. Here replies and
/// deadlines come at about the same time, many times; each caller has its own reply or none, and
/// nothing is left behind.
#[test]
fn timeout_races_reply_dispatch() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let answering = thread::spawn(move || {
            while let Ok((id, body)) = peer.try_request() {
                thread::sleep(Duration::from_micros(u64::from(body[0])));
                if peer.0.write_all(&frame(id, &body)).is_err() {
                    return;
                }
            }
        });
        let callers: Vec<_> = (0..4_u8)
            .map(|number| {
                let mux = mux.clone();
                thread::spawn(move || {
                    let mut replied = 0;
                    for round in 0..150_u8 {
                        let request = [round, number];
                        match mux.call(&request, Duration::from_micros(300)) {
                            Ok(reply) => {
                                assert_eq!(*reply, request);
                                replied += 1;
                            }
                            Err(error) => assert_eq!(error.kind(), io::ErrorKind::TimedOut),
                        }
                    }
                    replied
                })
            })
            .collect();
        let replied: u64 = callers
            .into_iter()
            .map(|caller| caller.join().unwrap())
            .sum();
        // What is still on the way comes in front of this.
        assert_eq!(call(&mux, b"\0last").unwrap(), b"\0last");
        let seen = mux.snapshot();
        assert_eq!(mux.callers(), Callers::default());
        assert_eq!(seen.calls, 601);
        // A reply that came in time may have found its caller awake past its deadline, and gone.
        assert!(seen.replies > replied && seen.replies + seen.late_replies >= 1);
        assert_eq!((seen.doubled_replies, seen.unknown_replies), (0, 0));
        drop(mux);
        answering.join().unwrap();
    });
}

/// `zero_timeout_wait_is_final` (TAO 2006): a waiter that had timed out became the leader, and
/// stuck. Here a join without time takes what is there and returns, whoever leads; and it can be
/// repeated.
#[test]
fn zero_timeout_wait_is_final() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let mut call = mux.prepare().unwrap().send(b"x").unwrap();
        let (id, _) = peer.request();
        for _ in 0..3 {
            let told = call.join(Duration::ZERO).unwrap_err();
            assert_eq!(told.error.kind(), io::ErrorKind::TimedOut);
            assert!(!mux.callers().led);
            call = told.value;
        }
        // While another leads.
        let leader = caller(&mux);
        let (leader_id, _) = peer.request();
        wait_asleep(&mux, 0);
        let told = call.join(Duration::ZERO).unwrap_err();
        assert_eq!(mux.callers().asleep, 0);
        peer.reply(id, b"y");
        peer.reply(leader_id, b"");
        leader.join().unwrap().unwrap();
        assert_eq!(*told.value.join(Duration::ZERO).unwrap(), *b"y");
        // And alone it finds what is in the socket.
        let call = mux.prepare().unwrap().send(b"x").unwrap();
        let (id, _) = peer.request();
        peer.reply(id, b"z");
        let mut call = Some(call);
        wait_until(|| match call.take().map(|call| call.join(Duration::ZERO)) {
            Some(Ok(reply)) => *reply == *b"z",
            Some(Err(told)) => {
                call = Some(told.value);
                false
            }
            None => unreachable!("it came already"),
        });
    });
}

/// `monotonic_deadlines`: others count on the wall clock (ACE, TAO), which jumps. Here a deadline
/// is a span, or a point on the monotonic clock; one for the whole join, whatever comes meanwhile.
#[test]
fn monotonic_deadlines() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let begin = Instant::now();
        let told = mux.call(b"x", begin + SHORT).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= SHORT, "not before its time");
        let told = mux.call(b"x", begin).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::TimedOut, "it has passed");
        // Messages for others do not prolong it.
        let noise = thread::spawn(move || {
            while peer.0.write_all(&frame(99_999, b"noise")).is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        let told = mux.call(b"x", SHORT * 2).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        drop(mux);
        noise.join().unwrap();
    });
}

/// `reply_and_leadership_are_distinct_signals` (TAO): one condition served both, and the leadership
/// was lost. Here one thread is told its reply, another one is elected, at the same moment: the
/// first leaves, the second leads.
#[test]
fn reply_and_leadership_are_distinct_signals() {
    bounded(|| {
        for _ in 0..50 {
            let (mux, mut peer) = mux();
            let leader = caller(&mux);
            let (leader_id, _) = peer.request();
            wait_asleep(&mux, 0);
            let oldest = caller(&mux);
            let (oldest_id, _) = peer.request();
            wait_asleep(&mux, 1);
            let newest = caller(&mux);
            let (newest_id, _) = peer.request();
            wait_asleep(&mux, 2);
            // The oldest would be elected, but its reply is there.
            peer.send(&[frame(oldest_id, b"o"), frame(leader_id, b"l")].concat());
            assert_eq!(leader.join().unwrap().unwrap(), b"l");
            assert_eq!(oldest.join().unwrap().unwrap(), b"o");
            wait_asleep(&mux, 0);
            peer.reply(newest_id, b"n");
            assert_eq!(newest.join().unwrap().unwrap(), b"n");
            let seen = mux.snapshot();
            assert_eq!((seen.elections, seen.wakes), (1, 2));
        }
    });
}

/// `elected_then_timed_out_passes_on`, for a connection (TAO 842): the one that is elected leaves
/// at its deadline, and the one that sleeps behind it leads.
#[test]
fn elected_then_timed_out_passes_on() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let leader = caller(&mux);
        let (leader_id, _) = peer.request();
        wait_asleep(&mux, 0);
        let late = {
            let mux = mux.clone();
            thread::spawn(move || mux.call(b"late", Duration::from_millis(200)).map(drop))
        };
        peer.request();
        wait_asleep(&mux, 1);
        let last = caller(&mux);
        let (last_id, _) = peer.request();
        // Elected, if that happens in time; else it has gone already, and is skipped.
        peer.reply(leader_id, b"");
        leader.join().unwrap().unwrap();
        let told = late.join().unwrap().unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        wait_asleep(&mux, 0);
        peer.reply(last_id, b"z");
        assert_eq!(last.join().unwrap().unwrap(), b"z");
    });
}

/// The hand-over of the event: a thread that sleeps until its reply begins is called by the leader,
/// reads the body by itself, to its end and no further, and passes the lead on.
#[test]
fn a_caller_reads_its_reply_by_itself() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let leader = caller(&mux);
        let (leader_id, _) = peer.request();
        wait_asleep(&mux, 0);
        let reader = {
            let mux = mux.clone();
            thread::spawn(move || -> io::Result<Vec<u8>> {
                let call = mux.prepare()?.send(b"large")?;
                let mut body = call.join_to_read(LONG)?;
                assert!(body.is_direct());
                assert_eq!(body.remaining(), 300_000);
                let mut read = Vec::new();
                body.read_to_end(&mut read)?;
                Ok(read)
            })
        };
        let (reader_id, _) = peer.request();
        wait_asleep(&mux, 1);
        let large: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
        let sending = {
            let all = [frame(reader_id, &large), frame(leader_id, b"l")].concat();
            thread::spawn(move || {
                for piece in all.chunks(50_000) {
                    peer.send(piece);
                    thread::sleep(Duration::from_millis(1));
                }
                peer
            })
        };
        assert!(reader.join().unwrap().unwrap() == large);
        assert_eq!(leader.join().unwrap().unwrap(), b"l");
        drop(sending.join().unwrap());
        let seen = mux.snapshot();
        assert_eq!((seen.events_handed_over, seen.data_handed_over), (1, 0));
        assert_eq!(seen.replies, 2);
        assert_eq!(mux.callers(), Callers::default());
    });
}

/// Who reads by itself may lead itself, may stop in the middle (the rest is skipped), and gets it
/// from a buffer if its reply came before it joined.
#[test]
fn a_reader_may_stop_in_the_middle() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let [leads, early] = [(); 2].map(|()| mux.prepare().unwrap().send(b"x").unwrap());
        let [(leads_id, _), (early_id, _)] = [peer.request(), peer.request()];
        peer.reply(early_id, b"from a buffer");
        peer.reply(leads_id, &[7; 5000]);
        let mut body = leads.join_to_read(LONG).unwrap();
        assert!(body.is_direct());
        let mut part = [0; 100];
        body.read_exact(&mut part).unwrap();
        assert_eq!(body.remaining(), 4900);
        assert!(mux.callers().led, "nobody else can read meanwhile");
        drop(body);
        assert!(!mux.callers().led);
        let mut body = early.join_to_read(LONG).unwrap();
        assert!(!body.is_direct());
        let mut text = String::new();
        body.read_to_string(&mut text).unwrap();
        assert_eq!(text, "from a buffer");
        drop(body);
        let next = mux.prepare().unwrap().send(b"x").unwrap();
        let (next_id, _) = peer.request();
        peer.reply(next_id, b"behind the rest");
        assert_eq!(*next.join(LONG).unwrap(), *b"behind the rest");
        assert_eq!(mux.callers(), Callers::default());
    });
}

/// A reader's deadline bounds its reads, and a lost connection ends them; others are told.
#[test]
fn a_reader_is_not_held_for_ever() {
    bounded(|| {
        let (mux, mut peer) = mux();
        let slow = mux.prepare().unwrap().send(b"x").unwrap();
        let (id, _) = peer.request();
        let whole = frame(id, &[1; 100]);
        peer.send(&whole[..50]);
        let mut body = slow.join_to_read(SHORT).unwrap();
        let told = body.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::TimedOut);
        drop(body);
        peer.send(&whole[50..]);
        let cut = mux.prepare().unwrap().send(b"x").unwrap();
        let (id, _) = peer.request();
        peer.send(&frame(id, &[1; 100])[..50]);
        let mut body = cut.join_to_read(LONG).unwrap();
        drop(peer);
        let told = body.read_to_end(&mut Vec::new()).unwrap_err();
        assert_ne!(told.kind(), io::ErrorKind::TimedOut);
        drop(body);
        assert!(mux.is_lost());
        assert_eq!(mux.callers(), Callers::default());
    });
}

/// Each reply is a line, in the order of requests.
struct Lines;

impl Protocol for Lines {
    type Request = str;
    const ID_BITS: u32 = 0;

    fn encode(&self, request: &str, _: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend_from_slice(request.as_bytes());
        out.push(b'\n');
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        let end = bytes.iter().position(|byte| *byte == b'\n');
        Ok(end.map(|end| Header {
            whose: Whose::Oldest,
            skip: 0,
            length: end + 1,
        }))
    }
}

/// A line that is too long is too long, whether it comes in one piece or in several: what fits
/// depends on no timing.
#[test]
fn the_longest_header_is_the_same_however_it_comes() {
    bounded(|| {
        for (length, is_accepted) in [(4095, true), (4096, false), (6000, false)] {
            for piece in [100, 4096, length + 1] {
                let (mux, mut peer) = mux_of(Builder::new(), Lines);
                let answering = thread::spawn(move || {
                    peer.0.read_exact(&mut [0; 4])?;
                    let line = [vec![b'x'; length], vec![b'\n']].concat();
                    line.chunks(piece)
                        .try_for_each(|piece| peer.0.write_all(piece))
                });
                let reply = mux.call("ask", LONG);
                if is_accepted {
                    assert_eq!(reply.unwrap().len(), length + 1)
                } else {
                    let told = reply.unwrap_err().to_string();
                    assert!(told.contains("no header within 4096 bytes"), "{told}");
                }
                // It may find that the other side has given up.
                let _ = answering.join().unwrap();
            }
        }
    });
}
