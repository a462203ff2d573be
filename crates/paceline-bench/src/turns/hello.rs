//! Turns in which `paceline-server` answers a request of HTTP with a short text.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
};

use paceline::turn::Follower;
use paceline_server::{
    http::{HttpServer, Router},
    Listen,
};

use super::{turn, HANDLES};

/// What is asked, again and again.
const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nhost: localhost\r\n\r\n";

/// By a route. All clients ask, then each of their requests has its turn.
pub(super) fn by_server(turns: u64) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let router = Router::new(()).get("/hello", |(), _| "Hello, world!");
    let server = HttpServer::new(Listen::tcp_socket(listener), router)
        .pool(|pool| pool.threads(0))
        .start()?;
    let clients: Vec<_> = (0..HANDLES)
        .map(|_| TcpStream::connect(address))
        .collect::<io::Result<_>>()?;
    let mut follower = server.pool().enter()?;
    let mut buffer = [0; 1024];
    for _ in 0..turns / HANDLES as u64 {
        for mut client in &clients {
            client.write_all(REQUEST)?;
        }
        for mut client in &clients {
            follower = answered(follower, client)?;
            let count = client.read(&mut buffer)?;
            debug_assert!(buffer[..count].ends_with(b"Hello, world!"));
        }
    }
    Ok(())
}

/// Takes turns until the client can read: usually none or one, but the listener has its turns too.
fn answered<'p>(mut follower: Follower<'p>, client: &TcpStream) -> io::Result<Follower<'p>> {
    client.set_nonblocking(true)?;
    while client.peek(&mut [0]).is_err() {
        follower = turn(follower)?;
    }
    client.set_nonblocking(false)?;
    Ok(follower)
}

#[cfg(test)]
mod tests {
    /// Every request is answered.
    #[test]
    fn the_server_goes_through_its_turns() {
        super::by_server(100).unwrap();
    }
}
