//! Lines of the log about clients and servers.

use std::fmt;

use super::{client::Client, server::Server, state::Front};
use crate::log::{Level, Peer, Side};

impl Front {
    /// A line about no connection.
    pub(crate) fn note(&self, level: Level, text: fmt::Arguments<'_>) {
        self.log.write(level, text);
    }

    pub(crate) fn note_client(&self, level: Level, client: &Client, text: fmt::Arguments<'_>) {
        if !self.log.is_on(level) {
            return;
        }
        let facts = client.facts().clone();
        let named = |name: &std::sync::Arc<str>| (!name.is_empty()).then(|| name.to_string());
        let (database, user) = (named(&facts.database), named(&facts.user));
        let peer = Peer {
            side: Side::Client,
            id: client.number,
            database: database.as_deref(),
            user: user.as_deref(),
            address: &client.address.logged(),
            port: client.address.port(),
        };
        self.log.write(level, format_args!("{peer}{text}"));
    }

    pub(crate) fn note_server(&self, level: Level, server: &Server, text: fmt::Arguments<'_>) {
        let address = server.address;
        self.note_of_server(level, server.number, &server.pool, &address, text);
    }

    pub(crate) fn note_of_server(
        &self,
        level: Level,
        number: u64,
        pool: &super::registers::PoolEntry,
        address: &super::sockets::Address,
        text: fmt::Arguments<'_>,
    ) {
        let peer = Peer {
            side: Side::Server,
            id: number,
            database: Some(&pool.database.name),
            user: Some(&pool.user),
            address: &address.logged(),
            port: address.port(),
        };
        self.log.write(level, format_args!("{peer}{text}"));
    }

    /// A server is closed for this reason.
    pub(crate) fn log_server_closing(&self, server: &Server, reason: &str) {
        if self.live().settings().log_disconnections {
            let age = self.now().saturating_sub(server.connected_at).as_secs();
            self.note_server(
                Level::Log,
                server,
                format_args!("closing because: {reason} (age={age}s)"),
            );
        }
    }
}

impl super::session::Session {
    /// The client is closed for this reason.
    pub(super) fn log_closing(&self, reason: &str) {
        let (front, client) = self.subject();
        if front.live().settings().log_disconnections {
            let since = client.facts().connected_at;
            let age = front.now().saturating_sub(since).as_secs();
            front.note_client(
                Level::Log,
                client,
                format_args!("closing because: {reason} (age={age}s)"),
            );
        }
    }

    /// The client gets this error from the front itself.
    pub(super) fn log_refusal(&self, text: &str) {
        let (front, client) = self.subject();
        if front.live().settings().log_pooler_errors {
            front.note_client(Level::Warning, client, format_args!("pooler error: {text}"));
        }
    }
}
