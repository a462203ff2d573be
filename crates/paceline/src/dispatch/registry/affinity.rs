//! Handles that belong to certain threads: how that is said, and how their events get there. See
//! `mailboxes.rs`.

use std::{
    io,
    sync::{atomic::Ordering::Relaxed, Arc},
    time::Duration,
};

use super::{
    super::{
        claim::Claim,
        handle::Key,
        mailboxes::{Affinity, Handed, Mailbox},
        slot::Slot,
    },
    refusal, Refusal, Registry, SHUT,
};
use crate::sync::{
    lock,
    thread::{self, ThreadId},
};

/// The mailbox of a thread that is in the pool. When the last of these is dropped, the thread has
/// left.
pub(crate) struct OwnMailbox {
    registry: Arc<Registry>,
    mailbox: Arc<Mailbox>,
}

impl OwnMailbox {
    /// It is this thread's.
    pub(crate) fn name(&self, thread: ThreadId) {
        self.mailbox.name(thread);
    }
}

impl Drop for OwnMailbox {
    fn drop(&mut self) {
        self.registry.close_mailbox(&self.mailbox);
    }
}

impl Registry {
    /// In this pool no handle can belong to certain threads.
    pub(crate) fn refuse_affinity(&self, why: &'static str) {
        self.mailboxes.refuse(why);
    }

    /// A thread comes into the pool; none is handed anything where that can't be.
    pub(crate) fn open_mailbox(self: &Arc<Self>, mailbox: Arc<Mailbox>) -> OwnMailbox {
        self.mailboxes.add(Arc::clone(&mailbox));
        let registry = Arc::clone(self);
        OwnMailbox { registry, mailbox }
    }

    /// It leaves. What waits for it goes back, for the leader to hand on.
    fn close_mailbox(&self, mailbox: &Arc<Mailbox>) {
        let left = self.mailboxes.remove(mailbox);
        left.into_iter().for_each(|index| self.give_back(index));
    }

    /// The calling thread, if it is in the pool, waits for the others: what belongs to it is
    /// theirs.
    pub(crate) fn leave_own_mailbox(&self) {
        let own = self.mailboxes.of(thread::current().id());
        own.iter().for_each(|mailbox| self.close_mailbox(mailbox));
    }

    /// The handler of this registration is to be called by one of these threads.
    pub(in crate::dispatch) fn pin_to(
        &self,
        key: Key,
        threads: &[ThreadId],
    ) -> Result<(), Refusal> {
        use io::ErrorKind::InvalidInput;
        if threads.is_empty() {
            let reason = "no thread is named; `unpin` gives it to anyone";
            return Err(refusal(InvalidInput, reason));
        }
        self.settle(key, || {
            self.mailboxes.keep(threads).map_err(|unknown| {
                refusal(InvalidInput, format!("{unknown:?} is not in this pool"))
            })?;
            Ok(Some(Affinity::Pinned(threads.into())))
        })
    }

    /// By the thread that called it last, for so long after that, if it is free.
    pub(in crate::dispatch) fn stick(&self, key: Key, span: Duration) -> Result<(), Refusal> {
        self.settle(key, || Ok(Some(Affinity::Sticky(span, None))))
    }

    /// By anyone.
    pub(in crate::dispatch) fn unpin(&self, key: Key) -> Result<(), Refusal> {
        self.settle(key, || Ok(None))
    }

    /// Changes which threads a registration belongs to. Its generation is compared under the lock
    /// that its end takes too, after its key went stale: so the slot's next one never belongs to
    /// these.
    fn settle(
        &self,
        key: Key,
        affinity: impl FnOnce() -> Result<Option<Affinity>, Refusal>,
    ) -> Result<(), Refusal> {
        use io::ErrorKind::{NotFound, Unsupported};
        let over = || refusal(NotFound, "it is closed already");
        if let Some(why) = self.why_no_affinity() {
            return Err(refusal(Unsupported, why));
        }
        let slot = self.slots.get(key.index).ok_or_else(over)?;
        let mut place = lock(&slot.affinity);
        match place.as_deref() {
            _ if slot.readiness.look().generation() != key.generation => return Err(over()),
            Some(Affinity::Everyone) => {
                let reason = "several threads use it at once";
                return Err(refusal(Unsupported, reason));
            }
            _ if slot.group().is_some() => {
                let reason = "it is a member of a group, whose handler is called by anyone";
                return Err(refusal(Unsupported, reason));
            }
            _ => {}
        }
        *place = affinity()?.map(Box::new);
        slot.has_affinity.store(place.is_some(), Relaxed);
        Ok(())
    }

    fn why_no_affinity(&self) -> Option<&'static str> {
        if self.is_open() {
            Some("nobody leads in a concurrent set, who could hand it to a thread")
        } else {
            self.mailboxes.refusal()
        }
    }

    /// A handle that belongs to certain threads was taken off the line: it is handed to one of
    /// them, unless it is for this one, which leads. Its end is for anyone.
    #[cold]
    pub(super) fn hand_to_its_thread(&self, index: u32, slot: &Slot) -> Handed {
        if slot.readiness.look().is_closing() {
            return Handed::NotHanded;
        }
        let me = thread::current().id();
        let mut affinity = lock(&slot.affinity);
        let handed = match affinity.as_deref_mut() {
            None | Some(Affinity::Everyone) => Handed::NotHanded,
            Some(Affinity::Pinned(threads)) if threads.contains(&me) => Handed::NotHanded,
            Some(Affinity::Pinned(threads)) => {
                let handed = self.mailboxes.hand(index, threads);
                if handed == Handed::NotHanded {
                    self.counters.strayed.one_more();
                }
                handed
            }
            Some(Affinity::Sticky(span, last)) => {
                let now = self.now();
                let handed = match *last {
                    Some((thread, until)) if thread != me && now < until => {
                        self.mailboxes.hand_to_sleeper(index, thread)
                    }
                    _ => Handed::NotHanded,
                };
                if handed == Handed::NotHanded {
                    *last = Some((me, now.after(*span)));
                }
                handed
            }
        };
        if handed == Handed::There {
            self.counters.handed.one_more();
        }
        handed
    }

    /// Takes out of the calling thread's own mailbox what is still for it. `None`: nothing is.
    pub(crate) fn take_handed(&self, own: &OwnMailbox) -> Option<Claim<'_>> {
        let me = thread::current().id();
        while let Some(index) = self.mailboxes.take(&own.mailbox) {
            let Some(slot) = self.slots.get(index) else {
                continue;
            };
            if !self.accept(slot, me) {
                self.give_back(index);
                continue;
            }
            let owned = slot.claim(index);
            if let Some(claim) = owned.and_then(|owned| self.claimed(owned)) {
                return Some(claim);
            }
        }
        None
    }

    /// Accepts what was handed to this thread: what is sticky sticks to it from now on. Returns
    /// whether it may: the settings may have changed meanwhile.
    fn accept(&self, slot: &Slot, thread: ThreadId) -> bool {
        match lock(&slot.affinity).as_deref_mut() {
            Some(Affinity::Pinned(threads)) => threads.contains(&thread),
            Some(Affinity::Sticky(span, last)) => {
                *last = Some((thread, self.now().after(*span)));
                true
            }
            None | Some(Affinity::Everyone) => true,
        }
    }

    /// Puts a QUEUED slot, which is in no list, where the leader finds it.
    fn give_back(&self, index: u32) {
        self.put_back(index);
        // As in `let_go`: after the end no thread takes the list any more.
        if self.phase() == SHUT {
            self.sweep(index);
        }
    }
}
