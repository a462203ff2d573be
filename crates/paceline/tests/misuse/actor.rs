//! A thread of the application, which does one operation of its plan after the other.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::Arc,
    thread,
    time::Duration,
};

use paceline::{ConcurrentContext, Interest, Listener};

use crate::misuse::{
    attacks, deeds,
    ledger::{Id, Kind, Life},
    log::Log,
    ops::{interest, Near, Op, Script},
    process::{self, Peers},
    service::{Grouped, Service},
    wire::{Client, Far, Wire},
    world::{discard, World},
};

/// Does all operations; the log says which one is being done.
pub(crate) fn run(world: &Arc<World>, log: &Log, actor: usize, ops: &[Op]) {
    for op in ops {
        log.begin(actor, op);
        let outcome = std::panic::AssertUnwindSafe(|| perform(world, op));
        match std::panic::catch_unwind(outcome) {
            Ok(outcome) => log.end(actor, outcome),
            Err(_) => world
                .ledger
                .complain(format!("a panic comes out of {op:?}")),
        }
    }
    log.leave(actor);
}

fn perform(world: &Arc<World>, op: &Op) -> io::Result<()> {
    if world.simulation.is_some() && needs_kernel(op) {
        return Ok(());
    }
    match op {
        Op::Register {
            slot,
            at,
            near,
            interest,
            script,
        } => register(world, *slot, *at, *near, *interest, script),
        Op::Datagrams { slot, at } => datagrams(world, *slot, *at),
        Op::Dial { slot, at } => dial(world, *slot, *at),
        Op::Connect {
            slot,
            at,
            answers,
            script,
        } => connect(world, *slot, *at, *answers, script),
        Op::Send { slot, bytes } => with_client(world, *slot, |client| client.send(*bytes)),
        Op::Receive { slot } => receive(world, *slot),
        Op::HangUp { slot, how } => with_client(world, *slot, |client| client.hang_up(*how)),
        Op::Ask { slot, ask } => world.ask(*slot, *ask),
        Op::CloseAndWait { slot } => close_and_wait(world, *slot),
        Op::Member { slot, group, near } => member(world, *slot, *group, *near),
        Op::Group { group, script } => new_group(world, *group, script),
        Op::NotifyGroup { group } => match world.group(*group) {
            Some((group, _)) => group.notify(),
            None => Ok(()),
        },
        Op::CloseGroup { group } => match world.group(*group) {
            Some((group, _)) => group.close(),
            None => Ok(()),
        },
        Op::Post { at, work } => match world.pool(*at) {
            Some(pool) => world.post(&pool, work.clone()),
            None => Ok(()),
        },
        Op::After {
            timer,
            at,
            span,
            work,
        } => deeds::after(world, *timer, *at, *span, work),
        Op::Every {
            timer,
            at,
            period,
            panics_at,
        } => deeds::every(world, *timer, *at, *period, *panics_at),
        Op::Cancel { timer, waits } => deeds::cancel(world, *timer, *waits),
        Op::Enqueue { items, bombs } => deeds::enqueue(world, *items, *bombs),
        Op::Release { units } => deeds::release(world, *units),
        Op::CloseQueue => {
            let queue = world.queue.lock().unwrap().clone();
            queue.inspect(|queue| queue.close());
            Ok(())
        }
        Op::CloseSemaphore => {
            let semaphore = world.semaphore.lock().unwrap().clone();
            semaphore.inspect(|semaphore| semaphore.close());
            Ok(())
        }
        Op::Signals { times } => attacks::signals_at_once(*times),
        Op::Linger { slot, at } => attacks::linger(world, *slot, *at),
        Op::BadRing => attacks::bad_ring(),
        Op::Chain { at, links } => attacks::chain(world, *at, *links),
        Op::Signal { number } => signal_hook::low_level::raise(*number),
        Op::Ring { slot, at } => deeds::ring(world, *slot, *at),
        Op::Record { slot, records } => with_client(world, *slot, |it| it.record(*records)),
        Op::Observe { observer, at } => deeds::observe(world, *observer, *at),
        Op::EndObservation { observer } => {
            let observation = world.observers[*observer].lock().unwrap().take();
            drop(observation);
            Ok(())
        }
        Op::Look { at } => deeds::look(world, *at),
        Op::Join { at, span } => match world.pool(*at) {
            Some(pool) => pool.join_timeout(*span).map(drop),
            None => Ok(()),
        },
        Op::ByHand {
            at,
            stage,
            slot,
            ask,
        } => match world.pool(*at) {
            Some(pool) => deeds::by_hand(world, &pool, *stage, *slot, *ask),
            None => Ok(()),
        },
        Op::ShutDown { at, within } => {
            world.shut_down(*at, *within);
            Ok(())
        }
        Op::DropPool { at } => {
            world.drop_pool(*at);
            Ok(())
        }
        Op::Pause(span) => {
            thread::sleep(*span);
            Ok(())
        }
    }
}

/// A simulated set knows simulated streams alone.
fn needs_kernel(op: &Op) -> bool {
    matches!(
        op,
        Op::Datagrams { .. }
            | Op::Linger { .. }
            | Op::Chain { .. }
            | Op::Dial { .. }
            | Op::Connect { .. }
            | Op::Ring { .. }
    )
}

pub(crate) fn put(world: &World, slot: usize, client: Client) {
    let old = world.slots[slot].lock().unwrap().replace(client);
    drop(old);
}

fn with_client(world: &World, slot: usize, using: impl FnOnce(&mut Client)) -> io::Result<()> {
    let mut client = world.slots[slot].lock().unwrap();
    client.as_mut().map(using);
    Ok(())
}

fn receive(world: &World, slot: usize) -> io::Result<()> {
    let mut client = world.slots[slot].lock().unwrap();
    if let Some(Err(wrong)) = client.as_mut().map(Client::receive) {
        world.ledger.complain(wrong);
    }
    Ok(())
}

fn register(
    world: &Arc<World>,
    slot: usize,
    at: usize,
    near: Near,
    bits: u8,
    script: &Script,
) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let (wire, far) = Wire::pair(near, None, world.simulation.as_ref())?;
    let service = Service::new(world, script.clone(), "a registered handler");
    let id = service.life.id;
    // From here on its end may be outcome.
    world.ledger.accept(id);
    match pool.register(wire, interest(bits), service) {
        Ok(handle) => {
            if world.ledger.handle(id).is_none() {
                world.ledger.set_handle(id, handle);
            }
            put(
                world,
                slot,
                Client::new(far, Some(id)).awaited(near.lingers),
            );
            Ok(())
        }
        Err(rejected) => refuse(world, id, rejected.value, rejected.error),
    }
}

/// The pool has given back what it was given.
pub(crate) fn refuse<T>(world: &World, id: Id, value: T, error: io::Error) -> io::Result<()> {
    world.ledger.refuse(id);
    discard(value);
    Err(error)
}

fn dial(world: &World, slot: usize, at: usize) -> io::Result<()> {
    let listeners = world.listeners.lock().unwrap();
    let Some(address) = listeners.get(at).map(Listener::local_addr) else {
        return Ok(());
    };
    drop(listeners);
    let stream = std::net::TcpStream::connect_timeout(&address, Duration::from_secs(1))?;
    put(world, slot, Client::new(Far::tcp(stream)?, None));
    Ok(())
}

/// The pool connects to a listener of this very thread, which accepts, or is gone.
fn connect(
    world: &Arc<World>,
    slot: usize,
    at: usize,
    answers: bool,
    script: &Script,
) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let peers = if answers { Peers::One } else { Peers::Refused };
    let listener = std::net::TcpListener::bind(process::address_for(peers))?;
    let address = listener.local_addr()?;
    let listener = answers.then_some(listener);
    let service = Service::new(world, script.clone(), "a handler that connects");
    let id = service.life.id;
    world.ledger.accept(id);
    let handle = match pool.connect(address, Duration::from_secs(1), service) {
        Ok(handle) => handle,
        Err(rejected) => return refuse(world, id, rejected.value, rejected.error),
    };
    if world.ledger.handle(id).is_none() {
        world.ledger.set_handle(id, handle);
    }
    let Some(listener) = listener else {
        return Ok(());
    };
    listener.set_nonblocking(true)?;
    for _ in 0..50 {
        if let Ok((far, _)) = listener.accept() {
            put(world, slot, Client::new(Far::tcp(far)?, Some(id)));
            return Ok(());
        }
        thread::sleep(Duration::from_micros(100));
    }
    Ok(())
}

fn datagrams(world: &Arc<World>, slot: usize, at: usize) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let localhost = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let (near, far) = (UdpSocket::bind(localhost)?, UdpSocket::bind(localhost)?);
    far.connect(near.local_addr()?)?;
    far.set_nonblocking(true)?;
    let life = world.ledger.begin(Kind::Handler, "a concurrent handler");
    let id = life.id;
    world.ledger.accept(id);
    match pool.register_concurrent(near, Interest::READ, Datagrams(life)) {
        Ok(handle) => world.ledger.set_handle(id, handle),
        Err(rejected) => return refuse(world, id, rejected.value, rejected.error),
    }
    put(world, slot, Client::new(Far::Udp(far), Some(id)));
    Ok(())
}

struct Datagrams(Life);

impl paceline::ConcurrentHandler<UdpSocket> for Datagrams {
    fn ready(&self, cx: &mut ConcurrentContext<'_, UdpSocket>) -> io::Result<paceline::Next> {
        let mut buffer = [0; 64];
        let (count, from) = cx.try_read(|socket| socket.recv_from(&mut buffer))?;
        let _ = cx.source().send_to(&buffer[..count], from);
        Ok(paceline::Next::Continue)
    }

    fn closed(&self, _: paceline::Closed) {
        self.0.closed();
    }
}

fn close_and_wait(world: &World, slot: usize) -> io::Result<()> {
    let Some(id) = world.life(slot) else {
        return Ok(());
    };
    let Some(handle) = world.ledger.handle(id) else {
        return Ok(());
    };
    handle.close_and_wait()?;
    if !world.ledger.is_gone(id) {
        let text = format!("close_and_wait returned before the end of value {id}");
        world.ledger.complain(text);
    }
    Ok(())
}

fn new_group(world: &Arc<World>, at: usize, script: &Script) -> io::Result<()> {
    let Some(pool) = world.pool(at) else {
        return Ok(());
    };
    let grouped = Grouped::new(world, script.clone());
    let id = grouped.id();
    world.ledger.accept(id);
    match pool.group(grouped) {
        Ok(group) => {
            let old = world.groups[at].lock().unwrap().replace((group, id));
            // The group before it would wait for a member for ever.
            old.map(|(group, _)| group.close());
            Ok(())
        }
        Err(rejected) => refuse(world, id, rejected.value, rejected.error),
    }
}

fn member(world: &Arc<World>, slot: usize, group: usize, near: Near) -> io::Result<()> {
    let Some((group, _)) = world.group(group) else {
        return Ok(());
    };
    let life = world.ledger.begin(Kind::Value, "a member's source");
    let id = life.id;
    let (wire, far) = Wire::pair(near, Some(life), world.simulation.as_ref())?;
    match group.register(wire, Interest::READ) {
        Ok(handle) => {
            world.members.lock().unwrap().push(handle.clone());
            world.ledger.set_handle(id, handle);
            put(
                world,
                slot,
                Client::new(far, Some(id)).awaited(near.lingers),
            );
            Ok(())
        }
        Err(rejected) => refuse(world, id, rejected.value, rejected.error),
    }
}
