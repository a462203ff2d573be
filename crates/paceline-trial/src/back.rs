//! A back-end server: a real PostgreSQL, or the embedded one.

use std::{
    io::{self, BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Stdio},
};

use rustix::process::Signal;

use crate::{
    folder::Folder,
    postgres::{self, Postgres},
    role, signals,
};

/// Which server is the back-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A real PostgreSQL.
    Postgres,
    /// The embedded one.
    Embedded,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Postgres, Self::Embedded];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Embedded => "embedded",
        }
    }

    /// The database on the server.
    #[must_use]
    pub fn database(self) -> &'static str {
        match self {
            Self::Postgres => postgres::USER,
            Self::Embedded => "bank",
        }
    }
}

/// Where a server listens.
#[derive(Clone, Debug)]
pub enum Place {
    /// A TCP port.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A back-end server.
#[derive(Debug)]
pub enum Back {
    /// A real PostgreSQL.
    Postgres(Postgres),
    /// The embedded one.
    Embedded(Embedded),
}

impl Back {
    /// Starts a server. `None` if it is not installed.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(kind: Kind) -> io::Result<Option<Self>> {
        Ok(match kind {
            Kind::Postgres => Postgres::start()?.map(Self::Postgres),
            Kind::Embedded => Some(Self::Embedded(Embedded::start()?)),
        })
    }

    /// Which server this is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Postgres(_) => Kind::Postgres,
            Self::Embedded(_) => Kind::Embedded,
        }
    }

    /// Where it listens now.
    #[must_use]
    pub fn place(&self) -> Place {
        match self {
            Self::Postgres(server) => Place::Unix(server.socket()),
            Self::Embedded(server) => Place::Tcp(server.address),
        }
    }

    /// The host and the port for a configuration of the front-end.
    #[must_use]
    pub fn host_and_port(&self) -> (String, u16) {
        match self {
            Self::Postgres(server) => (server.folder().display().to_string(), postgres::PORT),
            Self::Embedded(server) => (server.address.ip().to_string(), server.address.port()),
        }
    }

    /// Kills all of its processes.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill(&mut self) -> io::Result<()> {
        match self {
            Self::Postgres(server) => server.kill(),
            Self::Embedded(server) => server.kill(),
        }
    }

    /// Starts it again after [`kill`](Self::kill). It may listen at another place.
    ///
    /// # Errors
    /// If it does not start.
    pub fn run(&mut self) -> io::Result<()> {
        match self {
            Self::Postgres(server) => server.run(),
            Self::Embedded(server) => server.run(),
        }
    }

    /// Stops all of its processes. The kernel still accepts connections for them.
    ///
    /// # Errors
    /// If it does not run.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Continues them.
    ///
    /// # Errors
    /// If it does not run.
    pub fn go_on(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        match self {
            Self::Postgres(server) => server.signal(signal),
            Self::Embedded(server) => signals::send(signal, server.process.id()),
        }
    }
}

/// `paceline back` in a process of its own.
#[derive(Debug)]
pub struct Embedded {
    process: Child,
    address: SocketAddr,
    folder: Folder,
}

impl Embedded {
    fn start() -> io::Result<Self> {
        let folder = Folder::new()?;
        let (process, address) = serve(&folder)?;
        Ok(Self {
            process,
            address,
            folder,
        })
    }

    fn run(&mut self) -> io::Result<()> {
        (self.process, self.address) = serve(&self.folder)?;
        Ok(())
    }

    fn kill(&mut self) -> io::Result<()> {
        self.process.kill()?;
        self.process.wait().map(drop)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        // It has ended already, if that fails.
        let _ = self.kill();
    }
}

/// Starts the process, and waits until it says where it listens.
fn serve(folder: &Folder) -> io::Result<(Child, SocketAddr)> {
    let data = folder.path().to_string_lossy();
    let mut command = role::command(&["back", "--listen", "127.0.0.1:0", "--data", &data])?;
    let mut process = command.stdout(Stdio::piped()).spawn()?;
    let output = process.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    for line in BufReader::new(output).lines() {
        if let Some(address) = line?.strip_prefix("listening on ") {
            let address = address.split_whitespace().next().unwrap_or_default();
            let address = address.parse().map_err(io::Error::other)?;
            return Ok((process, address));
        }
    }
    // It has ended already, if that fails.
    let _ = process.kill();
    process.wait()?;
    Err(io::Error::other(
        "the embedded back-end has ended at its start",
    ))
}
