//! The addresses of servers: lists of hosts.

use std::fmt;

/// One host of a database, with its port.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Host {
    /// Its address.
    pub address: HostAddress,
    /// Its port; that of a Unix socket is part of the socket's name.
    pub port: u16,
}

/// How a host is reached.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HostAddress {
    /// By TCP: a name or an address.
    Tcp(Box<str>),
    /// By the Unix socket in this folder; `@` at its start is the abstract namespace.
    Unix(Box<str>),
}

impl Host {
    /// The path of the Unix socket, if it is one.
    #[must_use]
    pub fn socket_path(&self) -> Option<String> {
        match &self.address {
            HostAddress::Tcp(_) => None,
            HostAddress::Unix(folder) => Some(format!("{folder}/.s.PGSQL.{}", self.port)),
        }
    }
}

impl HostAddress {
    pub(super) fn read(text: &str) -> Self {
        if text.starts_with(['/', '@']) {
            Self::Unix(text.into())
        } else {
            Self::Tcp(text.into())
        }
    }

    /// As the configuration writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Tcp(name) => name,
            Self::Unix(folder) => folder,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            HostAddress::Tcp(name) if name.contains(':') => write!(f, "[{name}]:{}", self.port),
            HostAddress::Tcp(name) => write!(f, "{name}:{}", self.port),
            HostAddress::Unix(folder) => write!(f, "{folder}:{}", self.port),
        }
    }
}
