//! A group whose handler tells what it is told, for tests.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::mpsc,
};

use paceline::{
    Closed, Context, Group, GroupHandler, Handle, HandleId, Interest, Members, Next, Pool, Wake,
};

use crate::support::{kernel_sets, tcp_pair, LONG};

pub type Cx<'c> = Context<'c, TcpStream>;
pub type Others<'g> = Members<'g, TcpStream>;

/// What a group's handler was told.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    Joined(HandleId),
    Notified,
    Closed(HandleId, String),
    Ended(String),
}

/// A handler made of a closure, which tells everything else.
pub struct Script<F> {
    pub ready: F,
    pub tell: mpsc::Sender<Told>,
}

impl<F> GroupHandler<TcpStream> for Script<F>
where
    F: FnMut(&mut Cx<'_>, &mut Others<'_>) -> io::Result<Next> + Send + 'static,
{
    fn ready(&mut self, cx: &mut Cx<'_>, members: &mut Others<'_>) -> io::Result<Next> {
        (self.ready)(cx, members)
    }

    fn joined(&mut self, cx: &mut Cx<'_>, _: &mut Others<'_>) -> io::Result<Next> {
        let _ = self.tell.send(Told::Joined(cx.handle().id()));
        Ok(Next::Continue)
    }

    fn notified(&mut self, _: &mut Others<'_>) {
        let _ = self.tell.send(Told::Notified);
    }

    fn closed(&mut self, member: &Handle, why: Closed, _: &mut Others<'_>) {
        let _ = self.tell.send(Told::Closed(member.id(), why.to_string()));
    }

    fn ended(&mut self, why: Closed) {
        let _ = self.tell.send(Told::Ended(why.to_string()));
    }
}

/// A group with this handler, and what that is told.
pub fn group<F>(pool: &Pool, ready: F) -> (Group<TcpStream>, mpsc::Receiver<Told>)
where
    F: FnMut(&mut Cx<'_>, &mut Others<'_>) -> io::Result<Next> + Send + 'static,
{
    let (tell, told) = mpsc::channel();
    (pool.group(Script { ready, tell }).unwrap(), told)
}

/// A member, whose arrival was told, and its peer.
pub fn member(
    group: &Group<TcpStream>,
    told: &mpsc::Receiver<Told>,
    interest: Interest,
) -> (Handle, TcpStream) {
    let (near, far) = tcp_pair();
    let member = group.register(near, interest).unwrap();
    assert_eq!(next(told), Told::Joined(member.id()));
    (member, far)
}

/// The same without interest, and with little room for output in the system.
pub fn member_that_sends_little(
    group: &Group<TcpStream>,
    told: &mpsc::Receiver<Told>,
) -> (Handle, TcpStream) {
    let (near, far) = tcp_pair();
    socket2::SockRef::from(&near)
        .set_send_buffer_size(4096)
        .unwrap();
    let member = group.register(near, Interest::NONE).unwrap();
    assert_eq!(next(told), Told::Joined(member.id()));
    (member, far)
}

pub fn next(told: &mpsc::Receiver<Told>) -> Told {
    told.recv_timeout(LONG).unwrap()
}

/// Reads one byte.
pub fn byte(cx: &mut Cx<'_>) -> io::Result<Option<u8>> {
    let mut byte = [0];
    Ok((cx.read(&mut byte)? == 1).then_some(byte[0]))
}

/// Sends back what comes; ends with its peer.
pub fn echo(cx: &mut Cx<'_>, _: &mut Others<'_>) -> io::Result<Next> {
    match byte(cx)? {
        None => Ok(Next::Close),
        Some(byte) => cx.write_all(&[byte]).map(|()| Next::Continue),
    }
}

/// Sends a byte, and waits until it comes back.
pub fn asks(peer: &mut TcpStream, byte: u8) {
    peer.write_all(&[byte]).unwrap();
    let mut back = [0];
    peer.read_exact(&mut back).unwrap();
    assert_eq!(back[0], byte);
}

pub fn pools(threads: usize) -> impl Iterator<Item = Pool> {
    let all = kernel_sets()
        .into_iter()
        .flat_map(|set| [Wake::Eager, Wake::Adaptive].map(|wake| (set.clone(), wake)));
    all.map(move |(set, wake)| {
        let pool = Pool::builder().threads(threads).handle_set(set).wake(wake);
        pool.build().unwrap()
    })
}

pub fn pool(threads: usize) -> Pool {
    Pool::builder().threads(threads).build().unwrap()
}
