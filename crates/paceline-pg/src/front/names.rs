//! Names of hosts, their addresses, and how long those hold.

use std::{
    collections::HashMap,
    net::{IpAddr, ToSocketAddrs},
    sync::Arc,
    time::Duration,
};

use super::state::Front;
use crate::config::Host;

/// The addresses of names, and how long they hold.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: HashMap<Box<str>, Known>,
}

/// What is known of a name.
#[derive(Debug)]
struct Known {
    until: Duration,
    /// None: there is no such host.
    addresses: Vec<IpAddr>,
    /// Which address is next: each has its turn, so one that does not answer is passed by.
    next: usize,
}

/// Whether the search for a name has begun.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup {
    Begun,
    /// Too many posts wait, or the pool ends.
    Refused,
}

impl Front {
    /// Resolves a name on a thread of the pool, which then calls `then`.
    pub(crate) fn look_up(
        self: &Arc<Self>,
        host: Host,
        then: impl FnOnce(&Arc<Self>, &Host) + Send + 'static,
    ) -> Lookup {
        let (front, threads) = (Arc::clone(self), self.pool());
        let posted = threads.map(|threads| {
            threads.post(move |cx| {
                let name = host.address.as_str().to_owned();
                let found = cx.blocking(|| (name.as_str(), host.port).to_socket_addrs());
                let found = found.map(|all| all.map(|address| address.ip()).collect());
                front.keep_addresses(&host, found.unwrap_or_default());
                then(&front, &host);
            })
        });
        match posted {
            Some(Ok(())) => Lookup::Begun,
            Some(Err(_)) | None => Lookup::Refused,
        }
    }

    /// The address for the next connection to this host; `Some(None)`: it has none.
    #[allow(clippy::option_option, reason = "the outer one: it is known")]
    pub(crate) fn next_address(&self, host: &Host) -> Option<Option<IpAddr>> {
        let now = self.now();
        let mut names = self.names();
        let known = names.known.get_mut(host.address.as_str())?;
        if now >= known.until && known.next > 0 {
            return None;
        }
        let at = known.next.checked_rem(known.addresses.len());
        known.next += 1;
        Some(at.map(|at| known.addresses[at]))
    }

    fn keep_addresses(&self, host: &Host, addresses: Vec<IpAddr>) {
        let live = self.live();
        let settings = live.settings();
        let ttl = if addresses.is_empty() {
            settings.dns_nxdomain_ttl
        } else {
            settings.dns_max_ttl
        };
        let known = Known {
            until: self.now() + ttl,
            addresses,
            next: 0,
        };
        let name = Box::from(host.address.as_str());
        self.names().known.insert(name, known);
    }

    /// The names that are known: name, seconds that they hold, address.
    pub(crate) fn known_names(&self) -> Vec<(String, u64, String)> {
        let now = self.now();
        let names = self.names();
        let rows = names.known.iter().map(|(name, known)| {
            let left = known.until.saturating_sub(now).as_secs();
            let addresses: Vec<_> = known.addresses.iter().map(IpAddr::to_string).collect();
            (name.to_string(), left, addresses.join(","))
        });
        rows.collect()
    }
}
