//! Registrations that are ending, and the threads that wait for the end.

use std::{collections::HashSet, sync::Arc};

use super::handle::Key;
use crate::sync::{lock, Mutex, Parker};

/// A registration is here from before its key goes stale until its handler and source are dropped.
#[derive(Debug, Default)]
pub(super) struct Endings {
    list: Mutex<List>,
}

#[derive(Debug, Default)]
struct List {
    ending: HashSet<Key>,
    waiting: Vec<Arc<Parker>>,
}

impl Endings {
    pub(super) fn begin(&self, key: Key) {
        lock(&self.list).ending.insert(key);
    }

    pub(super) fn finish(&self, key: Key) {
        let waiting = {
            let mut list = lock(&self.list);
            list.ending.remove(&key);
            list.waiting.iter().for_each(|parker| parker.post(1));
            list.waiting.clone()
        };
        waiting.iter().for_each(|parker| parker.wake());
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        lock(&self.list).ending.contains(&key)
    }

    /// Sleeps until `is_over`, which may become true whenever an ending is finished.
    pub(super) fn wait_until(&self, is_over: impl Fn() -> bool) {
        let parker = Arc::new(Parker::new());
        lock(&self.list).waiting.push(Arc::clone(&parker));
        loop {
            // Cleared before the look: an end that comes after the look ends the sleep.
            parker.take();
            if is_over() {
                break;
            }
            parker.sleep(None);
        }
        lock(&self.list)
            .waiting
            .retain(|other| !Arc::ptr_eq(other, &parker));
    }
}
