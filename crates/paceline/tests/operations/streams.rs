//! A context as a stream of std's, and output in several pieces: what generic code writes arrives
//! whole and in order, and what a handler gives away is kept without a copy.

use std::{
    io::{self, BufRead, BufReader, BufWriter, ErrorKind, IoSlice, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{mpsc, Arc, Mutex},
};

use crate::support::{bounded, by_hand::serve_all, LONG};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Context, Interest, Next, OutputLimit, Piece, Pool, SetKind,
};
use socket2::SockRef;

/// How much a simulated stream takes before its peer reads.
const ROOM: usize = 64;

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251) as u8).collect()
}

/// A pool without threads in a world of its own, which keeps up to `limit` bytes for each handle.
fn narrow(limit: usize) -> (Simulation, Pool) {
    let world = Simulation::new(1);
    let pool = Pool::builder()
        .threads(0)
        .handle_set(SetKind::Simulated(world.clone()))
        .output_limit(limit)
        .build()
        .unwrap();
    (world, pool)
}

/// Everything that the peer gets from a handler which is called once: for one byte, which it has
/// read.
fn sent_by(
    limit: usize,
    mut once: impl FnMut(&mut Context<'_, SimStream>) + Send + 'static,
) -> Vec<u8> {
    let (world, pool) = narrow(limit);
    let (stream, peer) = world.stream();
    let handler = move |cx: &mut Context<'_, SimStream>| {
        cx.read(&mut [0])?;
        once(cx);
        Ok(Next::Close)
    };
    pool.register(stream, Interest::READ, handler).unwrap();
    peer.send(b"x");
    all_that_comes(&pool, &peer)
}

/// Lets the pool work until the peer gets nothing more.
fn all_that_comes(pool: &Pool, peer: &SimPeer) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        serve_all(pool);
        let more = peer.received();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

fn is_limit<T, E: Into<io::Error>>(told: Result<T, E>) -> bool {
    let error = told.err().expect("it is too much").into();
    error
        .get_ref()
        .is_some_and(|error| error.is::<OutputLimit>())
}

/// A context was no `Write`: users wrapped it by hand, and a wrapper that passed "would block" on
/// lost the rest of what a generic writer had to say. Now such a writer never sees "would block":
/// what the peer does not take is kept.
#[test]
fn a_generic_writer_is_heard_to_the_end() {
    fn write_it(mut to: impl Write) -> io::Result<()> {
        for number in 0..200 {
            writeln!(to, "line {number}")?;
        }
        to.write_all(&bytes(1000))?;
        io::copy(&mut &*bytes(3000), &mut to)?;
        to.flush()
    }
    bounded(|| {
        let all = sent_by(1 << 16, |cx| {
            write_it(&mut *cx).unwrap();
            assert!(cx.unsent() > ROOM);
            write_it(BufWriter::with_capacity(100, cx)).unwrap();
        });
        let mut expected = Vec::new();
        (0..2).for_each(|_| write_it(&mut expected).unwrap());
        assert_eq!(all, expected);
    });
}

/// One call of the trait's methods takes everything or nothing, also where std would do it in
/// parts.
#[test]
fn each_write_of_the_trait_is_whole_or_nothing() {
    bounded(|| {
        let all = sent_by(100, |cx| {
            let to: &mut dyn Write = cx;
            assert!(is_limit(to.write(&[1; 101])));
            assert!(is_limit(to.write_all(&[1; 101])));
            assert!(is_limit(to.write_fmt(format_args!("{:60}{:60}", "", ""))));
            let halves = [IoSlice::new(&[1; 60]), IoSlice::new(&[1; 60])];
            assert!(is_limit(to.write_vectored(&halves)));
            let thirds = [IoSlice::new(&[2; 30]), IoSlice::new(&[3; 60])];
            assert_eq!(to.write_vectored(&thirds).unwrap(), 90);
            assert_eq!(to.write(&[4; 70]).unwrap(), 70);
            assert_eq!(to.write(&[]).unwrap(), 0);
            assert_eq!(to.write_vectored(&[]).unwrap(), 0);
        });
        let expected = [vec![2; 30], vec![3; 60], vec![4; 70]].concat();
        assert_eq!(all, expected);
    });
}

/// To `read` into an empty buffer is an error, because its answer would look like the end. Std's
/// trait demands an answer; and a reader that is made of it brings every byte, then "would block",
/// which closes nothing.
#[test]
fn a_generic_reader_reads() {
    bounded(|| {
        let (world, pool) = narrow(0);
        let (stream, peer) = world.stream();
        let (tell, told) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, SimStream>| {
            let empty = cx.read(&mut []).unwrap_err();
            assert_eq!(empty.kind(), ErrorKind::InvalidInput);
            assert_eq!(Read::read(cx, &mut []).unwrap(), 0);
            let mut line = String::new();
            let mut reader = BufReader::with_capacity(5, &mut *cx);
            reader.read_line(&mut line)?;
            tell.send((line, reader.buffer().to_vec())).unwrap();
            let mut rest = Vec::new();
            let error = cx.read_to_end(&mut rest).unwrap_err();
            tell.send((String::new(), rest)).unwrap();
            Err(error)
        };
        pool.register(stream, Interest::READ, handler).unwrap();
        peer.send(b"one line\nand more than that");
        serve_all(&pool);
        let (line, ahead) = told.try_recv().unwrap();
        assert_eq!((line.as_str(), &*ahead), ("one line\n", &b"a"[..]));
        let (_, rest) = told.try_recv().unwrap();
        assert_eq!(rest, b"nd more than that");
        peer.send(b"two\n");
        serve_all(&pool);
        assert_eq!(told.try_recv().unwrap().0, "two\n", "it is still open");
    });
}

/// Answers in several parts were glued together first, or took a system call for each. Now one
/// write gets them all, and keeps what is not taken, wherever that begins.
#[test]
fn the_rest_of_several_slices_is_kept() {
    bounded(|| {
        for lengths in [
            &[50, 0, 100, 1][..],
            &[ROOM, 1],
            &[0, 0, ROOM + 1],
            &[0],
            &[],
            &[7; 40],
        ] {
            let parts: Vec<_> = lengths.iter().map(|length| bytes(*length)).collect();
            let (expected, whole) = (parts.concat(), lengths.iter().sum::<usize>());
            let all = sent_by(whole, move |cx| {
                let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
                cx.write_all_vectored(&slices).unwrap();
                assert_eq!(cx.unsent(), whole.saturating_sub(ROOM));
            });
            assert_eq!(all, expected, "{lengths:?}");
        }
    });
}

/// A stream that notes where the slices of each write are, and how many there were.
struct Noting {
    stream: UnixStream,
    writes: Arc<Mutex<Vec<Vec<usize>>>>,
}

impl AsFd for Noting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Read for &Noting {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(buffer)
    }
}

impl Write for &Noting {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let at = slices.iter().map(|slice| slice.as_ptr() as usize);
        self.writes.lock().unwrap().push(at.collect());
        (&self.stream).write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

type Writes = Arc<Mutex<Vec<Vec<usize>>>>;

/// Such a stream in a pool with one thread, and its peer, which reads when the test does.
fn noting() -> (Pool, Noting, UnixStream, Writes) {
    let pool = Pool::builder().threads(1).output_limit(1 << 20).build();
    let (stream, peer) = UnixStream::pair().unwrap();
    SockRef::from(&stream).set_send_buffer_size(4096).unwrap();
    peer.set_read_timeout(Some(LONG)).unwrap();
    let writes = Writes::default();
    let noting = Noting {
        stream,
        writes: Arc::clone(&writes),
    };
    (pool.unwrap(), noting, peer, writes)
}

/// Several slices are one system call; empty ones are left out, for a write of nothing but those
/// looks like a failure.
#[test]
fn several_slices_are_one_system_call() {
    bounded(|| {
        let (pool, noting, mut peer, writes) = noting();
        let handler = |cx: &mut Context<'_, Noting>| {
            let slices = [&b"one"[..], b"", b", two", b", three"].map(IoSlice::new);
            cx.write_all_vectored(&slices)?;
            cx.write_all_vectored(&[IoSlice::new(&[])])?;
            cx.send_all(&mut ["; four".into(), Piece::default(), ", five".into()])?;
            Ok(Next::Close)
        };
        pool.register(noting, Interest::WRITE, handler).unwrap();
        let mut all = String::new();
        peer.read_to_string(&mut all).unwrap();
        assert_eq!(all, "one, two, three; four, five");
        let counts: Vec<_> = writes.lock().unwrap().iter().map(Vec::len).collect();
        assert_eq!(counts, [3, 2]);
    });
}

/// What a handler gave away was copied when the peer did not take it. Now the pool sends it from
/// where it is: every write begins in the memory that the handler had.
#[test]
fn given_pieces_are_kept_without_a_copy() {
    const MUCH: usize = 1 << 18;
    bounded(|| {
        let (pool, noting, mut peer, writes) = noting();
        let (owned, shared) = (bytes(MUCH), Arc::<[u8]>::from(bytes(MUCH)));
        let memory = [owned.as_ptr() as usize, shared.as_ptr() as usize];
        let (mut owned, given) = (Some(owned), Arc::clone(&shared));
        let (tell, told) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, Noting>| {
            let owned = owned.take().expect("it closes, so it is called once");
            cx.send_all(&mut [owned.into(), Arc::clone(&given).into()])?;
            tell.send(cx.unsent()).unwrap();
            Ok(Next::Close)
        };
        pool.register(noting, Interest::WRITE, handler).unwrap();
        assert!(told.recv_timeout(LONG).unwrap() > MUCH);
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        assert_eq!(all, [bytes(MUCH), bytes(MUCH)].concat());
        for at in writes.lock().unwrap().iter().flatten() {
            let is_there = |begin: &usize| (*begin..*begin + MUCH).contains(at);
            assert!(memory.iter().any(is_there), "a copy is sent");
        }
        drop(pool);
        assert_eq!(Arc::strong_count(&shared), 1, "the memory is given back");
    });
}

/// The limit counts bytes, so pieces of one byte each would take many times that: they are copied.
/// So is a vector that is nearly empty. A long one is not, also if it is a part.
#[test]
fn short_pieces_are_copied() {
    bounded(|| {
        let (short, long) = (Arc::<[u8]>::from([1; 100]), Arc::<[u8]>::from([2; 4096]));
        let (kept_short, kept_long) = (Arc::clone(&short), Arc::clone(&long));
        let all = sent_by(1 << 20, move |cx| {
            cx.write_all(&[0; ROOM]).unwrap();
            (0..10).for_each(|_| cx.send(Arc::clone(&kept_short)).unwrap());
            assert_eq!(Arc::strong_count(&kept_short), 2);
            cx.send(Piece::from(Arc::clone(&kept_long)).part(1..2000))
                .unwrap();
            assert_eq!(Arc::strong_count(&kept_long), 3);
        });
        let expected = [vec![0; ROOM], vec![1; 1000], vec![2; 1999]].concat();
        assert_eq!(all, expected);
        assert_eq!(
            (Arc::strong_count(&short), Arc::strong_count(&long)),
            (1, 1)
        );
    });
}

/// What is too much is given back, and nothing of it is sent: of several pieces none.
#[test]
fn pieces_beyond_the_limit_are_given_back() {
    bounded(|| {
        let all = sent_by(3000, |cx| {
            let mut pieces = [Piece::from(vec![1; 2000]), vec![1; 1001].into()];
            assert!(is_limit(cx.send_all(&mut pieces)));
            assert_eq!(pieces.map(|piece| piece.len()), [2000, 1001]);
            let rejected = cx.send(vec![1; 3001]).unwrap_err();
            assert_eq!(rejected.value.as_ref(), [1; 3001]);
            assert!(is_limit::<(), _>(Err(rejected)));
            let mut pieces = [Piece::from(vec![2; 2000]), vec![3; 1000].into()];
            cx.send_all(&mut pieces).unwrap();
            assert!(pieces.iter().all(Piece::is_empty));
            assert!(is_limit(cx.send("x".repeat(ROOM + 1))));
        });
        assert_eq!(all, [vec![2; 2000], vec![3; 1000]].concat());
    });
}

/// Whatever way it is written, output comes in the order of writing, to the last byte, and `unsent`
/// counts what is left.
#[test]
fn all_ways_to_write_keep_the_order() {
    const STEPS: u64 = 40;
    bounded(|| {
        for seed in 1..7_u64 {
            let (world, pool) = narrow(1 << 20);
            let (stream, peer) = world.stream();
            let (tell, told) = mpsc::channel();
            let (mut random, mut next) = (seed, 0_u8);
            let handler = move |cx: &mut Context<'_, SimStream>| {
                cx.read(&mut [0; 8])?;
                cx.read_while_sending(true);
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                let length = (random >> 40) as usize % 3000;
                let before = cx.unsent();
                let part: Vec<u8> = (0..length)
                    .map(|_| (next = next.wrapping_add(1), next).1)
                    .collect();
                let (one, other) = part.split_at(length / 3);
                match random >> 33 & 3 {
                    0 => cx.write_all(&part)?,
                    1 => cx.write_all_vectored(&[one, other].map(IoSlice::new))?,
                    2 => cx.send(part.clone())?,
                    _ => {
                        cx.send_all(&mut [one.to_vec().into(), Arc::<[u8]>::from(other).into()])?
                    }
                }
                assert!(cx.unsent() <= before + length && cx.unsent() + ROOM >= before + length);
                tell.send(part).unwrap();
                Ok(Next::Continue)
            };
            pool.register(stream, Interest::READ, handler).unwrap();
            let mut all = Vec::new();
            for _ in 0..STEPS {
                peer.send(b"x");
                serve_all(&pool);
                all.extend(peer.received());
            }
            all.extend(all_that_comes(&pool, &peer));
            let parts: Vec<Vec<u8>> = told.try_iter().collect();
            assert_eq!(parts.len() as u64, STEPS);
            assert!(all == parts.concat(), "seed {seed}");
        }
    });
}
