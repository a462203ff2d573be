//! A pool reads the connection, for handlers of its own: they call, and their threads serve the
//! pool while they wait.
//!
//! ```text
//!   the pool's leader ---> the connection's handle is ready ---> [Reader::ready]
//!                                                         the lead is open: it leads, |
//!                                                     reads what is there, and leaves |
//!   a waiting handler <------------------ recalled -----------------------------------'
//!
//!   another thread leads (outside of any handler): the reader turns away, and is called when that
//!   one leaves
//! ```
//!
//! The connection keeps its own lead, so both kinds of callers can share it. A reader that finds
//! the lead held records that it was *turned away*, and tries once more; a thread that opens the
//! lead checks for that record afterwards, and has the reader called. The second of the two sees
//! the first, so nothing is left unread (`models/pooled.rs`).

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, OnceLock, Weak},
};

use super::{
    calls::Key,
    connect::Waiter,
    deadline::Patience,
    driver::{Joined, Wants},
    lead::Arrival,
    leading::Leading,
    line::Line,
    link::{Link, Output},
    protocol::Protocol,
};
use crate::{
    dispatch::{
        Closed, Context, Errand, EventHandler, Handle, InHandler, Interest, Next, Recall, Registry,
        Returned, Serve,
    },
    sync::{
        atomic::{AtomicBool, Ordering},
        lock, Mutex, Parker, Timestamp,
    },
};

/// So often a thread reads that is about to wait; then others may.
const READS_AT_ONCE: usize = 64;

/// Gives a connection to a pool.
type Register = Box<dyn Fn(&Arc<dyn Line>) -> io::Result<Attached> + Send + Sync>;

/// A connection in a pool.
struct Attached {
    line: Arc<dyn Line>,
    handle: Handle,
}

impl Attached {
    fn is(&self, line: &Arc<dyn Line>) -> bool {
        Arc::ptr_eq(&self.line, line)
    }
}

/// The pool that reads a connection, if one does.
#[derive(Default)]
pub(super) struct Pooled {
    register: OnceLock<Register>,
    /// The connection in the pool, while it is there.
    attached: Mutex<Option<Attached>>,
    /// A reader found the lead held.
    turned_away: AtomicBool,
}

impl Pooled {
    /// Whether handlers may wait here.
    pub(super) fn is_used(&self) -> bool {
        self.register.get().is_some()
    }

    fn handle(&self) -> Option<Handle> {
        let attached = lock(&self.attached);
        attached.as_ref().map(|it| it.handle.clone())
    }

    /// There is a connection: the pool, if there is one, reads it.
    pub(super) fn connected(&self, line: &Arc<dyn Line>) -> io::Result<()> {
        let Some(register) = self.register.get() else {
            return Ok(());
        };
        let is_there = lock(&self.attached).as_ref().is_some_and(|it| it.is(line));
        if is_there {
            return Ok(());
        }
        match register(line) {
            Ok(attached) => self.reads(attached),
            // The pool has ended: callers read for themselves, as if there had been none.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// The connection is in the pool. What came before may have gone unseen.
    fn reads(&self, attached: Attached) {
        *lock(&self.attached) = Some(attached);
        self.call_reader();
    }

    /// The pool reads this connection no more.
    fn reads_no_more(&self, line: &Arc<dyn Line>) {
        let mut attached = lock(&self.attached);
        if attached.as_ref().is_some_and(|it| it.is(line)) {
            *attached = None;
        }
    }

    /// There may be something to be read that the reader does not hear of: it is called when the
    /// lead is open.
    pub(super) fn turn_away(&self) {
        self.turned_away.store(true, Ordering::Release);
    }

    /// The lead of the connection is open: a reader that was turned away may read now.
    pub(super) fn left_open(&self) {
        if self.is_used() && self.turned_away.swap(false, Ordering::AcqRel) {
            self.call_reader();
        }
    }

    /// Has the reader called.
    pub(super) fn call_reader(&self) {
        // Without one there is no reader to call.
        let _ = self.handle().map(|handle| handle.notify());
    }
}

impl Drop for Pooled {
    /// No caller is left: the pool lets go of the connection.
    fn drop(&mut self) {
        self.call_reader();
    }
}

impl<P: Protocol> Link<P> {
    /// Has a pool read this connection, and those that come after it.
    pub(super) fn attach(self: &Arc<Self>, registry: &Weak<Registry>) -> io::Result<()> {
        let (registry, link) = (Weak::clone(registry), Arc::downgrade(self));
        let register = move |line: &Arc<dyn Line>| {
            let registry = registry.upgrade().ok_or(io::ErrorKind::BrokenPipe)?;
            let line = Arc::clone(line);
            let reader = Reader {
                link: Weak::clone(&link),
                line: Arc::clone(&line),
                waits_for_room: false,
            };
            let handle = registry.register(line.descriptor()?, Interest::READ, reader)?;
            Ok(Attached { line, handle })
        };
        let taken = || {
            let text = "attach a connection: a pool reads it already";
            io::Error::new(io::ErrorKind::AlreadyExists, text)
        };
        // While nothing is attached no other connection takes the place of this one.
        let line = lock(&self.line);
        if self.pooled.is_used() {
            return Err(taken());
        }
        let attached = line.as_ref().map(&register).transpose()?;
        if self.pooled.register.set(Box::new(register)).is_err() {
            return Err(taken());
        }
        // Before the line is let go: the thread that connects anew finds it.
        attached.into_iter().for_each(|it| self.pooled.reads(it));
        Ok(())
    }

    /// Reads once what is there, and gives every caller its part. `WouldBlock`: nothing is there,
    /// or another thread reads.
    fn read_some(&self) -> io::Result<()> {
        match self.take_or_turn_away() {
            Arrival::Leads => Leading::new(self).read_once(),
            Arrival::Follows => Err(io::ErrorKind::WouldBlock.into()),
            Arrival::Lost => Ok(()),
        }
    }

    fn take_or_turn_away(&self) -> Arrival {
        match self.lead.take() {
            Arrival::Follows => {
                self.pooled.turn_away();
                self.lead.take()
            }
            other => other,
        }
    }

    /// Writes what was kept. Whether there is more, and room for it; `WouldBlock`: no room.
    fn write_kept(&self) -> io::Result<bool> {
        if !self.outbound.pick_up() {
            return Ok(false);
        }
        match self.write_out() {
            Output::Full => Err(io::ErrorKind::WouldBlock.into()),
            Output::Paused => Ok(true),
            Output::Done => Ok(false),
        }
    }

    /// Wakes the caller of slot `index` from its wait on this connection, asleep or leading: it
    /// asks whether the wait was called off. The caller of this has called it off before.
    ///
    /// A sleeper takes its message before it asks, and a leader marks the lead word as waiting
    /// before it asks. So each finds the wait called off, or is woken.
    pub(super) fn rouse(&self, index: u32) {
        let parker = &self.calls.slots.at(index).parker;
        parker.post(1);
        parker.wake();
        let call = self.lead.call_leader();
        self.follow(call);
    }

    /// The same, for others to call.
    fn rouser(self: &Arc<Self>, index: u32) -> Recall {
        let link = Arc::downgrade(self);
        Recall::new(Arc::new(move || {
            if let Some(link) = link.upgrade() {
                link.rouse(index);
            }
        }))
    }

    /// Makes sure, inside a handler, that there is a connection. Its thread is away meanwhile. The
    /// end of its pool ends the wait for another thread that makes the connection.
    #[cold]
    pub(super) fn connect_in(
        &self,
        cx: &mut impl InHandler,
        until: Option<Timestamp>,
    ) -> io::Result<()> {
        let parker = &Arc::new(Parker::new());
        let sleeper = Arc::clone(parker);
        let rouser = Recall::new(Arc::new(move || {
            sleeper.post(1);
            sleeper.wake();
        }));
        cx.duty().blocking_until_closed(&rouser, |is_closed| {
            let patience = Patience::until(until).unless(is_closed);
            self.connect_again(Waiter { parker, patience })
        })
    }

    /// Waits, inside a handler, until the call has an outcome or its time is over.
    ///
    /// # Errors
    /// `BrokenPipe`: its pool was closed first. Or the thread can't wait there.
    pub(super) fn wait_in(
        self: &Arc<Self>,
        cx: &mut impl InHandler,
        key: Key,
        until: Option<Timestamp>,
        serve: Serve,
    ) -> io::Result<Joined<'_, P>> {
        while !self.is_told(key) && !self.clock.has_passed(until) {
            let Some(handle) = self.pooled.handle().filter(|_| serve != Serve::Nothing) else {
                return self.wait_away(cx, key, until, serve);
            };
            match self.wait_and_serve(cx, key, until, serve, &handle)? {
                Returned::Done => {}
                Returned::TimedOut => break,
                Returned::Closing if self.is_told(key) => break,
                Returned::Closing => return Err(pool_is_closed()),
            }
        }
        Ok(self.told(key).unwrap_or(Joined::TimedOut))
    }

    /// Serves the pool until the call has an outcome. The connection is read by the pool of
    /// `handle`.
    fn wait_and_serve(
        &self,
        cx: &mut impl InHandler,
        key: Key,
        until: Option<Timestamp>,
        serve: Serve,
        handle: &Handle,
    ) -> io::Result<Returned> {
        let slot = self.calls.slot(key);
        *lock(&slot.recall) = Some(cx.recall()?);
        // What came before this thread could be recalled.
        let mut reads = 0..READS_AT_ONCE;
        while reads.next().is_some() && !self.is_lost() && self.read_some().is_ok() {}
        let errand = Errand {
            within: until.map(|until| until.since(self.clock.now())),
            serve,
            own: Some(handle),
        };
        let is_done = || self.is_told(key) || self.pooled.handle().is_none();
        let returned = cx.serve_until(errand, is_done);
        *lock(&slot.recall) = None;
        returned
    }

    /// This thread is away, and leads or sleeps on the connection. The end of its pool ends that,
    /// unless it was to serve nothing anyway.
    fn wait_away(
        self: &Arc<Self>,
        cx: &mut impl InHandler,
        key: Key,
        until: Option<Timestamp>,
        serve: Serve,
    ) -> io::Result<Joined<'_, P>> {
        let patience = Patience::until(until);
        if serve == Serve::Nothing {
            let join = || self.join(key, Wants::Data, patience);
            return Ok(cx.duty().blocking(join));
        }
        let join = |is_closed: &dyn Fn() -> bool| match self.join(
            key,
            Wants::Data,
            patience.unless(is_closed),
        ) {
            Joined::TimedOut if is_closed() => Err(pool_is_closed()),
            told => Ok(told),
        };
        let rouser = self.rouser(key.index);
        cx.duty().blocking_until_closed(&rouser, join)
    }
}

/// Why a wait inside a handler was called off.
pub(super) fn pool_is_closed() -> io::Error {
    let text = "wait for a reply: the pool is shut down";
    io::Error::new(io::ErrorKind::BrokenPipe, text)
}

/// The connection as a handle of the pool.
struct Reader<P: Protocol> {
    link: Weak<Link<P>>,
    line: Arc<dyn Line>,
    /// Output is kept, and the socket had no room for it.
    waits_for_room: bool,
}

impl<P: Protocol> Reader<P> {
    /// Whether this is the connection that callers use.
    fn is_current(&self, link: &Link<P>) -> bool {
        let line = lock(&link.line);
        line.as_ref()
            .is_some_and(|line| Arc::ptr_eq(line, &self.line))
    }
}

impl<P: Protocol> EventHandler<OwnedFd> for Reader<P> {
    fn ready(&mut self, cx: &mut Context<'_, OwnedFd>) -> io::Result<Next> {
        let Some(link) = self.link.upgrade().filter(|link| self.is_current(link)) else {
            return Ok(Next::Close);
        };
        let written = if link.outbound.is_kept() {
            cx.try_write(|_| link.write_kept())
        } else {
            Ok(false)
        };
        if written.is_err() != self.waits_for_room {
            self.waits_for_room = written.is_err();
            cx.handle().set_interest(if self.waits_for_room {
                Interest::READ | Interest::WRITE
            } else {
                Interest::READ
            })?;
        }
        let read = cx.try_read(|_| link.read_some());
        match written {
            _ if !self.is_current(&link) => Ok(Next::Close),
            Ok(true) => Ok(Next::Again),
            _ => read.map(|()| Next::Continue),
        }
    }

    /// The pool no longer reads the connection: waiting callers read it in another way.
    fn closed(&mut self, _: Closed) {
        if let Some(link) = self.link.upgrade() {
            link.pooled.reads_no_more(&self.line);
            link.calls.recall_all();
        }
    }
}
