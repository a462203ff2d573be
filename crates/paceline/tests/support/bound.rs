//! A multiplexed connection with a peer that does what the test says.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::{
        atomic::{AtomicUsize, Ordering},
        Mutex,
    },
};

use paceline::bound::{Builder, Header, Mux, Protocol, Whose};

use crate::support::{tcp_pair, wait_until, LONG};

/// Four bytes of id, four of length, then the body. The id of all ones is the peer's own message.
#[derive(Default)]
pub struct Framed {
    /// The messages of the peer's own.
    pub heard: Mutex<Vec<Vec<u8>>>,
    /// How often it was asked for a header.
    pub headers: AtomicUsize,
}

pub const PEERS_OWN: u32 = u32::MAX;

impl Protocol for Framed {
    type Request = [u8];
    const ID_BITS: u32 = 31;

    fn encode(&self, request: &[u8], id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        if request == b"refused by the protocol" {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let length = u32::try_from(request.len()).map_err(io::Error::other)?;
        out.extend_from_slice(&(id as u32).to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(request);
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        self.headers.fetch_add(1, Ordering::Relaxed);
        let Some((header, _)) = bytes.split_first_chunk::<8>() else {
            return Ok(None);
        };
        let (id, length) = (word(&header[..4]), word(&header[4..]));
        if length == 0xBAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a bad length"));
        }
        assert!(length != 0xDEAD, "a protocol with a mistake");
        let whose = match id {
            PEERS_OWN => Whose::Peer,
            id => Whose::Call(id.into()),
        };
        Ok(Some(Header {
            whose,
            skip: 8,
            length: length as usize,
        }))
    }

    fn peer_message(&self, message: &[u8]) {
        self.heard.lock().unwrap().push(message.to_vec());
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

/// A message as it is on the wire, in both directions.
pub fn frame(id: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap();
    [&id.to_be_bytes(), &length.to_be_bytes(), body].concat()
}

/// A length, then the body. There are no ids: replies come in order.
pub struct Plain;

impl Protocol for Plain {
    type Request = [u8];
    const ID_BITS: u32 = 0;

    fn encode(&self, request: &[u8], _: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.push(u8::try_from(request.len()).map_err(io::Error::other)?);
        out.extend_from_slice(request);
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        Ok(bytes.first().map(|length| Header {
            whose: Whose::Oldest,
            skip: 1,
            length: (*length).into(),
        }))
    }
}

/// The other end, in the test's hands.
pub struct Peer(pub TcpStream);

impl Peer {
    /// The next request: its id, and its body.
    pub fn request(&mut self) -> (u32, Vec<u8>) {
        self.try_request().expect("a request comes")
    }

    /// The same, or why there is none.
    pub fn try_request(&mut self) -> io::Result<(u32, Vec<u8>)> {
        let mut header = [0; 8];
        self.0.read_exact(&mut header)?;
        let mut body = vec![0; word(&header[4..]) as usize];
        self.0.read_exact(&mut body)?;
        Ok((word(&header[..4]), body))
    }

    /// The next request of a protocol without ids.
    pub fn plain_request(&mut self) -> Vec<u8> {
        let mut length = [0];
        self.0.read_exact(&mut length).unwrap();
        let mut body = vec![0; length[0].into()];
        self.0.read_exact(&mut body).unwrap();
        body
    }

    pub fn reply(&mut self, id: u32, body: &[u8]) {
        self.send(&frame(id, body));
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }
}

/// A connection, and its peer.
pub fn mux() -> (Mux<Framed>, Peer) {
    mux_of(Builder::new(), Framed::default())
}

pub fn mux_of<P: Protocol>(builder: Builder, protocol: P) -> (Mux<P>, Peer) {
    let (near, far) = tcp_pair();
    (builder.build(near, protocol).unwrap(), Peer(far))
}

/// Waits until so many callers sleep, and somebody is in the wait for all.
pub fn wait_asleep<P: Protocol>(mux: &Mux<P>, count: usize) {
    wait_until(|| {
        let callers = mux.callers();
        callers.asleep == count && callers.waits
    });
}

/// Calls, and is told what came of it.
pub fn call(mux: &Mux<Framed>, request: &[u8]) -> io::Result<Vec<u8>> {
    Ok(mux.call(request, LONG)?.to_vec())
}
