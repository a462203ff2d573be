//! The passive part by hand: ids, replies, claims, and the queue of requests.

use std::{
    io::{self, IoSlice},
    mem,
    sync::Arc,
};

use super::{
    calls::{Calls, Key},
    inbound::{Fed, Inbound, Table},
    outbound::{Outbound, Pushed, Sink, Written},
    protocol::{Header, Protocol, Whose},
    wire_order::WireOrder,
    word::{FellAsleep, Left, Loss, Phase, Told, Unlisted},
};
use crate::sync::{lock, Mutex};

/// One byte of id (or `!`: of the peer's own), one of length, then the body.
struct Tiny;

impl Protocol for Tiny {
    type Request = [u8];
    const ID_BITS: u32 = 8;

    fn encode(&self, request: &[u8], id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend([id as u8, request.len() as u8]);
        out.extend(request);
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        let &[id, length, ..] = bytes else {
            return Ok(None);
        };
        let whose = match id {
            b'!' => Whose::Peer,
            id => Whose::Call(id.into()),
        };
        Ok(Some(Header {
            whose,
            skip: 2,
            length: length.into(),
        }))
    }
}

/// A connection without threads.
struct Desk {
    calls: Calls,
    order: WireOrder,
    outbound: Outbound,
    inbound: Inbound,
    wire: Arc<Wire>,
}

/// What was written, and how much more is taken.
#[derive(Default)]
struct Wire(Mutex<(Vec<u8>, usize)>);

impl Sink for Wire {
    fn write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let (wire, takes) = &mut *lock(&self.0);
        if *takes == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let all: Vec<u8> = slices.iter().flat_map(|slice| slice.to_vec()).collect();
        let count = all.len().min(*takes);
        wire.extend(&all[..count]);
        *takes -= count;
        Ok(count)
    }
}

impl Desk {
    fn new(most: u32) -> Self {
        let wire = Arc::new(Wire::default());
        let outbound = Outbound::new(1000);
        outbound.live_again(Arc::clone(&wire) as Arc<dyn Sink>);
        Self {
            calls: Calls::new(Tiny::ID_BITS, most).unwrap(),
            order: WireOrder::new(most as usize),
            outbound,
            inbound: Inbound::new(1000),
            wire,
        }
    }

    fn push(&self, key: Key, request: &[u8]) -> Pushed {
        let length = self.calls.encode(key, &Tiny, request).unwrap();
        assert!(self.outbound.reserve(length));
        assert!(self.calls.slot(key).word.queue());
        self.outbound.push(&self.calls, key.index)
    }

    /// With a socket that takes so many bytes.
    fn write(&mut self, takes: usize) -> Written {
        lock(&self.wire.0).1 = takes;
        self.outbound.write(&self.calls, &self.order)
    }

    fn written(&self) -> Vec<u8> {
        mem::take(&mut lock(&self.wire.0).0)
    }

    fn sent(&mut self, request: &[u8]) -> Key {
        let key = self.calls.register().unwrap();
        assert_eq!(self.push(key, request), Pushed::Write);
        assert!(matches!(self.write(usize::MAX), Written::All));
        key
    }

    /// The outcomes that these bytes lead to.
    fn feed(&mut self, bytes: &[u8]) -> Vec<(Key, Told)> {
        self.inbound.space()[..bytes.len()].copy_from_slice(bytes);
        self.inbound.filled(bytes.len());
        let mut told = Vec::new();
        let table = Table {
            calls: &self.calls,
            order: &self.order,
            protocol: &Tiny,
        };
        let tell = &mut |key, it| told.push((key, it));
        let fed = self.inbound.feed(&table, None, tell).unwrap();
        assert_eq!(fed, Fed::All);
        told
    }

    fn reply(&self, key: Key, body: &[u8]) -> Vec<u8> {
        [&[self.calls.id(key) as u8, body.len() as u8], body].concat()
    }

    fn counted(&self) -> [u64; 4] {
        let seen = self.calls.counters.snapshot();
        [
            seen.replies,
            seen.late_replies,
            seen.doubled_replies,
            seen.unknown_replies,
        ]
    }
}

/// Replies in another order than requests, in pieces of any size, with a message of the peer's own
/// and one of no bytes between them: each is found in the buffer of its own call (B1, E13).
#[test]
fn replies_in_pieces_find_their_calls() {
    for size in 1..20 {
        let mut desk = Desk::new(8);
        let keys = [b"a", b"b", b"c"].map(|request| desk.sent(request));
        let replies = [(2, &b"third"[..]), (0, b""), (1, b"second")];
        let mut stream = b"!\x02hi".to_vec();
        for (which, body) in replies {
            stream.extend(desk.reply(keys[which], body));
        }
        let mut told = Vec::new();
        for piece in stream.chunks(size) {
            told.extend(desk.feed(piece));
        }
        assert_eq!(told, [2, 0, 1].map(|which| (keys[which], Told::Awake)));
        for (which, body) in replies {
            assert_eq!(desk.calls.take_reply(keys[which]), body);
        }
        assert_eq!(desk.counted(), [3, 0, 0, 0]);
        assert_eq!(desk.calls.counters.snapshot().peer_messages, 1);
    }
}

/// `request_id_wrap_skips_live_ids`: ids wrapped onto live calls (TAO). Here one call stays while
/// its neighbours use up all ids several times; none of them ever has its id, nor that of a call
/// that was forgotten and may be answered late.
#[test]
fn request_id_wrap_skips_live_ids() {
    let mut desk = Desk::new(4);
    let [lives, forgotten] = [b"1", b"2"].map(|request| desk.sent(request));
    let ids = [lives, forgotten].map(|key| desk.calls.id(key));
    let late = desk.reply(forgotten, b"late");
    desk.calls.forget(forgotten);
    let mut had = [0; 256];
    for _ in 0..1000 {
        let key = desk.sent(b"x");
        let id = desk.calls.id(key);
        assert!(!ids.contains(&id), "a live id was given away");
        had[id as usize] += 1;
        let reply = desk.reply(key, b"y");
        assert_eq!(desk.feed(&reply), [(key, Told::Awake)]);
        desk.calls.forget(key);
    }
    assert!(had.iter().any(|times| *times > 1), "ids did wrap");
    assert_eq!(desk.feed(&late), []);
    assert_eq!(desk.counted(), [1000, 1, 0, 0]);
    let reply = desk.reply(lives, b"z");
    assert_eq!(desk.feed(&reply), [(lives, Told::Awake)]);
}

/// B4, E12: late, doubled and unknown replies are counted, each as what it is, and skipped.
#[test]
fn replies_that_nobody_awaits_are_counted() {
    let mut desk = Desk::new(4);
    let key = desk.sent(b"x");
    let reply = desk.reply(key, b"once");
    assert_eq!(desk.feed(&reply), [(key, Told::Awake)]);
    assert_eq!(desk.feed(&reply), []);
    assert_eq!(desk.calls.take_reply(key), b"once");
    desk.calls.forget(key);
    assert_eq!(desk.feed(&reply), [], "and again after it is over");
    assert_eq!(desk.counted(), [1, 0, 2, 0]);
    let registered = desk.calls.register().unwrap();
    let unasked = desk.reply(registered, b"not asked yet");
    assert_eq!(desk.feed(&unasked), []);
    assert_eq!(desk.feed(&[3, 1, b'x']), [], "a slot that never was");
    assert_eq!(desk.counted(), [1, 0, 2, 2]);
}

/// A call whose caller left in the middle of its reply keeps its slot until the reply is over, and
/// no caller gets the bytes.
#[test]
fn forgotten_in_the_middle_of_its_reply() {
    let mut desk = Desk::new(1);
    let key = desk.sent(b"x");
    let reply = desk.reply(key, b"body");
    assert_eq!(desk.feed(&reply[..3]), []);
    desk.calls.forget(key);
    assert_eq!(desk.calls.register(), None, "no other call has its place");
    let told = desk.feed(&reply[3..]);
    assert_eq!(told, [(key, Told::Nobody(Left::Vacant))]);
    let next = desk.sent(b"x");
    assert_eq!((next.index, next.generation), (0, key.generation + 1));
    assert_eq!(desk.calls.take_reply(next), b"");
}

/// A server that never answers does not use up the slots for ever: a forgotten call gives way when
/// nothing else is left, and its id is not given away at once.
#[test]
fn forgotten_calls_give_way() {
    let mut desk = Desk::new(2);
    for _ in 0..20 {
        let key = desk.sent(b"x");
        desk.calls.forget(key);
    }
    let [one, other] = [b"1", b"2"].map(|request| desk.sent(request));
    assert_eq!(desk.calls.register(), None);
    assert_ne!(desk.calls.id(one), desk.calls.id(other));
}

/// B1: a server that never answers is asked again and again. Each call takes the place of the one
/// before, with an id of its own, as long as there are some: then the place is lost. Else a reply
/// that is still owed would be taken for the last one's. On another connection nothing is owed.
#[test]
fn ids_do_not_wrap_onto_replies_still_owed() {
    // So many that one bit is left to distinguish the calls of one place.
    let mut desk = Desk::new(128);
    let mut forgotten = Vec::new();
    let first = desk.sent(b"1");
    let others: Vec<_> = (1..128).map(|_| desk.calls.register()).collect();
    assert!(others.iter().all(Option::is_some));
    forgotten.push(desk.reply(first, b"owed"));
    desk.calls.forget(first);
    let second = desk.sent(b"2");
    assert_eq!(second.index, first.index);
    forgotten.push(desk.reply(second, b"owed"));
    desk.calls.forget(second);
    assert_ne!(forgotten[0], forgotten[1]);
    assert_eq!(desk.calls.register(), None, "both of its ids are owed");
    desk.calls.begin_anew();
    assert!(desk.calls.register().is_some());
}

/// Nor do they when the place was answered since, and is used as ever.
#[test]
fn ids_do_not_wrap_onto_a_reply_owed_for_long() {
    let mut desk = Desk::new(128);
    let first = desk.sent(b"1");
    let others: Vec<_> = (1..128).map(|_| desk.calls.register()).collect();
    assert!(others.iter().all(Option::is_some));
    desk.calls.forget(first);
    let second = desk.sent(b"2");
    assert_eq!(second.index, first.index);
    let reply = desk.reply(second, b"its own");
    assert_eq!(desk.feed(&reply), [(second, Told::Awake)]);
    desk.calls.forget(second);
    assert_eq!(desk.calls.register(), None, "its other id is owed");
    desk.calls.begin_anew();
    let third = desk.calls.register().expect("it is there again");
    assert_eq!(third.index, first.index);
    assert_eq!(desk.calls.register(), None, "it is there once");
}

/// Found by stress: a call was forgotten in the line of sleepers, its reply came, and the next call
/// that took its place found that reply in front of its own. Now a place is empty when it is taken,
/// however it was left.
#[test]
fn nothing_is_left_for_the_next_call() {
    let mut desk = Desk::new(1);
    for read in [false, true] {
        let key = desk.sent(b"x");
        let word = &desk.calls.slot(key).word;
        assert_eq!(word.fall_asleep(Phase::Asleep), FellAsleep::Unlisted);
        assert!(word.withdraw());
        let reply = desk.reply(key, b"old");
        assert_eq!(desk.feed(&reply[..3]), []);
        if !read {
            desk.calls.forget(key);
        }
        assert_eq!(desk.feed(&reply[3..]).len(), 1);
        if read {
            let reply = desk.calls.take_reply(key);
            desk.calls.put_back_reply(key, reply);
            desk.calls.forget(key);
        }
        let next = desk.sent(b"x");
        let reply = desk.reply(next, b"new");
        assert_eq!(desk.feed(&reply), [(next, Told::Awake)]);
        assert_eq!(desk.calls.take_reply(next), b"new");
        let left = desk.calls.slot(next).word.unlist();
        desk.calls.vacate(next.index, left);
        desk.calls.forget(next);
    }
}

/// A caller that pushes while another has the pen leaves its request to that one; bytes that the
/// socket does not take are kept, and are sent when it takes them, in order and whole. A request
/// forgotten before it was written is not sent.
#[test]
fn senders_combine() {
    let mut desk = Desk::new(8);
    let keys = [(); 4].map(|()| desk.calls.register().unwrap());
    assert_eq!(desk.push(keys[0], b"aa"), Pushed::Write);
    assert_eq!(desk.push(keys[1], b"bb"), Pushed::Left);
    assert_eq!(desk.push(keys[2], b"cc"), Pushed::Left);
    desk.calls.forget(keys[1]);
    assert!(matches!(desk.write(5), Written::Kept));
    assert!(desk.outbound.is_kept());
    assert_eq!(desk.push(keys[3], b"dd"), Pushed::Left);
    assert!(desk.outbound.pick_up());
    assert!(matches!(desk.write(usize::MAX), Written::All));
    let ids = keys.map(|key| desk.calls.id(key) as u8);
    let expected = [(ids[0], b"aa"), (ids[2], b"cc"), (ids[3], b"dd")]
        .map(|(id, text)| [&[id, 2], &text[..]].concat());
    assert_eq!(desk.written(), expected.concat());
    assert_eq!(desk.calls.counters.snapshot().writes, 2);
}

/// Beyond the bound nothing is accepted, unless nothing else waits; what is written or lost makes
/// room again.
#[test]
fn unsent_bytes_are_bounded() {
    let outbound = Outbound::new(10);
    assert!(outbound.reserve(100), "the only one may be of any size");
    assert!(!outbound.reserve(1));
    outbound.release(100);
    assert!(outbound.reserve(6) && outbound.reserve(4));
    assert!(!outbound.reserve(1));
}

/// The connection is lost with one request on the wire, one half written and one in the queue: all
/// three callers get the loss, and nothing is left behind for the next connection.
#[test]
fn a_loss_reaches_everyone() {
    let mut desk = Desk::new(8);
    let on_wire = desk.sent(b"x");
    let keys = [(); 3].map(|()| desk.calls.register().unwrap());
    assert_eq!(desk.push(keys[0], b"half"), Pushed::Write);
    assert!(matches!(desk.write(2), Written::Kept));
    assert_eq!(desk.push(keys[1], b"queued"), Pushed::Left);
    desk.outbound.die(&desk.calls);
    assert!(desk.outbound.is_buried());
    for key in [on_wire, keys[0], keys[1]] {
        assert_eq!(desk.calls.slot(key).word.look().phase(), Phase::Lost);
        desk.calls.forget(key);
    }
    assert_eq!(desk.push(keys[2], b"late"), Pushed::Dead);
    desk.calls.slot(keys[2]).word.unqueue();
    desk.outbound.release(6);
    let wire = Arc::clone(&desk.wire);
    desk.outbound.live_again(wire);
    desk.written();
    assert_eq!(desk.push(keys[2], b"anew"), Pushed::Write);
    assert!(matches!(desk.write(usize::MAX), Written::All));
    assert_eq!(desk.written()[2..], *b"anew");
}

/// `register_twice_is_an_error`, for a request: what is queued or on the wire can't be queued once
/// more.
#[test]
fn register_twice_is_an_error() {
    let mut desk = Desk::new(2);
    let key = desk.calls.register().unwrap();
    assert_eq!(desk.push(key, b"x"), Pushed::Write);
    let word = &desk.calls.slot(key).word;
    assert!(!word.queue(), "while it is queued");
    assert!(matches!(desk.write(usize::MAX), Written::All));
    assert!(!desk.calls.slot(key).word.queue(), "nor after");
}

/// A sleeper that gave up is found in the line as one that is awake, unless it sleeps again; then
/// it is where it was.
#[test]
fn a_sleeper_comes_back_to_its_place() {
    let desk = Desk::new(2);
    let key = desk.calls.register().unwrap();
    let word = &desk.calls.slot(key).word;
    assert_eq!(word.fall_asleep(Phase::Asleep), FellAsleep::Unlisted);
    assert!(word.withdraw());
    assert_eq!(word.fall_asleep(Phase::Asleep), FellAsleep::Listed);
    assert_eq!(word.unlist_if_awake(), Unlisted::Sleeps);
    assert!(word.withdraw());
    assert_eq!(word.unlist_if_awake(), Unlisted::Gone(Left::Claimed));
    assert_eq!(word.fall_asleep(Phase::Asleep), FellAsleep::Unlisted);
    assert_eq!(word.elect(), Unlisted::Sleeps);
    assert!(!word.withdraw(), "it is elected, and must pass that on");
}

/// Memory that one large reply took is not kept for ever; that of a small one is.
#[test]
fn large_buffers_are_given_back() {
    let mut desk = Desk::new(1);
    for (size, kept) in [(200, true), (100_000, false)] {
        let key = desk.sent(b"x");
        desk.calls.append(key, &vec![0; size]);
        desk.calls.forget(key);
        let _ = desk.calls.lose(key.index, Loss::Reply);
        let capacity = lock(&desk.calls.slots.at(0).reply).capacity();
        assert_eq!(capacity >= size, kept);
    }
}
