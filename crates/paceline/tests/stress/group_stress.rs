//! Connections that change groups all the time, while their clients check every answer.

#![allow(unreachable_pub, reason = "a module of a test")]

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        atomic::{AtomicBool, AtomicU64, Ordering},
        Arc, Mutex, PoisonError,
    },
    thread,
    time::Duration,
};

use crate::support::{pause, wait_until, Random, LONG};
use paceline::{
    Adoption, Closed, Context, Group, GroupHandler, Handle, Members, Next, Pool, SetKind, Wake,
};
use socket2::SockRef;

/// Groups that stay when nobody is in them.
const HALLS: usize = 3;
/// Threads that are clients, one connection after the other.
const CLIENTS: u64 = 4;
/// Messages that one connection sends at most.
const LONGEST: u64 = 64;

type Cx<'c> = Context<'c, TcpStream>;
type Others<'g> = Members<'g, TcpStream>;

/// What all know.
#[derive(Default)]
struct House {
    halls: Mutex<Vec<Group<TcpStream>>>,
    /// Connections that were there a moment ago.
    members: Mutex<Vec<Handle>>,
    moved: AtomicU64,
    closed: AtomicU64,
    answered: AtomicU64,
    is_over: AtomicBool,
}

impl House {
    fn hall(&self, random: &mut Random) -> Group<TcpStream> {
        let halls = self.halls.lock().unwrap_or_else(PoisonError::into_inner);
        halls[random.below(HALLS as u64) as usize].clone()
    }

    fn member(&self, random: &mut Random) -> Option<Handle> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        let at = random.below(members.len().max(1) as u64);
        members.get(at as usize).cloned()
    }

    fn enter(&self, handle: Handle) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        // The oldest makes room.
        if members.len() == 64 {
            members.remove(0);
        }
        members.push(handle);
    }
}

/// Echoes, and now and then gives somebody away.
struct Hall {
    house: Arc<House>,
    random: Random,
    stays: bool,
}

impl GroupHandler<TcpStream> for Hall {
    fn joined(&mut self, cx: &mut Cx<'_>, _: &mut Others<'_>) -> io::Result<Next> {
        self.house.enter(cx.handle());
        Ok(Next::Continue)
    }

    fn ready(&mut self, cx: &mut Cx<'_>, members: &mut Others<'_>) -> io::Result<Next> {
        let mut buffer = [0; 24];
        let count = cx.read(&mut buffer)?;
        if count == 0 {
            return Ok(Next::Close);
        }
        cx.write_all(&buffer[..count])?;
        if self.random.once_in(8) {
            let other = members.handles().next().filter(|_| self.random.once_in(2));
            let who = other.unwrap_or_else(|| cx.handle());
            members.move_to(&who, &self.house.hall(&mut self.random))?;
            self.house.moved.fetch_add(1, Ordering::Relaxed);
        }
        Ok(Next::Continue)
    }

    fn closed(&mut self, _: &Handle, _: Closed, _: &mut Others<'_>) {
        self.house.closed.fetch_add(1, Ordering::SeqCst);
    }

    fn deserted(&mut self) -> Next {
        if self.stays {
            Next::Continue
        } else {
            Next::Close
        }
    }
}

/// Every message comes back once, in order, and every connection ends once, whichever groups it was
/// in.
pub fn run(set: SetKind, wake: Wake, messages: u64) {
    let name = format!("{set:?}, {wake:?}");
    let pool = Pool::builder().threads(4).name("stress").handle_set(set);
    let pool = pool.wake(wake).build().unwrap();
    let house = Arc::<House>::default();
    let hall = |house: &Arc<House>, seed, stays| Hall {
        house: Arc::clone(house),
        random: Random::new(seed),
        stays,
    };
    let halls = (0..HALLS as u64).map(|seed| pool.group(hall(&house, seed, true)).unwrap());
    *house.halls.lock().unwrap() = halls.collect();
    let (mut seed, made) = (100, Arc::clone(&house));
    let listener = pool
        .listener()
        .bind_groups("127.0.0.1:0", move |stream, _| {
            stream.set_nodelay(true).unwrap();
            seed += 1;
            Some(hall(&made, seed, false))
        });
    let address = listener.unwrap().local_addr();
    let meddler = {
        let house = Arc::clone(&house);
        thread::spawn(move || meddle(&house))
    };
    let clients: Vec<_> = (0..CLIENTS)
        .map(|seed| {
            let house = Arc::clone(&house);
            thread::spawn(move || send(&house, address, seed, messages / CLIENTS))
        })
        .collect();
    clients.into_iter().for_each(|it| it.join().unwrap());
    house.is_over.store(true, Ordering::SeqCst);
    meddler.join().unwrap();
    let accepted = || pool.snapshot().accepted;
    wait_until(|| house.closed.load(Ordering::SeqCst) == accepted());
    let report = pool.shutdown(LONG);
    assert!(report.is_clean(), "{report}");
    assert_eq!(pool.snapshot().panics, 0);
    assert_eq!(house.closed.load(Ordering::SeqCst), accepted());
    assert!(house.moved.load(Ordering::SeqCst) > 0);
    eprintln!(
        "stress: {} messages, {name}, {} connections, {} moves between groups",
        house.answered.load(Ordering::SeqCst),
        accepted(),
        house.moved.load(Ordering::SeqCst),
    );
}

/// Moves members from outside, and asks things of them.
fn meddle(house: &House) {
    let mut random = Random::new(7);
    while !house.is_over.load(Ordering::SeqCst) {
        pause();
        let Some(member) = house.member(&mut random) else {
            continue;
        };
        let hall = house.hall(&mut random);
        // It may be closed.
        match random.below(8) {
            0 => drop(member.notify()),
            1 => drop(member.suspend().and_then(|()| member.resume())),
            2 => drop(hall.notify()),
            3 => drop(member.set_timeout(Some(LONG))),
            _ => {
                let is_moved = matches!(hall.adopt(&member), Ok(Adoption::Moved));
                house
                    .moved
                    .fetch_add(u64::from(is_moved), Ordering::Relaxed);
            }
        }
    }
}

/// One connection after the other, until so many messages were answered.
fn send(house: &House, address: SocketAddr, seed: u64, messages: u64) {
    let mut random = Random::new(seed);
    let mut sent = 0;
    while sent < messages {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        let count = 1 + random.below(LONGEST);
        let mut at = 0;
        while at < count {
            let burst = (1 + random.below(8)).min(count - at);
            let bytes: Vec<u8> = (at..at + burst)
                .flat_map(|at| (sent + at).to_le_bytes())
                .collect();
            stream.write_all(&bytes).unwrap();
            let mut back = vec![0; bytes.len()];
            stream.read_exact(&mut back).unwrap();
            assert!(back == bytes, "lost, doubled or misrouted");
            at += burst;
        }
        sent += count;
        house.answered.fetch_add(count, Ordering::Relaxed);
        match random.below(3) {
            0 => drop(stream),
            1 => {
                SockRef::from(&stream)
                    .set_linger(Some(Duration::ZERO))
                    .unwrap();
            }
            _ => {
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(
                    stream.read_to_end(&mut Vec::new()).unwrap(),
                    0,
                    "more than was sent"
                );
            }
        }
    }
}
