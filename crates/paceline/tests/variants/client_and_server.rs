//! Client and server at once (N1): handlers of a pool call other pools, which call back, and back
//! again; every thread may be waiting for a reply, and the requests that those replies depend on
//! are still served.

use std::{
    env,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{mpsc::Receiver, Arc, Mutex, OnceLock},
    thread,
    time::Duration,
};

use crate::support::{
    bound::{self, frame, mux, Framed},
    bounded_by,
    gate::Gate,
    wait_until, LONG,
};
use paceline::{
    bound::{Builder, Mux},
    simulated::Simulation,
    Context, EventHandler, Handle, Leaders, Next, Pool, Serve, SetKind, Sets, TaskContext, Wake,
};

/// What a server does with a request, after it gave the connection back: so the next request on it
/// is served meanwhile.
type Work = Arc<dyn Fn(&mut TaskContext<'_>, &[u8]) -> Vec<u8> + Send + Sync>;

/// One connection of a server.
struct Session {
    work: Work,
    input: Vec<u8>,
    /// Replies, of whichever thread has one.
    output: Arc<Mutex<Vec<u8>>>,
}

impl Session {
    fn new(work: &Work) -> Self {
        Self {
            work: Arc::clone(work),
            input: Vec::new(),
            output: Arc::default(),
        }
    }

    /// The next whole request.
    fn request(&mut self) -> Option<(u32, Vec<u8>)> {
        let header = self.input.get(..8)?;
        let word = |at: usize| u32::from_be_bytes(header[at..at + 4].try_into().unwrap());
        let (id, length) = (word(0), word(4) as usize);
        let body = self.input.get(8..8 + length)?.to_vec();
        self.input.drain(..8 + length);
        Some((id, body))
    }
}

impl EventHandler<TcpStream> for Session {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let output = std::mem::take(&mut *self.output.lock().unwrap());
        cx.write_all(&output)?;
        let Some((id, body)) = self.request() else {
            let mut bytes = [0; 4096];
            let count = cx.read(&mut bytes)?;
            self.input.extend(&bytes[..count]);
            return Ok(if count == 0 { Next::Close } else { Next::Again });
        };
        let (work, output, handle) = (
            Arc::clone(&self.work),
            Arc::clone(&self.output),
            cx.handle(),
        );
        cx.after_release(move |cx| {
            let reply = work(cx, &body);
            output.lock().unwrap().extend(frame(id, &reply));
            // The connection may be over.
            let _ = Handle::notify(&handle);
        });
        // There may be one more request in the buffer: another thread may take it.
        Ok(Next::Again)
    }
}

/// A server on `pool`.
fn serve(pool: &Pool, work: Work) -> SocketAddr {
    let make = move |stream: &TcpStream, _| {
        stream.set_nodelay(true).unwrap();
        Some(Session::new(&work))
    };
    let listener = pool.listen("127.0.0.1:0", make).unwrap();
    listener.local_addr()
}

/// Pools in a ring: each serves "so many calls deep" by asking the next one for one less.
struct Ring {
    pools: Vec<Pool>,
    addresses: Vec<SocketAddr>,
}

impl Ring {
    fn new(pools: usize, threads: usize, nesting: usize) -> Self {
        let nexts: Vec<Arc<OnceLock<Mux<Framed>>>> = (0..pools).map(|_| Arc::default()).collect();
        let (mut built, mut addresses) = (Vec::new(), Vec::new());
        for next in &nexts {
            let builder = Pool::builder().threads(threads).nesting(nesting);
            let pool = builder.stack_size(32 << 20).build().unwrap();
            let next = Arc::clone(next);
            let work: Work = Arc::new(move |cx, body| deeper(cx, next.get().unwrap(), body));
            addresses.push(serve(&pool, work));
            built.push(pool);
        }
        for (at, next) in nexts.iter().enumerate() {
            let address = addresses[(at + 1) % pools];
            let mux = Builder::new().connect(address, LONG, Framed::default());
            let mux = mux.unwrap();
            built[at].attach(&mux).unwrap();
            next.set(mux).ok().unwrap();
        }
        Self {
            pools: built,
            addresses,
        }
    }

    fn client(&self) -> Mux<Framed> {
        Mux::connect(self.addresses[0], LONG, Framed::default()).unwrap()
    }
}

/// Depth, and a number to be told again: as many calls deep, and then back with how many there
/// were.
fn deeper(cx: &mut TaskContext<'_>, next: &Mux<Framed>, body: &[u8]) -> Vec<u8> {
    let (depth, number) = (body[0], &body[1..]);
    if depth == 0 {
        return [&[0], number].concat();
    }
    let request = [&[depth - 1], number].concat();
    match next.call_in(cx, &request, LONG) {
        Ok(reply) if reply[0] == u8::MAX => reply.to_vec(),
        Ok(reply) => [&[reply[0] + 1], &reply[1..]].concat(),
        Err(error) => [&[u8::MAX], error.to_string().as_bytes()].concat(),
    }
}

/// Runs chains of calls, so deep, from several clients at once; each ends with its own number.
fn chains(ring: &Ring, clients: usize, each: u32, depth: impl Fn(u32) -> u8 + Copy + Send) {
    thread::scope(|scope| {
        for client in 0..clients {
            scope.spawn(move || {
                let mux = ring.client();
                for number in 0..each {
                    let depth = depth(number);
                    let name = [number.to_be_bytes(), (client as u32).to_be_bytes()].concat();
                    let request = [&[depth], &name[..]].concat();
                    let reply = mux.call(&request, LONG).unwrap();
                    assert_eq!(
                        reply[0],
                        depth,
                        "{:?}",
                        String::from_utf8_lossy(&reply[1..])
                    );
                    assert_eq!(reply[1..], name);
                }
            });
        }
    });
    for pool in &ring.pools {
        assert_eq!(pool.snapshot().panics, 0);
    }
}

/// So many chains for each form of the ring: a hundred, or `PACELINE_CHAINS` in all.
fn chains_each() -> u32 {
    let all = env::var("PACELINE_CHAINS").ok();
    all.map_or(100, |all| all.parse::<u32>().expect("a number") / 6)
}

/// N1: chains up to 64 calls deep, between two and three pools of one, two and four threads.
#[test]
fn nested_upcalls_to_depth_64() {
    bounded_by(Duration::from_secs(600), || {
        for pools in [2, 3] {
            for threads in [1, 2, 4] {
                let ring = Ring::new(pools, threads, 1000);
                chains(&ring, 4, chains_each().div_ceil(4), |number| {
                    (number % 65) as u8
                });
            }
        }
    });
}

/// By default the seventeenth handler that would wait on one thread is refused, with an error that
/// comes back up the whole chain; nothing hangs, and the next chain is served.
#[test]
fn the_seventeenth_is_refused() {
    bounded_by(LONG, || {
        let ring = Ring::new(2, 1, 16);
        chains(&ring, 1, 1, |_| 32);
        let mux = ring.client();
        let reply = mux.call(&[40, 7], LONG).unwrap();
        assert_eq!(reply[0], u8::MAX);
        let text = String::from_utf8_lossy(&reply[1..]).into_owned();
        assert!(text.contains("16 may"), "{text}");
        chains(&ring, 1, 10, |_| 32);
    });
}

/// What a thread serves while it waits, one after the other: the only thread of a pool, whose peer
/// replies.
#[test]
fn every_way_to_wait_ends() {
    bounded_by(LONG, || {
        for serve in [Serve::Chain, Serve::Any, Serve::Nothing] {
            let pool = Pool::builder().threads(1).build().unwrap();
            let (mux, mut peer) = mux();
            pool.attach(&mux).unwrap();
            let (tell, told) = std::sync::mpsc::channel();
            let caller = mux.clone();
            pool.post(move |cx| {
                let call = caller.prepare().unwrap().send(b"ask").unwrap();
                let reply = call.join_in(cx, LONG, serve).unwrap();
                tell.send(reply.to_vec()).unwrap();
            })
            .unwrap();
            let (id, body) = peer.request();
            assert_eq!(body, b"ask");
            peer.reply(id, b"answer");
            assert_eq!(told.recv_timeout(LONG).unwrap(), b"answer", "{serve:?}");
        }
    });
}

/// Another thread reads the reply of a handler whose thread follows meanwhile, or leads: it is
/// recalled from there.
#[test]
fn recalled_for_a_reply_that_another_thread_has_read() {
    bounded_by(LONG, || {
        let builder = Pool::builder().threads(3).wake(Wake::Eager);
        let pool = builder.build().unwrap();
        let (mux, mut peer) = mux();
        pool.attach(&mux).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        for number in 0..100_u8 {
            let (caller, tell) = (mux.clone(), tell.clone());
            pool.post(move |cx| {
                let reply = caller.call_in(cx, &[number], LONG).unwrap();
                tell.send(reply.to_vec()).unwrap();
            })
            .unwrap();
            let (id, body) = peer.request();
            peer.reply(id, &body);
            assert_eq!(told.recv_timeout(LONG).unwrap(), [number]);
        }
        assert_eq!(mux.snapshot().replies, 100);
    });
}

/// A connection is shared by handlers of a pool and by threads that are in none: whoever reads,
/// reads for all.
#[test]
fn handlers_and_others_share_a_connection() {
    bounded_by(LONG, || {
        let server = Pool::builder().threads(2).build().unwrap();
        let address = serve(&server, Arc::new(|_, body| body.to_vec()));
        // Posts that nobody else is free for are begun on top of those that wait.
        let pool = Pool::builder().threads(3).nesting(1000);
        let pool = pool.stack_size(32 << 20).build().unwrap();
        let mux = Mux::connect(address, LONG, Framed::default()).unwrap();
        pool.attach(&mux).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        thread::scope(|scope| {
            for thread in 0..2_u8 {
                let mux = &mux;
                scope.spawn(move || {
                    for number in 0..500_u16 {
                        let request = [&[thread][..], &number.to_be_bytes()].concat();
                        assert_eq!(*mux.call(&request, LONG).unwrap(), *request);
                    }
                });
            }
            for number in 0..500_u16 {
                let (mux, tell) = (mux.clone(), tell.clone());
                let post = move |cx: &mut TaskContext<'_>| {
                    let request = [&[9][..], &number.to_be_bytes()].concat();
                    let reply = mux.call_in(cx, &request, LONG);
                    assert_eq!(*reply.unwrap(), *request);
                    tell.send(()).unwrap();
                };
                pool.post(post).unwrap();
            }
        });
        for _ in 0..500 {
            told.recv_timeout(LONG).unwrap();
        }
        assert_eq!(mux.callers().under_way, 0);
    });
}

/// The loss of a connection is told to handlers that wait for a reply on it, and the end of a pool
/// too.
#[test]
fn a_loss_reaches_who_waits_in_a_handler() {
    bounded_by(LONG, || {
        for ends in [true, false] {
            let pool = Pool::builder().threads(2).build().unwrap();
            let (mux, mut peer) = mux();
            pool.attach(&mux).unwrap();
            let (tell, told) = std::sync::mpsc::channel();
            let caller = mux.clone();
            pool.post(move |cx| {
                let error = caller.call_in(cx, b"ask", LONG).unwrap_err();
                tell.send(error.kind()).unwrap();
            })
            .unwrap();
            peer.request();
            if ends {
                peer.0.shutdown(Shutdown::Both).unwrap();
            } else {
                mux.close();
            }
            let kind = told.recv_timeout(LONG).unwrap();
            assert_ne!(kind, io::ErrorKind::TimedOut);
            assert!(mux.is_lost());
            // The pool lets go of it too.
            assert!(peer.try_request().is_err());
            wait_until(|| pool.shutdown(Duration::ZERO).is_clean());
        }
    });
}

/// B2: whoever finds the loss tells it to a handler that waits, also where the pool that reads the
/// connection has no thread for it: that handler is another pool's.
#[test]
fn a_loss_is_told_while_the_reader_is_busy() {
    bounded_by(LONG, || {
        let (reads, calls, world) = reader_and_caller();
        let (mux, mut peer) = mux();
        reads.attach(&mux).unwrap();
        let told = ask_in(&calls, &mux);
        peer.request();
        wait_until(|| world.clock().asleep() == 1);
        let gate = Gate::shut();
        let inside = Arc::clone(&gate);
        reads.post(move |_| inside.pass()).unwrap();
        gate.wait_for(1);
        mux.close();
        assert!(told.recv_timeout(LONG).unwrap().is_err());
        assert_eq!(gate.inside(), 1);
        gate.let_through(1);
    });
}

/// B2: the pool that reads a connection ends, and the connection does not. A handler of another
/// pool, which relied on it, reads for itself from then on.
#[test]
fn who_waits_reads_when_the_reader_has_ended() {
    bounded_by(LONG, || {
        let (reads, calls, world) = reader_and_caller();
        let (mux, mut peer) = mux();
        reads.attach(&mux).unwrap();
        let told = ask_in(&calls, &mux);
        let (id, _) = peer.request();
        wait_until(|| world.clock().asleep() == 1);
        drop(reads);
        wait_until(|| mux.callers().waits);
        peer.reply(id, b"answer");
        assert_eq!(told.recv_timeout(LONG).unwrap().unwrap(), b"answer");
    });
}

/// A pool that reads, and one of a single thread that calls: of that one can be seen when it
/// sleeps.
fn reader_and_caller() -> (Pool, Pool, Simulation) {
    let world = Simulation::new(1);
    let reads = Pool::builder().threads(1).build().unwrap();
    let calls = Pool::builder()
        .threads(1)
        .handle_set(SetKind::Simulated(world.clone()));
    (reads, calls.build().unwrap(), world)
}

/// A handler of this pool asks, and tells what came of it.
fn ask_in(pool: &Pool, mux: &Mux<Framed>) -> Receiver<io::Result<Vec<u8>>> {
    let (tell, told) = std::sync::mpsc::channel();
    let caller = mux.clone();
    pool.post(move |cx| {
        let reply = caller.call_in(cx, b"ask", LONG);
        tell.send(reply.map(|reply| reply.to_vec())).unwrap();
    })
    .unwrap();
    told
}

/// A connection has one pool that reads it.
#[test]
fn attached_once() {
    bounded_by(LONG, || {
        let pool = Pool::builder().threads(1).build().unwrap();
        let (mux, _peer) = mux();
        pool.attach(&mux).unwrap();
        let error = pool.attach(&mux).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    });
}

/// S2: the last handle to a connection is dropped, and the pool lets go of it too: the peer sees
/// the end.
#[test]
fn dropped_by_all_callers_is_closed() {
    bounded_by(LONG, || {
        let pool = Pool::builder().threads(1).build().unwrap();
        let (mux, mut peer) = mux();
        pool.attach(&mux).unwrap();
        // What it was called for when it was attached is done: its one thread leads again.
        wait_until(|| {
            let seen = pool.snapshot();
            seen.promotions > 0 && seen.leads_taken_back == seen.promotions
        });
        drop(mux);
        assert!(peer.try_request().is_err());
    });
}

/// B2: two replies in one segment. The first is for a thread that reads it by itself; the second,
/// in the buffer behind it, for a handler, which no descriptor tells of it.
#[test]
fn a_reply_behind_one_that_its_caller_reads() {
    bounded_by(LONG, || {
        let pool = Pool::builder().threads(2).build().unwrap();
        let (mux, mut peer) = mux();
        pool.attach(&mux).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        for round in 0..20_u8 {
            thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let call = mux.prepare().unwrap().send(b"read").unwrap();
                    let mut body = call.join_to_read(LONG).unwrap();
                    let mut bytes = Vec::new();
                    body.read_to_end(&mut bytes).unwrap();
                    bytes
                });
                let (first, _) = peer.request();
                let (caller, tell) = (mux.clone(), tell.clone());
                pool.post(move |cx| {
                    let reply = caller.call_in(cx, &[round], LONG).unwrap();
                    tell.send(reply.to_vec()).unwrap();
                })
                .unwrap();
                let (second, _) = peer.request();
                let both = [frame(first, b"itself"), frame(second, &[round])].concat();
                peer.0.write_all(&both).unwrap();
                assert_eq!(reader.join().unwrap(), b"itself");
                assert_eq!(told.recv_timeout(LONG).unwrap(), [round]);
            });
        }
    });
}

/// A peer does not read: what is kept waits for room, and nobody is called for nothing meanwhile. A
/// hundred posts, one after the other, are a hundred turns then; a connection that is called again
/// and again has one between any two of them (F1). (Some turns are the connection's own, while the
/// system's buffers fill.)
#[test]
fn kept_output_waits_for_room() {
    bounded_by(LONG, || {
        let pool = Pool::builder().threads(1).build().unwrap();
        let (mux, mut peer) = bound::mux_of(Builder::new().unsent(16 << 20), Framed::default());
        pool.attach(&mux).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let caller = mux.clone();
        pool.post(move |cx| {
            let reply = caller.call_in(cx, &vec![7; 8 << 20], LONG).unwrap();
            tell.send(reply.to_vec()).unwrap();
        })
        .unwrap();
        wait_until(|| mux.snapshot().output_kept > 0);
        let before = pool.snapshot().promotions;
        (0..100).for_each(|_| pass_a_post(&pool));
        let turns = pool.snapshot().promotions - before;
        assert!(turns < 150, "it is called again and again: {turns} turns");
        let (id, body) = peer.request();
        assert_eq!(body.len(), 8 << 20);
        peer.reply(id, b"all");
        assert_eq!(told.recv_timeout(LONG).unwrap(), b"all");
    });
}

/// The pool does something else, and is done with it.
fn pass_a_post(pool: &Pool) {
    let (tell, told) = std::sync::mpsc::channel();
    pool.post(move |_| tell.send(()).unwrap()).unwrap();
    told.recv_timeout(LONG).unwrap();
}

/// A handler in one of several sets whose threads roam calls, and its thread serves that set
/// meanwhile. (That it does not go on to another one: see `roaming_by_hand.rs`.)
#[test]
fn called_in_a_set_whose_threads_roam() {
    bounded_by(LONG, || {
        let sets = Sets::builder().sets(2).threads(4).leaders(Leaders::Roaming);
        let sets = sets.build().unwrap();
        let (mux, mut peer) = mux();
        sets.pool(0).attach(&mux).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let caller = mux.clone();
        let post = move |cx: &mut TaskContext<'_>| {
            let reply = caller.call_in(cx, b"ask", LONG);
            tell.send(reply.map(|reply| reply.to_vec())).unwrap();
        };
        sets.pool(0).post(post).unwrap();
        let (id, _) = peer.request();
        peer.reply(id, b"answer");
        assert_eq!(told.recv_timeout(LONG).unwrap().unwrap(), b"answer");
    });
}
