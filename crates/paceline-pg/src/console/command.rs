//! The commands of the console.

use std::time::Duration;

use super::{
    refusal::Refusal,
    words::{words, Word},
};

/// The rights of a user of the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Everything: `admin_users`, and the process's own user on the Unix socket.
    Admin,
    /// Only `SHOW`: `stats_users`.
    Stats,
}

/// A command, ready to be carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing but white space.
    Empty,
    /// A table.
    Show(Show),
    /// The usage, as a notice.
    Help,
    /// A parameter of PostgreSQL that drivers ask for: its name and the console's fixed value.
    ShowParameter(&'static str, &'static str),
    /// Such a parameter is set: a notice says that this has no effect.
    SetIgnored,
    /// A key of the configuration is set.
    Set(Box<str>, Box<str>),
    /// Read the configuration again.
    Reload,
    /// Stop assigning servers, of one database or all.
    Pause(Option<Box<str>>),
    /// Assign servers again.
    Resume(Option<Box<str>>),
    /// Stop reading from all sockets.
    Suspend,
    /// Refuse new logins of a database.
    Disable(Box<str>),
    /// Admit logins of a database again.
    Enable(Box<str>),
    /// Pause, and close all connections.
    Kill(Option<Box<str>>),
    /// Close one client.
    KillClient(u64),
    /// Replace server connections as they become free.
    Reconnect(Option<Box<str>>),
    /// Wait until the connections that `RECONNECT` replaces are closed.
    WaitClose(Option<Box<str>>),
    /// End the process.
    Shutdown(Shutdown),
}

/// How the process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// At once.
    Now,
    /// When all servers are free; waiting clients fail.
    WaitForServers,
    /// When all clients have left.
    WaitForClients,
    /// Each client is disconnected at the end of its transaction; all of them after this time.
    WaitForTransactions(Option<Duration>),
}

/// A table of `SHOW`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the table of its name")]
pub enum Show {
    ActiveSockets,
    Clients,
    Config,
    Databases,
    DnsHosts,
    DnsZones,
    Hosts,
    Lists,
    Mem,
    PeerPools,
    Peers,
    Pools,
    Servers,
    Sockets,
    State,
    Stats,
    StatsAverages,
    StatsTotals,
    Totals,
    Users,
    Version,
}

/// The tables by the word behind `SHOW`.
pub(super) const TABLES: [(&str, Show); 21] = [
    ("active_sockets", Show::ActiveSockets),
    ("clients", Show::Clients),
    ("config", Show::Config),
    ("databases", Show::Databases),
    ("dns_hosts", Show::DnsHosts),
    ("dns_zones", Show::DnsZones),
    ("hosts", Show::Hosts),
    ("lists", Show::Lists),
    ("mem", Show::Mem),
    ("peer_pools", Show::PeerPools),
    ("peers", Show::Peers),
    ("pools", Show::Pools),
    ("servers", Show::Servers),
    ("sockets", Show::Sockets),
    ("state", Show::State),
    ("stats", Show::Stats),
    ("stats_averages", Show::StatsAverages),
    ("stats_totals", Show::StatsTotals),
    ("totals", Show::Totals),
    ("users", Show::Users),
    ("version", Show::Version),
];

/// Parameters that drivers ask for at their start, with the answers.
const PARAMETERS: [(&str, &str); 5] = [
    ("client_encoding", "UTF-8"),
    ("default_transaction_isolation", "read committed"),
    ("standard_conforming_strings", "on"),
    ("datestyle", "ISO"),
    ("timezone", "GMT"),
];

/// The longest name of a database or key, and the longest value.
const LONGEST: usize = 255;

impl Command {
    /// Reads the text of a query.
    ///
    /// # Errors
    /// The text is no command, or the user may not give it.
    pub fn parse(text: &str, access: Access) -> Result<Self, Refusal> {
        let invalid = || Refusal::InvalidCommand(text.into());
        let words = words(text).ok_or_else(invalid)?;
        let is_long = |word: &Word| word.value().is_some_and(|value| value.len() > LONGEST);
        if words.iter().any(is_long) {
            return Err(Refusal::BadArguments);
        }
        let Some((verb, rest)) = words.split_first() else {
            return if text.contains(';') {
                Err(invalid())
            } else {
                Ok(Self::Empty)
            };
        };
        let verb = verb.name().ok_or_else(invalid)?.to_ascii_lowercase();
        if verb == "show" || verb == "select" {
            return Self::show(rest).ok_or_else(invalid)?;
        }
        let command = Self::change(&verb, rest).ok_or_else(invalid)?;
        command.and_then(|command| command.allowed_for(access))
    }

    fn allowed_for(self, access: Access) -> Result<Self, Refusal> {
        match (&self, access) {
            (Self::SetIgnored, _) | (_, Access::Admin) => Ok(self),
            (_, Access::Stats) => Err(Refusal::AdminNeeded),
        }
    }

    /// The command for the words behind `SHOW`; `None` if it is no command.
    fn show(rest: &[Word]) -> Option<Result<Self, Refusal>> {
        let [word] = rest else { return None };
        let parameter = PARAMETERS.into_iter().find(|(name, _)| word.is(name));
        if let Some((name, value)) = parameter {
            return Some(Ok(Self::ShowParameter(name, value)));
        }
        if word.is("help") {
            return Some(Ok(Self::Help));
        }
        if word.is("fds") {
            return Some(Err(Refusal::FdsRefused));
        }
        let table = TABLES.into_iter().find(|(name, _)| word.is(name));
        table.map(|(_, table)| Ok(Self::Show(table)))
    }

    /// Any command but `SHOW`; `None` if it is no command.
    fn change(verb: &str, rest: &[Word]) -> Option<Result<Self, Refusal>> {
        match verb {
            "set" => Self::set(rest).map(Ok),
            "shutdown" => shutdown(rest).map(|how| Ok(Self::Shutdown(how))),
            "reload" => rest.is_empty().then_some(Ok(Self::Reload)),
            "suspend" => rest.is_empty().then_some(Ok(Self::Suspend)),
            "disable" => Some(required(name(rest)?).map(Self::Disable)),
            "enable" => Some(required(name(rest)?).map(Self::Enable)),
            "kill_client" => Some(client(name(rest)?).map(Self::KillClient)),
            "pause" => name(rest).map(Self::Pause).map(Ok),
            "resume" => name(rest).map(Self::Resume).map(Ok),
            "kill" => name(rest).map(Self::Kill).map(Ok),
            "reconnect" => name(rest).map(Self::Reconnect).map(Ok),
            "wait_close" => name(rest).map(Self::WaitClose).map(Ok),
            _ => None,
        }
    }

    fn set(rest: &[Word]) -> Option<Self> {
        let [key, is, value] = rest else { return None };
        let (key, value) = (key.name().filter(|key| !key.is_empty())?, value.value()?);
        if !(*is == Word::Equals || is.is("to")) {
            return None;
        }
        let is_ignored = PARAMETERS
            .iter()
            .any(|(name, _)| name.eq_ignore_ascii_case(key));
        Some(if is_ignored {
            Self::SetIgnored
        } else {
            Self::Set(key.into(), value.into())
        })
    }
}

/// At most one name.
#[allow(clippy::option_option, reason = "the outer one: it is a command")]
fn name(rest: &[Word]) -> Option<Option<Box<str>>> {
    match rest {
        [] => Some(None),
        // As in PgBouncer, an empty name is none.
        [word] => word
            .name()
            .map(|name| (!name.is_empty()).then(|| name.into())),
        _ => None,
    }
}

fn required(name: Option<Box<str>>) -> Result<Box<str>, Refusal> {
    name.ok_or(Refusal::DatabaseNeeded)
}

fn client(id: Option<Box<str>>) -> Result<u64, Refusal> {
    id.and_then(|id| id.parse().ok())
        .ok_or(Refusal::InvalidClient)
}

fn shutdown(rest: &[Word]) -> Option<Shutdown> {
    match rest {
        [] => Some(Shutdown::Now),
        [how] if how.is("wait_for_servers") => Some(Shutdown::WaitForServers),
        [how] if how.is("wait_for_clients") => Some(Shutdown::WaitForClients),
        [how] if how.is("wait_for_transactions") => Some(Shutdown::WaitForTransactions(None)),
        [how, limit] if how.is("wait_for_transactions") => {
            let seconds = limit.name()?.parse::<u32>().ok()?;
            let limit = Duration::from_secs(seconds.into());
            Some(Shutdown::WaitForTransactions(Some(limit)))
        }
        _ => None,
    }
}
