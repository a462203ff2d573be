//! A pool reads the connection, for handlers of its own: they call, and their threads serve the pool while they wait.
//!
//! ```text
//!   the pool's leader ---> the connection's handle is ready ---> [Reader::ready]
//!                                                                     | nobody leads the connection: it leads,
//!                                                                     | reads what is there, and leaves
//!   a handler that waits <------------- recalled ---------------------'
//!
//!   somebody else leads it (a thread that is in no handler): the reader turns away, and is called when that one leaves
//! ```
//!
//! The connection keeps its own lead, so both kinds of callers can share it. A reader that finds somebody leading says
//! that it was *turned away*, and asks once more; whoever opens the lead looks for that afterwards, and has the reader
//! called. Of the two the second sees the first, so nothing is left unread.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, OnceLock, Weak},
};

use super::{
    calls::Key,
    driver::{Leading, Wants},
    lead::Arrival,
    line::Line,
    link::Link,
    protocol::Protocol,
};
use crate::{
    dispatch::{
        Closed, Context, Errand, EventHandler, Handle, InHandler, Interest, Next, Registry,
        Returned, Serve,
    },
    sync::{
        atomic::{AtomicBool, Ordering},
        lock, Mutex, Timestamp,
    },
};

/// So often a thread reads that is about to wait; then others may.
const READS_AT_ONCE: usize = 64;

/// Gives a connection to a pool.
type Register = Box<dyn Fn(OwnedFd) -> io::Result<Handle> + Send + Sync>;

/// The pool that reads a connection, if one does.
#[derive(Default)]
pub(super) struct Pooled {
    register: OnceLock<Register>,
    /// The connection in the pool, while it is there.
    handle: Mutex<Option<Handle>>,
    /// A reader found somebody leading.
    turned_away: AtomicBool,
}

impl Pooled {
    /// Whether handlers may wait here.
    pub(super) fn is_used(&self) -> bool {
        self.register.get().is_some()
    }

    fn handle(&self) -> Option<Handle> {
        lock(&self.handle).clone()
    }

    /// There is a connection: the pool, if there is one, reads it.
    pub(super) fn connected(&self, line: &Arc<dyn Line>) -> io::Result<()> {
        let Some(register) = self.register.get() else {
            return Ok(());
        };
        let handle = register(line.descriptor()?)?;
        *lock(&self.handle) = Some(handle);
        self.call_reader();
        Ok(())
    }

    /// The lead of the connection is open: a reader that was turned away may read now.
    pub(super) fn left_open(&self) {
        if self.is_used() && self.turned_away.swap(false, Ordering::AcqRel) {
            self.call_reader();
        }
    }

    /// Has the reader called.
    pub(super) fn call_reader(&self) {
        // Without one there is nobody to call.
        let _ = self.handle().map(|handle| handle.notify());
    }
}

impl<P: Protocol> Link<P> {
    /// Has a pool read this connection, and those that come after it.
    pub(super) fn attach(self: &Arc<Self>, registry: &Weak<Registry>) -> io::Result<()> {
        let (registry, link) = (Weak::clone(registry), Arc::downgrade(self));
        let register = move |descriptor: OwnedFd| {
            let registry = registry.upgrade().ok_or(io::ErrorKind::BrokenPipe)?;
            let reader = Reader {
                link: Weak::clone(&link),
                waits_for_room: false,
            };
            let handle = registry.register(descriptor, Interest::READ, reader);
            handle.map_err(io::Error::from)
        };
        if self.pooled.register.set(Box::new(register)).is_err() {
            let text = "attach a connection: a pool reads it already";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
        }
        let line = lock(&self.line).clone();
        line.map_or(Ok(()), |line| self.pooled.connected(&line))
    }

    /// Reads once what is there, and gives everyone what has come for it. `WouldBlock`: nothing is, or somebody else
    /// reads.
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
                self.pooled.turned_away.store(true, Ordering::Release);
                self.lead.take()
            }
            other => other,
        }
    }

    /// Writes what was kept. `WouldBlock`: there is more.
    fn write_kept(&self) -> io::Result<()> {
        if self.outbound.pick_up() {
            self.write();
        }
        match self.outbound.is_kept() {
            true => Err(io::ErrorKind::WouldBlock.into()),
            false => Ok(()),
        }
    }

    /// Waits, inside a handler, until the call is told something, its time is over, or its pool is.
    pub(super) fn wait_in(
        &self,
        cx: &mut impl InHandler,
        key: Key,
        until: Option<Timestamp>,
        serve: Serve,
    ) -> io::Result<()> {
        let slot = self.calls.slot(key);
        while !self.is_told(key) && !self.clock.has_passed(until) {
            let read_by = self.pooled.handle().filter(|_| serve != Serve::Nothing);
            let Some(handle) = read_by else {
                let wait = || drop(self.join(key, Wants::Data, until));
                cx.duty().blocking(wait);
                return Ok(());
            };
            *lock(&slot.recall) = Some(cx.recall()?);
            // What came before this thread could be recalled.
            let mut reads = 0..READS_AT_ONCE;
            while reads.next().is_some() && !self.is_lost() && self.read_some().is_ok() {}
            let errand = Errand {
                within: until.map(|until| until.since(self.clock.now())),
                serve,
                own: Some(&handle),
            };
            let is_done = || self.is_told(key) || self.pooled.handle().is_none();
            let returned = cx.serve_until(errand, is_done);
            *lock(&slot.recall) = None;
            match returned? {
                Returned::Done => {}
                Returned::TimedOut => return Ok(()),
                Returned::Closing => {
                    let text = "wait for a reply: the pool is shut down";
                    return Err(io::Error::new(io::ErrorKind::BrokenPipe, text));
                }
            }
        }
        Ok(())
    }
}

/// The connection as a handle of the pool.
struct Reader<P: Protocol> {
    link: Weak<Link<P>>,
    /// Output is kept, and the socket had no room for it.
    waits_for_room: bool,
}

impl<P: Protocol> EventHandler<OwnedFd> for Reader<P> {
    fn ready(&mut self, cx: &mut Context<'_, OwnedFd>) -> io::Result<Next> {
        let Some(link) = self.link.upgrade().filter(|link| !link.is_lost()) else {
            return Ok(Next::Close);
        };
        let is_kept = link.outbound.is_kept() && cx.try_write(|_| link.write_kept()).is_err();
        if is_kept != self.waits_for_room {
            self.waits_for_room = is_kept;
            cx.handle().set_interest(match is_kept {
                true => Interest::READ | Interest::WRITE,
                false => Interest::READ,
            })?;
        }
        cx.try_read(|_| link.read_some())?;
        Ok(match link.is_lost() {
            true => Next::Close,
            false => Next::Continue,
        })
    }

    /// The pool reads this no more: those who wait look for another way.
    fn closed(&mut self, _: Closed) {
        if let Some(link) = self.link.upgrade() {
            *lock(&link.pooled.handle) = None;
            link.calls.recall_all();
        }
    }
}
