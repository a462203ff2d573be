//! What holds at rest: nothing waits for a handler that could be called, and an idle pool does
//! nothing.

use std::{sync::Arc, thread, time::Duration};

use paceline::{observe::Snapshot, Pool};

use crate::misuse::{
    ledger::Kind,
    log::Log,
    ops::{Ask, Work},
    plan::Plan,
    process,
    wire::{Client, Far},
    world::{World, SLOTS},
};

/// So often a condition is asked for, with a millisecond between. Only a defect reaches the end.
const ATTEMPTS: u32 = 10_000;

/// So often the round looks whether a pool is idle: a thread that an elastic pool lets go, or
/// another program, disturbs some looks.
const LOOKS: u32 = 150;

/// Waits until it holds; says whether it does.
pub(crate) fn settle(mut holds: impl FnMut() -> bool) -> bool {
    (0..ATTEMPTS).any(|number| {
        let is_so = holds();
        if !is_so {
            thread::sleep(Duration::from_micros(if number < 100 { 50 } else { 1000 }));
        }
        is_so
    })
}

/// Brings the world to rest and checks it there.
pub(crate) fn check(plan: &Plan, log: &Log, world: &Arc<World>) -> Vec<String> {
    world.calm_down();
    cancel_timers(world);
    let mut wrong = Vec::new();
    let mut expect = |what: &str, holds: &mut dyn FnMut() -> bool| {
        log.stage(what);
        if !settle(holds) {
            wrong.push(format!("never: {what}"));
            eprintln!("{}\n{:?}", log.report(), world.slots);
        }
    };
    expect("S2: every act ends", &mut || world.acting() == 0);
    expect(
        "S2: every post, timer and item is done or dropped",
        &mut || world.ledger.left_of(Kind::Once) == 0,
    );
    for pool in (0..world.pools.len()).filter_map(|at| world.pool(at)) {
        let _ = world.post(&pool, Work::default());
    }
    expect("W1: every pool does what is posted", &mut || {
        world.ledger.left_of(Kind::Once) == 0
    });
    release_all(world);
    for slot in 0..SLOTS {
        let what = format!("H2: the connection in slot {slot} answers, or ends");
        let mut number = 0;
        expect(&what, &mut || {
            number += 1;
            has_settled(world, slot, number)
        });
    }
    expect("S2: every unit of the semaphore is handled", &mut || {
        let semaphore = world.semaphore.lock().unwrap().clone();
        world.pool(0).is_none() || semaphore.is_none_or(|semaphore| semaphore.value() == 0)
    });
    log.stage("L2: an idle pool does nothing");
    if plan.looks_whether_idle {
        wrong.extend(unrest(world));
    }
    wrong
}

/// Without times of its own nothing happens in a pool at rest.
fn cancel_timers(world: &World) {
    for timer in &world.timers {
        let timer = timer.lock().unwrap().take();
        timer.map(|timer| timer.cancel());
    }
}

/// Lets every handle be called for its input, and for nothing else.
fn release_all(world: &World) {
    for handle in world.ledger.handles() {
        for ask in [
            Ask::TimeOut(None),
            Ask::Deadline(None),
            Ask::Resume,
            Ask::Interest(1),
        ] {
            let _ = world.ask_handle(&handle, ask);
        }
    }
}

/// Whether the connection in a slot has answered a byte that was sent at rest, or has ended.
fn has_settled(world: &World, slot: usize, number: u32) -> bool {
    let id = world.life(slot);
    let mut guard = world.slots[slot].lock().unwrap();
    let Some(client) = guard.as_mut() else {
        return true;
    };
    if let Err(wrong) = client.receive() {
        world.ledger.complain(wrong);
        return true;
    }
    let Some(id) = id else {
        // The listener never made a handler: then it has refused the connection. A listener that is
        // closed in the middle of a handshake leaves the client to find that out when it sends.
        probe(client, number);
        return client.saw_end || matches!(client.far, Far::None);
    };
    if world.ledger.has_ended(id) {
        return true;
    }
    if client.is_half || client.saw_end {
        // A socket for datagrams does not see its peer's end.
        return client.is_datagrams;
    }
    probe(client, number);
    match &client.far {
        Far::Udp(_) => client.got > 0,
        Far::Ring(_) => client.sent == *world.records.lock().unwrap().entry(id).or_default(),
        _ => client.is_probed && client.got == client.sent,
    }
}

/// Sends one byte more, as soon as there is room for it.
fn probe(client: &mut Client, number: u32) {
    let is_lossy = matches!(client.far, Far::Udp(_));
    if client.is_probed && !(is_lossy && number % 100 == 0) {
        return;
    }
    let before = client.sent;
    client.send(1);
    client.record(1);
    client.is_probed = client.sent > before;
}

/// What the pools do in every look, though they are idle.
fn unrest(world: &World) -> Option<String> {
    let mut last = String::new();
    for _ in 0..LOOKS {
        last = look(world)?;
    }
    Some(format!("L2: an idle pool does something: {last}"))
}

/// `None`: no counter moves, and hardly any time is used.
fn look(world: &World) -> Option<String> {
    let pools = (0..world.pools.len()).filter_map(|at| world.pool(at));
    let pools: Vec<_> = pools.collect();
    let (counters, used) = (counters(&pools), process::time_used());
    thread::sleep(Duration::from_millis(15));
    let (after, used) = (
        self::counters(&pools),
        process::time_used().saturating_sub(used),
    );
    let is_idle = counters == after && used < Duration::from_millis(5);
    (!is_idle).then(|| format!("{counters:?} to {after:?}, {used:?}"))
}

fn counters(pools: &[Pool]) -> Vec<[u64; 8]> {
    let of = |it: Snapshot| {
        [
            it.promotions,
            it.wakes,
            it.ticks,
            it.spins,
            it.stale_events,
            it.timers,
            it.leads_taken_back,
            it.handed,
        ]
    };
    pools.iter().map(|pool| of(pool.snapshot())).collect()
}

/// Drops what actors have left.
pub(crate) fn empty(world: &World) {
    world
        .slots
        .iter()
        .for_each(|slot| drop(slot.lock().unwrap().take()));
    world
        .groups
        .iter()
        .for_each(|group| drop(group.lock().unwrap().take()));
    world
        .timers
        .iter()
        .for_each(|timer| drop(timer.lock().unwrap().take()));
    for observer in &world.observers {
        let observation = observer.lock().unwrap().take();
        drop(observation);
    }
    drop(world.queue.lock().unwrap().take());
    drop(world.semaphore.lock().unwrap().take());
}
