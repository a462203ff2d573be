//! The operations of an actor that are about no connection: timers, items, rings, observers, roles
//! by hand.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicBool, AtomicU32, Ordering},
        Arc, Mutex,
    },
    time::Duration,
};

use paceline::{
    observe::{Observer, Role},
    turn::{Led, Waited},
    Context, Interest, Pool, RingConsumer, RingProducer, TickContext,
};

use crate::misuse::{
    actor::{put, refuse},
    ledger::{Bomb, Kind, Life},
    ops::{Ask, Stage, Work},
    wire::{Client, Far},
    world::{discard, Item, World},
};

/// The timer that was there before is cancelled: at rest the plan wants no ticks.
pub(crate) fn after(
    world: &Arc<World>,
    timer: usize,
    at: usize,
    span: Duration,
    work: &Work,
) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let (id, work) = world.work(work.clone(), "a timer");
    match pool.after(span, work) {
        Ok(it) => {
            let old = world.timers[timer].lock().unwrap().replace(it);
            old.map(|old| old.cancel());
            Ok(())
        }
        Err(rejected) => refuse(world, id, rejected.value, rejected.error),
    }
}

pub(crate) fn every(
    world: &Arc<World>,
    timer: usize,
    at: usize,
    period: Duration,
    panics_at: Option<u32>,
) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let life = world.ledger.begin(Kind::Value, "a periodic timer");
    let id = life.id;
    let ticks = AtomicU32::new(0);
    let tick = move |_: &mut TickContext<'_>| {
        let _ = &life;
        if Some(ticks.fetch_add(1, Ordering::Relaxed)) == panics_at {
            panic!("misuse: in a tick");
        }
    };
    match pool.every(period, tick) {
        Ok(it) => {
            let old = world.timers[timer].lock().unwrap().replace(it);
            old.map(|old| old.cancel());
            Ok(())
        }
        Err(rejected) => refuse(world, id, rejected.value, rejected.error),
    }
}

pub(crate) fn cancel(world: &World, timer: usize, waits: bool) -> io::Result<()> {
    let Some(timer) = world.timers[timer].lock().unwrap().take() else {
        return Ok(());
    };
    if waits {
        timer.cancel_and_wait()
    } else {
        timer.cancel()
    }
}

pub(crate) fn enqueue(world: &Arc<World>, items: u32, bombs: bool) -> io::Result<()> {
    let Some(queue) = world.queue.lock().unwrap().clone() else {
        return Ok(());
    };
    for number in 0..items {
        let item = Item {
            life: world.ledger.begin(Kind::Once, "an item"),
            panics: bombs && number % 3 == 1,
            _bomb: Bomb(bombs && number % 3 == 2),
        };
        if let Err(rejected) = queue.send(item) {
            discard(rejected.value);
            return Err(rejected.error);
        }
    }
    Ok(())
}

pub(crate) fn release(world: &World, units: u32) -> io::Result<()> {
    match world.semaphore.lock().unwrap().clone() {
        Some(semaphore) => semaphore.release_many(units),
        None => Ok(()),
    }
}

pub(crate) fn ring(world: &Arc<World>, slot: usize, at: usize) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let (ours, theirs) = UnixStream::pair()?;
    let producer = RingProducer::create(theirs, 256)?;
    let consumer = RingConsumer::open(ours, 4096)?;
    let service = Records {
        life: world.ledger.begin(Kind::Handler, "the handler of a ring"),
        world: Arc::clone(world),
        record: Vec::new(),
    };
    let id = service.life.id;
    world.ledger.accept(id);
    match pool.register(consumer, Interest::READ, service) {
        Ok(handle) => world.ledger.set_handle(id, handle),
        Err(rejected) => return refuse(world, id, rejected.value, rejected.error),
    }
    put(world, slot, Client::new(Far::Ring(producer), Some(id)));
    Ok(())
}

struct Records {
    life: Life,
    world: Arc<World>,
    record: Vec<u8>,
}

impl paceline::EventHandler<RingConsumer> for Records {
    fn ready(&mut self, cx: &mut Context<'_, RingConsumer>) -> io::Result<paceline::Next> {
        loop {
            let record = &mut self.record;
            let more = cx.try_read(|ring| ring.receive(record))?;
            if !more {
                return Ok(paceline::Next::Close);
            }
            let mut records = self.world.records.lock().unwrap();
            let count = records.entry(self.life.id).or_default();
            if self.record != count.to_be_bytes() {
                let text = format!("H1: record {count} is {:?}", self.record);
                self.world.ledger.complain(text);
            }
            *count += 1;
        }
    }

    fn moved(&mut self, handle: &paceline::Handle) {
        self.world.ledger.set_handle(self.life.id, handle.clone());
    }

    fn closed(&mut self, _: paceline::Closed) {
        self.life.closed();
    }
}

/// Notes that it sees something.
struct Eye(AtomicBool, Mutex<Option<Role>>);

impl Observer for Eye {
    fn role_changed(&self, _: usize, role: Role) {
        self.0.store(true, Ordering::Relaxed);
        *self.1.lock().unwrap() = Some(role);
    }
}

pub(crate) fn observe(world: &World, observer: usize, at: usize) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let observation = pool.observe(Eye(AtomicBool::new(false), Mutex::default()));
    let old = world.observers[observer]
        .lock()
        .unwrap()
        .replace(observation);
    drop(old);
    Ok(())
}

pub(crate) fn look(world: &World, at: usize) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let _ = format!(
        "{:?}{:?}{:?}",
        pool.snapshot(),
        pool.inspect().threads(),
        pool.inspect().histograms()
    );
    let _ = (
        pool.inspect().stuck(Duration::ZERO),
        pool.inspect().thread_ids(),
    );
    Ok(())
}

/// Goes through the roles up to a stage, asks something there, and drops the role.
pub(crate) fn by_hand(
    world: &World,
    pool: &Pool,
    stage: Stage,
    slot: usize,
    ask: Ask,
) -> io::Result<()> {
    let asks = |here: Stage| {
        if here == stage {
            let _ = world.ask(slot, ask);
        }
        here == stage
    };
    let follower = pool.entrance().timeout(Duration::from_millis(2)).enter()?;
    if asks(Stage::Follower) {
        return Ok(());
    }
    let Led::Leader(leader) = follower.lead() else {
        return Ok(());
    };
    if asks(Stage::Leader) {
        return Ok(());
    }
    let Waited::Claimed(claimed) = leader.wait(Some(Duration::from_millis(1)))? else {
        return Ok(());
    };
    if asks(Stage::Claimed) {
        return Ok(());
    }
    let processing = claimed.promote();
    if asks(Stage::Processing) {
        return Ok(());
    }
    let follower = processing.run();
    asks(Stage::Done);
    drop(follower);
    Ok(())
}
