//! One round: builds the pools, lets the actors run, waits until all is at rest, checks the
//! promises, ends the pools and checks that nothing is left.

use std::{
    fmt::{self},
    sync::{atomic::Ordering, Arc},
    thread,
    time::{Duration, Instant},
};

use paceline::{
    simulated::{Faults, Simulation},
    Listener, ListenerBuilder, Pool, SetKind, Signal, TaskContext,
};

use crate::misuse::{
    actor,
    ledger::{Kind, Ledger, Life},
    log::{Log, SLOW},
    plan::{Door, End, Plan},
    process::{self, Peers},
    rest,
    service::Service,
    settings::Owner,
    wire::{self, Client, NO_ECHO},
    world::{Item, World},
};

/// What a seed becomes: a plan that can be printed, shortened and run.
pub(crate) trait Round: fmt::Display {
    fn seed(&self) -> u64;

    /// How many operations it has.
    fn len(&self) -> usize;

    /// Takes away the operations with these numbers, counted through all actors.
    fn leave_out(&mut self, dropped: &[usize]);

    /// Runs it. What went wrong, apart from what the ledger knows.
    fn run(&self, log: &Arc<Log>, ledger: &Arc<Ledger>) -> Vec<String>;
}

/// As [`Round::leave_out`].
pub(crate) fn leave_out<O>(actors: &mut [Vec<O>], dropped: &[usize]) {
    let mut number = 0;
    for ops in actors {
        ops.retain(|_| {
            number += 1;
            !dropped.contains(&(number - 1))
        });
    }
}

/// Runs a plan. What went wrong.
pub(crate) fn run(plan: &dyn Round, log: &Arc<Log>) -> Vec<String> {
    let before = process::Baseline::now();
    let ledger = Arc::new(Ledger::default());
    *log.ledger.lock().unwrap() = Arc::downgrade(&ledger);
    process::listen_to_panics(&ledger);
    log.stage("the building of the pools");
    let mut wrong = plan.run(log, &ledger);
    log.stage("the end of all values");
    let is_settled = rest::settle(|| ledger.judge().is_empty());
    debug_assert!(is_settled || !ledger.judge().is_empty());
    wrong.extend(ledger.complaints());
    wrong.extend(ledger.judge());
    log.stage("the return of descriptors and threads");
    wrong.extend(before.compare());
    log.stage("nothing");
    wrong
}

impl Round for Plan {
    fn seed(&self) -> u64 {
        self.seed
    }

    fn len(&self) -> usize {
        self.actors.iter().map(Vec::len).sum()
    }

    fn leave_out(&mut self, dropped: &[usize]) {
        leave_out(&mut self.actors, dropped);
    }

    fn run(&self, log: &Arc<Log>, ledger: &Arc<Ledger>) -> Vec<String> {
        match self.settings.build(ledger) {
            Ok((owner, pools)) => run_in(self, log, ledger, owner, pools),
            Err(error) => vec![format!("the settings are refused: {error}")],
        }
    }
}

fn run_in(
    plan: &Plan,
    log: &Arc<Log>,
    ledger: &Arc<Ledger>,
    owner: Owner,
    pools: Vec<Pool>,
) -> Vec<String> {
    let weak: Vec<_> = pools.iter().map(Pool::downgrade).collect();
    *log.pools.lock().unwrap() = weak;
    let levels = (0..pools.len()).filter_map(|at| match &owner {
        Owner::Levels(levels) => levels.level(&format!("misuse{at}")).cloned(),
        _ => None,
    });
    let levels = levels.collect();
    let mut world = World::new(Arc::clone(ledger), pools, levels);
    if let SetKind::Simulated(simulation) = &plan.settings.set {
        world.simulation = Some(simulation.clone());
    }
    let world = Arc::new(world);
    open(plan, &world, &owner);
    let ticker = world
        .simulation
        .clone()
        .map(|simulation| tick(&world, simulation));
    let reader = read_on(&world);
    log.stage("the actors");
    let joiners = (0..plan.joiners).map(|_| join(&world));
    let joiners: Vec<_> = joiners.collect();
    act(plan, log, &world);
    log.stage("rest");
    let mut wrong = rest::check(plan, log, &world);
    log.stage("the end of the pools");
    world.ends.store(true, Ordering::SeqCst);
    wrong.extend(finish(plan, &world, owner));
    world.is_over.store(true, Ordering::SeqCst);
    log.stage("the end of the joiners");
    // A joiner may be in the close(2) of a socket with SO_LINGER, which waits for the reader.
    joiners.into_iter().for_each(|it| it.join().unwrap());
    world.stands_still.store(true, Ordering::SeqCst);
    reader.join().unwrap();
    if let Some(ticker) = ticker {
        ticker.join().unwrap();
    }
    log.stage("the end of the world");
    rest::empty(&world);
    // Handlers of a pool that ends on another thread may still have it.
    if !rest::settle(|| Arc::strong_count(&world) == 1) {
        wrong.push(format!(
            "S2: {} parts of the pools have the world",
            Arc::strong_count(&world)
        ));
    }
    wrong.extend(open_connections(&world));
    let members = world.members.lock().unwrap();
    let ends = world.member_ends.lock().unwrap();
    let odd = members.iter().filter(|member| ends.get(member) != Some(&1));
    wrong.extend(odd.map(|it| format!("H3: member {it:?}: ends {:?}", ends.get(it))));
    wrong
}

/// Connections that a listener still counts, though the pools have ended.
fn open_connections(world: &World) -> Option<String> {
    let listeners = world.listeners.lock().unwrap();
    let open = || listeners.iter().map(Listener::connections).sum::<usize>();
    (!rest::settle(|| open() == 0)).then(|| format!("S2: {} connections still count", open()))
}

/// What there is before the actors begin: listeners, a queue, a semaphore, signals.
fn open(plan: &Plan, world: &Arc<World>, owner: &Owner) {
    for at in 0..world.pools.len() {
        let (Some(pool), None) = (world.pool(at), &world.simulation) else {
            continue;
        };
        let builder = match owner {
            Owner::Sets(sets) => sets.listener(),
            _ => pool.listener(),
        };
        let listener = with_door(builder, plan.door);
        let listener = listener.bind(process::address_for(Peers::Dialling), maker(plan, world));
        let listener = listener.expect("it listens");
        world.listeners.lock().unwrap().push(listener);
    }
    let Some(pool) = world.pool(0) else { return };
    if let Some(capacity) = plan.queue {
        *world.queue.lock().unwrap() = open_queue(plan, world, &pool, capacity);
        *world.semaphore.lock().unwrap() = pool
            .sources()
            .semaphore(1, |(), _: &mut TaskContext<'_>| ())
            .ok();
    }
    if plan.hears_signals && world.simulation.is_none() {
        let signals = [Signal::WINCH, Signal::CONT, Signal::CHLD];
        let heard = pool
            .sources()
            .signals(signals, |_: Signal, _: &mut TaskContext<'_>| ());
        heard.expect("signals can be heard");
    }
}

fn with_door(mut builder: ListenerBuilder<'_>, door: Door) -> ListenerBuilder<'_> {
    if let Some((most, refusal)) = door.bound {
        builder = builder
            .max_connections(most)
            .refusal(vec![NO_ECHO; refusal]);
    }
    if let Some(idle) = door.idle_timeout {
        builder = builder.idle_timeout(idle);
    }
    builder
}

fn open_queue(
    plan: &Plan,
    world: &Arc<World>,
    pool: &Pool,
    capacity: usize,
) -> Option<paceline::Sender<Item>> {
    let stock = Stock(
        world
            .ledger
            .begin(Kind::Handler, "the handler of the queue"),
    );
    stock.0.accept();
    if plan.queue_is_concurrent {
        pool.sources().queue_concurrent(capacity, stock).ok()
    } else {
        pool.sources().queue(capacity, stock).ok()
    }
}

/// The handler of the queue.
struct Stock(Life);

impl Stock {
    fn take(item: &Item) {
        item.life.called();
        if item.panics {
            panic!("misuse: with an item");
        }
    }
}

impl paceline::ItemHandler<Item> for Stock {
    fn handle(&mut self, item: Item, _: &mut TaskContext<'_>) {
        Self::take(&item);
    }

    fn closed(&mut self, _: paceline::Closed) {
        self.0.closed();
    }
}

impl paceline::ConcurrentItemHandler<Item> for Stock {
    fn handle(&self, item: Item, _: &mut TaskContext<'_>) {
        Self::take(&item);
    }

    fn closed(&self, _: paceline::Closed) {
        self.0.closed();
    }
}

type Maker<H> = Box<dyn FnMut(&std::net::TcpStream, std::net::SocketAddr) -> Option<H> + Send>;

/// The maker of the handlers of a listener.
fn maker(plan: &Plan, world: &Arc<World>) -> Maker<Service> {
    let (world, scripts) = (Arc::clone(world), plan.accepted.clone());
    let mut number = 0;
    Box::new(move |stream, peer| {
        number += 1;
        let script = scripts[(number - 1) % scripts.len()].clone()?;
        let service = Service::made(&world, script);
        service.life.accept();
        // A connection that is gone already has no ports: its client has an end instead.
        if let Some(ports) = wire::ports(Ok(peer), stream.local_addr()) {
            let mut accepted = world.accepted.lock().unwrap();
            accepted.insert(ports, service.life.id);
        }
        Some(service)
    })
}

/// A thread that lets the virtual time pass. What the simulated world does to the pool ends when
/// all comes to rest.
fn tick(world: &Arc<World>, simulation: Simulation) -> thread::JoinHandle<()> {
    simulation.set_faults(Faults::ALL);
    let world = Arc::clone(world);
    thread::spawn(move || {
        while !world.stands_still.load(Ordering::SeqCst) {
            if world.is_calm() {
                simulation.set_faults(Faults::NONE);
            }
            simulation.clock().advance(Duration::from_micros(200));
            thread::sleep(Duration::from_micros(100));
        }
    })
}

/// A thread that takes what comes to the clients. At the end of the pools it does so for all of
/// them: a drain waits for those that do not read. Before that only for those whose connection the
/// pool may be closing with SO_LINGER: the application has asked for a close(2) that waits for its
/// peer, and no pool promises to go on without the thread that is in it.
fn read_on(world: &Arc<World>) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        while !world.stands_still.load(Ordering::SeqCst) {
            let (all, patience) = (world.ends.load(Ordering::SeqCst), world.patience());
            for slot in &world.slots {
                let mut client = slot.lock().unwrap();
                let client = client.as_mut();
                let reading = client.filter(|client| all || client.owes_a_read(patience));
                let outcome = reading.map(Client::receive);
                if let Some(Err(wrong)) = outcome {
                    world.ledger.complain(wrong);
                }
            }
            thread::sleep(Duration::from_micros(500));
        }
    })
}

/// A thread that lends itself to the pool for short times.
fn join(world: &Arc<World>) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        while !world.is_over.load(Ordering::SeqCst) {
            match world.pool(0) {
                Some(pool) => drop(pool.join_timeout(Duration::from_millis(2))),
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
    })
}

fn act(plan: &Plan, log: &Arc<Log>, world: &Arc<World>) {
    thread::scope(|scope| {
        for (number, ops) in plan.actors.iter().enumerate() {
            let (world, log) = (Arc::clone(world), Arc::clone(log));
            scope.spawn(move || actor::run(&world, &log, number, ops));
        }
    });
}

/// Ends all pools as the plan says. What is wrong with the reports.
fn finish(plan: &Plan, world: &Arc<World>, owner: Owner) -> Vec<String> {
    let ample = Duration::from_secs(5);
    let mut wrong = Vec::new();
    if plan.end == End::FromPost {
        if let Some(pool) = world.pool(0) {
            let weak = pool.downgrade();
            let _ = pool.post(move |_| {
                weak.upgrade().map(|pool| pool.shutdown(ample));
            });
        }
    }
    if plan.end != End::Drop {
        let again = plan.end == End::Twice;
        let other = again.then(|| {
            let world = Arc::clone(world);
            thread::spawn(move || (0..world.pools.len()).for_each(|at| world.shut_down(at, ample)))
        });
        let reports = shut_down(world, &owner, ample);
        // A thread that shuts its own pool down is not waited for by others, and listed by them.
        if plan.end != End::FromPost {
            wrong.extend(reports);
        }
        if let Some(other) = other {
            other.join().unwrap();
        }
    }
    (0..world.pools.len()).for_each(|at| world.drop_pool(at));
    drop(owner);
    wrong
}

fn shut_down(world: &World, owner: &Owner, within: Duration) -> Vec<String> {
    let start = Instant::now();
    let reports: Vec<_> = match owner {
        Owner::One => world
            .pool(0)
            .map(|pool| pool.shutdown(within))
            .into_iter()
            .collect(),
        Owner::Sets(sets) => sets.shutdown(within),
        Owner::Levels(levels) => {
            let report = levels.shutdown(within);
            report
                .levels
                .into_iter()
                .map(|(_, report)| report)
                .collect()
        }
    };
    if start.elapsed() > SLOW {
        reports
            .iter()
            .for_each(|report| eprintln!("misuse: slow, after it: {report}"));
    }
    let stuck = reports
        .iter()
        .filter(|report| !report.stuck_threads.is_empty());
    stuck
        .map(|report| format!("S1: at rest, yet stuck: {report}"))
        .collect()
}
