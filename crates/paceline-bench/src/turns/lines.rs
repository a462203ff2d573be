//! Turns in which a line is sent back: by a session of `paceline-server`, or by a handler that splits lines itself.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
};

use paceline::{scratch, Context, EventHandler, Next, Pool};
use paceline_server::{
    codec::{line, Message},
    Listen, Peer, Server, Session,
};

use super::{take_turns, HANDLES};
use crate::servers::whole_lines;

/// What is asked, again and again.
const LINE: &[u8] = b"a line of sixty-four bytes, of which the last two are its end.\r\n";

/// The clients' ends of the connections, for the handlers to take. A turn begins when its client has asked.
type Clients = Arc<Mutex<Vec<TcpStream>>>;

/// By a handler on the pool.
pub(super) fn bare(turns: u64) -> io::Result<()> {
    let pool = Pool::builder().threads(0).build()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let clients = ask(listener.local_addr()?)?;
    let _listener = pool.listener().on(listener, move |_: &TcpStream, _| {
        Some(BareAsking {
            client: next(&clients)?,
            rest: Vec::new(),
        })
    })?;
    // Each accepted connection has a turn of its own.
    take_turns(&pool, turns)
}

/// By a session.
pub(super) fn by_server(turns: u64) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let clients = ask(listener.local_addr()?)?;
    let server = Server::builder()
        .pool(Pool::builder().threads(0))
        .listener(Listen::tcp_socket(listener), line(8192), move |_| Asking {
            client: next(&clients),
        })
        .start()?;
    take_turns(server.pool(), turns)
}

/// Clients that have asked.
fn ask(address: SocketAddr) -> io::Result<Clients> {
    let clients: io::Result<Vec<_>> = (0..HANDLES)
        .map(|_| {
            let mut client = TcpStream::connect(address)?;
            client.set_nodelay(true)?;
            client.write_all(LINE)?;
            Ok(client)
        })
        .collect();
    Ok(Arc::new(Mutex::new(clients?)))
}

/// Connections are accepted in the order in which they were made.
fn next(clients: &Clients) -> Option<TcpStream> {
    let mut clients = clients.lock().unwrap_or_else(PoisonError::into_inner);
    (!clients.is_empty()).then(|| clients.remove(0))
}

/// The client takes its answer and asks anew, with one call each.
fn ask_anew(mut client: &TcpStream) -> io::Result<()> {
    let mut answer = [0; LINE.len()];
    let back = client.read(&mut answer)?;
    let sent = client.write(LINE)?;
    debug_assert_eq!((&answer[..back], sent), (LINE, LINE.len()));
    Ok(())
}

/// Splits lines itself, as the server `bare-lines` does.
struct BareAsking {
    client: TcpStream,
    rest: Vec<u8>,
}

impl EventHandler<TcpStream> for BareAsking {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut buffer = scratch();
        let Some(lines) = whole_lines(&mut self.rest, &mut buffer, cx)? else {
            return Ok(Next::Close);
        };
        cx.write_all(lines)?;
        ask_anew(&self.client)?;
        Ok(Next::Continue)
    }
}

/// Sends each line back.
struct Asking {
    client: Option<TcpStream>,
}

impl Session for Asking {
    fn handle(&mut self, line: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        cx.reply(line)?;
        self.client.as_ref().map_or(Ok(()), ask_anew)?;
        Ok(Next::Continue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is counted is what is meant to be: every turn but those of the listener sends a line back.
    #[test]
    fn both_go_through_their_turns() {
        assert_eq!(LINE.len(), 64);
        bare(100).unwrap();
        by_server(100).unwrap();
    }
}
