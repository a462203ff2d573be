//! What probes and connections report of hosts, and what follows.

use std::time::Duration;

use super::{Host, HostState, Hosts};

/// What a server says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// `in_hot_standby` is off.
    Primary,
    /// `in_hot_standby` is on.
    Replica,
}

/// What was observed of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// It has answered a probe, or reported its role at a login.
    Answer {
        /// What it says it is.
        role: Role,
        /// Its timeline, if it was asked.
        timeline: Option<u32>,
        /// How far it is behind, if that is known.
        lag: Option<Duration>,
    },
    /// It did not answer a probe in time, or refused a connection.
    NoAnswer,
    /// A connection to it was lost, or it said that it stops, or that it takes no writes (57P01,
    /// 57P02, 25006): a probe is due.
    Doubtful,
}

/// What has changed. Connections to a host that is no longer what they were opened for must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The host.
    pub host: usize,
    /// What it was.
    pub before: HostState,
    /// What it is.
    pub after: HostState,
}

impl Host {
    fn fail(&mut self, fall: u32) {
        self.successes = 0;
        self.failures = self.failures.saturating_add(1);
        if fall < u32::MAX && self.failures >= fall.max(1) {
            self.state = HostState::Down;
        }
    }

    /// Whether the host is up, after a success.
    fn succeed(&mut self, rise: u32) -> bool {
        self.failures = 0;
        self.successes = self.successes.saturating_add(1);
        self.state != HostState::Down || self.successes >= rise.max(1)
    }
}

impl Hosts {
    /// Takes over what was observed, and appends what has changed.
    ///
    /// # Panics
    /// If there is no host of this number.
    pub fn observe(
        &mut self,
        host: usize,
        observed: Observed,
        now: Duration,
        changes: &mut Vec<Change>,
    ) {
        let before = self.primary();
        let state = self.hosts[host].state;
        let next_probe = now + self.settings.probe_every;
        let it = &mut self.hosts[host];
        match observed {
            Observed::Doubtful => {
                it.probe_at = now;
                return;
            }
            Observed::NoAnswer => {
                it.fail(self.settings.fall);
                (it.probe_at, it.is_probing) = (next_probe, false);
                self.pass_over(host);
            }
            Observed::Answer {
                role,
                timeline,
                lag,
            } => {
                (it.probe_at, it.is_probing) = (next_probe, false);
                it.lag = lag;
                it.timeline = timeline.or(it.timeline);
                if it.succeed(self.settings.rise) {
                    self.highest_timeline = self.highest_timeline.max(timeline.unwrap_or(0));
                    self.take_role(host, role);
                }
            }
        }
        self.report(host, state, changes);
        if let Some(before) = before.filter(|before| *before != host) {
            self.report(before, HostState::Primary, changes);
        }
        self.note_usable(now);
    }

    fn report(&self, host: usize, before: HostState, changes: &mut Vec<Change>) {
        let after = self.hosts[host].state;
        if before != after {
            changes.push(Change {
                host,
                before,
                after,
            });
        }
    }

    fn take_role(&mut self, host: usize, role: Role) {
        self.hosts[host].state = match role {
            Role::Replica => HostState::Replica,
            Role::Primary => self.judge_primary(host),
        };
    }

    /// A host says that it is a primary. Of two, the one with the higher timeline is; without
    /// timelines the one that was it before.
    fn judge_primary(&mut self, host: usize) -> HostState {
        let own = self.hosts[host].timeline;
        if own.is_some_and(|own| own < self.highest_timeline) {
            return HostState::Fenced;
        }
        let Some(other) = self.primary().filter(|other| *other != host) else {
            return HostState::Primary;
        };
        if own > self.hosts[other].timeline {
            self.hosts[other].state = HostState::Fenced;
            HostState::Primary
        } else {
            HostState::Fenced
        }
    }

    /// The hosts whose probe is due; each is listed once until its probe is observed.
    pub fn due(&mut self, now: Duration, hosts: &mut Vec<usize>) {
        for (number, host) in self.hosts.iter_mut().enumerate() {
            if !host.is_probing && host.probe_at <= now {
                host.is_probing = true;
                hosts.push(number);
            }
        }
    }

    /// The probe of this host could not begin yet: it is due again.
    ///
    /// # Panics
    /// If there is no host of this number.
    pub fn put_off(&mut self, host: usize, now: Duration) {
        let host = &mut self.hosts[host];
        (host.probe_at, host.is_probing) = (now, false);
    }

    /// When the next probe is due.
    #[must_use]
    pub fn next_probe(&self) -> Option<Duration> {
        let idle = self.hosts.iter().filter(|host| !host.is_probing);
        idle.map(|host| host.probe_at).min()
    }
}
