//! The registry over simulated sets, and over one that refuses.

use std::{io, os::fd::RawFd, sync::Arc, time::Duration};

use super::{Limits, Registry};
use crate::{
    dispatch::{Claim, Context, Duty, Handle, Hooks, Interest, Line, Next},
    handle_set::{Answer, Batch, Event, HandleSet, Ready, Reports},
    simulated::Simulation,
    sync::{Clock, Timestamp, VirtualClock},
};

/// Arms nothing, for a reason that no test can bring about in the kernel.
struct Refuses {
    set: Box<dyn HandleSet>,
    reason: i32,
}

impl HandleSet for Refuses {
    fn reports(&self) -> Reports {
        self.set.reports()
    }

    fn add(&self, descriptor: RawFd, key: u64) -> io::Result<()> {
        self.set.add(descriptor, key)
    }

    fn arm(&self, _: RawFd, _: u64, _: Ready) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(self.reason))
    }

    fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        self.set.remove(descriptor)
    }

    fn wait(&self, events: &mut Vec<Event>, until: Option<Timestamp>) -> io::Result<Answer> {
        self.set.wait(events, until)
    }

    fn wake(&self) {
        self.set.wake();
    }
}

fn registry(world: &Simulation, set: Box<dyn HandleSet>) -> Arc<Registry> {
    let limits = Limits {
        read_budget: 1,
        output_limit: 1,
        unread_calls: u32::MAX,
        nesting: 1,
        post_limit: 1,
        idle_timeout: None,
        linger_time: Duration::ZERO,
        linger_limit: 0,
    };
    let (clock, hooks) = (world.clock_of_pool(), Hooks::default());
    Registry::new(set, clock, limits, hooks, Arc::default())
}

/// A handle that can't be armed for want of memory is taken for ready, and armed again after its
/// visit; for any other reason it is closed. Either way it does not rest.
#[test]
fn want_of_memory_closes_nobody() {
    for (reason, closes) in [
        (libc::ENOMEM, false),
        (libc::ENOSPC, false),
        (libc::EBADF, true),
    ] {
        let world = Simulation::one_shot(1);
        let set = world.set().unwrap();
        let registry = registry(&world, Box::new(Refuses { set, reason }));
        let (stream, _peer) = world.stream();
        let handler = |_: &mut Context<'_, _>| Ok(Next::Continue);
        registry.register(stream, Interest::READ, handler).unwrap();
        let state = registry.slots.get(0).unwrap().readiness.look();
        assert!(state.is_due());
        assert_eq!(state.is_closing(), closes);
        assert_eq!(state.wanted().is_empty(), closes);
    }
}

/// H2: the wheel has marked a handle as overdue. Before its visit it is used, or is given another
/// time, or none: the visit finds that none of its times is over, and the handle lives on.
#[test]
fn the_mark_is_only_a_hint() {
    const SECOND: Duration = Duration::from_secs(1);
    let uses: [fn(&Registry, &Handle); 5] = [
        |_, handle| handle.set_timeout(None).unwrap(),
        |_, handle| handle.set_timeout(Some(9 * SECOND)).unwrap(),
        |registry, handle| registry.look_after(handle.key()),
        |_, handle| handle.set_deadline(None).unwrap(),
        |_, handle| handle.set_deadline(Some(9 * SECOND)).unwrap(),
    ];
    for (number, each) in uses.into_iter().enumerate() {
        let world = Simulation::new(1);
        let registry = registry(&world, world.set().unwrap());
        let (stream, peer) = world.stream();
        let handler = |_: &mut Context<'_, _>| Ok(Next::Continue);
        let handle = registry.register(stream, Interest::READ, handler).unwrap();
        match number {
            0..3 => handle.set_timeout(Some(SECOND)).unwrap(),
            _ => handle.set_deadline(Some(SECOND)).unwrap(),
        }
        world.clock().advance(SECOND);
        let mut line = Line::arranged(None);
        registry.expire(Batch::Whole, |index| line.append(index));
        let readiness = &registry.slots.get(0).unwrap().readiness;
        assert!(readiness.look().is_overdue());
        each(&registry, &handle);
        let claim = line.next(&registry, Some(Timestamp::PAST)).unwrap();
        drop(dispatched(claim.expect("it is lined up")));
        assert!(!readiness.look().is_overdue());
        assert!(!peer.is_closed_by_pool(), "use number {number}");
    }
}

/// H2: a look into the set has not brought everything. A handle that it did not bring may have
/// input, so it is not marked as idle before the next look. A deadline does not wait for that.
#[test]
fn half_a_look_finds_nobody_idle() {
    const SECOND: Duration = Duration::from_secs(1);
    for (has_deadline, expected) in [(false, false), (true, true)] {
        let world = Simulation::new(1);
        let registry = registry(&world, world.set().unwrap());
        let (stream, _peer) = world.stream();
        let handler = |_: &mut Context<'_, _>| Ok(Next::Continue);
        let handle = registry.register(stream, Interest::READ, handler).unwrap();
        if has_deadline {
            handle.set_deadline(Some(SECOND)).unwrap();
        } else {
            handle.set_timeout(Some(SECOND)).unwrap();
        }
        world.clock().advance(SECOND);
        let mut line = Line::arranged(None);
        registry.expire(Batch::Full, |index| line.append(index));
        let readiness = &registry.slots.get(0).unwrap().readiness;
        assert_eq!(readiness.look().is_overdue(), expected);
        world.clock().advance(Duration::from_millis(1));
        registry.expire(Batch::Whole, |index| line.append(index));
        assert!(readiness.look().is_overdue());
    }
}

fn dispatched(claim: Claim<'_>) -> Option<Claim<'_>> {
    let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
    let mut afterwards = claim.afterwards();
    let done = claim.dispatch(&clock, clock.now(), &Undisturbed, &mut afterwards);
    done.claim
}

struct Undisturbed;

impl Duty for Undisturbed {
    fn go_away(&self) {}
    fn come_back(&self) {}
    fn call_for_help(&self) {}
}
