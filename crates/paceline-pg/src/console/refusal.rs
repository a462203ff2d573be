//! Why a command is refused, in PgBouncer's words.

use std::fmt;

/// Why a command is refused. `Display` is the text that the client gets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// The text is no command.
    InvalidCommand(Box<str>),
    /// A word of the command is too long, or empty.
    BadArguments,
    /// The user may only give `SHOW`.
    AdminNeeded,
    /// There is no such database.
    NoSuchDatabase(Box<str>),
    /// The command needs a database.
    DatabaseNeeded,
    /// The command is not for the console's own database: its verb, and the name.
    ConsoleItself(&'static str, Box<str>),
    /// There is no client with this id.
    ClientNotFound,
    /// The id of a client is no number.
    InvalidClient,
    /// Everything is paused or suspended already.
    AlreadyPaused,
    /// Nothing is paused or suspended.
    NotPaused,
    /// The database is not paused.
    DatabaseNotPaused(Box<str>),
    /// A database is paused.
    CannotSuspend,
    /// A shutdown is under way.
    ShuttingDown,
    /// The value of `SET` is refused.
    SetFailed,
    /// The files have an error: the old configuration stays in effect.
    ReloadFailed,
    /// `SHOW FDS` hands sockets to another process: not supported.
    FdsRefused,
    /// The extended query protocol was used.
    ExtendedQuery,
    /// A message that the console does not know, by its type.
    UnsupportedMessage(u8),
}

impl Refusal {
    /// Its SQLSTATE.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::ReloadFailed => "F0000",
            _ => "08P01",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InvalidCommand(text) => write!(f, "invalid command '{text}', use SHOW HELP;"),
            Self::NoSuchDatabase(name) => write!(f, "no such database: {name}"),
            Self::ConsoleItself(verb, name) => write!(f, "cannot {verb} admin db: {name}"),
            Self::DatabaseNotPaused(name) => write!(f, "database {name} is not paused"),
            Self::UnsupportedMessage(tag) => {
                write!(f, "unsupported packet type for admin console: {tag}")
            }
            fixed => f.write_str(fixed.text()),
        }
    }
}

impl Refusal {
    /// The texts without a name in them.
    fn text(&self) -> &'static str {
        match self {
            Self::BadArguments => "bad arguments",
            Self::AdminNeeded => "admin access needed",
            Self::DatabaseNeeded => "a database is required",
            Self::ClientNotFound => "client not found",
            Self::InvalidClient => "invalid client pointer supplied",
            Self::AlreadyPaused => "already suspended/paused",
            Self::NotPaused => "pooler is not paused/suspended",
            Self::CannotSuspend => "cannot suspend with paused databases",
            Self::ShuttingDown => "pooler is shutting down",
            Self::SetFailed => "SET failed",
            Self::ReloadFailed => "RELOAD failed, see logs for additional details",
            Self::FdsRefused => "SHOW FDS is not supported: sockets are not handed over",
            Self::ExtendedQuery => "extended query protocol not supported by admin console",
            _ => "",
        }
    }
}

impl std::error::Error for Refusal {}
