//! The registry over simulated sets, and over one that refuses.

use std::{io, os::fd::RawFd, sync::Arc, time::Duration};

use super::{Limits, Registry};
use crate::{
    dispatch::{Context, Handle, Hooks, Interest, Next},
    handle_set::{Answer, Event, HandleSet, Ready, Reports},
    simulated::Simulation,
    sync::Timestamp,
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
    };
    let (clock, hooks) = (world.clock_of_pool(), Hooks::default());
    Registry::new(set, clock, limits, hooks, Arc::default())
}

/// A handle that can't be armed for want of memory is taken for ready, and armed again after its visit; for any other
/// reason it is closed. Either way it does not rest.
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

/// Who is questioned because its time seems to be over, and is used before the answer, or is given another time, or none,
/// is questioned no more.
#[test]
fn a_question_is_withdrawn() {
    let uses: [fn(&Registry, &Handle); 3] = [
        |_, handle| handle.set_timeout(None).unwrap(),
        |_, handle| handle.set_timeout(Some(Duration::from_secs(9))).unwrap(),
        |registry, handle| registry.look_after(handle.key()),
    ];
    for each in uses {
        let world = Simulation::concurrent(1);
        let registry = registry(&world, world.set().unwrap());
        let (stream, _peer) = world.stream();
        let handler = |_: &mut Context<'_, _>| Ok(Next::Continue);
        let handle = registry.register(stream, Interest::READ, handler).unwrap();
        handle.set_timeout(Some(Duration::from_secs(1))).unwrap();
        let readiness = &registry.slots.get(0).unwrap().readiness;
        let state = readiness.question(readiness.look().generation()).unwrap();
        assert!(state.is_questioned());
        each(&registry, &handle);
        assert!(!readiness.look().is_questioned());
    }
}
