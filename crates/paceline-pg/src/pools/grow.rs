//! Decides when a pool opens a connection, and how pools share the limits of databases and users.
//!
//! A pool that would open a connection, but for the limit of its database or user, is listed as
//! `blocked` with both, under the arrival of its first client that lacks one. A connection that
//! ends or becomes idle makes room. The pool with the earliest such client takes it.
//!
//! A pool with servers that are never idle would starve the others. So a server that is given
//! back is closed when a client of a blocked pool has arrived before all that wait for this server,
//! but not before the server has served its pool for `switch_after`.

use std::{collections::BTreeSet, time::Duration};

use super::{
    book::{Book, Orders},
    entries::Blocked,
    list::List,
    orders::{OpenReason, Order},
    settings::has_room,
    CloseReason, ServerState,
};

/// The limits that pools share.
#[derive(Clone, Copy)]
enum Limit {
    OfDatabase,
    OfUser,
}

/// Whether a pool may open a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Room {
    Free,
    Full,
}

/// Whether idle servers of other pools are closed to make room.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Eviction {
    Allowed,
    Never,
}

/// Whether an attempt has changed anything.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Some,
    None,
}

const LIMITS: [Limit; 2] = [Limit::OfDatabase, Limit::OfUser];

impl<T> Book<T> {
    /// Opens as many connections as the clients of the pool want, and all limits allow.
    pub(super) fn grow(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) {
        while self.may_open(pool, now) && self.make_room(pool, Eviction::Allowed, orders) {
            self.open(pool, OpenReason::Demand, now, orders);
        }
        self.note_blocked(pool);
    }

    /// Whether the pool needs a connection, and its own rules allow one.
    fn may_open(&self, pool: u32, now: Duration) -> bool {
        let it = &self.pools[pool];
        it.demand() > 0 && has_room(it.connections(), it.limits.size) && self.may_log_in(pool, now)
    }

    /// Whether the pool may begin a login now.
    fn may_log_in(&self, pool: u32, now: Duration) -> bool {
        let it = &self.pools[pool];
        let (most, until) = match &it.failing {
            Some(failing) => (1, failing.until),
            None => (self.settings.parallel_logins.max(1), Duration::ZERO),
        };
        it.counts.opening < most && now >= until && self.gives_servers(pool)
    }

    fn open(&mut self, pool: u32, why: OpenReason, now: Duration, orders: &mut Orders<T>) {
        let server = self.add_server(pool, ServerState::Opening, now);
        orders.push(Order::Open {
            server: self.servers.id(server),
            pool: self.pools.id(pool),
            why,
        });
    }

    /// Opens a connection if the pool has fewer than its minimum. Closes no server of other pools.
    pub(super) fn open_minimum(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) {
        let it = &self.pools[pool];
        let is_forced = self.databases[it.database].settings.forced_user;
        let is_used = it.clients + it.waiting.len() + it.arriving.len() > 0;
        if it.connections() < it.limits.min
            && has_room(it.connections(), it.limits.size)
            && (is_used || is_forced)
            && it.counts.opening == 0
            && self.may_log_in(pool, now)
            && self.make_room(pool, Eviction::Never, orders)
        {
            self.open(pool, OpenReason::Minimum, now, orders);
        }
    }

    /// Opens a connection of the reserve for the first client, if it has waited long enough.
    pub(super) fn open_reserve(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) {
        let timeout = self.settings.reserve_timeout;
        let it = &self.pools[pool];
        let (size, reserve) = (it.limits.size, it.limits.reserve);
        let Some(first) = it.waiting.first() else {
            return;
        };
        let is_due = !timeout.is_zero()
            && now.saturating_sub(self.clients[first].since) >= timeout
            && size > 0
            && it.demand() > 0
            && (size..size + reserve).contains(&it.connections());
        if is_due && self.may_log_in(pool, now) && self.make_room(pool, Eviction::Allowed, orders) {
            let client = self.clients.id(first);
            self.open(pool, OpenReason::Reserve(client), now, orders);
        }
    }

    /// A connection of this pool has ended or is idle: opens others, for clients in the order of
    /// their arrival, in all pools that share a limit with it.
    pub(super) fn refill(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) {
        while let Some(next) = self.next_to_open(pool, now) {
            if self.open_one(next, now, orders) == Progress::None {
                break;
            }
        }
        self.note_blocked(pool);
        self.check_operations(orders);
    }

    /// The pool that opens a connection next, among this one and those that share its limits.
    fn next_to_open(&self, pool: u32, now: Duration) -> Option<u32> {
        let it = &self.pools[pool];
        let can_open = |pool: u32| self.could_open(pool, None, now);
        let own = self.first_ticket(pool).filter(|_| can_open(pool));
        let first = |blocked: &Blocked| blocked.iter().find(|(_, pool)| can_open(*pool)).copied();
        let all = [
            own.map(|ticket| (ticket, pool)),
            first(&self.databases[it.database].shared.blocked),
            first(&self.users[it.user].shared.blocked),
        ];
        all.into_iter().flatten().min().map(|(_, pool)| pool)
    }

    /// Opens one connection of a pool, if all limits allow it.
    fn open_one(&mut self, pool: u32, now: Duration, orders: &mut Orders<T>) -> Progress {
        let opens = self.may_open(pool, now) && self.make_room(pool, Eviction::Allowed, orders);
        if opens {
            self.open(pool, OpenReason::Demand, now, orders);
        }
        self.note_blocked(pool);
        if opens {
            Progress::Some
        } else {
            Progress::None
        }
    }

    /// Whether the pool would open a connection now, if a connection of `freed` ended.
    fn could_open(&self, pool: u32, freed: Option<u32>, now: Duration) -> bool {
        let fits = |limit| self.fits(pool, limit, freed, Eviction::Allowed);
        self.may_open(pool, now) && LIMITS.into_iter().all(fits)
    }

    /// The arrival of the first client without a connection that is opening or in a check for it.
    fn first_ticket(&self, pool: u32) -> Option<u64> {
        let it = &self.pools[pool];
        let mut covered = it.counts.opening + it.counts.checking;
        let mut arriving = it.arriving.first().filter(|_| !it.has_welcome);
        let mut waiting = it.waiting.first();
        loop {
            let of = |client: Option<u32>| client.map(|client| self.clients[client].ticket);
            let [early, late] = [of(arriving), of(waiting)];
            let is_arriving = early.is_some_and(|early| late.is_none_or(|late| early < late));
            let next = if is_arriving { early } else { late };
            if covered == 0 || next.is_none() {
                return next;
            }
            covered -= 1;
            if is_arriving {
                // The first server welcomes all arriving clients.
                arriving = None;
            } else {
                waiting = waiting.and_then(|client| List::<0>::after(&self.clients, client));
            }
        }
    }

    /// Opens connections in all pools, for clients in the order of their arrival.
    pub(super) fn grow_all(&mut self, now: Duration, orders: &mut Orders<T>) {
        let pools = self.pools.iter().map(|(pool, _)| pool);
        let wishes = pools.filter_map(|pool| Some((self.first_ticket(pool)?, pool)));
        let mut wishes: BTreeSet<(u64, u32)> = wishes.collect();
        while let Some((_, pool)) = wishes.pop_first() {
            if self.may_open(pool, now) && self.open_one(pool, now, orders) == Progress::Some {
                let next = self.first_ticket(pool);
                wishes.extend(next.map(|ticket| (ticket, pool)));
            }
            self.note_blocked(pool);
        }
    }

    /// How many connections share this limit with the pool, and the limit.
    fn shared(&self, pool: u32, limit: Limit) -> (usize, usize) {
        let it = &self.pools[pool];
        match limit {
            Limit::OfDatabase => {
                let database = &self.databases[it.database];
                let most = database.settings.max_connections;
                let most = most.unwrap_or(self.settings.max_database_connections);
                (database.shared.connections, most)
            }
            Limit::OfUser => {
                let user = &self.users[it.user];
                let most = user.settings.max_connections;
                let most = most.unwrap_or(self.settings.max_user_connections);
                (user.shared.connections, most)
            }
        }
    }

    fn room(&self, pool: u32, limit: Limit) -> Room {
        let (count, most) = self.shared(pool, limit);
        if has_room(count, most) {
            Room::Free
        } else {
            Room::Full
        }
    }

    /// Whether the limit lets the pool open a connection, if one of `freed` ended.
    fn fits(&self, pool: u32, limit: Limit, freed: Option<u32>, eviction: Eviction) -> bool {
        let (count, most) = self.shared(pool, limit);
        let is_freed = freed.is_some_and(|freed| self.share(pool, freed, limit));
        has_room(count - usize::from(is_freed), most)
            || self.longest_idle(pool, limit, eviction).is_some()
    }

    fn share(&self, one: u32, other: u32, limit: Limit) -> bool {
        let (one, other) = (&self.pools[one], &self.pools[other]);
        match limit {
            Limit::OfDatabase => one.database == other.database,
            Limit::OfUser => one.user == other.user,
        }
    }

    /// Closes idle servers of other pools as far as a shared limit requires. Returns whether the
    /// pool may then open a connection.
    fn make_room(&mut self, pool: u32, eviction: Eviction, orders: &mut Orders<T>) -> bool {
        // Check both limits first: an eviction for one is useless while the other stays full.
        let fits = |limit| self.fits(pool, limit, None, eviction);
        LIMITS.into_iter().all(fits) && self.evict(pool, eviction, orders)
    }

    fn evict(&mut self, pool: u32, eviction: Eviction, orders: &mut Orders<T>) -> bool {
        LIMITS.into_iter().all(|limit| {
            while self.room(pool, limit) == Room::Full {
                let Some(idle) = self.longest_idle(pool, limit, eviction) else {
                    return false;
                };
                self.close_idle(idle, CloseReason::Evicted, orders);
            }
            true
        })
    }

    fn longest_idle(&self, pool: u32, limit: Limit, eviction: Eviction) -> Option<u32> {
        if eviction == Eviction::Never {
            return None;
        }
        let it = &self.pools[pool];
        match limit {
            Limit::OfDatabase => self.databases[it.database].shared.idle.first(),
            Limit::OfUser => self.users[it.user].shared.idle.first(),
        }
    }

    /// Lists the pool as blocked with its database and user if a client lacks a connection, under
    /// the arrival of the first such client. Otherwise removes it from both lists.
    pub(super) fn note_blocked(&mut self, pool: u32) {
        let it = &self.pools[pool];
        let is_hungry = it.demand() > 0
            && has_room(it.connections(), it.limits.size)
            && self.gives_servers(pool);
        if !is_hungry && it.blocked == [None; 2] {
            return;
        }
        let ticket = self.first_ticket(pool).filter(|_| is_hungry);
        for limit in LIMITS {
            // Other pools change which limit is reached, so the pool is listed with both.
            let (_, most) = self.shared(pool, limit);
            self.list_blocked(pool, limit, ticket.filter(|_| most > 0));
        }
    }

    fn list_blocked(&mut self, pool: u32, limit: Limit, ticket: Option<u64>) {
        let it = &mut self.pools[pool];
        let before = std::mem::replace(&mut it.blocked[limit as usize], ticket);
        if before == ticket {
            return;
        }
        let list = match limit {
            Limit::OfDatabase => &mut self.databases[it.database].shared.blocked,
            Limit::OfUser => &mut self.users[it.user].shared.blocked,
        };
        if let Some(before) = before {
            list.remove(&(before, pool));
        }
        if let Some(ticket) = ticket {
            list.insert((ticket, pool));
        }
    }

    /// Whether a client of another pool, which only a limit shared with this server's pool keeps
    /// waiting, has arrived before all clients that wait for this server.
    pub(super) fn others_are_first(&self, slot: u32, now: Duration) -> bool {
        let server = &self.servers[slot];
        let Some(other) = self.first_other(server.pool, now) else {
            return false;
        };
        let own = self.pools[server.pool].waiting.first();
        let own = own.map(|client| self.clients[client].ticket);
        let is_due = now.saturating_sub(server.opened_at) >= self.settings.switch_after;
        // If no client of its own pool waits, the server becomes idle, and another pool evicts it.
        own.is_some_and(|own| other < own) && is_due
    }

    /// The first arrival among the other pools that would open a connection if one of this pool
    /// ended.
    fn first_other(&self, own: u32, now: Duration) -> Option<u64> {
        let is_served =
            |(_, pool): &&(u64, u32)| *pool != own && self.could_open(*pool, Some(own), now);
        let it = &self.pools[own];
        let of_database = &self.databases[it.database].shared.blocked;
        let of_user = &self.users[it.user].shared.blocked;
        let firsts = [
            of_database.iter().find(is_served),
            of_user.iter().find(is_served),
        ];
        firsts
            .into_iter()
            .flatten()
            .map(|(ticket, _)| *ticket)
            .min()
    }

    /// A server has become idle: a blocked pool may close it and open one of its own.
    pub(super) fn let_others_evict(&mut self, slot: u32, now: Duration, orders: &mut Orders<T>) {
        let own = self.servers[slot].pool;
        let it = &self.pools[own];
        let of_database = &self.databases[it.database].shared.blocked;
        let of_user = &self.users[it.user].shared.blocked;
        if !of_database.is_empty() || !of_user.is_empty() {
            self.refill(own, now, orders);
        }
    }
}
