//! A server on virtual time, over both engines.

use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

use paceline::{
    simulated::{SimPeer, Simulation},
    Pool, SetKind,
};
use paceline_server::{
    codec::{line, Framing, Message},
    DrainReport, Engine, HalfSync, Inlet, Limit, Limits, Listen, Next, Peer, Server, ServerBuilder,
    Session,
};

use super::{actor::Calls, bounded, pause, times_met, wait_until, Written};

/// The name of the listener that tests connect to.
pub const MAIN: &str = "main";

/// A world of streams and time, and what a server in it needs.
pub struct World {
    pub simulation: Simulation,
    pub inlet: Inlet,
    pub calls: Calls,
    pub log: Written,
    /// A listener of its own, whose answer shows that the only worker has done all before it.
    probe: Inlet,
    engine: Engine,
    threads: usize,
    /// Threads of other levels.
    others: usize,
}

/// Runs a test's body on Leader/Followers, and then on the half-sync engine with one worker.
pub fn on_both_engines(body: impl Fn(World) + Copy + Send + 'static) {
    let half_sync = Engine::HalfSyncHalfAsync(HalfSync::default().workers(1));
    for engine in [Engine::LeaderFollowers, half_sync] {
        eprintln!("engine: {engine:?}");
        bounded(move || body(World::with(engine, 2)));
    }
}

/// Runs a test's body on Leader/Followers.
pub fn on_leader_followers(body: impl FnOnce(World) + Send + 'static) {
    bounded(move || body(World::with(Engine::LeaderFollowers, 2)));
}

impl World {
    /// A world whose server has so many threads.
    pub fn with(engine: Engine, threads: usize) -> Self {
        let simulation = Simulation::new(11);
        Self {
            inlet: Inlet::new(&simulation),
            probe: Inlet::new(&simulation),
            calls: Calls::default(),
            log: Written::default(),
            simulation,
            engine,
            threads,
            others: 0,
        }
    }

    /// A world whose server has so many threads in other levels.
    pub fn beside(self, others: usize) -> Self {
        Self { others, ..self }
    }

    pub fn is_half_sync(&self) -> bool {
        self.engine != Engine::LeaderFollowers
    }

    /// A builder whose server lives in this world.
    pub fn builder(&self) -> ServerBuilder {
        let set = SetKind::Simulated(self.simulation.clone());
        let pool = Pool::builder().threads(self.threads).handle_set(set);
        self.builder_on(pool)
    }

    /// The same with settings of the pool, which must have this world's handle set.
    pub fn builder_on(&self, pool: paceline::Builder) -> ServerBuilder {
        Server::builder()
            .pool(pool)
            .engine(self.engine.clone())
            .access_log(self.log.clone())
    }

    /// Starts a server with one more listener: the last one, which shows that all others are done.
    pub fn start(&self, builder: ServerBuilder) -> Server {
        let probe = Listen::simulated(&self.probe).name("probe");
        let builder = builder.listener(probe, line(8), |_| {
            |item: Message<'_>, cx: &mut Peer<'_>| {
                cx.send("done")?;
                Ok(if item == "stay" {
                    Next::Continue
                } else {
                    Next::CloseGently
                })
            }
        });
        builder.start().expect("the server starts")
    }

    pub fn listen(&self) -> Listen {
        Listen::simulated(&self.inlet).name(MAIN)
    }

    /// A server for sessions of one kind.
    pub fn serve<N: Session>(
        &self,
        limits: Limits,
        codec: Framing,
        make: impl Fn() -> N + Send + Sync + 'static,
    ) -> Server {
        let listen = self.listen().limits(limits);
        let builder = self.builder().listener(listen, codec, move |_| make());
        self.start(builder)
    }

    /// Waits until nothing more happens by itself: each worker is done, and all threads sleep.
    pub fn settle(&self) {
        if self.is_half_sync() {
            self.ask_the_worker();
        }
        self.wait_asleep();
    }

    fn ask_the_worker(&self) {
        // The worker can only have what the threads of the pool have handed over.
        self.wait_asleep();
        let probe = self.probe.connect();
        probe.send(b"?\n");
        assert_eq!(probe.wait_for(4), b"done");
        probe.finish();
        probe.wait_closed();
    }

    /// Waits until all threads of the pool sleep that are in no session.
    pub fn wait_asleep(&self) {
        wait_until(|| self.simulation.clock().asleep() >= self.threads + self.others);
    }

    /// Lets time pass, when nothing more happens by itself.
    pub fn pass(&self, time: Duration) {
        self.settle();
        self.simulation.clock().advance(time);
        self.settle();
    }

    pub fn pass_seconds(&self, seconds: u64) {
        self.pass(Duration::from_secs(seconds));
    }

    /// Checks that a limit has ended one connection, and that this can be seen everywhere.
    pub fn assert_ended_by(&self, server: &Server, limit: Limit) {
        self.calls.wait_for(&format!("closed: limit {limit}"));
        assert_eq!(self.calls.count("closed"), 1, "{:?}", self.calls.all());
        assert_eq!(times_met(server, MAIN, limit), 1, "{limit}");
        let log = self.log.text();
        let line = format!("ended=limit detail=\"limit {limit}\"");
        let lines: Vec<_> = log.lines().filter(|it| it.starts_with("main ")).collect();
        assert!(matches!(lines[..], [one] if one.contains(&line)), "{log}");
    }
}

/// Waits until the peer has all of `bytes`, and no more.
pub fn assert_gets(peer: &SimPeer, bytes: impl AsRef<[u8]>) {
    let (bytes, got) = (bytes.as_ref(), peer.wait_for(bytes.as_ref().len()));
    assert_eq!(
        String::from_utf8_lossy(&got),
        String::from_utf8_lossy(bytes)
    );
}

/// Closes the peer's side, and waits until the server has closed its own.
pub fn finish(peer: &SimPeer) {
    peer.finish();
    peer.wait_closed();
}

/// A drain in a thread of its own.
pub struct Drain(JoinHandle<DrainReport>);

impl Drain {
    /// Begins to drain, and waits until the server has notified each connection.
    pub fn begin(world: &World, server: &Server, within: Duration) -> Self {
        let last = Self::last_connection(world);
        Self::begin_after(&last, server, within)
    }

    /// A connection that a drain notifies last.
    pub fn last_connection(world: &World) -> SimPeer {
        let last = world.probe.connect();
        last.send(b"stay\n");
        assert_gets(&last, "done");
        world.settle();
        last
    }

    /// Begins to drain, and waits until the server has notified this connection.
    pub fn begin_after(last: &SimPeer, server: &Server, within: Duration) -> Self {
        let drain = Self::begin_unseen(server, within);
        wait_until(|| last.is_output_ended());
        finish(last);
        drain
    }

    /// Begins to drain, and waits until the server says that it is not ready.
    pub fn begin_unseen(server: &Server, within: Duration) -> Self {
        let drained = server.clone();
        let thread = thread::spawn(move || drained.drain(within));
        wait_until(|| !server.is_ready());
        Self(thread)
    }

    pub fn is_done(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for its end, which needs no time.
    pub fn end(self) -> DrainReport {
        wait_until(|| self.is_done());
        self.0.join().expect("a drain does not panic")
    }

    /// Lets time pass until it ends.
    pub fn end_late(self, world: &World) -> DrainReport {
        wait_until(|| {
            world.simulation.clock().advance(Duration::from_millis(100));
            pause();
            self.is_done()
        });
        self.0.join().expect("a drain does not panic")
    }
}
