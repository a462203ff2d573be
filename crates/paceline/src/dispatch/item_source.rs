//! Registrations whose events wait in memory: the items of a queue, the units of a semaphore
//! (`sources/`). They have a slot, an owner and a turn in the line like any handle. A thread that
//! puts something into the **store** notifies afterwards; a visit takes the notification first and
//! reads the store then, so nothing is left behind.
//!
//! ```text
//!   one at a time:   claim the registration, promote, take some items and handle each,
//!                    put the registration back
//!   concurrent:      claim the registration, promote, claim one item,
//!                    put the registration back, handle the item
//! ```
//!
//! The end: a store that is **shut** takes nothing in any more. A drain shuts an empty one only, in
//! one step with the check; a thread that puts something in before that step notifies, and the
//! drain waits for it.

use std::sync::Arc;

use super::{
    claim::Duty,
    concurrent::{Share, Shared},
    context::{Afterwards, Origin},
    entry::{Called, Done, Ending, Entry, Undone, Verdict},
    handler::{Closed, Next},
    kind::Kind,
    readiness_guard::ReadinessGuard,
    registry::{End, Registry},
    task::TaskContext,
};
use crate::{
    sync::{lock, Mutex},
    unwind::caught,
};

/// So many items are handled by one visit at most; then the others have their turn (F1).
pub(super) const ITEMS_PER_VISIT: usize = 16;

/// The application's service for a source of items, which are handled one after the other: a queue,
/// a semaphore.
///
/// A closure `FnMut(T, &mut TaskContext<'_>)` is one too.
pub trait ItemHandler<T>: Send + 'static {
    /// An item has come. It is this handler's from here on.
    fn handle(&mut self, item: T, cx: &mut TaskContext<'_>);

    /// Nothing follows this call. Called exactly once.
    fn closed(&mut self, why: Closed) {
        let _ = why;
    }
}

impl<T, F> ItemHandler<T> for F
where
    F: FnMut(T, &mut TaskContext<'_>) + Send + 'static,
{
    fn handle(&mut self, item: T, cx: &mut TaskContext<'_>) {
        self(item, cx);
    }
}

/// The same for items that several threads may handle at once, in no order.
///
/// A closure `Fn(T, &mut TaskContext<'_>)` is one too.
pub trait ConcurrentItemHandler<T>: Send + Sync + 'static {
    /// An item has come. Other threads may be handling others at the same time.
    fn handle(&self, item: T, cx: &mut TaskContext<'_>);

    /// Nothing follows this call, and no thread handles anything any more. Called exactly once.
    fn closed(&self, why: Closed) {
        let _ = why;
    }
}

impl<T, F> ConcurrentItemHandler<T> for F
where
    F: Fn(T, &mut TaskContext<'_>) + Send + Sync + 'static,
{
    fn handle(&self, item: T, cx: &mut TaskContext<'_>) {
        self(item, cx);
    }
}

/// Where items wait until they are handled.
pub(crate) trait Store: Send + Sync + 'static {
    /// What is put in.
    type Item: Send;

    /// Claims the first item. Only the owner of the registration calls this. `None`: nothing is
    /// there, or the first item is still being put in; the thread that does it will notify.
    fn claim(&self) -> Option<Ticket>;

    /// Takes what was claimed. `None`: another thread has it already.
    fn redeem(&self, ticket: Ticket) -> Option<Self::Item>;

    /// How many items were accepted and not claimed.
    fn len(&self) -> usize;

    /// Accepts nothing any more.
    fn shut(&self);

    /// The same, if it is empty; as one step.
    fn shut_if_empty(&self) -> Shut;

    /// Whether it is shut, and empty.
    fn is_over(&self) -> bool;

    /// Drops what no thread will handle. Returns a panic; the other items are dropped all the same.
    fn discard(&self) -> Result<(), String>;
}

/// A claim to one item of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(pub(crate) u64);

impl Ticket {
    /// Of what is no store.
    pub(super) const NONE: Self = Self(u64::MAX);
}

/// Whether a store is shut.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shut {
    Shut,
    /// Something is in it, or about to be.
    NotYet,
}

/// What the registration of a store has, whichever way it is handled.
struct Stock<St> {
    store: Arc<St>,
    /// A drain has found something in it, or about to be: that holds up the end.
    holds_up: bool,
}

impl<St: Store> Stock<St> {
    fn new(store: Arc<St>) -> Self {
        Self {
            store,
            holds_up: false,
        }
    }

    fn next(&self) -> Option<St::Item> {
        self.store.redeem(self.store.claim()?)
    }

    /// Whether it goes on: it ends if nothing is left and nothing can be put in any more.
    fn verdict(&self) -> Verdict {
        if self.store.is_over() {
            Verdict::Finished
        } else {
            Verdict::Keep
        }
    }

    fn may_end(&mut self) -> bool {
        self.holds_up = self.store.shut_if_empty() == Shut::NotYet;
        !self.holds_up
    }

    /// What is still to come holds up a drain, as kept output does. The thread about to put it in
    /// will notify.
    fn sending(&self) -> (bool, bool) {
        let holds_up = self.holds_up && self.store.len() > 0;
        (holds_up, holds_up)
    }

    /// What is lost if it ends now.
    fn undone(&self) -> Undone {
        self.store.shut();
        Undone::Items(self.store.len())
    }
}

/// A store whose items are handled one after the other.
pub(super) struct ItemSource<St, H> {
    stock: Stock<St>,
    handler: H,
    kind: Arc<Kind>,
}

impl<St: Store, H> ItemSource<St, H> {
    pub(super) fn new(store: Arc<St>, handler: H, kind: Arc<Kind>) -> Self {
        Self {
            stock: Stock::new(store),
            handler,
            kind,
        }
    }
}

impl<St, H> Entry for ItemSource<St, H>
where
    St: Store,
    H: ItemHandler<St::Item>,
{
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn work(&mut self, guard: ReadinessGuard<'_>, origin: Origin<'_>, _: &mut Afterwards) -> Done {
        let mut cx = TaskContext::new(origin.duty);
        let (mut handled, mut panicked) = (0, None);
        while handled < ITEMS_PER_VISIT && panicked.is_none() {
            let Some(item) = self.stock.next() else {
                break;
            };
            let handler = &mut self.handler;
            panicked = caught(|| handler.handle(item, &mut cx)).err();
            handled += 1;
        }
        // If nothing more was found, the thread that puts more in will notify.
        if handled == ITEMS_PER_VISIT || panicked.is_some() {
            guard.settle_and_ask_again()
        } else {
            guard.settle()
        }
        Done {
            verdict: panicked.map_or_else(|| self.stock.verdict(), Verdict::panicked),
            called: Called::plainly_if(handled > 0),
        }
    }

    fn sending(&self) -> (bool, bool) {
        self.stock.sending()
    }

    fn may_end(&mut self) -> bool {
        self.stock.may_end()
    }

    fn undone(&self) -> Undone {
        self.stock.undone()
    }

    fn part(self: Box<Self>, end: End) -> Option<(Box<dyn Ending>, End)> {
        Some((self, end))
    }
}

impl<St, H> Ending for ItemSource<St, H>
where
    St: Store,
    H: ItemHandler<St::Item>,
{
    fn closed(&mut self, why: Closed) {
        self.handler.closed(why);
    }

    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        let Self { handler, stock, .. } = *self;
        [caught(|| drop(handler)), stock.store.discard()]
    }
}

/// A store whose items are handled by several threads at once.
pub(super) struct ConcurrentItemSource<St, H> {
    stock: Stock<St>,
    common: Arc<Common<St, H>>,
}

/// What all threads share that handle its items.
struct Common<St, H> {
    store: Arc<St>,
    handler: H,
    kind: Arc<Kind>,
    /// How it is to end: the handler panicked.
    wish: Mutex<Option<Closed>>,
    /// How it ends: known once it is out of its slot.
    end: Mutex<Option<End>>,
}

impl<St: Store, H> ConcurrentItemSource<St, H> {
    pub(super) fn new(store: Arc<St>, handler: H, kind: Arc<Kind>) -> Self {
        let common = Arc::new(Common {
            store: Arc::clone(&store),
            handler,
            kind,
            wish: Mutex::new(None),
            end: Mutex::new(None),
        });
        let stock = Stock::new(store);
        Self { stock, common }
    }
}

impl<St, H> Entry for ConcurrentItemSource<St, H>
where
    St: Store,
    H: ConcurrentItemHandler<St::Item>,
{
    fn kind(&self) -> &Kind {
        &self.common.kind
    }

    /// Claims one item. The registration is put back, for the next thread and the next item, and
    /// then that is handled.
    fn work(
        &mut self,
        guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
    ) -> Done {
        let ticket = self.stock.store.claim();
        if ticket.is_some() && self.stock.store.len() > 0 {
            guard.settle_and_ask_again()
        } else {
            guard.settle()
        }
        afterwards.share = ticket.map(|ticket| {
            let common: Arc<dyn Shared> = Arc::clone(&self.common) as _;
            Share::of_item(origin.key, common, ticket)
        });
        Done::without_call(self.stock.verdict())
    }

    fn take_end(&mut self) -> Option<Closed> {
        lock(&self.common.wish).take()
    }

    fn sending(&self) -> (bool, bool) {
        self.stock.sending()
    }

    fn may_end(&mut self) -> bool {
        self.stock.may_end()
    }

    fn undone(&self) -> Undone {
        self.stock.undone()
    }

    fn part(self: Box<Self>, end: End) -> Option<(Box<dyn Ending>, End)> {
        *lock(&self.common.end) = Some(end);
        let common: Arc<dyn Shared> = self.common;
        common.leave()
    }
}

impl<St, H> Shared for Common<St, H>
where
    St: Store,
    H: ConcurrentItemHandler<St::Item>,
{
    fn kind(&self) -> &Kind {
        &self.kind
    }

    fn call(&self, share: &Share, _: &Registry, duty: &dyn Duty) -> Result<Next, Closed> {
        if let Some(item) = self.store.redeem(share.ticket()) {
            self.handler.handle(item, &mut TaskContext::new(duty));
        }
        Ok(Next::Continue)
    }

    fn wish(&self, why: Closed) -> Option<Closed> {
        lock(&self.wish).replace(why)
    }

    fn leave(self: Arc<Self>) -> Option<(Box<dyn Ending>, End)> {
        let all = Arc::into_inner(self)?;
        let end = lock(&all.end).take();
        // The last thread leaves after the registration has left its slot.
        Some((Box::new(all), end?))
    }
}

impl<St, H> Ending for Common<St, H>
where
    St: Store,
    H: ConcurrentItemHandler<St::Item>,
{
    fn closed(&mut self, why: Closed) {
        self.handler.closed(why);
    }

    fn dismantle(self: Box<Self>) -> [Result<(), String>; 2] {
        let Self { handler, store, .. } = *self;
        [caught(|| drop(handler)), store.discard()]
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::sources::Count;

    fn ignore((): (), _: &mut TaskContext<'_>) {}

    fn holds_up_a_drain(entry: impl FnOnce(Arc<Count>) -> Box<dyn Entry>) {
        let store = Arc::new(Count::new(1));
        let mut entry = entry(Arc::clone(&store));
        assert_eq!(entry.sending(), (false, false), "nobody has asked");
        assert!(!entry.may_end());
        assert_eq!(entry.sending(), (true, true));
        assert!(store.claim().is_some());
        assert_eq!(entry.sending(), (false, false), "it is taken");
        assert!(entry.may_end() && store.is_over());
    }

    /// What waits in a store holds up a drain, from when that asks until it is taken. Then the
    /// store is shut.
    #[test]
    fn what_waits_holds_up_a_drain() {
        holds_up_a_drain(|store| Box::new(ItemSource::new(store, ignore, Arc::default())));
        holds_up_a_drain(|store| {
            Box::new(ConcurrentItemSource::new(store, ignore, Arc::default()))
        });
    }
}
