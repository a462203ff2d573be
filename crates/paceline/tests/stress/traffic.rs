//! Everything at once, many times: no message is lost, doubled or misrouted (H1, H2, H3, S2, L5).
//!
//! `cargo xtask stress` runs it in release mode; `PACELINE_STRESS_MESSAGES` says how many messages
//! each wake policy gets, all sets and orders together.

mod simulated;

use std::{
    collections::HashSet,
    env,
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::{Duration, Instant},
};

use super::{
    group_stress,
    messages::{self, Inspector, Tally},
    task_stress,
};
use crate::support::{is_to_be_had, kernel_sets, wait_until, Random, LONG};
use paceline::{Closed, Context, EventHandler, Handle, Interest, Next, Order, Pool, SetKind, Wake};
use socket2::SockRef;

/// Threads that act as clients, with this many connections each.
const CLIENTS: u32 = 4;
const CONNECTIONS_EACH: usize = 8;

/// Application threads that join and leave.
const VISITORS: u32 = 2;

/// From this many messages on, progress is told.
const LARGE: u64 = 200_000;

/// Every message of a thousand connections comes back once, in order and to its own connection,
/// while connections are half-closed, reset and replaced, handles are closed and their interest is
/// toggled by other threads, and application threads join and leave. Each of these alone has broken
/// a system of this kind (ACE 2395, 4129; tokio 6133; TAO 2000); together they meet in every order.
///
/// Every handle set, wake policy and order, each with each, gets an equal share of the messages.
#[test]
fn nothing_is_lost_doubled_or_misrouted_over_tcp() {
    stress_all(&SetKind::Epoll);
}

/// The same on one-shot epoll, where a handle is silent from its event until it is armed again: a
/// handle that rests without being armed would lose what comes.
#[test]
fn nothing_is_lost_doubled_or_misrouted_on_one_shot() {
    stress_all(&SetKind::OneShot);
}

/// The same on `poll`, where besides the table changes while the leader sleeps with a copy of it
/// (E6).
#[test]
fn nothing_is_lost_doubled_or_misrouted_on_poll() {
    stress_all(&SetKind::Poll);
}

/// The same on a concurrent set, where all threads wait at once, and each handle goes back through
/// the kernel. It has no orders and no wake policy.
#[test]
fn nothing_is_lost_doubled_or_misrouted_on_a_concurrent_set() {
    for wake in [Wake::Eager, Wake::Adaptive] {
        stress(SetKind::Concurrent, wake, Order::Newest);
    }
}

/// The same on a completion set, whose ring is full again and again, and whose polls end for that
/// and begin anew.
#[test]
fn nothing_is_lost_doubled_or_misrouted_on_a_completion_set() {
    if is_to_be_had(&SetKind::Completion) {
        for wake in [Wake::Eager, Wake::Adaptive] {
            stress(SetKind::Completion, wake, Order::Newest);
        }
    }
}

/// Posts and timers from several threads, half as many as messages: each post is done once, each
/// timer called once, or not after it was cancelled.
#[test]
fn posts_and_timers_are_done_once() {
    for wake in [Wake::Eager, Wake::Adaptive] {
        for set in kernel_sets() {
            task_stress::run(set, wake, wanted_messages() / (2 * SETS));
        }
    }
}

/// Connections change groups all the time, by their handlers and from outside, a quarter as many
/// messages: each comes back once.
#[test]
fn members_that_move_lose_nothing() {
    for wake in [Wake::Eager, Wake::Adaptive] {
        for set in kernel_sets() {
            group_stress::run(set, wake, wanted_messages() / (4 * SETS));
        }
    }
}

/// All orders, and the sets above that have them.
const ORDERS: [Order; 4] = [Order::Newest, Order::Oldest, Order::Priority, Order::System];
const SETS: u64 = 3;

/// By every wake policy, in every order.
fn stress_all(set: &SetKind) {
    for wake in [Wake::Eager, Wake::Adaptive] {
        for order in ORDERS {
            stress(set.clone(), wake, order);
        }
    }
}

/// An equal share of the wanted messages on one set, by one wake policy, in one order.
fn stress(set: SetKind, wake: Wake, order: Order) {
    let share = wanted_messages() / (SETS * ORDERS.len() as u64);
    let bench = Arc::new(Bench::new(share));
    let name = format!("{set:?}, {wake:?}, {order:?}");
    let mut pool = Pool::builder().threads(4).name("stress").handle_set(set);
    if order == Order::Priority {
        // Two of each: those are told apart by their arrival.
        pool = pool.thread_priority(|index| (index % 2) as u8);
    }
    let pool = pool.wake(wake).order(order).build().unwrap();
    let listener = serve(&pool, &bench);
    let address = listener.local_addr();
    let clients = (0..CLIENTS).map(|number| {
        let bench = Arc::clone(&bench);
        move || Client::new(bench, address, number).run()
    });
    let visitors = (0..VISITORS).map(|number| visit(&pool, &bench, number));
    let all: Vec<Job> = clients
        .map(|client| Box::new(client) as Job)
        .chain(visitors.map(|visitor| Box::new(visitor) as Job))
        .collect();
    run_while_it_moves(&bench, all);

    let report = pool.shutdown(LONG);
    assert!(report.is_clean(), "{report}");
    bench.assert_clean();
    assert_eq!(pool.snapshot().panics, 0);
    assert_eq!(pool.snapshot().refused, 0);
    let accepted = pool.snapshot().accepted;
    assert_eq!(bench.ended.load(Ordering::SeqCst), accepted);
    eprintln!(
        "stress: {} messages, {name}, {accepted} connections, {}",
        bench.seen_by_clients.messages(),
        bench.seen_by_clients,
    );
}

type Job = Box<dyn FnOnce() + Send>;

/// How many messages to send by each wake policy.
fn wanted_messages() -> u64 {
    let text = env::var("PACELINE_STRESS_MESSAGES").unwrap_or_else(|_| "20000".to_owned());
    text.replace('_', "")
        .parse()
        .expect("PACELINE_STRESS_MESSAGES is not a number")
}

/// Runs all jobs to their end. A hang is: no message has come for a long time.
fn run_while_it_moves(bench: &Arc<Bench>, jobs: Vec<Job>) {
    let (done, ends) = mpsc::channel();
    let mut left = jobs.len();
    for job in jobs {
        let done = done.clone();
        thread::spawn(move || {
            // The word is sent however the job ends.
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            let _ = done.send(told);
        });
    }
    let mut before = 0;
    while left > 0 {
        match ends.recv_timeout(LONG) {
            Ok(told) => {
                told.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                left -= 1;
            }
            Err(_) => {
                let now = bench.seen_by_clients.messages();
                assert_ne!(now, before, "{left} threads hang after {now} messages");
                before = now;
            }
        }
    }
}

/// What all sides share.
struct Bench {
    wanted: u64,
    started: Instant,
    /// What came back.
    seen_by_clients: Tally,
    /// What arrived.
    seen_by_handlers: Tally,
    next_connection: AtomicU32,
    /// Connections that a client broke off, or that were closed from elsewhere: only these may end
    /// before their last answer. Written down before it is done.
    cut: Mutex<HashSet<u32>>,
    /// Handles of connections that have sent something.
    handles: Mutex<Vec<(u32, Handle)>>,
    /// How many handlers were told `closed`.
    ended: AtomicU64,
    /// What should not have happened, in words.
    odd: Mutex<Vec<String>>,
    finished_clients: AtomicU32,
    finished_visitors: AtomicU32,
    told_progress: AtomicU64,
}

impl Bench {
    fn new(wanted: u64) -> Self {
        Self {
            wanted,
            started: Instant::now(),
            seen_by_clients: Tally::default(),
            seen_by_handlers: Tally::default(),
            next_connection: AtomicU32::new(0),
            cut: Mutex::default(),
            handles: Mutex::default(),
            ended: AtomicU64::new(0),
            odd: Mutex::default(),
            finished_clients: AtomicU32::new(0),
            finished_visitors: AtomicU32::new(0),
            told_progress: AtomicU64::new(0),
        }
    }

    fn new_connection(&self) -> u32 {
        self.next_connection.fetch_add(1, Ordering::Relaxed)
    }

    fn cut(&self, connection: u32) {
        self.cut.lock().unwrap().insert(connection);
    }

    fn is_cut(&self, connection: u32) -> bool {
        self.cut.lock().unwrap().contains(&connection)
    }

    fn odd(&self, what: String) {
        self.odd.lock().unwrap().push(what);
    }

    fn enough(&self) -> bool {
        self.seen_by_clients.messages() >= self.wanted
    }

    fn assert_clean(&self) {
        self.seen_by_clients.assert_clean();
        self.seen_by_handlers.assert_clean();
        let odd = self.odd.lock().unwrap();
        assert!(odd.is_empty(), "{odd:?}");
        assert!(self.handles.lock().unwrap().is_empty());
    }

    /// Does something to a connection, from a thread that has nothing to do with it.
    fn meddle(&self, random: &mut Random) {
        let (connection, handle) = {
            let handles = self.handles.lock().unwrap();
            match handles.len() {
                0 => return,
                count => handles[random.below(count as u64) as usize].clone(),
            }
        };
        if random.once_in(16) {
            self.cut(connection);
            let _ = handle.close();
            return;
        }
        let meanwhile = if random.once_in(2) {
            Interest::NONE
        } else {
            Interest::READ | Interest::WRITE
        };
        // It may end at any moment: then there is nothing to toggle.
        let _ = handle.set_interest(meanwhile);
        thread::yield_now();
        let _ = handle.set_interest(Interest::READ);
    }

    /// Tells ten times how far we are.
    fn tell_progress(&self) {
        let messages = self.seen_by_clients.messages();
        let tenth = messages / (self.wanted / 10).max(1);
        let is_news = self.told_progress.fetch_max(tenth, Ordering::Relaxed) < tenth;
        if self.wanted >= LARGE && is_news {
            let replaced = self.next_connection.load(Ordering::Relaxed);
            let rate = messages as f64 / self.started.elapsed().as_secs_f64();
            eprintln!("stress: {messages} messages, {rate:.0}/s, {replaced} connections");
        }
    }
}

/// Listens; each connection has an echo of its own. Some have little room for output, so that much
/// of it is kept.
fn serve(pool: &Pool, bench: &Arc<Bench>) -> paceline::Listener {
    let bench = Arc::clone(bench);
    let mut random = Random::new(1);
    pool.listen("127.0.0.1:0", move |stream, _| {
        stream.set_nodelay(true).unwrap();
        if random.once_in(4) {
            SockRef::from(stream).set_send_buffer_size(4096).unwrap();
        }
        Some(Echo::new(Arc::clone(&bench), random.next()))
    })
    .unwrap()
}

/// Sends everything back, and looks at what it is.
struct Echo {
    bench: Arc<Bench>,
    inspector: Inspector,
    random: Random,
    /// Reads until its source runs dry, not once per call.
    thorough: bool,
    /// A thread is in `ready` (H1).
    entered: AtomicBool,
}

impl Echo {
    fn new(bench: Arc<Bench>, seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            bench,
            inspector: Inspector::of_any(),
            thorough: random.once_in(2),
            random,
            entered: AtomicBool::new(false),
        }
    }

    fn echo_until_dry<S>(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next>
    where
        for<'s> &'s S: Read + Write,
    {
        loop {
            if let Next::Close = self.echo(cx)? {
                return Ok(Next::Close);
            }
        }
    }

    /// Reads and answers once.
    fn echo<S>(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next>
    where
        for<'s> &'s S: Read + Write,
    {
        let mut buffer = [0; 2048];
        let count = cx.read(&mut buffer)?;
        if count == 0 {
            return Ok(Next::Close);
        }
        let is_new = self.inspector.connection().is_none();
        self.inspector
            .feed(&buffer[..count], &self.bench.seen_by_handlers);
        if let (true, Some(connection)) = (is_new, self.inspector.connection()) {
            let mut handles = self.bench.handles.lock().unwrap();
            handles.push((connection, cx.handle()));
        }
        cx.write_all(&buffer[..count])?;
        // The answer is out: let others act on it while this handler has not returned.
        if self.random.once_in(16) {
            thread::yield_now();
        }
        Ok(Next::Continue)
    }
}

impl<S> EventHandler<S> for Echo
where
    for<'s> &'s S: Read + Write,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        if self.entered.swap(true, Ordering::SeqCst) {
            self.bench.odd("two threads in one handler".to_owned());
        }
        let told = if self.thorough {
            self.echo_until_dry(cx)
        } else {
            self.echo(cx)
        };
        self.entered.store(false, Ordering::SeqCst);
        told
    }

    fn closed(&mut self, why: Closed) {
        self.bench.ended.fetch_add(1, Ordering::SeqCst);
        let Some(connection) = self.inspector.connection() else {
            return;
        };
        let mut handles = self.bench.handles.lock().unwrap();
        handles.retain(|(other, _)| *other != connection);
        drop(handles);
        let expected = match why {
            Closed::Finished => true,
            Closed::Failed(_) | Closed::Requested => self.bench.is_cut(connection),
            _ => false,
        };
        if !expected {
            self.bench.odd(format!("{connection} ended by {why:?}"));
        }
    }
}

/// An application thread that joins for short times until all clients are done.
fn visit(pool: &Pool, bench: &Arc<Bench>, number: u32) -> impl FnOnce() + Send {
    let (pool, bench) = (pool.clone(), Arc::clone(bench));
    let mut random = Random::new(100 + u64::from(number));
    move || {
        while bench.finished_clients.load(Ordering::SeqCst) < CLIENTS {
            let time = Duration::from_micros(random.below(3000));
            pool.join_timeout(time).unwrap();
        }
        bench.finished_visitors.fetch_add(1, Ordering::SeqCst);
    }
}

/// A thread with some connections, all of them in flight at once.
struct Client {
    bench: Arc<Bench>,
    address: SocketAddr,
    random: Random,
    connections: Vec<Connection>,
}

impl Client {
    fn new(bench: Arc<Bench>, address: SocketAddr, number: u32) -> Self {
        let mut client = Self {
            bench,
            address,
            random: Random::new(u64::from(number) + 10),
            connections: Vec::new(),
        };
        for _ in 0..CONNECTIONS_EACH {
            let connection = client.connect();
            client.connections.push(connection);
        }
        client
    }

    fn run(mut self) {
        while !self.bench.enough() {
            for at in 0..self.connections.len() {
                self.connections[at].send_some(&mut self.random);
            }
            for at in 0..self.connections.len() {
                self.receive_from(at);
            }
            self.bench.meddle(&mut self.random);
            self.bench.tell_progress();
        }
        for connection in self.connections {
            connection.finish(&self.bench);
        }
        self.bench.finished_clients.fetch_add(1, Ordering::SeqCst);
    }

    /// Receives some answers, then replaces the connection if its time has come.
    fn receive_from(&mut self, at: usize) {
        let leave = self.random.below(4) as u32;
        let stands = self.connections[at].receive(leave, &self.bench);
        let how = self.random.below(32);
        if stands && how > 2 {
            return;
        }
        let next = self.connect();
        let old = std::mem::replace(&mut self.connections[at], next);
        match how {
            _ if !stands => {}
            0 => old.reset(&self.bench),
            1 => old.finish(&self.bench),
            _ => old.drop_it(&self.bench),
        }
    }

    fn connect(&mut self) -> Connection {
        Connection::new(self.bench.new_connection(), self.address)
    }
}

/// The client's end of a connection.
struct Connection {
    number: u32,
    stream: TcpStream,
    sent: u32,
    inspector: Inspector,
    output: Vec<u8>,
}

impl Connection {
    fn new(number: u32, address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        stream.set_write_timeout(Some(LONG)).unwrap();
        Self {
            number,
            stream,
            sent: 0,
            inspector: Inspector::of(number),
            output: Vec::new(),
        }
    }

    fn unanswered(&self) -> u32 {
        self.sent - self.inspector.count()
    }

    /// Sends a few messages at once: few enough for the kernel's buffers, so that nobody waits.
    fn send_some(&mut self, random: &mut Random) {
        self.output.clear();
        for _ in 0..=random.below(24) {
            let most = if random.once_in(16) { 4000 } else { 120 };
            let length = random.below(most) as usize;
            messages::push(&mut self.output, self.number, self.sent, length);
            self.sent += 1;
        }
        // If the connection was cut, the next read tells.
        let _ = self.stream.write_all(&self.output);
    }

    /// Receives until no more than `leave` messages are unanswered. `false`: the connection is
    /// over.
    fn receive(&mut self, leave: u32, bench: &Bench) -> bool {
        let mut buffer = [0; 16 * 1024];
        while self.unanswered() > leave {
            match self.stream.read(&mut buffer) {
                Ok(count) if count > 0 => {
                    self.inspector
                        .feed(&buffer[..count], &bench.seen_by_clients);
                }
                ended => {
                    if !bench.is_cut(self.number) {
                        bench.seen_by_clients.lose(u64::from(self.unanswered()));
                        bench.odd(format!("{} ended early: {ended:?}", self.number));
                    }
                    return false;
                }
            }
        }
        true
    }

    /// Half-closes, so that the end of the stream follows the last message at once; all answers
    /// come, then the end.
    fn finish(mut self, bench: &Bench) {
        let _ = self.stream.shutdown(Shutdown::Write);
        if self.receive(0, bench) {
            let told = self.stream.read(&mut [0]);
            let ended = matches!(told, Ok(0)) || bench.is_cut(self.number);
            if !ended {
                bench.odd(format!("{} goes on: {told:?}", self.number));
            }
        }
    }

    /// Breaks the connection off, answers or not.
    fn reset(self, bench: &Bench) {
        bench.cut(self.number);
        let now = Some(Duration::ZERO);
        SockRef::from(&self.stream).set_linger(now).unwrap();
    }

    /// Goes away without a word.
    fn drop_it(self, bench: &Bench) {
        bench.cut(self.number);
    }
}
