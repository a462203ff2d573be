//! The same traffic in a world of faults.

use paceline::simulated::{Faults, SimPeer, SimStream, Simulation};

use super::*;

/// The same on a world that misbehaves in every way it may: events come stale and doubled, reads
/// and writes move one byte or are interrupted, a wait brings one event. Real threads, virtual
/// time.
#[test]
fn nothing_is_lost_in_a_world_of_faults() {
    let bench = Arc::new(Bench::new(wanted_messages().clamp(1, 20_000)));
    let world = Simulation::new(11);
    world.set_faults(Faults::ALL);
    let pool = Pool::builder()
        .threads(3)
        .handle_set(SetKind::Simulated(world.clone()))
        .build()
        .unwrap();
    let clients = (0..CLIENTS).map(|number| {
        let (bench, pool, world) = (Arc::clone(&bench), pool.clone(), world.clone());
        Box::new(move || simulated_client(&bench, &pool, &world, number)) as Job
    });
    let visitors = (0..VISITORS).map(|number| Box::new(visit(&pool, &bench, number)) as Job);
    run_while_it_moves(&bench, clients.chain(visitors).collect());

    world.set_faults(Faults::NONE);
    let report = pool.shutdown(LONG);
    assert!(report.is_clean(), "{report}");
    bench.assert_clean();
    assert!(world.faults_injected() > 0);
    let opened = bench.next_connection.load(Ordering::SeqCst);
    assert_eq!(bench.ended.load(Ordering::SeqCst), u64::from(opened));
    eprintln!(
        "stress: {} messages, {opened} connections, {} with {} faults",
        bench.seen_by_clients.messages(),
        bench.seen_by_clients,
        world.faults_injected(),
    );
}

fn simulated_client(bench: &Arc<Bench>, pool: &Pool, world: &Simulation, number: u32) {
    let mut random = Random::new(u64::from(number) + 20);
    let mut connection = SimConnection::new(bench, pool, world);
    while !bench.enough() {
        let stands = connection.exchange(&mut random, bench);
        world.clock().advance(Duration::from_micros(500));
        bench.meddle(&mut random);
        match random.below(32) {
            _ if !stands => {}
            0 => connection.reset(bench),
            1 => connection.finish(),
            _ => continue,
        }
        connection = SimConnection::new(bench, pool, world);
    }
    connection.finish();
    // The visitors leave when their time is over, and the last client moves it.
    if bench.finished_clients.fetch_add(1, Ordering::SeqCst) + 1 == CLIENTS {
        wait_until(|| {
            world.clock().advance(Duration::from_millis(1));
            bench.finished_visitors.load(Ordering::SeqCst) == VISITORS
        });
    }
}

/// The peer's end of a simulated connection.
struct SimConnection {
    number: u32,
    peer: SimPeer,
    sent: u32,
    inspector: Inspector,
}

impl SimConnection {
    fn new(bench: &Arc<Bench>, pool: &Pool, world: &Simulation) -> Self {
        let (stream, peer): (SimStream, _) = world.stream();
        let number = bench.new_connection();
        let echo = Echo::new(Arc::clone(bench), number.into());
        pool.register(stream, Interest::READ, echo).unwrap();
        Self {
            number,
            peer,
            sent: 0,
            inspector: Inspector::of(number),
        }
    }

    /// Sends a few messages and receives their answers. `false`: the connection is over.
    fn exchange(&mut self, random: &mut Random, bench: &Bench) -> bool {
        let mut output = Vec::new();
        for _ in 0..=random.below(4) {
            messages::push(
                &mut output,
                self.number,
                self.sent,
                random.below(80) as usize,
            );
            self.sent += 1;
        }
        self.peer.send(&output);
        let answer = self.peer.wait_for(output.len());
        self.inspector.feed(&answer, &bench.seen_by_clients);
        let stands = self.inspector.count() == self.sent;
        if !stands && !bench.is_cut(self.number) {
            let lost = self.sent - self.inspector.count();
            bench.seen_by_clients.lose(u64::from(lost));
        }
        stands
    }

    fn finish(&self) {
        self.peer.finish();
        self.peer.wait_closed();
    }

    fn reset(&self, bench: &Bench) {
        bench.cut(self.number);
        self.peer.reset();
        self.peer.wait_closed();
    }
}
