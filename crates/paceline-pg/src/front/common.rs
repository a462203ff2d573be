//! What clients have in common: names, time-outs, values of parameters. Equal ones are one allocation, because a pooler has
//! thousands of clients and few kinds of them.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use super::{client::Limits, sockets::Address, state::locked};
use crate::protocol::Values;

/// How many values of a kind are known, so that clients that all differ cost little time.
const MOST: usize = 32;

/// The values of one kind that were last asked for. `T` is cheap to clone, and its clones share memory.
#[derive(Debug)]
pub(crate) struct Common<T>(Mutex<VecDeque<T>>);

impl<T> Default for Common<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Common<T> {
    /// The known value that `is_equal`, or a new one.
    fn find(&self, is_equal: impl Fn(&T) -> bool, make: impl FnOnce() -> T) -> T {
        let mut known = locked(&self.0);
        let place = known.iter().position(is_equal);
        let value = place
            .and_then(|place| known.remove(place))
            .unwrap_or_else(make);
        // The last ones that were used stay.
        known.truncate(MOST - 1);
        known.push_front(value.clone());
        value
    }
}

/// What the clients of a front-end have in common.
#[derive(Debug, Default)]
pub(crate) struct Commons {
    texts: Common<Arc<str>>,
    limits: Common<Arc<Limits>>,
    addresses: Common<Arc<Address>>,
    values: Common<Values>,
}

impl Commons {
    /// A name of a database, a user or an application.
    pub(crate) fn text(&self, text: &str) -> Arc<str> {
        self.texts.find(|known| **known == *text, || text.into())
    }

    /// The time-outs of a client.
    pub(crate) fn limits(&self, limits: Limits) -> Arc<Limits> {
        let is_equal = |known: &Arc<Limits>| **known == limits;
        self.limits.find(is_equal, || Arc::new(limits))
    }

    /// An address of this machine.
    pub(crate) fn address(&self, address: Address) -> Arc<Address> {
        let is_equal = |known: &Arc<Address>| **known == address;
        self.addresses.find(is_equal, || Arc::new(address))
    }

    /// The parameters that a client wants.
    pub(crate) fn values(&self, values: Values) -> Values {
        self.values
            .find(|known| *known == values, || values.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Clients of one kind share what they have in common, and thousands that differ are forgotten.
    #[test]
    fn equal_texts_are_one_allocation() {
        let commons = Commons::default();
        let first = commons.text("web");
        assert!(Arc::ptr_eq(&first, &commons.text("web")));
        for number in 0..MOST {
            // Used again and again, the first one stays known.
            let _ = (commons.text(&number.to_string()), commons.text("web"));
        }
        assert!(Arc::ptr_eq(&first, &commons.text("web")));
        for number in 0..MOST {
            let _ = commons.text(&format!("other {number}"));
        }
        assert!(!Arc::ptr_eq(&first, &commons.text("web")));
        assert_eq!(locked(&commons.texts.0).len(), MOST);
    }
}
