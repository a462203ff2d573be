//! One line of the log.

use std::{
    fmt::{self, Write},
    time::SystemTime,
};

use super::calendar::Moment;

/// How serious a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// The process ends.
    Fatal,
    /// Something failed.
    Error,
    /// Something is doubtful.
    Warning,
    /// An event.
    Log,
    /// A detail: logged if `verbose` is 1 or more.
    Debug,
    /// Each step: logged if `verbose` is 2 or more.
    Noise,
}

impl Level {
    /// Its word in the log.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fatal => "FATAL",
            Self::Error => "ERROR",
            Self::Warning => "WARNING",
            Self::Log => "LOG",
            Self::Debug => "DEBUG",
            Self::Noise => "NOISE",
        }
    }

    /// Its severity in the syslog protocol.
    #[must_use]
    pub fn severity(self) -> u8 {
        match self {
            Self::Fatal => 2,
            Self::Error => 3,
            Self::Warning => 4,
            Self::Log => 6,
            Self::Debug | Self::Noise => 7,
        }
    }

    /// The least serious level that is logged with this `verbose`.
    #[must_use]
    pub fn of_verbose(verbose: u32) -> Self {
        match verbose {
            0 => Self::Log,
            1 => Self::Debug,
            _ => Self::Noise,
        }
    }
}

/// Whether a connection is a client's or a server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A client's.
    Client,
    /// A server's.
    Server,
}

/// The connection that a line is about. Printed, it is the start of the line's text.
#[derive(Clone, Copy, Debug)]
pub struct Peer<'a> {
    /// Whether it is a client's or a server's.
    pub side: Side,
    /// Its number, as in `SHOW CLIENTS`.
    pub id: u64,
    /// Its database, if it has one yet.
    pub database: Option<&'a str>,
    /// Its user, if it has one yet.
    pub user: Option<&'a str>,
    /// The other side's address; `unix` for a Unix socket.
    pub address: &'a str,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = match self.side {
            Side::Client => 'C',
            Side::Server => 'S',
        };
        let database = self.database.unwrap_or("(nodb)");
        let user = self.user.unwrap_or("(nouser)");
        let Self {
            id, address, port, ..
        } = self;
        if address.contains(':') {
            write!(f, "{side}-{id}: {database}/{user}@[{address}]:{port} ")
        } else {
            write!(f, "{side}-{id}: {database}/{user}@{address}:{port} ")
        }
    }
}

/// Appends a line with its end.
///
/// A text of several lines stays one entry: a tab starts each further one, as in PgBouncer. Other
/// control characters, which a client may have sent, are written as escapes.
pub fn line(
    output: &mut String,
    time: SystemTime,
    pid: u32,
    level: Level,
    text: fmt::Arguments<'_>,
) {
    let moment = Moment::of(time);
    let (millis, level) = (moment.millis, level.name());
    // Writing to a `String` can't fail.
    let _ = write!(output, "{moment}.{millis:03} UTC [{pid}] {level} ");
    append(output, text);
    output.push('\n');
}

/// Appends the text without white space at its end.
pub(super) fn append(output: &mut String, text: fmt::Arguments<'_>) {
    let start = output.len();
    let _ = Cleaned(output).write_fmt(text);
    let end = output[start..].trim_ascii_end().len();
    output.truncate(start + end);
}

/// Replaces control characters on their way to a text.
struct Cleaned<'o>(&'o mut String);

impl fmt::Write for Cleaned<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            match c {
                '\n' => self.0.push_str("\n\t"),
                '\t' => self.0.push(c),
                c if c.is_control() => write!(self.0, "\\x{:02x}", u32::from(c))?,
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}
