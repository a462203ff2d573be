//! The services that the matrix drives: how each is started, what its clients speak, and which faults suit it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use super::catalogue::{self, Fault, Set};
use super::chat::{Chat, Guest};
use super::conversation::{Conversation, Findings};
use super::echo::Connection;
use super::wire::Nudge;

/// One of the examples. Its name is that of the example, of its threads, and of what it says at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Sends back what it is sent.
    Echo,
    /// Between clients and an `echo` that no fault strikes.
    Relay,
    /// Sends what one says to all the others.
    Chat,
    /// The same on `paceline-server`, with its rooms.
    Rooms,
    /// Ends TLS, on `paceline-server`, between another tunnel that begins it and an `echo`: no fault strikes these two.
    Tunnel,
}

/// The faults that the short form of `ci` makes with `relay`: at both of its sockets, at the one it opens, and when
/// there is room for only one of them.
const FEW_OF_RELAY: [&str; 8] = [
    "recvfrom-ECONNRESET",
    "sendto-EINTR",
    "connect-ECONNREFUSED",
    "socket-EMFILE",
    "short-sends",
    "from-nth-connect",
    "stopped-leader",
    "descriptors",
];

/// The same for `chat`: where a handler is called for messages of others, and where one guest's end is reported to all.
const FEW_OF_CHAT: [&str; 9] = [
    "sendto-ECONNRESET",
    "recvfrom-EINTR",
    "accept4-EMFILE",
    "spurious-wakes",
    "short-sends",
    "cut-sends",
    "sendto-EAGAIN-twice",
    "from-nth-recvfrom",
    "stopped-leader",
];

/// The same for `chat_rooms`: what other sessions send, what is kept, and the ends of connections.
const FEW_OF_ROOMS: [&str; 7] = [
    "sendto-ECONNRESET",
    "recvfrom-EINTR",
    "spurious-wakes",
    "short-sends",
    "cut-sends",
    "from-nth-recvfrom",
    "stopped-leader",
];

/// The same for `tls_tunnel`: records that come and go in pieces, and both of its sockets.
const FEW_OF_TUNNEL: [&str; 7] = [
    "recvfrom-ECONNRESET",
    "sendto-EINTR",
    "connect-ECONNREFUSED",
    "short-sends",
    "one-event-batches",
    "from-nth-connect",
    "stopped-leader",
];

impl Service {
    /// All of them.
    pub(super) const ALL: [Service; 5] = [
        Service::Echo,
        Service::Relay,
        Service::Chat,
        Service::Rooms,
        Service::Tunnel,
    ];

    /// What it is called.
    pub(super) fn name(self) -> &'static str {
        match self {
            Service::Echo => "echo",
            Service::Relay => "relay",
            Service::Chat => "chat",
            Service::Rooms => "chat_rooms",
            Service::Tunnel => "tls_tunnel",
        }
    }

    /// The package of which it is an example.
    pub(super) fn package(self) -> &'static str {
        match self {
            Service::Echo | Service::Relay | Service::Chat => "paceline",
            Service::Rooms | Service::Tunnel => "paceline-server",
        }
    }

    /// What the names of its pool's threads begin with.
    pub(super) fn thread_prefix(self) -> &'static str {
        match self {
            Service::Echo => "echo-",
            Service::Relay => "relay-",
            Service::Chat => "chat-",
            Service::Rooms | Service::Tunnel => "paceline-",
        }
    }

    /// The service behind it, which no fault strikes.
    pub(super) fn back_end(self) -> Option<Service> {
        match self {
            Service::Relay | Service::Tunnel => Some(Service::Echo),
            Service::Echo | Service::Chat | Service::Rooms => None,
        }
    }

    /// The arguments of the server under fault, and of the program between it and its clients, if there is one. Both
    /// share a certificate in the file at `certificate`.
    pub(super) fn arguments(self, certificate: &Path) -> (Vec<String>, Option<Vec<String>>) {
        let words = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned());
            words.chain([certificate.display().to_string()]).collect()
        };
        match self {
            Service::Tunnel => {
                let ends = words(&["--tls-self-signed", "--save-cert"]);
                let begins = words(&["--client", "--server-name", "localhost", "--trust"]);
                (ends, Some(begins))
            }
            _ => (Vec::new(), None),
        }
    }

    /// What its clients speak; a new one for every server.
    pub(super) fn speech(self) -> Speech {
        match self {
            Service::Echo | Service::Relay | Service::Tunnel => Speech::Echo,
            Service::Chat | Service::Rooms => Speech::Chat(Arc::default()),
        }
    }

    /// Its faults, in the order of the table, if it has this set.
    pub(super) fn faults(self, set: Set) -> Vec<Fault> {
        let all = catalogue::all(set);
        match self {
            Service::Echo | Service::Chat | Service::Rooms => all,
            Service::Relay | Service::Tunnel => all
                .into_iter()
                .map(before_another)
                .chain(catalogue::at_connect())
                .collect(),
        }
    }

    /// Those of them that the short form of `ci` makes; with `echo` it makes all.
    pub(super) fn few(self) -> Vec<Fault> {
        let mut faults = self.faults(Set::Epoll);
        let names: &[&str] = match self {
            Service::Echo => &[],
            Service::Relay => &FEW_OF_RELAY,
            Service::Chat => &FEW_OF_CHAT,
            Service::Rooms => &FEW_OF_ROOMS,
            Service::Tunnel => &FEW_OF_TUNNEL,
        };
        faults.retain(|fault| names.contains(&fault.name));
        faults
    }
}

/// A fault as it is made with another server behind. That there is no room for output is also said of that
/// one's socket, and there no client can make the edge; said once it does no harm, for the pool asks again.
fn before_another(fault: Fault) -> Fault {
    match fault.name {
        "sendto-EAGAIN-twice" => fault
            .skipped("a lie at the back-end's socket, where no client can make the missing edge"),
        _ => fault,
    }
}

/// What the clients of one server speak.
pub(super) enum Speech {
    /// Every message returns.
    Echo,
    /// Every message is sent to all the others.
    Chat(Arc<Chat>),
}

impl Speech {
    /// A new connection.
    pub(super) fn open(
        &self,
        address: SocketAddr,
        number: u64,
        nudge: Option<Nudge>,
    ) -> io::Result<Box<dyn Conversation>> {
        Ok(match self {
            Speech::Echo => Box::new(Connection::open(address, number, nudge)?),
            Speech::Chat(chat) => Box::new(Guest::open(chat, address, number, nudge)?),
        })
    }

    /// What shows only when all connections are closed.
    pub(super) fn settle(&self) -> Findings {
        match self {
            Speech::Echo => Findings::default(),
            Speech::Chat(chat) => chat.settle(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name that no fault has would choose nothing, silently.
    #[test]
    fn the_few_are_all_there() {
        assert_eq!(Service::Relay.few().len(), FEW_OF_RELAY.len());
        assert_eq!(Service::Chat.few().len(), FEW_OF_CHAT.len());
        assert_eq!(Service::Rooms.few().len(), FEW_OF_ROOMS.len());
        assert_eq!(Service::Tunnel.few().len(), FEW_OF_TUNNEL.len());
    }
}
