//! Sources whose events wait in memory: how their registrations begin. See `item_source.rs`.

use std::sync::Arc;

use super::{
    super::{
        entry::Entry,
        handle::Handle,
        handler::Interest,
        item_source::{
            ConcurrentItemHandler, ConcurrentItemSource, ItemHandler, ItemSource, Store,
        },
        Rejected,
    },
    Registry,
};

impl Registry {
    /// Begins the registration of a store; `attempted` says what it is. A thread that puts
    /// something in notifies the handle.
    pub(crate) fn register_store<St, H>(
        &self,
        attempted: &str,
        store: &Arc<St>,
        handler: H,
    ) -> Result<Handle, Rejected<H>>
    where
        St: Store,
        H: ItemHandler<St::Item>,
    {
        let kind = self.kinds.of::<H>();
        self.stock(attempted, store, handler, |store, handler| {
            Box::new(ItemSource::new(store, handler, kind))
        })
    }

    /// The same for a handler that several threads may call at once.
    pub(crate) fn register_concurrent_store<St, H>(
        &self,
        attempted: &str,
        store: &Arc<St>,
        handler: H,
    ) -> Result<Handle, Rejected<H>>
    where
        St: Store,
        H: ConcurrentItemHandler<St::Item>,
    {
        let kind = self.kinds.of::<H>();
        self.stock(attempted, store, handler, |store, handler| {
            Box::new(ConcurrentItemSource::new(store, handler, kind))
        })
    }

    fn stock<St: Store, H>(
        &self,
        attempted: &str,
        store: &Arc<St>,
        handler: H,
        entry: impl FnOnce(Arc<St>, H) -> Box<dyn Entry>,
    ) -> Result<Handle, Rejected<H>> {
        match self.admit(|| self.occupy(Interest::NONE, || attempted.to_owned())) {
            Err(error) => Err(Rejected::new(handler, error)),
            Ok(owned) => {
                if store.len() > 0 {
                    owned.readiness().notify_self();
                }
                Ok(self.put_in_place(owned, entry(Arc::clone(store), handler)))
            }
        }
    }
}
