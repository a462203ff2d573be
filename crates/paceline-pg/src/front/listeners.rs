//! Where clients come in.

use std::{
    io,
    net::TcpListener,
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use paceline::{Context, EventHandler, Interest, Next, Pool};

use super::{
    client::Client,
    session::Session,
    sockets::{self, Address, FileRights, PeerProcess, Stream},
    state::Front,
    system_users,
};
use crate::{config::Settings, log::Level};

/// How many connections are accepted before other handles have their turn.
const BATCH: usize = 16;

impl Front {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// Names the address that can't be used, or that none is configured.
    pub(crate) fn listen(self: &Arc<Self>, pool: &Pool) -> io::Result<()> {
        let live = self.live();
        let settings = live.settings();
        let backlog = settings.listen_backlog;
        let names: Vec<String> = settings.listen_addr.iter().map(str::to_owned).collect();
        let mut count = 0;
        for listener in sockets::listen_tcp(&names, settings.listen_port, backlog)? {
            self.listen_at(pool, listener)?;
            count += 1;
        }
        self.defer_accept();
        if !settings.unix_socket_dir.is_empty() {
            self.listen_at_unix(pool, settings)?;
            count += 1;
        }
        if count == 0 {
            let text = "neither listen_addr nor unix_socket_dir is set: there is nowhere to listen";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(())
    }

    /// As `tcp_defer_accept` says.
    pub(crate) fn defer_accept(&self) {
        let within = deferral(self.live().settings().tcp_defer_accept);
        if let Err(why) = self.lifecycle.defer_accept(within) {
            let text = format_args!("tcp_defer_accept has no effect: {why}");
            self.note(Level::Warning, text);
        }
    }

    fn listen_at(self: &Arc<Self>, pool: &Pool, listener: TcpListener) -> io::Result<()> {
        let address = listener.local_addr()?;
        let socket = listener.try_clone()?;
        let front = Arc::clone(self);
        let begun = pool.listener().on_groups(listener, move |stream, peer| {
            front.live().tcp.apply(stream);
            Some(front.new_session(Address::Ip(peer), None, stream))
        });
        let begun = begun.map_err(|rejected| rejected.error)?;
        self.note(Level::Log, format_args!("listening on {address}"));
        self.lifecycle.keep_tcp(begun.handle().clone(), socket);
        Ok(())
    }

    fn listen_at_unix(self: &Arc<Self>, pool: &Pool, settings: &Settings) -> io::Result<()> {
        let folder = Path::new(&settings.unix_socket_dir);
        let port = settings.listen_port;
        let rights = rights(settings)?;
        let (listener, path) = sockets::listen_unix(folder, port, rights, settings.listen_backlog)?;
        let acceptor = UnixAcceptor {
            front: Arc::clone(self),
            pool: pool.downgrade(),
            port,
        };
        let handle = pool.register(listener, Interest::READ, acceptor);
        let handle = handle.map_err(|rejected| rejected.error)?;
        let shown = folder.join(sockets::socket_name(port));
        self.note(
            Level::Log,
            format_args!("listening on unix:{}", shown.display()),
        );
        self.lifecycle.keep_unix(handle, path);
        Ok(())
    }

    fn new_session(
        self: &Arc<Self>,
        address: Address,
        process: Option<PeerProcess>,
        stream: &Stream,
    ) -> Session {
        let client = Arc::new(Client::new(self.next_number(), address, self.now()));
        if address.ip().is_some() {
            let local = stream.local_addr().ok().map(Address::Ip);
            client.facts().local = local.map(|local| self.commons.address(local));
        }
        self.clients().add(Arc::clone(&client));
        Session::new(Arc::clone(self), client, process)
    }
}

/// How long the kernel keeps a connection back that sends nothing: 1 means PgBouncer's 45 seconds.
fn deferral(seconds: u32) -> Duration {
    Duration::from_secs(match seconds {
        1 => 45,
        seconds => seconds.into(),
    })
}

/// The processes that may connect to the file of the Unix socket.
fn rights(settings: &Settings) -> io::Result<FileRights> {
    let name = &settings.unix_socket_group;
    let is_file = !sockets::is_abstract(Path::new(&settings.unix_socket_dir));
    let group = (is_file && !name.is_empty()).then(|| system_users::group_number(name));
    let group = group.transpose();
    let group = group.map_err(|why| {
        sockets::attempted(format_args!("find the unix_socket_group {name}"), why)
    })?;
    Ok(FileRights {
        mode: settings.unix_socket_mode.0,
        group,
    })
}

/// The handler of the Unix socket. Its connections have the type that all connections have.
struct UnixAcceptor {
    front: Arc<Front>,
    pool: paceline::WeakPool,
    port: u16,
}

/// How long to wait when no connection can be accepted.
const PAUSE: Duration = Duration::from_millis(10);

impl UnixAcceptor {
    /// No descriptor is free: the next attempt is made a little later.
    fn pause(&self, cx: &Context<'_, UnixListener>) -> io::Result<Next> {
        let handle = cx.handle();
        handle.suspend()?;
        if let Some(pool) = self.pool.upgrade() {
            // It is over, if that fails.
            let resumed = pool.after(PAUSE, move |_cx| drop(handle.resume()));
            resumed.map_err(io::Error::from)?;
        }
        Ok(Next::Continue)
    }

    fn receive(&self, stream: UnixStream) {
        let process = sockets::peer_process(&stream).ok();
        let address = Address::Unix {
            port: self.port,
            process: process.map(|process| process.process),
        };
        let stream = sockets::from_unix(stream);
        let session = self.front.new_session(address, process, &stream);
        let Some(pool) = self.pool.upgrade() else {
            return;
        };
        // Without a slot the connection is closed.
        if let Ok(group) = pool.group(session) {
            if group.register(stream, Interest::READ).is_err() {
                let _ = group.close();
            }
        }
    }
}

impl EventHandler<UnixListener> for UnixAcceptor {
    fn ready(&mut self, cx: &mut Context<'_, UnixListener>) -> io::Result<Next> {
        for _ in 0..BATCH {
            match cx.try_read(UnixListener::accept) {
                Ok((stream, _)) => self.receive(stream),
                Err(error) if is_passing(&error) => {
                    let text = format_args!("accept on the Unix socket: {error}");
                    self.front.note(Level::Warning, text);
                    return self.pause(cx);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Next::Continue)
    }
}

/// Whether accepting may succeed later: no descriptor, no memory, a connection that is gone.
fn is_passing(error: &io::Error) -> bool {
    error.kind() != io::ErrorKind::WouldBlock
}
