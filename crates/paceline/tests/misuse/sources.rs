//! Misuse of a pool with a leader for each source: sources that panic, fail and end, handlers that
//! panic, threads that come and go, sources that are added, and an end at any time.

use std::{
    fmt, io,
    sync::{
        mpsc::{self, Receiver, Sender},
        Arc, Mutex,
    },
    thread,
    time::{Duration, Instant},
};

use paceline::{Arrived, BlockingSource, SourcePool};

use crate::misuse::{
    is_known,
    ledger::{Bomb, Kind, Ledger, Life},
    log::Log,
    rest::settle,
    round::Round,
    world::{discard, Item},
};
use crate::support::Random;

/// What a source does in its next wait.
#[derive(Clone, Copy, Debug)]
enum Wait {
    Event,
    Nothing,
    Sleep(Duration),
    Panic,
    Fail,
}

/// A source of a plan, which is over after its last wait.
#[derive(Clone, Debug)]
struct Script {
    waits: Vec<Wait>,
    drop_panics: bool,
}

/// What an actor does.
#[derive(Clone, Debug)]
enum Op {
    Send {
        channel: usize,
        items: u32,
        bombs: bool,
    },
    Hang {
        channel: usize,
    },
    Add(Script),
    Join(Duration),
    Look,
    Pause(Duration),
    ShutDown(Duration),
    Drop,
}

/// The plan of a round.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    seed: u64,
    threads: usize,
    channels: usize,
    scripts: Vec<Script>,
    actors: Vec<Vec<Op>>,
    shuts_down: bool,
}

impl Sources {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let random = &mut random;
        let channels = 1 + random.below(2) as usize;
        let scripts: Vec<_> = (0..random.below(3)).map(|_| script(random)).collect();
        let ends_early = random.once_in(4);
        Self {
            seed,
            threads: channels + scripts.len() + 1 + random.below(3) as usize,
            channels,
            scripts,
            actors: (0..2 + random.below(2))
                .map(|_| ops(random, ends_early))
                .collect(),
            shuts_down: random.once_in(2),
        }
    }
}

impl Round for Sources {
    fn seed(&self) -> u64 {
        self.seed
    }

    fn len(&self) -> usize {
        self.actors.iter().map(Vec::len).sum()
    }

    fn leave_out(&mut self, dropped: &[usize]) {
        crate::misuse::round::leave_out(&mut self.actors, dropped);
    }

    fn run(&self, log: &Arc<Log>, ledger: &Arc<Ledger>) -> Vec<String> {
        let (senders, channels): (Vec<_>, Vec<_>) = (0..self.channels).map(|_| channel()).unzip();
        let mut builder = SourcePool::builder()
            .threads(self.threads)
            .look_every(Duration::from_millis(2));
        for channel in channels {
            let handler = Handler(ledger.begin(Kind::Value, "a handler of items"));
            builder = builder.source("channel", channel, move |item| handler.take(&item));
        }
        for script in &self.scripts {
            let handler = Handler(ledger.begin(Kind::Value, "a handler of a source"));
            builder = builder.source("script", Scripted::new(ledger, script), move |item| {
                handler.take(&item);
            });
        }
        let pool = builder.build().expect("it is built");
        let world = World {
            ledger: Arc::clone(ledger),
            pool: Mutex::new(Some(pool)),
            senders,
        };
        log.stage("the actors");
        thread::scope(|scope| {
            for (number, ops) in self.actors.iter().enumerate() {
                let world = &world;
                scope.spawn(move || ops.iter().for_each(|op| world.perform(log, number, op)));
            }
        });
        log.stage("S2: every item of a channel is handled");
        let mut wrong = Vec::new();
        let pool = world.pool.lock().unwrap().clone();
        if pool.is_some() && !self.ends_early() && !settle(|| world.is_answered()) {
            wrong.push(format!("L2: no item is handled any more: {pool:?}"));
        }
        log.stage("the end of the pool");
        if let (Some(pool), true) = (&pool, self.shuts_down) {
            let report = pool.shutdown(Duration::from_secs(5));
            if !report.stuck_threads.is_empty() {
                wrong.push(format!("S1: {report:?}"));
            }
        }
        wrong
    }
}

impl Sources {
    fn ends_early(&self) -> bool {
        let mut ops = self.actors.iter().flatten();
        ops.any(|op| matches!(op, Op::ShutDown(_) | Op::Drop))
    }
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{self:#?}")
    }
}

fn script(random: &mut Random) -> Script {
    Script {
        waits: (0..random.below(8)).map(|_| wait(random)).collect(),
        drop_panics: random.once_in(3) && may_panic_in_drops(),
    }
}

/// Items that are left in a channel are dropped with it, too.
fn may_panic_in_drops() -> bool {
    !is_known("a panic in the drop of a source aborts")
}

fn wait(random: &mut Random) -> Wait {
    let span = Duration::from_micros(random.below(1000));
    match random.below(12) {
        0 => Wait::Panic,
        1 => Wait::Fail,
        2 | 3 => Wait::Nothing,
        4..=6 => Wait::Sleep(span),
        _ => Wait::Event,
    }
}

fn ops(random: &mut Random, ends_early: bool) -> Vec<Op> {
    (0..8).map(|_| op(random, ends_early)).collect()
}

fn op(random: &mut Random, ends_early: bool) -> Op {
    let span = Duration::from_micros(random.below(3000));
    let channel = random.below(2) as usize;
    match random.below(16) {
        0..=4 => Op::Send {
            channel,
            items: 1 + random.below(5) as u32,
            bombs: random.once_in(3),
        },
        5 if random.once_in(3) => Op::Hang { channel },
        6..=8 => Op::Add(script(random)),
        9..=11 => Op::Join(span),
        12 => Op::Look,
        13 if ends_early && random.once_in(3) => Op::ShutDown(span),
        14 if ends_early && random.once_in(3) => Op::Drop,
        _ => Op::Pause(span),
    }
}

struct World {
    ledger: Arc<Ledger>,
    pool: Mutex<Option<SourcePool>>,
    senders: Vec<WayIn>,
}

impl World {
    fn perform(&self, log: &Log, actor: usize, op: &Op) {
        log.begin(actor, op);
        let outcome = std::panic::AssertUnwindSafe(|| self.attempt(op));
        match std::panic::catch_unwind(outcome) {
            Ok(outcome) => log.end(actor, outcome),
            Err(_) => self.ledger.complain(format!("a panic comes out of {op:?}")),
        }
    }

    fn attempt(&self, op: &Op) -> io::Result<()> {
        let pool = self.pool.lock().unwrap().clone();
        let Some(pool) = pool else { return Ok(()) };
        match op {
            Op::Send {
                channel,
                items,
                bombs,
            } => {
                (0..*items).for_each(|number| self.send(*channel, *bombs, number));
            }
            Op::Hang { channel } => {
                if let Some(sender) = self.senders.get(*channel) {
                    drop(sender.lock().unwrap().take());
                }
            }
            Op::Add(script) => {
                let handler = Handler(self.ledger.begin(Kind::Value, "a handler of a source"));
                let source = Scripted::new(&self.ledger, script);
                let outcome = pool.add("added", source, move |item| handler.take(&item));
                if let Err(rejected) = outcome {
                    discard(rejected.value);
                    return Err(rejected.error);
                }
            }
            Op::Join(span) => drop(pool.join_timeout(*span)?),
            Op::Look => drop(format!("{:?}", pool.snapshot())),
            Op::Pause(span) => thread::sleep(*span),
            Op::ShutDown(within) => drop(pool.shutdown(*within)),
            Op::Drop => drop(self.pool.lock().unwrap().take()),
        }
        Ok(())
    }

    fn send(&self, channel: usize, bombs: bool, number: u32) {
        let item = item(&self.ledger, bombs, number);
        let sender = self.senders.get(channel).map(|it| it.lock().unwrap());
        let Some(sender) = sender.as_ref().and_then(|it| it.as_ref()) else {
            // The plan has no such channel, or has hung it up: the item never reaches the pool.
            return discard(item);
        };
        if let Err(back) = sender.send(item) {
            discard(back);
        }
    }

    /// Whether every item was handled.
    fn is_answered(&self) -> bool {
        self.ledger.left_of(Kind::Once) == 0
    }
}

fn item(ledger: &Arc<Ledger>, bombs: bool, number: u32) -> Item {
    Item {
        life: ledger.begin(Kind::Once, "an item"),
        panics: bombs && number % 3 == 1,
        _bomb: Bomb(bombs && number % 3 == 2 && may_panic_in_drops()),
    }
}

/// A handler of items.
struct Handler(#[allow(dead_code, reason = "only its drop counts")] Life);

impl Handler {
    fn take(&self, item: &Item) {
        item.life.called();
        if item.panics {
            panic!("misuse: with an item");
        }
    }
}

/// The sender of a channel, until it hangs up or the channel is dropped.
type WayIn = Arc<Mutex<Option<Sender<Item>>>>;

fn channel() -> (WayIn, Channel) {
    let (sender, receiver) = mpsc::channel();
    let way_in = Arc::new(Mutex::new(Some(sender)));
    let channel = Channel {
        receiver,
        way_in: Arc::clone(&way_in),
    };
    (way_in, channel)
}

/// A channel of std that drops every item with it. After the first item that panics in its drop,
/// std leaks the others, and an item that is sent at that time is dropped on the sender's thread.
struct Channel {
    receiver: Receiver<Item>,
    way_in: WayIn,
}

impl BlockingSource for Channel {
    type Event = Item;

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Arrived<Item>> {
        self.receiver.wait(until)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        drop(self.way_in.lock().unwrap().take());
        let mut panics = 0;
        while let Ok(item) = self.receiver.try_recv() {
            let dropping = std::panic::AssertUnwindSafe(|| drop(item));
            panics += u32::from(std::panic::catch_unwind(dropping).is_err());
        }
        let _bomb = Bomb(panics > 0);
    }
}

/// A source that does what its script says.
struct Scripted {
    ledger: Arc<Ledger>,
    waits: Vec<Wait>,
    _life: Life,
    _bomb: Bomb,
}

impl Scripted {
    fn new(ledger: &Arc<Ledger>, script: &Script) -> Self {
        let mut waits = script.waits.clone();
        waits.reverse();
        Self {
            ledger: Arc::clone(ledger),
            waits,
            _life: ledger.begin(Kind::Value, "a source"),
            _bomb: Bomb(script.drop_panics),
        }
    }
}

impl BlockingSource for Scripted {
    type Event = Item;

    fn wait(&mut self, until: Option<Instant>) -> io::Result<Arrived<Item>> {
        Ok(match self.waits.pop() {
            None => Arrived::Over,
            Some(Wait::Event) => Arrived::Event(item(&self.ledger, false, 0)),
            Some(Wait::Nothing) => Arrived::Nothing,
            Some(Wait::Sleep(span)) => {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                thread::sleep(left.map_or(span, |left| left.min(span)));
                Arrived::Nothing
            }
            Some(Wait::Panic) => panic!("misuse: in a wait"),
            Some(Wait::Fail) => return Err(io::Error::other("misuse: a source fails")),
        })
    }
}
