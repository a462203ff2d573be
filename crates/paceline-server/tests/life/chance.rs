//! Sessions, peers and other threads under chance: settings, operations and faults in combinations
//! that no script has. After each round each session has ended once, nothing was called behind its
//! end, each receipt came once, no item was lost, doubled or left lying, and the server has ended.
//!
//! `PACELINE_SERVER_SEED=n` runs the round of that seed alone, and `PACELINE_SERVER_ROUNDS=n` is how
//! many there are.

use std::{env, thread, time::Duration};

use paceline::{
    simulated::{Faults, SimPeer, Simulation},
    Pool, SetKind,
};
use paceline_server::{
    codec::line, Engine, HalfSync, Inlet, LeastRate, Limits, Listen, Remote, Room, Server,
};

use super::chance_session::{codec, Chaos, Mode, Shared, State};
use crate::support::{bounded, pause, wait_until, Random};

fn limits(random: &mut Random) -> Limits {
    let rate = LeastRate {
        bytes_per_second: 10,
        grace: Duration::from_secs(2),
    };
    Limits::default()
        .connections(2 + random.below(12))
        .idle(Some(Duration::from_secs(20)).filter(|_| random.below(2) == 0))
        .least_rate(Some(rate).filter(|_| random.below(2) == 0))
        .item_time(Some(Duration::from_secs(3)).filter(|_| random.below(3) == 0))
        .mailbox(100 + random.below(1000))
        .per_turn(1 + random.below(4), 1 + random.below(100))
}

fn engine(random: &mut Random) -> Engine {
    if random.below(2) == 0 {
        return Engine::LeaderFollowers;
    }
    let workers = HalfSync::default().workers(1 + random.below(3));
    Engine::HalfSyncHalfAsync(workers.capacity(1 + random.below(8)))
}

/// A peer, and what it has to send.
struct Client {
    peer: SimPeer,
    /// How many items it has begun.
    items: u64,
    unsent: Vec<u8>,
    /// How many whole items it has sent.
    sent: usize,
    got: Vec<u8>,
}

impl Client {
    fn new(inlet: &Inlet) -> Self {
        Self {
            peer: inlet.connect(),
            items: 0,
            unsent: Vec::new(),
            sent: 0,
            got: Vec::new(),
        }
    }

    /// Sends a piece of the next items.
    fn send(&mut self, mode: Mode, random: &mut Random) {
        for _ in 0..random.below(4) {
            match mode {
                Mode::Counting => {
                    let item = format!("{}\n", self.items);
                    self.unsent.extend_from_slice(item.as_bytes());
                }
                Mode::Anything => self
                    .unsent
                    .extend((0..8).map(|_| b"\x02a.\r\n"[random.below(5)])),
            }
            self.items += 1;
        }
        let count = random.below(self.unsent.len() + 1);
        let piece: Vec<u8> = self.unsent.drain(..count).collect();
        self.sent += piece.iter().filter(|byte| **byte == b'\n').count();
        self.peer.send(&piece);
    }

    fn take(&mut self) {
        self.got.extend(self.peer.received());
    }

    /// Whether each whole item is answered, unless the connection has ended.
    fn is_answered(&self) -> bool {
        let answers = self.got.iter().filter(|byte| **byte == b'\n').count();
        answers == self.sent || self.peer.is_output_ended()
    }

    /// The answers are the items from the first one on, each once.
    fn check(&self) {
        let text = String::from_utf8_lossy(&self.got);
        let whole = text.rfind("\r\n").map_or("", |end| &text[..end + 2]);
        for (number, answer) in whole.split_terminator("\r\n").enumerate() {
            assert_eq!(answer, number.to_string(), "{text}");
        }
    }
}

/// One thing that happens to one peer, or to time.
fn step(
    world: &Simulation,
    inlet: &Inlet,
    clients: &mut Vec<Client>,
    mode: Mode,
    random: &mut Random,
) {
    if clients.len() < 8 {
        clients.push(Client::new(inlet));
    }
    let chosen = random.below(clients.len());
    match random.below(16) {
        0..=7 => clients[chosen].send(mode, random),
        8..=10 => clients[chosen].take(),
        11 => clients[chosen].peer.finish(),
        12 => clients[chosen].peer.reset(),
        13 => world
            .clock()
            .advance(Duration::from_millis(random.below(2000) as u64)),
        14 if random.below(4) == 0 => world.clock().advance(Duration::from_secs(25)),
        _ => pause(),
    }
    if clients[chosen].peer.is_closed_by_pool() {
        let mut client = clients.swap_remove(chosen);
        client.take();
        if mode == Mode::Counting {
            client.check();
        }
    }
}

/// No input waits for more of it: each whole item is answered, without time passing.
fn answer_all(shared: &Shared, clients: &mut [Client]) {
    wait_until(|| {
        let remotes = shared.with(|ledger| ledger.remotes.clone());
        remotes.iter().for_each(Remote::resume_input);
        clients.iter_mut().for_each(Client::take);
        clients.iter().all(Client::is_answered)
    });
}

/// All peers read, and time passes, until `holds`. It passes slowly where threads have something to
/// do: a thread that the system does not run looks stuck in virtual time.
fn let_end(world: &Simulation, threads: usize, clients: &mut [Client], holds: impl Fn() -> bool) {
    let mut looks = 0;
    wait_until(|| {
        clients.iter_mut().for_each(Client::take);
        looks += 1;
        if world.clock().asleep() >= threads || looks % 50 == 0 {
            world.clock().advance(Duration::from_millis(100));
        }
        pause();
        holds()
    });
}

fn round(seed: u64) {
    let mut random = Random::new(seed);
    let mode = [Mode::Counting, Mode::Anything][random.below(2)];
    let (shared, room) = (Shared::default(), Room::new());
    let world = Simulation::new(seed);
    if random.below(3) > 0 {
        world.set_faults(Faults::ALL);
    }
    let inlet = Inlet::new(&world);
    let set = SetKind::Simulated(world.clone());
    let threads = 1 + random.below(3);
    let pool = Pool::builder().threads(threads).handle_set(set);
    let (made, members) = (shared.clone(), room.clone());
    let listen = Listen::simulated(&inlet).limits(limits(&mut random));
    let first = if mode == Mode::Counting {
        line(40)
    } else {
        codec(&mut random)
    };
    let server = Server::builder()
        .pool(pool.output_limit(600 + random.below(2000)))
        .engine(engine(&mut random))
        .listener(listen, first, move |_| {
            Chaos::new(mode, &made, &members, seed)
        });
    let server = server.start().unwrap();
    let mut clients = Vec::new();
    for _ in 0..100 + random.below(300) {
        step(&world, &inlet, &mut clients, mode, &mut random);
    }
    if mode == Mode::Counting {
        answer_all(&shared, &mut clients);
    }
    if random.below(2) == 0 {
        clients.iter().for_each(|client| client.peer.finish());
    }
    let draining = server.clone();
    let drain = thread::spawn(move || draining.drain(Duration::from_secs(60)));
    let_end(&world, threads, &mut clients, || drain.is_finished());
    let report = drain.join().unwrap();
    assert_eq!(report.services.len(), 1, "{report}");
    // On a busy machine a worker, or a thread of the pool, is late for the end in virtual time.
    wait_until(|| server.connections() == 0);
    let clients = clients.iter().filter(|_| mode == Mode::Counting);
    clients.for_each(Client::check);
    drop((server, room));
    wait_until(|| shared.with(|ledger| ledger.alive == 0 && ledger.receipts_due == 0));
    shared.with(|ledger| {
        assert!(ledger.violations.is_empty(), "{:#?}", ledger.violations);
        let started = |(_, state): &(&u64, &State)| **state == State::Started;
        assert_eq!(
            ledger.sessions.iter().find(started),
            None,
            "it was never closed"
        );
    });
}

fn number(name: &str) -> Option<u64> {
    env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

#[test]
fn sessions_under_chance() {
    let seeds = match number("PACELINE_SERVER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 1..1 + number("PACELINE_SERVER_ROUNDS").unwrap_or(40),
    };
    for seed in seeds {
        eprintln!("seed {seed}");
        bounded(move || round(seed));
    }
}
