//! Many threads, one connection, under every schedule: over a real socket, whose peer is one of the
//! threads.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
};

use paceline::bound::{Builder, Header, Mux, Protocol, Whose};

use super::*;

/// Only a hang takes as long. (No wait times out here.)
const LONG: Duration = Duration::from_secs(3600);
const CALLERS: u8 = 3;
const CALLS: u8 = 2;

/// One byte of id, one of body.
struct Tiny;

impl Protocol for Tiny {
    type Request = u8;
    const ID_BITS: u32 = 8;

    fn encode(&self, request: &u8, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.extend([id as u8, *request]);
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        Ok(bytes.first().map(|id| Header {
            whose: Whose::Call((*id).into()),
            skip: 1,
            length: 1,
        }))
    }
}

/// A connection, and the peer's end of it, which does not wait.
fn connected() -> (Mux<Tiny>, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    far.set_nonblocking(true).unwrap();
    (Builder::new().calls(8).build(near, Tiny).unwrap(), far)
}

/// Answers so many requests with the same body, of those that it has the newest first; half of a
/// reply at a time. Then the connection ends.
fn answer(mut far: UnixStream, mut count: usize) {
    let mut requests = Vec::new();
    while count > 0 {
        let mut buffer = [0; 64];
        if let Ok(read) = far.read(&mut buffer) {
            requests.extend(buffer[..read].chunks(2).map(<[u8]>::to_vec));
        }
        if let Some(reply) = requests.pop() {
            for byte in reply {
                far.write_all(&[byte]).unwrap();
                thread::yield_now();
            }
            count -= 1;
        }
        thread::yield_now();
    }
}

/// So many threads call, each several times; how many calls failed. A reply is its caller's own
/// (B1).
fn failed_calls(mux: &Mux<Tiny>) -> usize {
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let mux = mux.clone();
            thread::spawn(move || {
                let own = |call| 16 * caller + call;
                let replies = (0..CALLS).map(|call| (own(call), mux.call(&own(call), LONG)));
                replies.fold(0, |failed, (own, reply)| match reply {
                    Ok(reply) => {
                        assert_eq!(*reply, [own], "another's reply (B1)");
                        failed
                    }
                    Err(_) => failed + 1,
                })
            })
        })
        .collect();
    let failed = callers.into_iter().map(|caller| caller.join().unwrap());
    failed.sum()
}

/// B1, B2, B3: callers lead in turns, and replies come in another order; everyone gets its own, and
/// nobody is left asleep.
#[test]
fn shuttle_bound_many_callers() {
    check(|| {
        let (mux, far) = connected();
        let peer = thread::spawn(move || answer(far, (CALLERS * CALLS).into()));
        assert_eq!(failed_calls(&mux), 0);
        peer.join().unwrap();
        let left = mux.callers();
        assert_eq!((left.under_way, left.asleep, left.led), (0, 0, false));
    });
}

/// B2, E14: the connection ends in the middle of it. Everyone gets its reply, or is told, also who
/// calls later.
#[test]
fn shuttle_bound_loss_reaches_everyone() {
    check(|| {
        let (mux, far) = connected();
        let peer = thread::spawn(move || answer(far, 2));
        // A write may find the end before the last replies are read.
        assert!(failed_calls(&mux) >= usize::from(CALLERS * CALLS) - 2);
        peer.join().unwrap();
        assert!(mux.is_lost());
        let left = mux.callers();
        assert_eq!((left.under_way, left.asleep, left.led), (0, 0, false));
    });
}
