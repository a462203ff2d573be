//! User code that runs on behalf of the registry: hooks, and work for after a handle was given
//! back.

use super::{
    super::{
        claim::Duty,
        concurrent::Share,
        context::Afterwards,
        handle::{HandleId, Key},
        handler::{Closed, Next, Panics},
        hooks::ClosedHandle,
        kind::HandlerKind,
        provenance::Provenance,
        task::TaskContext,
        unread::Finding,
    },
    Registry,
};
use crate::observe::Unread;

impl Registry {
    /// The kind of calls with this name.
    pub(crate) fn handler_kind(&self, name: &str) -> HandlerKind {
        self.kinds.named(name)
    }

    /// A handler panicked: why its handle is closed, if it is.
    pub(in crate::dispatch) fn judge_panic(&self, key: Key, panic: String) -> Option<Closed> {
        self.tell_panic(key, &panic);
        match self.hooks.panics {
            Panics::Close => Some(Closed::Panicked(panic)),
            Panics::Keep => None,
            Panics::Abort => {
                eprintln!("paceline: a handler panicked, and panics abort: {panic}");
                std::process::abort();
            }
        }
    }

    /// Counts a panic of user code, and calls the hook. The handle is with this thread, so the hook
    /// can't wait for its end.
    pub(in crate::dispatch) fn tell_panic(&self, key: Key, panic: &str) {
        self.tell_panic_in(Some(key), key, panic);
    }

    /// The same, in a frame that has the handle or has not.
    pub(in crate::dispatch) fn tell_panic_in(&self, frame: Option<Key>, of: Key, panic: &str) {
        self.counters.panics.one_more();
        if let Some(hook) = &self.hooks.on_panic {
            let _ = self.in_frame(frame, || hook(HandleId::new(of), panic));
        }
        let tell = || {
            self.hooks
                .observers
                .tell(|it| it.panicked(HandleId::new(of), panic))
        };
        let _ = self.in_frame(frame, tell);
    }

    /// A call of this handle's handler left input unread. The handle is with this thread, so an
    /// observer can't wait for its end.
    #[cold]
    pub(in crate::dispatch) fn note_unread(&self, key: Key, handler: u32, finding: Finding) {
        let calls = match finding {
            Finding::Nothing => return,
            Finding::Counts => None,
            Finding::Reports { calls } => Some(calls),
        };
        self.counters.unread_calls.one_more();
        if let Some(calls) = calls {
            let unread = Unread::new(HandleId::new(key), handler, calls);
            let tell = || self.hooks.observers.tell(|it| it.unread(&unread));
            let _ = self.in_frame(Some(key), tell);
        }
    }

    /// Calls the hook for an end.
    pub(super) fn tell_closed(&self, key: Key, why: &Closed, provenance: Option<&Provenance>) {
        if let Closed::TimedOut = why {
            self.counters.timed_out.one_more();
        }
        if let Closed::Failed(error) = why {
            self.counters.failed.one_more();
            let tell = || {
                self.hooks
                    .observers
                    .tell(|it| it.failed(HandleId::new(key), error))
            };
            let _ = self.in_frame(Some(key), tell);
        }
        if let Some(hook) = &self.hooks.on_closed {
            let closed = ClosedHandle::new(HandleId::new(key), why, provenance);
            let told = self.in_frame(Some(key), || hook(&closed));
            told.unwrap_or_else(|panic| self.tell_panic(key, &panic));
        }
    }

    /// Calls the handler of a concurrent handle, as others may do at the same time, and leaves it.
    fn use_share(&self, share: Share, duty: &dyn Duty) {
        let told = self.call_shared(&share, duty);
        if let Some(why) = self.judge_call(&share, told) {
            let second = share.common.wish(why);
            let dropped = self.in_frame(None, || drop(second));
            dropped.unwrap_or_else(|panic| self.tell_panic(share.of, &panic));
            self.ask_to_close(share.of);
        }
        if let Some((ending, end)) = share.common.leave() {
            self.finish(ending, end);
        }
    }

    /// Calls it, and notes how long that took.
    fn call_shared(&self, share: &Share, duty: &dyn Duty) -> Result<Result<Next, Closed>, String> {
        let (key, start) = (share.of, self.now());
        let slot = self.slots.get(key.index);
        let user = slot.map(|slot| slot.user(key.generation));
        let begun = share.common.kind().begin();
        let told = self.in_frame(Some(key), || share.common.call(share, self, duty));
        self.note_use(key);
        drop(user);
        let took = self.now().nanos_since(start);
        share.common.kind().note(took, begun);
        told
    }

    /// Why its handle is to be closed after such a call, if it is.
    fn judge_call(
        &self,
        share: &Share,
        told: Result<Result<Next, Closed>, String>,
    ) -> Option<Closed> {
        // If it is over, it is called no more.
        let again = || {
            let _ = self.notify(share.of);
        };
        match told {
            Ok(Ok(Next::Again)) => again(),
            Ok(Ok(_)) => {}
            Ok(Err(why)) => return Some(why),
            Err(panic) => {
                // What it was notified of it has not seen.
                if share.notified {
                    again();
                }
                return self.judge_panic(share.of, panic);
            }
        }
        None
    }

    /// Drops what a handler that panicked wanted to be done afterwards. Its handle is still with
    /// this thread.
    pub(in crate::dispatch) fn drop_afterwards(&self, afterwards: &mut Afterwards) {
        let key = afterwards.of;
        for work in std::mem::take(&mut afterwards.work) {
            let dropped = self.in_frame(Some(key), || drop(work));
            dropped.unwrap_or_else(|panic| self.tell_panic(key, &panic));
        }
    }

    /// Does what a handler wanted to be done after its handle was given back; of a concurrent
    /// handle, calls it.
    pub(crate) fn run_afterwards(&self, afterwards: Afterwards, duty: &dyn Duty) {
        if let Some(share) = afterwards.share {
            self.use_share(share, duty);
        }
        for work in afterwards.work {
            let done = self.in_frame(None, || work(&mut TaskContext { duty }));
            done.unwrap_or_else(|panic| self.tell_panic_in(None, afterwards.of, &panic));
        }
    }
}
