//! A host between the pooler and PostgreSQL: the test opens and shuts it, and sees what is sent.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::PathBuf,
    sync::{Arc, Condvar, Mutex},
    thread,
};

use crate::support::postgres::{Postgres, USER};

/// A listener, which passes bytes to the server.
pub(crate) struct Gate {
    address: SocketAddr,
    inner: Arc<Inner>,
}

struct Inner {
    server: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    /// What the pooler has sent on each connection.
    sent: Vec<Vec<u8>>,
}

impl Gate {
    /// To this server, open.
    pub(crate) fn to(postgres: &Postgres) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let inner = Arc::new(Inner {
            server: postgres.socket(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let accepts = Arc::clone(&inner);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let inner = Arc::clone(&accepts);
                let number = inner.begin();
                // One side has closed, if that fails.
                thread::spawn(move || drop(inner.pass(number, stream)));
            }
        });
        Self { address, inner }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on it accepts, and passes nothing of new connections.
    pub(crate) fn shut(&self) {
        self.inner.state().is_shut = true;
    }

    pub(crate) fn open(&self) {
        self.inner.state().is_shut = false;
        self.inner.changed.notify_all();
    }

    /// How many connections were made.
    pub(crate) fn accepted(&self) -> usize {
        self.inner.state().sent.len()
    }

    /// What the pooler has sent on each connection.
    pub(crate) fn sent(&self) -> Vec<Vec<u8>> {
        self.inner.state().sent.clone()
    }

    /// An entry of `[databases]` that leads through this gate.
    pub(crate) fn entry(&self, name: &str, more: &str) -> String {
        let port = self.port();
        format!("{name} = host=127.0.0.1 port={port} dbname={USER} {more}\n")
    }
}

impl Inner {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with it")
    }

    fn begin(&self) -> usize {
        let mut state = self.state();
        state.sent.push(Vec::new());
        state.sent.len() - 1
    }

    fn pass(self: Arc<Self>, number: usize, pooler: TcpStream) -> io::Result<()> {
        let state = self.state();
        drop(self.changed.wait_while(state, |state| state.is_shut));
        let server = UnixStream::connect(&self.server)?;
        let (mut answers, mut back) = (server.try_clone()?, pooler.try_clone()?);
        thread::spawn(move || {
            // The pooler has closed, if that fails.
            let _ = io::copy(&mut answers, &mut back);
            let _ = back.shutdown(Shutdown::Both);
        });
        let ended = self.record(number, pooler, &server);
        // It has ended already, if that fails.
        let _ = server.shutdown(Shutdown::Both);
        ended
    }

    fn record(
        &self,
        number: usize,
        mut pooler: TcpStream,
        mut server: &UnixStream,
    ) -> io::Result<()> {
        let mut piece = [0; 4096];
        loop {
            let count = match pooler.read(&mut piece)? {
                0 => return Ok(()),
                count => count,
            };
            self.state().sent[number].extend_from_slice(&piece[..count]);
            server.write_all(&piece[..count])?;
        }
    }
}
