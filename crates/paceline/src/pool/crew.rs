//! Who is in the pool, and the wait for others to leave.

use std::{io, sync::Arc};

use crate::{
    promotion::{Seat, MOST_THREADS},
    sync::{
        lock,
        thread::{self, ThreadId},
        Clock, Mutex, Parker, Timestamp,
    },
};

/// The threads of a pool, its own and those that joined.
#[derive(Debug, Default)]
pub(crate) struct Crew {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    members: Vec<Member>,
    /// The index of the next to enter.
    next: usize,
    /// Who waits for others to leave.
    waiting: Vec<Arc<Parker>>,
}

#[derive(Debug)]
struct Member {
    index: usize,
    /// `None` until a spawned thread runs.
    thread: Option<ThreadId>,
    name: String,
}

impl Crew {
    /// A place for one more thread, which need not run yet.
    pub(super) fn enlist(&self) -> io::Result<Arc<Seat>> {
        let mut list = lock(&self.list);
        if list.members.len() >= MOST_THREADS {
            let text = format!("enter: the pool has {MOST_THREADS} threads already");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let index = list.next;
        list.next += 1;
        list.members.push(Member {
            index,
            thread: None,
            name: format!("thread {index}, not running yet"),
        });
        Ok(Seat::new(index))
    }

    /// The calling thread has the place with this index.
    pub(super) fn arrived(&self, index: usize) {
        let current = thread::current();
        let name = current.name().unwrap_or("an unnamed thread");
        let name = format!("{name} (thread {index})");
        for member in &mut lock(&self.list).members {
            if member.index == index {
                member.thread = Some(current.id());
                member.name.clone_from(&name);
            }
        }
    }

    /// Gives a place up, and tells those who wait for it.
    pub(crate) fn leave(&self, index: usize) {
        let waiting = {
            let mut list = lock(&self.list);
            list.members.retain(|member| member.index != index);
            list.waiting.iter().for_each(|parker| parker.post(1));
            list.waiting.clone()
        };
        waiting.iter().for_each(|parker| parker.wake());
    }

    /// Waits until no thread but this one is in the pool, or until `deadline`.
    pub(super) fn wait_for_others(&self, clock: &Clock, deadline: Timestamp) {
        let parker = Arc::new(Parker::new());
        lock(&self.list).waiting.push(Arc::clone(&parker));
        loop {
            // Cleared before the look: a leave that comes after the look ends the sleep.
            parker.clear();
            if self.others().is_empty() || clock.has_passed(Some(deadline)) {
                break;
            }
            clock.sleep(&parker, Some(deadline));
        }
        lock(&self.list)
            .waiting
            .retain(|other| !Arc::ptr_eq(other, &parker));
    }

    /// The indices and names of the threads in the pool, but for this one.
    pub(super) fn others(&self) -> Vec<(usize, String)> {
        let me = thread::current().id();
        lock(&self.list)
            .members
            .iter()
            .filter(|member| member.thread != Some(me))
            .map(|member| (member.index, member.name.clone()))
            .collect()
    }
}
