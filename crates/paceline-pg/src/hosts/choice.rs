//! Which host the next connection goes to.

use std::time::Duration;

use super::{Balance, Host, HostState, Hosts, TargetAttrs};

/// Which host the next connection goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Choice {
    /// This one.
    Host(usize),
    /// This one, of which the role is not known: use the connection only if the server reports a
    /// role that [`Hosts::admits`].
    Ask(usize),
    /// None for now: clients wait.
    Park,
    /// None for so long that clients that wait get the error 57P03.
    Overdue,
}

impl Hosts {
    /// The host for the next connection.
    pub fn choose(&mut self, now: Duration) -> Choice {
        if let Some(host) = self.best() {
            self.next = (host + 1) % self.hosts.len();
            if self.settings.balance == Balance::InOrder {
                self.next = host;
            }
            return self.known(host);
        }
        let since = *self.without_since.get_or_insert(now);
        let park = self.settings.park;
        if !park.is_zero() && now.saturating_sub(since) >= park {
            Choice::Overdue
        } else {
            Choice::Park
        }
    }

    fn known(&self, host: usize) -> Choice {
        let is_unknown = self.hosts[host].state == HostState::Unknown;
        if is_unknown && self.settings.attrs != TargetAttrs::Any {
            Choice::Ask(host)
        } else {
            Choice::Host(host)
        }
    }

    /// The best host: of the best class that has one, by the balance.
    fn best(&self) -> Option<usize> {
        let classes = self.classes();
        classes.iter().find_map(|class| self.best_of(class))
    }

    /// The states that a connection may use, the best first.
    fn classes(&self) -> &'static [&'static [HostState]] {
        use HostState::{Primary, Replica, Unknown};
        match self.settings.attrs {
            TargetAttrs::Any => &[&[Primary, Replica, Unknown]],
            TargetAttrs::Primary => &[&[Primary], &[Unknown]],
            TargetAttrs::Standby => &[&[Replica], &[Unknown]],
            TargetAttrs::PreferStandby => &[&[Replica], &[Unknown], &[Primary]],
        }
    }

    fn best_of(&self, class: &[HostState]) -> Option<usize> {
        let count = self.hosts.len();
        let in_turn = (0..count).map(|offset| (self.next + offset) % count);
        let mut usable = in_turn.filter(|host| self.is_usable(&self.hosts[*host], class));
        match self.settings.balance {
            Balance::RoundRobin | Balance::InOrder => usable.next(),
            // The first of several that are equal: they take turns.
            Balance::LeastOutstanding => usable.min_by_key(|host| {
                let host = &self.hosts[*host];
                (host.outstanding, host.connections)
            }),
        }
    }

    fn is_usable(&self, host: &Host, class: &[HostState]) -> bool {
        let is_behind = match (self.settings.most_lag, host.lag) {
            (Some(most), Some(lag)) => host.state == HostState::Replica && lag > most,
            _ => false,
        };
        class.contains(&host.state) && !is_behind
    }

    /// Whether a connection to a host of this state may serve clients.
    #[must_use]
    pub fn admits(&self, state: HostState) -> bool {
        let classes = self.classes().iter();
        classes
            .flat_map(|class| class.iter())
            .any(|it| *it == state)
            && (state != HostState::Unknown || self.settings.attrs == TargetAttrs::Any)
    }

    /// Whether connections to this host may serve clients now. With `prefer-standby` a primary may
    /// only while no replica can: else clients would use the connections to it for as long as these
    /// live.
    ///
    /// # Panics
    /// If there is no host of this number.
    #[must_use]
    pub fn suits(&self, host: usize) -> bool {
        let is_usable = |class: &&[HostState]| self.is_usable(&self.hosts[host], class);
        let is_second_best = self.settings.attrs == TargetAttrs::PreferStandby
            && self.hosts[host].state == HostState::Primary
            && self.best_of(&[HostState::Replica]).is_some();
        self.classes().iter().any(is_usable) && !is_second_best
    }

    /// Whether there is a host for a new connection.
    #[must_use]
    pub fn has_usable(&self) -> bool {
        self.best().is_some()
    }

    /// The next connection begins with another host than this one.
    pub(super) fn pass_over(&mut self, host: usize) {
        if self.next == host {
            self.next = (host + 1) % self.hosts.len();
        }
    }

    /// Ends the time without a host, or begins it.
    pub(super) fn note_usable(&mut self, now: Duration) {
        if self.best().is_some() {
            self.without_since = None;
        } else {
            self.without_since.get_or_insert(now);
        }
    }

    /// A connection to this host was opened.
    ///
    /// # Panics
    /// If there is no host of this number.
    pub fn opened(&mut self, host: usize) {
        self.hosts[host].connections += 1;
    }

    /// A connection to this host has ended.
    ///
    /// # Panics
    /// If there is no host of this number.
    pub fn closed(&mut self, host: usize) {
        let connections = &mut self.hosts[host].connections;
        *connections = connections.saturating_sub(1);
    }

    /// So many clients use a connection to this host.
    ///
    /// # Panics
    /// If there is no host of this number.
    pub fn set_outstanding(&mut self, host: usize, clients: usize) {
        self.hosts[host].outstanding = clients;
    }
}
