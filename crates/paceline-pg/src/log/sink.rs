//! The destinations of the log.

use std::{
    fmt,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::net::UnixDatagram,
    process,
    sync::{
        atomic::{AtomicU8, Ordering::Relaxed},
        Arc, Mutex, PoisonError,
    },
    time::SystemTime,
};

use super::line::{append, line, Level};
use crate::config::{Facility, Settings};

/// The socket of the system's logger.
const SYSLOG: &str = "/dev/log";

/// The destinations of the log, and its level.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTo {
    /// A file.
    pub file: Option<String>,
    /// The standard error output.
    pub stderr: bool,
    /// Syslog: the facility, and the name of the program.
    pub syslog: Option<(Facility, String)>,
    /// The least serious level.
    pub level: Level,
}

impl LogTo {
    /// The destinations of these settings. `quiet` is the command line's `-q`.
    #[must_use]
    pub fn of(settings: &Settings, quiet: bool) -> Self {
        let file = Some(settings.logfile.clone());
        let ident = || (settings.syslog_facility, settings.syslog_ident.clone());
        Self {
            file: file.filter(|file| !file.is_empty()),
            stderr: !quiet,
            syslog: settings.syslog.then(ident),
            level: Level::of_verbose(settings.verbose),
        }
    }
}

/// The log.
#[derive(Debug)]
pub struct Log {
    sinks: Mutex<Arc<Sinks>>,
    /// [`Level`] as a number, so that a line that is not logged takes no lock.
    level: AtomicU8,
    pid: u32,
}

#[derive(Debug)]
struct Sinks {
    file: Option<File>,
    stderr: bool,
    syslog: Option<Syslog>,
}

#[derive(Debug)]
struct Syslog {
    socket: UnixDatagram,
    path: String,
    facility: Facility,
    ident: String,
}

impl Log {
    /// Opens what `to` names.
    ///
    /// # Errors
    /// The file can't be opened, or there is no socket for syslog.
    pub fn open(to: &LogTo) -> io::Result<Self> {
        Ok(Self {
            sinks: Mutex::new(Arc::new(Sinks::open(to, SYSLOG)?)),
            level: AtomicU8::new(to.level as u8),
            pid: process::id(),
        })
    }

    /// Opens everything again, after a reload or a rotation of the file.
    ///
    /// # Errors
    /// As for [`open`](Self::open); the log keeps its old destinations.
    pub fn reopen(&self, to: &LogTo) -> io::Result<()> {
        let sinks = Arc::new(Sinks::open(to, SYSLOG)?);
        self.level.store(to.level as u8, Relaxed);
        *self.sinks.lock().unwrap_or_else(PoisonError::into_inner) = sinks;
        Ok(())
    }

    /// Whether lines of this level are written.
    #[must_use]
    pub fn is_on(&self, level: Level) -> bool {
        level as u8 <= self.level.load(Relaxed)
    }

    /// Writes a line.
    pub fn write(&self, level: Level, text: fmt::Arguments<'_>) {
        if !self.is_on(level) {
            return;
        }
        let sinks = self.sinks.lock().unwrap_or_else(PoisonError::into_inner);
        let sinks = Arc::clone(&sinks);
        sinks.write(SystemTime::now(), self.pid, level, text);
    }
}

impl Sinks {
    fn open(to: &LogTo, syslog: &str) -> io::Result<Self> {
        let file = to.file.as_deref().map(|path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            file.map_err(|error| named(&format!("could not open the log file \"{path}\""), &error))
        });
        let syslog = to.syslog.clone().map(|(facility, ident)| {
            let socket = UnixDatagram::unbound()
                .and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
            let socket = socket.map_err(|error| named("could not open syslog", &error))?;
            let path = syslog.to_owned();
            Ok::<_, io::Error>(Syslog {
                socket,
                path,
                facility,
                ident,
            })
        });
        Ok(Self {
            file: file.transpose()?,
            stderr: to.stderr,
            syslog: syslog.transpose()?,
        })
    }

    /// A failing destination loses the line: there is no other place to report the error.
    fn write(&self, now: SystemTime, pid: u32, level: Level, text: fmt::Arguments<'_>) {
        let mut entry = String::new();
        if self.file.is_some() || self.stderr {
            line(&mut entry, now, pid, level, text);
        }
        if let Some(mut file) = self.file.as_ref() {
            let _ = file.write_all(entry.as_bytes());
        }
        if self.stderr {
            let _ = io::stderr().write_all(entry.as_bytes());
        }
        if let Some(syslog) = self.syslog.as_ref().filter(|_| level <= Level::Log) {
            syslog.write(pid, level, text);
        }
    }
}

impl Syslog {
    /// The socket stays unconnected, because the logger may start or restart at any time.
    fn write(&self, pid: u32, level: Level, text: fmt::Arguments<'_>) {
        let priority = u32::from(self.facility.number()) * 8 + u32::from(level.severity());
        let mut entry = format!("<{priority}>{}[{pid}]: ", self.ident);
        append(&mut entry, text);
        let _ = self.socket.send_to(entry.as_bytes(), &self.path);
    }
}

/// The same kind of error, with what was attempted.
fn named(attempt: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{attempt}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to(folder: &std::path::Path) -> LogTo {
        LogTo {
            file: Some(folder.join("log").to_string_lossy().into_owned()),
            stderr: false,
            syslog: Some((Facility::Local1, "pooler".to_owned())),
            level: Level::Log,
        }
    }

    fn folder(name: &str) -> std::path::PathBuf {
        let name = format!("paceline-log-{}-{name}", process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    /// PgBouncer's users read the log with syslog's tools: facility, severity, name and process.
    #[test]
    fn lines_reach_the_file_and_syslog() {
        let folder = folder("sinks");
        let path = folder.join("syslog");
        let logger = UnixDatagram::bind(&path).expect("a logger");
        let sinks = Sinks::open(&to(&folder), &path.to_string_lossy()).expect("sinks");
        for level in [Level::Error, Level::Debug] {
            sinks.write(SystemTime::UNIX_EPOCH, 7, level, format_args!("one\ntwo\n"));
        }
        let mut bytes = [0; 64];
        let length = logger.recv(&mut bytes).expect("a datagram");
        // local1 is 17, and an error 3; details are not for syslog.
        assert_eq!(&bytes[..length], b"<139>pooler[7]: one\n\ttwo");
        logger.set_nonblocking(true).expect("a socket");
        assert!(logger.recv(&mut bytes).is_err());
        let text = std::fs::read_to_string(folder.join("log")).expect("the log");
        let start = "1970-01-01 00:00:00.000 UTC [7]";
        assert_eq!(
            text,
            format!("{start} ERROR one\n\ttwo\n{start} DEBUG one\n\ttwo\n")
        );
        std::fs::remove_dir_all(folder).expect("the folder");
    }

    /// A tool renames the file and asks for a reload: later lines must reach a new file.
    #[test]
    fn a_file_that_was_moved_away_is_made_again() {
        let folder = folder("rotation");
        let mut to = to(&folder);
        to.syslog = None;
        let (log, path) = (Log::open(&to).expect("a log"), folder.join("log"));
        log.write(Level::Log, format_args!("one"));
        log.write(Level::Debug, format_args!("not written"));
        let old = folder.join("log.1");
        std::fs::rename(&path, &old).expect("renamed");
        to.level = Level::Debug;
        log.reopen(&to).expect("a log");
        log.write(Level::Debug, format_args!("two"));
        to.file = Some("/none/log".to_owned());
        let error = log.reopen(&to).expect_err("no such folder").to_string();
        assert!(
            error.starts_with("could not open the log file \"/none/log\": "),
            "{error}"
        );
        log.write(Level::Fatal, format_args!("three"));
        let read = |path| std::fs::read_to_string(path).expect("a log");
        assert!(read(&old).ends_with(" LOG one\n"));
        let lines = read(&path);
        let ends: Vec<_> = lines.lines().map(|line| line.split("] ").nth(1)).collect();
        assert_eq!(ends, [Some("DEBUG two"), Some("FATAL three")]);
        std::fs::remove_dir_all(folder).expect("the folder");
    }
}
