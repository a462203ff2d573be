//! A short item and its reply cost no allocation: they are read, framed and sent from buffers of the thread.
//!
//! The only test of this crate with unsafe code: an allocator that counts can't be written without it.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint,
    io::{self, Read, Write},
    net::TcpStream,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
    thread,
    time::{Duration, Instant},
};

use paceline::{
    observe::{Observer, Role},
    Pool,
};
use paceline_server::{
    codec::{dot_chunks, line, lines, prefixed, raw, until, varint, Framing, Message},
    Listen, Next, Peer, Server, Session,
};

/// The system's allocator, and how often a thread of a pool asked for memory or gave it back.
struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread belongs to a pool.
    static IN_POOL: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if ON.load(Ordering::Relaxed) && IN_POOL.get() {
        CALLS.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: every method hands its arguments to the system's allocator unchanged and returns its answer. Counting touches
// two atomics and a thread-local without a destructor; none of them allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller promises what `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above; the block came from `System`, because all blocks do.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count();
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Marks the threads of a pool: it is called on each of them. Counts those that have come.
#[derive(Clone, Default)]
struct Marks(Arc<AtomicUsize>);

impl Observer for Marks {
    fn role_changed(&self, _: usize, role: Role) {
        let was_in = IN_POOL.replace(role != Role::Gone);
        self.0.fetch_add(usize::from(!was_in), Ordering::SeqCst);
    }
}

const THREADS: usize = 2;
const CONNECTIONS: usize = 4;
const ROUNDS: usize = 200;

/// Longer than anything here takes.
const HANG: Duration = Duration::from_secs(60);

/// One test at a time counts.
fn take_turn() -> MutexGuard<'static, ()> {
    static TURNS: Mutex<()> = Mutex::new(());
    TURNS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_until(condition: impl Fn() -> bool) {
    let begin = Instant::now();
    while !condition() {
        assert!(begin.elapsed() < HANG, "it takes too long");
        thread::yield_now();
    }
}

/// Sends each item back. The first item of the first connections waits until all threads are in a session, so that
/// each thread has the buffers that it keeps.
struct Echo {
    inside: Arc<AtomicUsize>,
    has_met: bool,
    reply: fn(Message<'_>, &mut Peer<'_>) -> io::Result<()>,
}

impl Session for Echo {
    fn handle(&mut self, item: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        if !std::mem::replace(&mut self.has_met, true) {
            self.inside.fetch_add(1, Ordering::SeqCst);
            wait_until(|| self.inside.load(Ordering::SeqCst) >= THREADS);
        }
        (self.reply)(item, cx)?;
        Ok(Next::Continue)
    }
}

fn frugal(item: Message<'_>, cx: &mut Peer<'_>) -> io::Result<()> {
    cx.reply(item)
}

/// As [`frugal`], with memory of its own for each item.
fn wasteful(item: Message<'_>, cx: &mut Peer<'_>) -> io::Result<()> {
    cx.reply(hint::black_box(item.to_vec()))
}

/// How often the threads of a server call the allocator while each of many requests is answered with itself.
fn calls_of(
    codec: Framing,
    request: &[u8],
    reply: fn(Message<'_>, &mut Peer<'_>) -> io::Result<()>,
) -> usize {
    let _turn = take_turn();
    let (marks, inside) = (Marks::default(), Arc::new(AtomicUsize::new(0)));
    let pool = Pool::builder()
        .threads(THREADS)
        // A busy machine may make it look for surprises: a thread more, once.
        .watcher(false)
        .observer(marks.clone());
    let server = Server::builder()
        .pool(pool)
        .listener(Listen::tcp("127.0.0.1:0"), codec, move |_| Echo {
            inside: Arc::clone(&inside),
            has_met: false,
            reply,
        })
        .start()
        .unwrap();
    wait_until(|| marks.0.load(Ordering::SeqCst) == THREADS);
    let address = server.local_addr().unwrap();
    let clients: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let client = TcpStream::connect(address).unwrap();
            client.set_nodelay(true).unwrap();
            client.set_read_timeout(Some(HANG)).unwrap();
            client
        })
        .collect();
    ask_all(&clients, request);
    CALLS.store(0, Ordering::SeqCst);
    ON.store(true, Ordering::SeqCst);
    ask_all(&clients, request);
    ON.store(false, Ordering::SeqCst);
    let calls = CALLS.load(Ordering::SeqCst);
    drop(clients);
    assert!(server.drain(HANG).is_clean());
    calls
}

/// Many requests on all connections at once.
fn ask_all(clients: &[TcpStream], request: &[u8]) {
    let mut answer = vec![0; request.len()];
    for _ in 0..ROUNDS {
        for mut client in clients {
            client.write_all(request).unwrap();
        }
        for mut client in clients {
            client.read_exact(&mut answer).unwrap();
            assert_eq!(answer, request);
        }
    }
}

/// A server of lines once allocated a buffer for each reply.
#[test]
fn none_for_a_short_line() {
    let longest = [vec![b'x'; 4096], b"\r\n".to_vec()].concat();
    for request in [&b"a line\r\n"[..], b"\r\n", &longest] {
        assert_eq!(calls_of(line(8192), request, frugal), 0);
    }
}

/// Nor for items of the other codecs.
#[test]
fn none_for_other_short_items() {
    let cases: [(Framing, &[u8]); 6] = [
        (raw(), b"any"),
        (lines(80), b"two\r\nlines\r\n"),
        (until(b";", 80), b"an item;"),
        (prefixed::<u32>(80), b"\0\0\0\x04item"),
        (varint(80), b"\x04item"),
        (dot_chunks(80), b".\r\n"),
    ];
    for (codec, request) in cases {
        let text = format!("{codec:?}");
        assert_eq!(calls_of(codec, request, frugal), 0, "{text}");
    }
}

/// The measure is no empty one: an allocation per item is seen.
#[test]
fn one_per_item_is_seen() {
    let items = CONNECTIONS * ROUNDS;
    let calls = calls_of(line(80), b"a line\r\n", wasteful);
    // Not 2: the last answers are read before their memory is given back.
    assert!(calls > items, "{calls} calls for {items} items");
}
