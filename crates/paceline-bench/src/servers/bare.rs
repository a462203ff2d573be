//! The bound that others are compared with: threads that share nothing, each with an epoll of its own, as fast
//! as we can write it.
//!
//! Edge-triggered; up to [`BATCH`] events per wait; one read and one write per event, into and from one buffer.
//!
//! With two loops the first one has the listener and deals connections out by turns. (`SO_REUSEPORT` would
//! deal them by a hash: unevenly, when there are few.)

use std::{
    io,
    net::{TcpListener, TcpStream},
    sync::{
        mpsc::{self, Receiver, Sender},
        Arc,
    },
    thread,
};

use super::{
    door::Door,
    epoll::{is_hung_up, number_of, source_of, Epoll, Event, EventFlags, EDGES},
    peer::{Peer, State},
    Setting,
};
use crate::service::ROOM;

/// So many events are taken by one wait.
const BATCH: usize = 256;

/// One loop.
pub(super) fn one(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, 1)
}

/// Two loops.
pub(super) fn two(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, 2)
}

/// Serves with so many loops; the first is on this thread.
fn serve(listener: TcpListener, setting: &Setting, count: usize) -> io::Result<()> {
    let (seats, mut loops): (Vec<Seat>, Vec<Loop>) = (0..count)
        .map(|_| Loop::new(setting.steps))
        .collect::<io::Result<Vec<_>>>()?
        .into_iter()
        .unzip();
    let first = loops.remove(0);
    for of_thread in loops {
        thread::Builder::new().spawn(move || of_thread.run(None))?;
    }
    first.run(Some(Dealer::new(listener, seats)?))
}

/// One loop with its connections.
struct Loop {
    epoll: Arc<Epoll>,
    /// Connections that were dealt to it. Each is taken when its first event arrives.
    arrivals: Receiver<TcpStream>,
    /// By the number of the descriptor.
    peers: Vec<Option<Peer>>,
    buffer: Box<[u8]>,
    steps: u32,
}

impl Loop {
    fn new(steps: u32) -> io::Result<(Seat, Loop)> {
        let epoll = Arc::new(Epoll::new()?);
        let (deal, arrivals) = mpsc::channel();
        let seat = Seat {
            epoll: Arc::clone(&epoll),
            deal,
        };
        let of_seat = Loop {
            epoll,
            arrivals,
            peers: Vec::new(),
            buffer: vec![0; ROOM].into(),
            steps,
        };
        Ok((seat, of_seat))
    }

    fn run(mut self, mut dealer: Option<Dealer>) -> io::Result<()> {
        let mut events = Vec::with_capacity(BATCH);
        loop {
            self.epoll.batch(&mut events)?;
            for event in &events {
                match &mut dealer {
                    Some(dealer) if dealer.is_for(event) => dealer.deal(),
                    _ => self.visit(event),
                }
            }
        }
    }

    fn visit(&mut self, event: &Event) {
        let fd = source_of(event);
        if !self.has(fd) {
            self.welcome(fd);
        }
        let Some(Some(peer)) = self.peers.get_mut(fd) else {
            return;
        };
        let hung_up = is_hung_up(event);
        if peer.serve_all(&mut self.buffer, hung_up, self.steps) == State::Ended {
            // Taken out before it is closed: its number may come back with another connection.
            drop(self.peers[fd].take());
        }
    }

    fn has(&self, fd: usize) -> bool {
        matches!(self.peers.get(fd), Some(Some(_)))
    }

    /// Takes connections in, up to the one whose event has come. It is on its way, if it is not there yet: what
    /// is closed has no events.
    #[cold]
    fn welcome(&mut self, awaited: usize) {
        while !self.has(awaited) {
            let Ok(stream) = self.arrivals.recv() else {
                return;
            };
            let fd = number_of(&stream);
            if fd >= self.peers.len() {
                self.peers.resize_with(fd + 1, || None);
            }
            self.peers[fd] = Some(Peer::new(stream));
        }
    }
}

/// Where a loop gets its connections.
struct Seat {
    epoll: Arc<Epoll>,
    deal: Sender<TcpStream>,
}

/// Deals connections out by turns.
struct Dealer {
    door: Door,
    seats: Vec<Seat>,
    next: usize,
}

impl Dealer {
    fn new(listener: TcpListener, seats: Vec<Seat>) -> io::Result<Self> {
        let door = Door::new(listener)?;
        seats[0].epoll.add(&door, EventFlags::IN | EventFlags::ET)?;
        let next = 0;
        Ok(Self { door, seats, next })
    }

    fn is_for(&self, event: &Event) -> bool {
        source_of(event) == number_of(&self.door)
    }

    fn deal(&mut self) {
        while let Some(stream) = self.door.next() {
            let seat = &self.seats[self.next];
            self.next = (self.next + 1) % self.seats.len();
            seat.take(stream);
        }
    }
}

impl Seat {
    fn take(&self, stream: TcpStream) {
        if self.epoll.add(&stream, EDGES).is_ok() {
            let _ = self.deal.send(stream);
        }
    }
}
