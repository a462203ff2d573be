//! The access log: a line for each connection that ends.

use std::{
    fmt,
    io::{self, Write},
    sync::Mutex,
    time::Duration,
};

use crate::{link::ConnectionId, peer::PeerAddress, session::Ended, sync::lock};

/// Where the lines go.
pub(crate) struct AccessLog(Mutex<Box<dyn Write + Send>>);

/// What one line says.
pub(crate) struct Entry<'e> {
    pub(crate) service: &'e str,
    pub(crate) id: ConnectionId,
    pub(crate) address: &'e PeerAddress,
    pub(crate) items: u64,
    pub(crate) bytes_in: u64,
    pub(crate) lasted: Duration,
    pub(crate) why: &'e Ended,
}

impl AccessLog {
    pub(crate) fn new(to: impl Write + Send + 'static) -> Self {
        Self(Mutex::new(Box::new(to)))
    }

    /// Writes a line. A log that can't be written holds up no connection.
    pub(crate) fn write(&self, entry: &Entry<'_>) {
        let line = entry.line();
        let _: io::Result<()> = lock(&self.0).write_all(line.as_bytes());
    }
}

impl fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AccessLog").finish_non_exhaustive()
    }
}

impl Entry<'_> {
    fn line(&self) -> String {
        format!(
            "{} connection={} peer={} items={} bytes_in={} seconds={:.3} ended={} detail=\"{}\"\n",
            Escaped(self.service),
            self.id,
            self.address,
            self.items,
            self.bytes_in,
            self.lasted.as_secs_f64(),
            self.why.name(),
            Escaped(&self.why.to_string()),
        )
    }
}

/// Text that can't forge a line: control characters, quotes and backslashes are escaped.
pub(crate) struct Escaped<'t>(pub(crate) &'t str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let escaped = self.0.chars().flat_map(|char| {
            let plain = !char.is_control() && char != '"' && char != '\\';
            let escape = (!plain).then(|| char.escape_default());
            plain
                .then_some(char)
                .into_iter()
                .chain(escape.into_iter().flatten())
        });
        escaped
            .into_iter()
            .try_for_each(|char| fmt::Write::write_char(f, char))
    }
}
