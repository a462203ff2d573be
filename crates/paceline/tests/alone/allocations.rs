//! A request costs no allocation: the short path of an event (wait, claim, promote, read, answer,
//! release, rejoin) takes its memory from the stack and from what the pool has already.
//!
//! This is with `stopped_thread.rs` the only tests with unsafe code: an allocator that counts can't
//! be written without it.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    hint, io,
    io::{Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        Arc,
    },
    thread,
};

use super::turns::take_turn;
use crate::support::{bound, bounded, by_hand, tcp_pair, wait_until, LONG};
use paceline::{
    observe::{Observer, Role},
    Context, EventHandler, Handle, Interest, Members, Next, Pool, TaskContext, Wake,
};

/// The system's allocator, and how often a thread of a pool asked for memory or gave it back.
struct Counting;

static ON: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Whether this thread belongs to a pool.
    static IN_POOL: Cell<bool> = const { Cell::new(false) };
    /// How many bytes this thread has asked for, and not given back.
    static BYTES: Cell<isize> = const { Cell::new(0) };
}

impl Counting {
    fn count(&self) {
        if ON.load(Ordering::Relaxed) && IN_POOL.get() {
            CALLS.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn take(&self, bytes: usize) {
        BYTES.set(BYTES.get() + bytes as isize);
    }

    fn give_back(&self, bytes: usize) {
        BYTES.set(BYTES.get() - bytes as isize);
    }
}

// SAFETY: every method hands its arguments to the system's allocator unchanged and returns its
// answer. Counting touches two atomics and thread-locals without a destructor; none of them
// allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.count();
        self.take(layout.size());
        // SAFETY: the caller promises what `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.count();
        self.take(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.count();
        self.give_back(layout.size());
        self.take(size);
        // SAFETY: as above; the block came from `System`, because all blocks do.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        self.count();
        self.give_back(layout.size());
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

const CONNECTIONS: usize = 8;
const ROUNDS: usize = 500;

/// How often the threads of a pool call the allocator while many requests are answered by
/// `handler`.
fn calls_of<H>(threads: usize, wake: Wake, handler: fn() -> H) -> usize
where
    H: EventHandler<TcpStream>,
{
    calls_at(threads, wake, handler, |_, _, _| {})
}

/// The same, after each handle was put `at_home`: of this pool, by its number.
fn calls_at<H>(
    threads: usize,
    wake: Wake,
    handler: fn() -> H,
    at_home: fn(&Pool, &Handle, usize),
) -> usize
where
    H: EventHandler<TcpStream>,
{
    let _turn = take_turn();
    bounded(move || {
        let marks = Marks::default();
        let pool = Pool::builder()
            .threads(threads)
            .wake(wake)
            .observer(marks.clone())
            .build()
            .unwrap();
        wait_until(|| marks.0.load(Ordering::SeqCst) == threads);
        let _doors = call_each_thread(&pool, threads);
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let (near, far) = tcp_pair();
                near.set_nodelay(true).unwrap();
                let handle = pool.register(near, Interest::READ, handler()).unwrap();
                at_home(&pool, &handle, number);
                far
            })
            .collect();
        ask_all(&clients);
        CALLS.store(0, Ordering::SeqCst);
        ON.store(true, Ordering::SeqCst);
        ask_all(&clients);
        ON.store(false, Ordering::SeqCst);
        // Nobody of this pool is left when the next one is counted.
        assert!(pool.shutdown(LONG).is_clean());
        CALLS.load(Ordering::SeqCst)
    })
}

/// Gives each thread of the pool an event, all at the same time: a thread's first one makes it set
/// up what it keeps for later ones.
fn call_each_thread(pool: &Pool, threads: usize) -> Vec<TcpStream> {
    let inside = Arc::new(AtomicUsize::new(0));
    let doors: Vec<_> = (0..threads)
        .map(|_| {
            let (near, mut far) = tcp_pair();
            let inside = Arc::clone(&inside);
            let wait_for_all = move |cx: &mut Context<'_, TcpStream>| {
                cx.read(&mut [0; 16])?;
                inside.fetch_add(1, Ordering::SeqCst);
                wait_until(|| inside.load(Ordering::SeqCst) == threads);
                Ok(Next::Continue)
            };
            pool.register(near, Interest::READ, wait_for_all).unwrap();
            far.write_all(b"x").unwrap();
            far
        })
        .collect();
    wait_until(|| inside.load(Ordering::SeqCst) == threads);
    doors
}

/// Many requests on all connections at once.
fn ask_all(clients: &[TcpStream]) {
    let mut answer = [0; 100];
    for _ in 0..ROUNDS {
        for mut client in clients {
            client.write_all(&[7; 100]).unwrap();
        }
        for mut client in clients {
            client.read_exact(&mut answer).unwrap();
        }
    }
}

/// Reads into the stack and answers.
fn frugal(cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
    let mut buffer = [0; 512];
    let count = cx.read(&mut buffer)?;
    cx.write_all(&buffer[..count])?;
    Ok(Next::Continue)
}

/// As [`frugal`], until its source runs dry.
fn thorough(cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
    loop {
        frugal(cx)?;
    }
}

/// As [`frugal`], with a buffer of its own for each request.
fn wasteful(cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
    hint::black_box(Box::new(7));
    frugal(cx)
}

/// The queue that this pattern replaces allocates for each request it hands over. Here one thread
/// does everything.
#[test]
fn none_with_one_thread() {
    for wake in [Wake::Eager, Wake::Adaptive] {
        assert_eq!(calls_of(1, wake, || frugal), 0, "{wake:?}");
        assert_eq!(calls_of(1, wake, || thorough), 0, "{wake:?}");
    }
}

/// Nor when each event is handed to the thread, or one of the two, that it belongs to.
#[test]
fn none_when_handed() {
    for wake in [Wake::Eager, Wake::Adaptive] {
        let calls = calls_at(
            4,
            wake,
            || frugal,
            |pool, handle, number| {
                let threads = pool.inspect().thread_ids();
                let home = &threads[number % 4..][..1 + usize::from(number % 4 < 2)];
                handle.pin_to(home).unwrap();
            },
        );
        assert_eq!(calls, 0, "{wake:?}");
    }
}

/// With several threads the lead changes hands, and that costs no memory either.
#[test]
fn none_with_four_threads() {
    for wake in [Wake::Eager, Wake::Adaptive] {
        assert_eq!(calls_of(4, wake, || frugal), 0, "{wake:?}");
        assert_eq!(calls_of(4, wake, || thorough), 0, "{wake:?}");
    }
}

/// The measure is no empty one: an allocation per request is seen.
#[test]
fn one_per_request_is_seen() {
    let requests = CONNECTIONS * ROUNDS;
    let calls = calls_of(4, Wake::Eager, || wasteful);
    assert!(calls >= 2 * requests, "{calls} calls for {requests}");
}

/// E15: in the paper the context of a call is allocated per call, and leaked. On a shared
/// connection four threads call, lead, sleep and are woken without one call of the allocator, once
/// the slots are there.
#[test]
fn none_per_call_on_a_shared_connection() {
    let _turn = take_turn();
    bounded(|| {
        let (mux, mut peer) = bound::mux();
        let answering = thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = peer.0.read(&mut buffer) {
                // Requests and replies look alike.
                if peer.0.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        });
        let calls = |rounds: usize| {
            let ask = || {
                IN_POOL.set(true);
                for _ in 0..rounds {
                    let reply = mux.call(&[7; 100], LONG).unwrap();
                    assert_eq!(*reply, [7; 100]);
                }
                IN_POOL.set(false);
            };
            thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(ask))));
        };
        calls(ROUNDS);
        // Every slot that four callers can need has its buffers.
        let held: Vec<_> = (0..8).map(|_| mux.call(&[7; 100], LONG).unwrap()).collect();
        drop(held);
        CALLS.store(0, Ordering::SeqCst);
        ON.store(true, Ordering::SeqCst);
        calls(ROUNDS);
        ON.store(false, Ordering::SeqCst);
        assert_eq!(CALLS.load(Ordering::SeqCst), 0);
        assert!(mux.snapshot().wakes > 0, "they did not only lead");
        drop(mux);
        answering.join().unwrap();
    });
}

/// What an idle connection takes of the pool's memory, beside its handler: at most 256 bytes, also
/// just after the table of slots has grown, when most of the new part is empty. With a time-out it
/// takes one more node in the wheel.
#[test]
fn an_idle_connection_is_small() {
    const AT_POOL_LEVEL: isize = 256;
    let _turn = take_turn();
    bounded(|| {
        let pool = Pool::builder().threads(0).build().unwrap();
        let register = |count: usize| -> Vec<_> {
            let pairs = (0..count).map(|_| UnixStream::pair().unwrap());
            let register = |(near, far)| {
                let handler = |_: &mut Context<'_, UnixStream>| Ok(Next::Continue);
                (pool.register(near, Interest::READ, handler).unwrap(), far)
            };
            pairs.map(register).collect()
        };
        // The first chunk of slots, what the first registration sets up, and the list that is
        // returned.
        let _first = register(64);
        let mut all = Vec::with_capacity(129);
        for (count, words) in [
            (1, "just after the table has grown"),
            (127, "when it is full"),
        ] {
            let before = BYTES.get();
            let more = register(count);
            let own = (more.capacity() * size_of_val(&more[0])) as isize;
            let each = (BYTES.get() - before - own) / count as isize;
            eprintln!("{each} bytes for each of {count} connections, {words}");
            // One connection can't pay for the whole new part: spread it over what the pool has.
            let spread = if count == 1 { each / 65 } else { each };
            assert!(spread <= AT_POOL_LEVEL, "{spread} bytes");
            all.extend(more);
        }
        let before = BYTES.get();
        for (handle, _) in &all {
            handle.set_timeout(Some(LONG)).unwrap();
        }
        let each = (BYTES.get() - before) / all.len() as isize;
        eprintln!("{each} bytes for each time-out");
        assert!(each <= 96, "{each} bytes");
    });
}

/// All that an accepted connection takes, idle, in a full table: its slot, its source, where it
/// comes from, and its place at the listener. At most 256 bytes, beside its handler.
#[test]
fn an_accepted_connection_is_small() {
    const FIRST_CHUNK: usize = 64;
    const SECOND_CHUNK: usize = 128;
    bounded(|| {
        let pool = Pool::builder().threads(0).build().unwrap();
        let handler = |_: &mut Context<'_, TcpStream>| Ok(Next::Continue);
        let listener = pool.listener().max_connections(1000);
        let listener = listener.bind("127.0.0.1:0", move |_, _| Some(handler));
        let listener = listener.unwrap();
        let mut clients = Vec::with_capacity(FIRST_CHUNK + SECOND_CHUNK);
        // Bytes that the calling thread, which plays all the roles, asks for until `count` are
        // connected.
        let mut accept_until = |count: usize| {
            while clients.len() < count {
                clients.push(TcpStream::connect(listener.local_addr()).unwrap());
            }
            let before = BYTES.get();
            wait_until(|| {
                by_hand::serve_all(&pool);
                listener.connections() == count
            });
            BYTES.get() - before
        };
        // The listener has the first slot.
        accept_until(FIRST_CHUNK - 1);
        let each = accept_until(FIRST_CHUNK - 1 + SECOND_CHUNK) / SECOND_CHUNK as isize;
        eprintln!("{each} bytes for each accepted connection");
        assert!(each <= 256, "{each} bytes");
    });
}

/// A proxy has a group for each client, with one member while the client is idle. Its two lists of members had room for four
/// members each, 900 bytes in all. What an idle group takes, beside its handler: two slots, a member, and its inbox.
#[test]
fn an_idle_group_of_one_is_small() {
    const GROUPS: usize = 256;
    const MOST: isize = 720;
    let _turn = take_turn();
    bounded(|| {
        let pool = Pool::builder().threads(0).build().unwrap();
        let begin = |count: usize| -> Vec<_> {
            let pairs = (0..count).map(|_| UnixStream::pair().unwrap());
            let begin = |(near, far)| {
                let handler = |_: &mut Context<'_, UnixStream>, _: &mut Members<'_, UnixStream>| {
                    Ok(Next::Continue)
                };
                let group = pool.group(handler).unwrap();
                group.register(near, Interest::READ).unwrap();
                (group, far)
            };
            let groups = pairs.map(begin).collect();
            // Each handler is called for its new member.
            by_hand::serve_all(&pool);
            groups
        };
        let _first = begin(64);
        let before = BYTES.get();
        let groups = begin(GROUPS);
        let own = (groups.capacity() * size_of_val(&groups[0])) as isize;
        let each = (BYTES.get() - before - own) / GROUPS as isize;
        eprintln!("{each} bytes for each of {GROUPS} groups of one member");
        assert!(each <= MOST, "{each} bytes");
    });
}

/// An item of a queue and a unit of a semaphore cost no memory either: not where they are sent, not
/// where they are handled, one at a time or by several threads at once.
#[test]
fn none_for_items() {
    const ITEMS: usize = 256;
    let _turn = take_turn();
    bounded(|| {
        let marks = Marks::default();
        let pool = Pool::builder()
            .threads(2)
            // A busy machine may make it look for surprises: a thread more, once.
            .watcher(false)
            .observer(marks.clone())
            .build()
            .unwrap();
        wait_until(|| marks.0.load(Ordering::SeqCst) == 2);
        let _doors = call_each_thread(&pool, 2);
        let done = Arc::new(AtomicUsize::new(0));
        let count = |done: &Arc<AtomicUsize>| {
            let done = Arc::clone(done);
            move |items: usize| done.fetch_add(items, Ordering::SeqCst)
        };
        let (a, b, c) = (count(&done), count(&done), count(&done));
        let queue = pool
            .sources()
            .queue(ITEMS, move |it: [usize; 4], _: &mut TaskContext<'_>| {
                a(it[3]);
            });
        let at_once =
            pool.sources()
                .queue_concurrent(ITEMS, move |it: usize, _: &mut TaskContext<'_>| {
                    b(it);
                });
        let units = pool
            .sources()
            .semaphore(0, move |(), _: &mut TaskContext<'_>| {
                c(1);
            });
        let (queue, at_once, units) = (queue.unwrap(), at_once.unwrap(), units.unwrap());
        let mut sent = 0;
        let mut send_all = || {
            for _ in 0..ITEMS {
                queue.send([1; 4]).unwrap();
                at_once.send(1).unwrap();
                units.release().unwrap();
            }
            sent += 3 * ITEMS;
            wait_until(|| done.load(Ordering::SeqCst) == sent);
        };
        (0..20).for_each(|_| send_all());
        CALLS.store(0, Ordering::SeqCst);
        IN_POOL.set(true);
        ON.store(true, Ordering::SeqCst);
        (0..20).for_each(|_| send_all());
        ON.store(false, Ordering::SeqCst);
        IN_POOL.set(false);
        assert_eq!(CALLS.load(Ordering::SeqCst), 0);
        assert!(pool.shutdown(LONG).is_clean());
    });
}
