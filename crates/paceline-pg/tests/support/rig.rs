//! Relays between clients that are bytes in memory and real server connections, as the front-end
//! runs them: one thing after the other, bytes in pieces of any length.

use paceline_pg::protocol::{
    AfterLoss, Broken, ClientHalf, Counts, Next, Output, Relay, RelaySettings, Release, ServerHalf,
    Violation,
};

use super::session::Session;

/// Clients and servers.
#[derive(Debug)]
pub(crate) struct Rig {
    /// The clients.
    pub(crate) clients: Vec<Client>,
    /// The servers.
    pub(crate) servers: Vec<Server>,
    /// What the relays have in common.
    pub(crate) settings: RelaySettings,
    /// Whether replies are taken between the pieces of a client.
    pub(crate) polls: bool,
    /// The length of the pieces in which bytes are given to the relays.
    pub(crate) piece: usize,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its half.
    pub(crate) half: ClientHalf,
    /// What it has sent and the relay has not taken.
    pub(crate) pending: Vec<u8>,
    /// What it has received.
    pub(crate) received: Vec<u8>,
    /// Whether it has said that it leaves.
    pub(crate) has_left: bool,
    /// The server that it has.
    pub(crate) server: Option<usize>,
}

/// A server connection.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its half.
    pub(crate) half: ServerHalf,
    /// The connection.
    pub(crate) session: Session,
    /// What it has sent and the relay has not taken.
    pending: Vec<u8>,
    /// Whether a client has it.
    is_taken: bool,
    /// What was counted.
    pub(crate) counts: Counts,
}

/// Why a relay has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client broke the protocol.
    Violation(Violation),
    /// The server did.
    Broken(Broken),
    /// The server has closed the connection.
    Closed,
}

impl Rig {
    /// So many clients, and these server connections.
    pub(crate) fn new(settings: RelaySettings, clients: usize, sessions: Vec<Session>) -> Self {
        let server = |session: Session| Server {
            half: ServerHalf::new(session.values(&settings.tracked)),
            session,
            pending: Vec::new(),
            is_taken: false,
            counts: Counts::default(),
        };
        let servers: Vec<Server> = sessions.into_iter().map(server).collect();
        let client = || Client {
            half: ClientHalf::new(servers[0].half.parameters().clone(), true),
            pending: Vec::new(),
            received: Vec::new(),
            has_left: false,
            server: None,
        };
        Self {
            clients: (0..clients).map(|_| client()).collect(),
            servers,
            settings,
            polls: false,
            piece: usize::MAX,
        }
    }

    /// The client sends bytes.
    pub(crate) fn send(&mut self, client: usize, bytes: &[u8]) -> Result<(), End> {
        for piece in bytes.chunks(self.piece) {
            self.clients[client].pending.extend_from_slice(piece);
            self.take(client)?;
            if self.polls {
                self.poll(client)?;
            }
        }
        Ok(())
    }

    /// The client gets this server, if it has none.
    pub(crate) fn assign(&mut self, client: usize, server: usize) {
        assert!(!self.servers[server].is_taken, "the server is taken");
        assert_eq!(self.servers[server].half.may_release(), Release::Allowed);
        self.servers[server].is_taken = true;
        self.clients[client].server = Some(server);
        let mut bytes = Vec::new();
        self.relay(client, |relay| relay.begin(&mut bytes));
        self.servers[server].session.send(&bytes);
    }

    /// Takes what the client has sent.
    fn take(&mut self, client: usize) -> Result<(), End> {
        if self.clients[client].server.is_none() {
            let free = self.servers.iter().position(|server| !server.is_taken);
            self.assign(client, free.expect("a server is free"));
        }
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        let pending = std::mem::take(&mut self.clients[client].pending);
        let taken = self.relay(client, |relay| {
            let mut out = Output {
                to_server: &mut to_server,
                to_client: &mut to_client,
            };
            relay.from_client(&pending, &mut out)
        });
        let taken = taken.map_err(End::Violation)?;
        self.clients[client].has_left = taken.next == Next::Terminate;
        let server = self.clients[client].server.expect("it has one");
        self.servers[server].session.send(&pending[..taken.direct]);
        self.servers[server].session.send(&to_server);
        let has_sent = taken.direct > 0 || !to_server.is_empty();
        if !has_sent && taken.release == Release::Allowed {
            self.clients[client].server = None;
            self.servers[server].is_taken = false;
        }
        self.clients[client].pending = pending[taken.consumed..].to_vec();
        self.clients[client].received.extend_from_slice(&to_client);
        Ok(())
    }

    /// Waits for bytes of the client's server, and takes them.
    pub(crate) fn receive(&mut self, client: usize) -> Result<Release, End> {
        let server = self.clients[client].server.expect("it has a server");
        let mut bytes = Vec::new();
        let more = self.servers[server].session.receive(&mut bytes);
        more.ok_or(End::Closed)?;
        self.received_of_server(client, server, &bytes)
    }

    /// Takes the bytes of the client's server that have come, if it has one.
    pub(crate) fn poll(&mut self, client: usize) -> Result<(), End> {
        let Some(server) = self.clients[client].server else {
            return Ok(());
        };
        let mut bytes = Vec::new();
        self.servers[server].session.poll(&mut bytes);
        self.received_of_server(client, server, &bytes).map(drop)
    }

    fn received_of_server(
        &mut self,
        client: usize,
        server: usize,
        bytes: &[u8],
    ) -> Result<Release, End> {
        let mut release = Release::Held;
        for piece in bytes.chunks(self.piece) {
            self.servers[server].pending.extend_from_slice(piece);
            release = self.give(client, server)?;
        }
        if release == Release::Allowed {
            self.clients[client].server = None;
            self.servers[server].is_taken = false;
        }
        Ok(release)
    }

    fn give(&mut self, client: usize, server: usize) -> Result<Release, End> {
        let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
        let pending = std::mem::take(&mut self.servers[server].pending);
        let given = self.relay(client, |relay| {
            let mut out = Output {
                to_server: &mut to_server,
                to_client: &mut to_client,
            };
            relay.from_server(&pending, &mut out)
        });
        let given = given.map_err(End::Broken)?;
        assert!(to_server.is_empty(), "replies cause no requests");
        let received = &mut self.clients[client].received;
        received.extend_from_slice(&pending[..given.direct]);
        received.extend_from_slice(&to_client);
        self.servers[server].pending = pending[given.consumed..].to_vec();
        let counts = &mut self.servers[server].counts;
        counts.queries += given.counts.queries;
        counts.transactions += given.counts.transactions;
        if given.may_resume {
            self.take(client)?;
            return Ok(match self.clients[client].server {
                Some(_) => self.relay(client, |relay| relay.release()),
                None => Release::Allowed,
            });
        }
        Ok(given.release)
    }

    /// The client's server is lost. The server is not used again.
    pub(crate) fn lose(&mut self, client: usize) -> AfterLoss {
        let mut bytes = Vec::new();
        let after = self.relay(client, |relay| relay.server_lost(&mut bytes));
        self.clients[client].received.extend_from_slice(&bytes);
        self.clients[client].server = None;
        after
    }

    /// Receives until the client's server is free.
    pub(crate) fn finish(&mut self, client: usize) -> Result<(), End> {
        while self.clients[client].server.is_some() {
            let release = self.receive(client)?;
            let has_ended = self.servers[self.clients[client].server.unwrap_or(0)]
                .half
                .farewell();
            let is_pinned = release == Release::Pinned && has_ended.is_none();
            assert!(!is_pinned, "the server is pinned");
        }
        Ok(())
    }

    /// Receives until the client has got so many messages of this type.
    pub(crate) fn await_messages(
        &mut self,
        client: usize,
        tag: u8,
        count: usize,
    ) -> Result<(), End> {
        let is_there = |rig: &Self| {
            let tags = tags(&rig.clients[client].received);
            tags.iter().filter(|each| **each == tag).count() >= count
        };
        while !is_there(self) {
            let _ = self.receive(client)?;
        }
        Ok(())
    }

    /// Everything that the client has received since the last call.
    pub(crate) fn received(&mut self, client: usize) -> Vec<u8> {
        std::mem::take(&mut self.clients[client].received)
    }

    fn relay<T>(&mut self, client: usize, act: impl FnOnce(&mut Relay<'_>) -> T) -> T {
        let server = self.clients[client].server.expect("it has a server");
        act(&mut Relay {
            client: &mut self.clients[client].half,
            server: &mut self.servers[server].half,
            settings: &self.settings,
        })
    }
}

/// The types of the messages in a stream; the last one may be incomplete.
pub(crate) fn tags(stream: &[u8]) -> Vec<u8> {
    let mut tags = Vec::new();
    let mut at = 0;
    while let Some(header) = paceline_pg_wire::Header::first(&stream[at..]).expect("good messages")
    {
        tags.push(header.tag);
        at = (at + header.message()).min(stream.len());
    }
    tags
}
