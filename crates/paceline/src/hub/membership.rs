//! The threads in the pool, and the wait for others to leave.

use std::{io, sync::Arc, time::Duration};

use crate::{
    observe::{Board, Row},
    promotion::{Seat, MOST_THREADS},
    sync::{
        lock,
        thread::{self, ThreadId},
        Clock, Mutex, Parker, Timestamp,
    },
};

/// How long a thread waits for those that may come, before it asks again.
const ASKS_AGAIN: Duration = Duration::from_millis(1);

/// The threads of a pool, its own and those that joined.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    list: Mutex<List>,
    /// Where they show what they do, if there is one.
    board: Option<Arc<Board>>,
}

#[derive(Debug, Default)]
struct List {
    members: Vec<Member>,
    /// The index of the next to enter.
    next: usize,
    /// The pool ends: it spawns no more threads.
    is_closing: bool,
    /// Threads that serve several pools do not enter this one any more.
    visits_are_over: bool,
    /// The threads that wait for others to leave.
    waiting: Vec<Arc<Parker>>,
}

#[derive(Debug)]
struct Member {
    index: usize,
    /// `None` until a thread was spawned.
    thread: Option<ThreadId>,
    name: String,
    /// It waits for the others itself, so no thread need wait for it.
    waits: bool,
    /// It serves several pools, and is not in this one now.
    is_elsewhere: bool,
}

/// A thread's place in the membership. Dropping it does what `end` says.
#[derive(Debug)]
pub(crate) struct MemberGuard<'c> {
    membership: &'c Membership,
    index: usize,
    end: End,
}

/// What the end of a membership means.
#[derive(Clone, Copy, Debug)]
enum End {
    Leaves,
    /// It keeps its place, and goes to another pool.
    StepsOut,
}

impl Drop for MemberGuard<'_> {
    fn drop(&mut self) {
        match self.end {
            End::Leaves => self.membership.leave(self.index),
            End::StepsOut => self.membership.step_out(self.index),
        }
    }
}

impl Membership {
    pub(crate) fn new(board: Option<Arc<Board>>) -> Self {
        let list = Mutex::default();
        Self { list, board }
    }

    pub(crate) fn board(&self) -> Option<&Arc<Board>> {
        self.board.as_ref()
    }

    /// A place for a guest.
    pub(crate) fn enlist(&self, priority: u8) -> io::Result<Arc<Seat>> {
        let index = self.add(&mut lock(&self.list))?;
        Ok(self.seat(index, priority))
    }

    /// A place for a thread that serves several pools. It is elsewhere until it steps in.
    pub(crate) fn enlist_visitor(&self) -> io::Result<Arc<Seat>> {
        let mut list = lock(&self.list);
        let index = self.add(&mut list)?;
        list.set_elsewhere(index, true);
        drop(list);
        Ok(self.seat(index, 0))
    }

    fn seat(&self, index: usize, priority: u8) -> Arc<Seat> {
        let seat = Seat::new(index, priority);
        seat.show_on(self.row(index));
        seat
    }

    /// A place for one of the pool's own threads, which does not run yet. There is none once the
    /// pool ends: a list of the threads that are left is then complete.
    pub(crate) fn hire(&self) -> io::Result<usize> {
        let mut list = lock(&self.list);
        if list.is_closing {
            let text = "spawn a thread: the pool is shutting down";
            Err(io::Error::new(io::ErrorKind::BrokenPipe, text))
        } else {
            self.add(&mut list)
        }
    }

    /// One more, with a row on the board.
    fn add(&self, list: &mut List) -> io::Result<usize> {
        let index = list.add()?;
        self.board.iter().for_each(|board| board.add(index));
        Ok(index)
    }

    /// The row of the thread with this index.
    pub(crate) fn row(&self, index: usize) -> Option<Arc<Row>> {
        self.board.as_ref()?.row(index)
    }

    /// The pool ends: no thread is hired any more.
    pub(crate) fn stop_hiring(&self) {
        lock(&self.list).is_closing = true;
    }

    pub(crate) fn is_closing(&self) -> bool {
        lock(&self.list).is_closing
    }

    /// How many are in the pool now.
    pub(crate) fn len(&self) -> usize {
        lock(&self.list).here().count()
    }

    /// The threads that run, and those that are about to.
    pub(crate) fn thread_ids(&self) -> Vec<ThreadId> {
        let list = lock(&self.list);
        list.here().filter_map(|it| it.thread).collect()
    }

    /// The place with this index is this thread's.
    pub(crate) fn name(&self, index: usize, thread: ThreadId) {
        for member in &mut lock(&self.list).members {
            if member.index == index {
                member.thread = Some(thread);
            }
        }
    }

    /// Whether a thread has the place with this index, here or elsewhere.
    pub(crate) fn has(&self, index: usize) -> bool {
        let list = lock(&self.list);
        list.members.iter().any(|member| member.index == index)
    }

    /// The calling thread has the place with this index.
    pub(crate) fn arrived(&self, index: usize) -> MemberGuard<'_> {
        let current = thread::current();
        let name = current.name().unwrap_or("an unnamed thread");
        self.board
            .iter()
            .for_each(|board| board.arrived(index, name));
        let name = format!("{name} (thread {index})");
        for member in &mut lock(&self.list).members {
            if member.index == index {
                member.thread = Some(current.id());
                member.name.clone_from(&name);
            }
        }
        let (membership, end) = (self, End::Leaves);
        MemberGuard {
            membership,
            index,
            end,
        }
    }

    /// The thread with this index, which serves several pools, is in this one until that is
    /// dropped. `None`: the pool has ended.
    pub(crate) fn step_in(&self, index: usize) -> Option<MemberGuard<'_>> {
        let mut list = lock(&self.list);
        if list.visits_are_over {
            return None;
        }
        list.set_elsewhere(index, false);
        let (membership, end) = (self, End::StepsOut);
        Some(MemberGuard {
            membership,
            index,
            end,
        })
    }

    /// It goes elsewhere.
    pub(crate) fn step_out(&self, index: usize) {
        self.change(|list| list.set_elsewhere(index, true));
    }

    /// No thread steps in any more: those in the pool after this are all there will ever be.
    pub(crate) fn end_visits(&self) {
        lock(&self.list).visits_are_over = true;
    }

    /// Gives a place up, and wakes the threads that wait for it.
    pub(crate) fn leave(&self, index: usize) {
        self.board.iter().for_each(|board| board.remove(index));
        self.change(|list| list.members.retain(|member| member.index != index));
    }

    /// Waits until no thread but this one is in the pool, and none `may_come`, or until `deadline`.
    /// It asks again whenever a thread leaves, or steps out.
    pub(crate) fn wait_for_others(
        &self,
        clock: &Clock,
        deadline: Timestamp,
        may_come: impl Fn() -> bool,
    ) {
        let parker = Arc::new(Parker::new());
        self.change(|list| {
            list.waiting.push(Arc::clone(&parker));
            list.set_waits(true);
        });
        loop {
            // Cleared before the look: a leave that comes after the look ends the sleep.
            parker.take();
            let is_alone = self.others().is_empty();
            if is_alone && !may_come() || clock.has_passed(Some(deadline)) {
                break;
            }
            // A thread that may come may also be kept from it, which wakes no waiter.
            let until = if is_alone {
                deadline.min(clock.now().after(ASKS_AGAIN))
            } else {
                deadline
            };
            clock.sleep(&parker, Some(until));
        }
        self.change(|list| {
            list.waiting.retain(|other| !Arc::ptr_eq(other, &parker));
            list.set_waits(false);
        });
    }

    /// The indices and names of the threads in the pool, but for this one and those that wait for
    /// the others too.
    pub(crate) fn others(&self) -> Vec<(usize, String)> {
        let me = thread::current().id();
        lock(&self.list)
            .here()
            .filter(|member| member.thread != Some(me) && !member.waits)
            .map(|member| (member.index, member.name.clone()))
            .collect()
    }

    /// Changes the list, and makes every waiting thread check again.
    fn change(&self, change: impl FnOnce(&mut List)) {
        let waiting = {
            let mut list = lock(&self.list);
            change(&mut list);
            list.waiting.iter().for_each(|parker| parker.post(1));
            list.waiting.clone()
        };
        waiting.iter().for_each(|parker| parker.wake());
    }
}

impl List {
    /// One more thread, which need not run yet. Its index.
    fn add(&mut self) -> io::Result<usize> {
        if self.members.len() >= MOST_THREADS {
            let text = format!("enter: the pool has {MOST_THREADS} threads already");
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
        }
        let index = self.next;
        self.next += 1;
        self.members.push(Member {
            index,
            thread: None,
            name: format!("thread {index}, not running yet"),
            waits: false,
            is_elsewhere: false,
        });
        Ok(index)
    }

    fn set_elsewhere(&mut self, index: usize, is_elsewhere: bool) {
        let mut members = self.members.iter_mut();
        let member = members.find(|member| member.index == index);
        member
            .into_iter()
            .for_each(|it| it.is_elsewhere = is_elsewhere);
    }

    /// All but those that are elsewhere.
    fn here(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| !member.is_elsewhere)
    }

    /// The calling thread, if it is a member, waits for the others or does no more.
    fn set_waits(&mut self, waits: bool) {
        let me = thread::current().id();
        for member in &mut self.members {
            if member.thread == Some(me) {
                member.waits = waits;
            }
        }
    }
}
