//! Misuse of a multiplexed connection: callers that give up at every stage, from threads of their
//! own and from handlers, and a server that answers late, twice, never, with nonsense, or goes
//! away.

use std::{
    fmt, io,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        atomic::{AtomicU64, Ordering},
        Arc,
    },
    thread,
    time::Duration,
};

use paceline::{
    bound::{Builder, Elect, Mux},
    Pool, Serve, TaskContext,
};

use crate::misuse::{
    is_known,
    ledger::{Kind, Ledger},
    log::Log,
    ops::ServeWord,
    rest::settle,
    round::Round,
    server::{answer, Answer, Server, Wire},
    settings::pick,
    world::discard,
};
use crate::support::Random;

/// What a caller does.
#[derive(Clone, Copy, Debug)]
enum Op {
    Call(Duration),
    /// Gives up before it sends.
    Expect,
    /// Gives up after it has sent.
    Send,
    /// Joins for a short time, and then again for longer.
    JoinTwice(Duration, Duration),
    /// Reads a part of the body itself.
    Read(Duration, usize),
    CallIn(Duration, ServeWord),
    Hang,
    Look,
    Pause(Duration),
}

/// The plan of a round.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    seed: u64,
    bits: u32,
    most: u32,
    unsent: usize,
    elect: Elect,
    spin: Duration,
    threads: usize,
    is_attached: bool,
    /// The pool is shut down while callers call.
    ends_early: bool,
    /// At the end a handler calls a mute server for a minute, and its pool is shut down.
    ends_in_call: bool,
    answers: Vec<Answer>,
    callers: Vec<Vec<Op>>,
}

impl Calls {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let bits = pick(random, &[0, 8, 31]);
        let knows_wedge = is_known("calls that time out wedge a connection");
        let most = if knows_wedge { [64, 100] } else { [2, 100] };
        Self {
            seed,
            bits,
            most: pick(random, &most),
            unsent: pick(random, &[1 << 20, 200]),
            elect: pick(random, &[Elect::Oldest, Elect::Newest]),
            spin: Duration::from_micros(pick(random, &[0, 0, 50])),
            threads: pick(random, &[1, 1, 2, 3]),
            is_attached: random.once_in(2),
            ends_early: random.once_in(8),
            ends_in_call: random.once_in(8) && !is_known("call_in outlives a shutdown"),
            answers: (0..12).map(|_| answer(random, bits)).collect(),
            callers: (0..2 + random.below(3)).map(|_| ops(random)).collect(),
        }
    }

    fn build<const BITS: u32>(&self, address: SocketAddr) -> io::Result<Mux<Wire<BITS>>> {
        let builder = Builder::new().calls(self.most).unsent(self.unsent);
        let builder = builder.elect(self.elect).leader_spin(self.spin);
        Ok(builder.connect(address, Duration::from_secs(2), Wire::<BITS>)?)
    }

    fn run_with<const BITS: u32>(&self, log: &Arc<Log>, ledger: &Arc<Ledger>) -> Vec<String> {
        let server = Server::begin(BITS == 0, self.answers.clone());
        let mux = self.build::<BITS>(server.address).expect("it connects");
        let pool = Pool::builder().threads(self.threads).name("misuse").build();
        let pool = pool.expect("it is built");
        if self.is_attached {
            pool.attach(&mux).expect("it is attached");
        }
        log.stage("the callers");
        let world = World {
            mux,
            pool,
            ledger: Arc::clone(ledger),
            number: AtomicU64::new(1),
        };
        thread::scope(|scope| {
            for (number, ops) in self.callers.iter().enumerate() {
                let world = &world;
                scope.spawn(move || ops.iter().for_each(|op| world.perform(log, number, *op)));
            }
            if self.ends_early {
                thread::sleep(Duration::from_millis(3));
                let _ = world.pool.shutdown(Duration::from_millis(20));
            }
        });
        let mut wrong = world.rest(log, &server);
        if self.ends_in_call {
            log.stage("B2: a call of a handler ends with its pool");
            wrong.extend(world.end_in_call(&server));
        }
        log.stage("the end of the pool and the connection");
        let World { mux, pool, .. } = world;
        let _ = pool.shutdown(Duration::from_secs(5));
        drop((pool, mux));
        log.stage("the end of the server");
        server.end();
        wrong
    }
}

impl Round for Calls {
    fn seed(&self) -> u64 {
        self.seed
    }

    fn len(&self) -> usize {
        self.callers.iter().map(Vec::len).sum()
    }

    fn leave_out(&mut self, dropped: &[usize]) {
        crate::misuse::round::leave_out(&mut self.callers, dropped);
    }

    fn run(&self, log: &Arc<Log>, ledger: &Arc<Ledger>) -> Vec<String> {
        match self.bits {
            0 => self.run_with::<0>(log, ledger),
            8 => self.run_with::<8>(log, ledger),
            _ => self.run_with::<31>(log, ledger),
        }
    }
}

impl fmt::Display for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{self:#?}")
    }
}

fn ops(random: &mut Random) -> Vec<Op> {
    let length = pick(random, &[4, 20, 60]);
    (0..length).map(|_| op(random)).collect()
}

fn op(random: &mut Random) -> Op {
    let mut span = |most| Duration::from_micros(random.below(most));
    let (short, long) = (span(300), span(8000));
    match random.below(16) {
        0 => Op::Expect,
        1 => Op::Send,
        2 | 3 => Op::JoinTwice(short, long),
        4 => Op::Read(long, random.below(9) as usize),
        5..=7 => {
            let serve = [ServeWord::Chain, ServeWord::Nothing, ServeWord::Any];
            Op::CallIn(long, pick(random, &serve))
        }
        8 => Op::Look,
        9 => Op::Pause(long),
        10 if random.once_in(8) => Op::Hang,
        11..=13 => Op::Call(short),
        _ => Op::Call(long),
    }
}

struct World<const BITS: u32> {
    mux: Mux<Wire<BITS>>,
    pool: Pool,
    ledger: Arc<Ledger>,
    number: AtomicU64,
}

impl<const BITS: u32> World<BITS> {
    fn perform(&self, log: &Log, caller: usize, op: Op) {
        log.begin(caller, &op);
        let outcome = self.attempt(op);
        log.end(caller, outcome);
    }

    fn request(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }

    fn attempt(&self, op: Op) -> io::Result<()> {
        let request = self.request();
        match op {
            Op::Call(within) => {
                let reply = self.mux.call(&request, within)?;
                self.judge(request, &reply);
            }
            Op::Expect => drop(self.mux.prepare()?),
            Op::Send => drop(self.mux.prepare()?.send(&request)?),
            Op::JoinTwice(first, second) => {
                let call = self.mux.prepare()?.send(&request)?;
                let reply = match call.join(first) {
                    Ok(reply) => reply,
                    Err(rejected) => rejected.value.join(second)?,
                };
                self.judge(request, &reply);
            }
            Op::Read(within, bytes) => {
                let call = self.mux.prepare()?.send(&request)?;
                let mut body = call.join_to_read(within)?;
                let mut reply = vec![0; bytes.min(8)];
                io::Read::read_exact(&mut body, &mut reply)?;
                if reply != request.to_be_bytes()[..reply.len()] {
                    self.ledger
                        .complain(format!("B1: {request} was answered with {reply:?}"));
                }
            }
            Op::CallIn(within, serve) => self.post(request, within, serve.get())?,
            Op::Hang => self.mux.reconnect(tcp_without_peer()?)?,
            Op::Look => drop(format!("{:?}{:?}", self.mux.callers(), self.mux.snapshot())),
            Op::Pause(span) => thread::sleep(span),
        }
        Ok(())
    }

    fn judge(&self, request: u64, reply: &[u8]) {
        judge(&self.ledger, request, reply);
    }

    /// A handler calls.
    fn post(&self, request: u64, within: Duration, serve: Serve) -> io::Result<()> {
        let life = self.ledger.begin(Kind::Once, "a handler that calls");
        let (mux, ledger) = (self.mux.clone(), Arc::clone(&self.ledger));
        let work = move |cx: &mut TaskContext<'_>| {
            life.called();
            let call = || mux.prepare()?.send(&request).map_err(io::Error::from);
            if let Ok(call) = call() {
                if let Ok(reply) = call.join_in(cx, within, serve) {
                    judge(&ledger, request, &reply);
                }
            }
        };
        self.pool.post(work).map_err(|rejected| {
            discard(rejected.value);
            rejected.error
        })
    }

    /// At rest the server answers every request, and so every call is answered.
    fn rest(&self, log: &Log, server: &Server) -> Vec<String> {
        server.is_calm.store(true, Ordering::SeqCst);
        let mut wrong = Vec::new();
        log.stage("B2: every handler that calls ends");
        if !settle(|| self.ledger.left_of(Kind::Once) == 0) {
            wrong.push("B2: a handler that calls never ends".to_owned());
        }
        log.stage("B2: every call is answered");
        for _ in 0..3 {
            let mut last = String::new();
            let is_answered = (0..50).any(|_| {
                let request = self.request();
                let outcome = self.mux.call(&request, Duration::from_secs(2));
                let outcome = outcome.map(|reply| self.judge(request, &reply));
                if let Err(error) = &outcome {
                    last = error.to_string();
                    thread::sleep(Duration::from_millis(5));
                }
                outcome.is_ok()
            });
            if !is_answered {
                let callers = self.mux.callers();
                wrong.push(format!(
                    "B2: no call is answered any more: {last}, {callers:?}"
                ));
                break;
            }
        }
        let callers = self.mux.callers();
        if (callers.asleep, callers.led) != (0, false) && !settle(|| self.mux.callers().asleep == 0)
        {
            wrong.push(format!("B3: no caller is left, and yet: {callers:?}"));
        }
        wrong
    }

    fn end_in_call(&self, server: &Server) -> Option<String> {
        server.is_mute.store(true, Ordering::SeqCst);
        let minute = Duration::from_secs(60);
        self.post(self.request(), minute, Serve::Chain).ok()?;
        thread::sleep(Duration::from_millis(2));
        let _ = self.pool.shutdown(Duration::from_millis(100));
        let ends = settle(|| self.ledger.left_of(Kind::Once) == 0);
        (!ends).then(|| "B2: a handler's call outlives the shutdown of its pool".to_owned())
    }
}

fn judge(ledger: &Ledger, request: u64, reply: &[u8]) {
    if reply != request.to_be_bytes() {
        ledger.complain(format!("B1: {request} was answered with {reply:?}"));
    }
}

/// A connection that ends at once: it is refused while there is another one.
fn tcp_without_peer() -> io::Result<TcpStream> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    TcpStream::connect(listener.local_addr()?)
}
