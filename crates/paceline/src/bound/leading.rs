//! What a leader does: it reads for all, until its own reply is there, and passes the lead on.

use std::{io, mem};

use super::{
    calls::{Calls, Key},
    deadline::Patience,
    driver::{Joined, Wants},
    inbound::{Fed, Table},
    lead::{End, Leave},
    line::Line,
    link::{Link, Reading},
    protocol::Protocol,
    word::Told,
};
use crate::{
    handle_set::Ready,
    sync::{lock, thread, MutexGuard},
};

/// If so many others got a reply at once, as many are likely to get one the next time: it pays to
/// let them send together. (With fewer, each writes for itself, on its own core: at 4 callers that
/// is faster by an eighth. In models it always pays.)
const MANY: u64 = if cfg!(loom) { 0 } else { 5 };

/// What came of the polls before a sleep.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Polled {
    Read,
    Nothing,
}

/// This thread leads: it alone may read the connection. Dropping it passes the lead on.
#[must_use = "dropping it passes the lead on"]
pub(super) struct Leading<'m, P: Protocol> {
    link: &'m Link<P>,
    /// `None` only at the end.
    reading: Option<MutexGuard<'m, Reading>>,
    /// The protocol's code runs: if it panics, no later byte can be understood.
    feeding: bool,
    /// It has the pen: callers that get their replies send again, and their requests go out
    /// together.
    has_pen: bool,
    /// It has read something for others.
    has_served: bool,
}

impl<'m, P: Protocol> Leading<'m, P> {
    /// For the thread that has taken the lead.
    pub(super) fn new(link: &'m Link<P>) -> Self {
        Self {
            link,
            reading: Some(lock(&link.reading)),
            feeding: false,
            has_pen: false,
            has_served: false,
        }
    }

    /// Reads for all callers until this caller's reply is there. `None`: the lead went to another
    /// caller, which reads its reply by itself.
    pub(super) fn lead(
        mut self,
        own: Key,
        wants: Wants,
        patience: Patience<'_>,
    ) -> Option<Joined<'m, P>> {
        let link = self.link;
        let reader = (wants == Wants::ToRead).then_some(own);
        let mut has_waited = false;
        loop {
            // There may be something that the last leader has left.
            match self.feed(own, reader) {
                Ok(Fed::All) => {}
                Ok(Fed::ToBeReadBy(key)) if key == own => match wants {
                    Wants::ToRead => return Some(Joined::Reads(self)),
                    // It did when it slept before.
                    Wants::Data => {
                        self.read_for(own);
                        continue;
                    }
                },
                Ok(Fed::ToBeReadBy(key)) => {
                    if self.hand_over_to(key) {
                        return None;
                    }
                    self.read_for(key);
                    continue;
                }
                Err(error) => self.lose("read", &error),
            }
            if let Some(told) = link.told(own) {
                return Some(told);
            }
            if link.lead.is_broken() {
                return Some(Joined::Lost);
            }
            if has_waited && patience.is_over(&link.clock) {
                return Some(Joined::TimedOut);
            }
            if mem::take(&mut self.has_served) {
                link.calls.counters.leads_kept.add(1);
            }
            if let Err(error) = self.read_when_ready(patience) {
                self.lose("read", &error);
            }
            has_waited = true;
        }
    }

    /// Reads once, without waiting, and gives everyone what has come for it.
    ///
    /// # Errors
    /// `WouldBlock`: there was nothing. A loss is no error here: every caller gets its outcome.
    pub(super) fn read_once(mut self) -> io::Result<()> {
        self.feed_for_others();
        let read = self.read_now();
        match &read {
            Ok(0) => return Err(io::ErrorKind::WouldBlock.into()),
            Ok(_) => self.feed_for_others(),
            Err(error) => self.lose("read", error),
        }
        Ok(())
    }

    /// Feeds for a thread that waits for no reply of its own. The lead may go to another caller,
    /// which reads its reply by itself.
    fn feed_for_others(&mut self) {
        loop {
            match self.feed(Key::NOBODY, None) {
                Ok(Fed::All) => return,
                Ok(Fed::ToBeReadBy(key)) if self.hand_over_to(key) => return,
                Ok(Fed::ToBeReadBy(key)) => self.read_for(key),
                Err(error) => return self.lose("read", &error),
            }
        }
    }

    /// Gives everyone what has come for it.
    fn feed(&mut self, own: Key, reader: Option<Key>) -> io::Result<Fed> {
        let Self {
            link,
            reading,
            has_pen,
            ..
        } = self;
        let Some(reading) = reading.as_deref_mut() else {
            return Ok(Fed::All);
        };
        let Reading {
            inbound,
            sleepers,
            batch,
            ..
        } = reading;
        let calls = &link.calls;
        sleepers.take_newcomers(&link.lead, calls);
        let table = Table {
            calls,
            order: &link.order,
            protocol: &*link.protocol,
        };
        let (mut told_any, mut others) = (false, 0);
        self.feeding = true;
        let fed = inbound.feed(&table, reader, &mut |key, told| {
            // Out of the line before it is woken. (It may have seen its reply, and be gone
            // already.)
            sleepers.remove_if_awake(calls, key.index);
            told_any = true;
            others += u64::from(key != own);
            if *batch >= MANY && !*has_pen {
                *has_pen = link.outbound.hold();
            }
            match told {
                Told::Asleep => calls.wake(key.index),
                // The own caller is here.
                _ if key != own => calls.recall(key.index),
                _ => {}
            }
        });
        self.feeding = false;
        if told_any {
            // Small batches come between large ones; a caller that is alone again soon pays nothing
            // for them.
            *batch = others.max(*batch / 2);
        }
        if others > 0 {
            calls.counters.data_handed_over.add(others);
            self.has_served = true;
        }
        self.put_pen_down();
        fed
    }

    /// Writes the requests that callers queued while this thread held the pen. A caller that is
    /// about to send may do so first.
    fn put_pen_down(&mut self) {
        if mem::take(&mut self.has_pen) {
            thread::yield_now();
            self.link.write();
        }
    }

    /// The body that has begun is read for its caller after all.
    fn read_for(&mut self, key: Key) {
        if let Some(reading) = &mut self.reading {
            reading.inbound.read_for(key);
        }
    }

    /// Gives the lead to a sleeper whose reply has begun. `false`: it sleeps no more.
    fn hand_over_to(&mut self, key: Key) -> bool {
        let Some(mut reading) = self.reading.take() else {
            return false;
        };
        let calls = &self.link.calls;
        if !reading.sleepers.elect_reader(calls, key.index) {
            self.reading = Some(reading);
            return false;
        }
        drop(reading);
        // Bytes that it leaves unread in the buffer, behind its own reply, make no descriptor ready
        // again.
        self.link.pooled.turn_away();
        calls.counters.events_handed_over.add(1);
        calls.wake(key.index);
        true
    }

    /// Waits until there is something to be read, and reads it; sends what was kept.
    fn read_when_ready(&mut self, patience: Patience<'_>) -> io::Result<()> {
        if self.poll_before_sleep(patience)? == Polled::Read {
            return Ok(());
        }
        if self.wait(patience)?.has(Ready::READABLE) {
            self.read_now()?;
        }
        Ok(())
    }

    /// Yields and polls, if many replies arrive at once or the builder sets a spin; unless there is
    /// output for whose room it must wait.
    fn poll_before_sleep(&mut self, patience: Patience<'_>) -> io::Result<Polled> {
        let link = self.link;
        if link.outbound.is_kept() {
            return Ok(Polled::Nothing);
        }
        let (policy, batch) = (
            &link.leader_idle,
            self.reading.as_ref().map_or(0, |it| it.batch),
        );
        let mut idle = policy.begin(batch >= MANY, &link.clock, patience.deadline());
        while !idle.may_sleep() {
            if self.read_now()? > 0 {
                let _ = idle.note_found(policy);
                return Ok(Polled::Read);
            }
            let _ = idle.note_nothing(policy, &link.clock);
            let is_called = link.lead.is_broken() || link.outbound.is_kept();
            if is_called || patience.is_over(&link.clock) {
                break;
            }
        }
        Ok(Polled::Nothing)
    }

    /// Reads what is there, if anything is. How much that was.
    fn read_now(&mut self) -> io::Result<usize> {
        let Some(reading) = self.reading.as_deref_mut() else {
            return Ok(0);
        };
        let Reading { line, inbound, .. } = reading;
        let line = line.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        let count = read(&**line, inbound.space(), &self.link.calls)?;
        let count = count.unwrap_or(0);
        inbound.filled(count);
        Ok(count)
    }

    /// Waits for input, and sends what was kept as soon as there is room for it.
    fn wait(&mut self, patience: Patience<'_>) -> io::Result<Ready> {
        let Self { link, reading, .. } = self;
        let line = reading.as_ref().and_then(|reading| reading.line.as_deref());
        let line = line.ok_or(io::ErrorKind::NotConnected)?;
        let mut for_room = link.outbound.is_kept();
        while !link.lead.begin_wait() {
            if link.lead.is_broken() {
                return Ok(Ready::NONE);
            }
            for_room = link.outbound.is_kept();
        }
        link.calls.counters.waits.add(1);
        // Asked after `begin_wait`: see `Link::rouse`.
        let ready = line.wait(for_room, &link.clock, patience.deadline());
        link.lead.end_wait();
        let ready = ready?;
        if ready.has(Ready::WRITABLE) && link.outbound.pick_up() {
            link.write();
        }
        Ok(ready)
    }

    /// Reads some of the body that is this thread's own; zero at its end.
    ///
    /// # Errors
    /// The connection was lost, or time is over.
    pub(super) fn read_body(
        &mut self,
        into: &mut [u8],
        patience: Patience<'_>,
    ) -> io::Result<usize> {
        loop {
            let Some(reading) = self.reading.as_deref_mut() else {
                return Ok(0);
            };
            let Reading { line, inbound, .. } = reading;
            let missing = inbound.missing().min(into.len());
            if missing == 0 {
                return Ok(0);
            }
            match inbound.read_body(into) {
                0 => {}
                count => return Ok(count),
            }
            if self.link.lead.is_broken() {
                return Err(self.link.loss());
            }
            let Some(line) = line else {
                return Err(self.link.loss());
            };
            match read(&**line, &mut into[..missing], &self.link.calls) {
                Ok(Some(count)) => {
                    inbound.note_read_past(count);
                    return Ok(count);
                }
                Ok(None) => {}
                Err(error) => {
                    self.lose("read", &error);
                    return Err(self.link.loss());
                }
            }
            if patience.is_over(&self.link.clock) {
                let text = "read a reply: time is over";
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            if let Err(error) = self.wait(patience) {
                self.lose("wait", &error);
            }
        }
    }

    /// How many bytes of the body that is this thread's own are to come.
    pub(super) fn missing(&self) -> usize {
        let reading = self.reading.as_ref();
        reading.map_or(0, |reading| reading.inbound.missing())
    }

    /// This thread reads no more of its body. What is left of it will be skipped.
    pub(super) fn end_body(&mut self, own: Key) {
        if let Some(reading) = &mut self.reading {
            reading.inbound.end_own_reading();
        }
        self.link.pooled.turn_away();
        if !self.link.lead.is_broken() {
            let _ = self.link.calls.complete(own);
        }
    }

    /// This leader found the connection lost. It holds the lead, so no leader has to be called.
    fn lose(&mut self, attempted: &str, error: &io::Error) {
        self.link.note_cause(attempted, error);
        let _ = self.link.lead.break_off(End::Lost);
    }

    /// Gives every caller its loss, and opens the lead.
    fn bury(&mut self, mut reading: MutexGuard<'_, Reading>) {
        let link = self.link;
        link.calls.counters.losses.add(1);
        link.lead.mark_lost();
        // The stream is the user's: this reference outlives the others, and is dropped without a
        // lock.
        let lost = lock(&link.line).take();
        reading.line = None;
        reading.inbound.begin_anew();
        reading.sleepers.take_newcomers(&link.lead, &link.calls);
        reading.sleepers.clear(&link.calls);
        drop(reading);
        link.outbound.die(&link.calls);
        link.lead.leave_lost();
        // It lets go of the connection.
        link.pooled.call_reader();
        drop(lost);
    }

    /// Elects a sleeping caller; if there is none, the lead is open.
    fn leave(&mut self, mut reading: MutexGuard<'m, Reading>) {
        let link = self.link;
        loop {
            if link.lead.is_broken() {
                return self.bury(reading);
            }
            reading.sleepers.take_newcomers(&link.lead, &link.calls);
            let elected = reading.sleepers.elect(&link.calls, &link.order, link.elect);
            drop(reading);
            if let Some(index) = elected {
                link.calls.counters.elections.add(1);
                return link.calls.wake(index);
            }
            match link.lead.leave() {
                Leave::Open => {
                    link.calls.counters.leads_left_open.add(1);
                    return link.pooled.left_open();
                }
                Leave::NotYet => reading = lock(&link.reading),
            }
        }
    }
}

impl<P: Protocol> Drop for Leading<'_, P> {
    fn drop(&mut self) {
        if self.feeding {
            let error = io::Error::other("the protocol panicked");
            self.lose("read", &error);
        }
        self.put_pen_down();
        // A leader that gave the lead to a reader has nothing to pass on.
        if let Some(reading) = self.reading.take() {
            self.leave(reading);
        }
    }
}

/// Reads once; `None` if there is nothing.
fn read(line: &dyn Line, into: &mut [u8], calls: &Calls) -> io::Result<Option<usize>> {
    match line.read(into) {
        Ok(0) => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => {
            calls.counters.reads.add(1);
            calls.counters.bytes_read.add(count as u64);
            Ok(Some(count))
        }
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        },
    }
}
