//! A handler that tells what it is told about its moves, for tests.

use std::{
    io::{self, Read, Write},
    sync::mpsc,
};

use paceline::{Closed, Context, EventHandler, Handle, Level, Next, Pool, SetKind};

use crate::support::{kernel_sets, LONG};

/// What a handler was told.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    Moved(Handle),
    Stayed(io::ErrorKind),
    Closed(String),
}

/// A handler made of a closure, which tells everything else.
pub struct Script<F> {
    pub ready: F,
    pub tell: mpsc::Sender<Told>,
}

impl<S, F> EventHandler<S> for Script<F>
where
    F: FnMut(&mut Context<'_, S>) -> io::Result<Next> + Send + 'static,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        (self.ready)(cx)
    }

    fn moved(&mut self, handle: &Handle) {
        let _ = self.tell.send(Told::Moved(handle.clone()));
    }

    fn stayed(&mut self, why: io::Error) {
        let _ = self.tell.send(Told::Stayed(why.kind()));
    }

    fn closed(&mut self, why: Closed) {
        let _ = self.tell.send(Told::Closed(why.to_string()));
    }
}

pub fn script<F>(ready: F) -> (Script<F>, mpsc::Receiver<Told>) {
    let (tell, told) = mpsc::channel();
    (Script { ready, tell }, told)
}

pub fn next(told: &mpsc::Receiver<Told>) -> Told {
    told.recv_timeout(LONG).unwrap()
}

/// The key that a handler was told at its move.
pub fn moved(told: &mpsc::Receiver<Told>) -> Handle {
    match next(told) {
        Told::Moved(handle) => handle,
        other => panic!("{other:?}"),
    }
}

/// Sends back what comes, byte by byte; ends with its peer.
pub fn echo<S>(cx: &mut Context<'_, S>) -> io::Result<Next>
where
    for<'s> &'s S: Read + Write,
{
    let mut byte = [0];
    match cx.read(&mut byte)? {
        0 => Ok(Next::Close),
        _ => cx.write_all(&byte).map(|()| Next::Continue),
    }
}

/// The same; but at the first call it reads one byte and moves, with the rest unread.
pub fn echo_there<S>(level: &Level) -> impl FnMut(&mut Context<'_, S>) -> io::Result<Next>
where
    for<'s> &'s S: Read + Write,
{
    let mut goes_to = Some(level.clone());
    move |cx| match goes_to.take() {
        None => echo(cx),
        Some(level) => {
            let _ = echo(cx)?;
            cx.move_to(&level)
        }
    }
}

/// Sends bytes, and waits until they come back.
pub fn asks(mut peer: impl Read + Write, bytes: &[u8]) {
    peer.write_all(bytes).unwrap();
    hears(&mut peer, bytes);
}

/// Waits until these bytes come.
pub fn hears(mut peer: impl Read, bytes: &[u8]) {
    let mut back = vec![0; bytes.len()];
    peer.read_exact(&mut back).unwrap();
    assert_eq!(back, bytes);
}

/// A pool of two threads.
pub fn pool(set: SetKind) -> Pool {
    Pool::builder().threads(2).handle_set(set).build().unwrap()
}

/// Every kind of pool, with every other as the level to go to.
pub fn pairs() -> impl Iterator<Item = (Pool, Pool)> {
    let (sets, others) = (kernel_sets(), kernel_sets());
    sets.into_iter().flat_map(move |from| {
        let pair = |to: &SetKind| (pool(from.clone()), pool(to.clone()));
        others.iter().map(pair).collect::<Vec<_>>()
    })
}
