//! The bound pool as the paper has it: one lock, one condition for each waiter, a leader that reads whole replies. With
//! the errata mended that would make it hang.

use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read, Write},
    net::TcpStream,
    sync::{
        atomic::{AtomicU32, Ordering},
        Arc, Condvar, Mutex, PoisonError,
    },
};

use super::{clients::locked, frames, with_threads, CallArgs, Seen};

#[derive(Default)]
struct Pool {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    is_led: bool,
    waiting: HashMap<u32, Arc<Waiter>>,
    /// The sleeping callers, oldest first.
    followers: VecDeque<u32>,
}

#[derive(Default)]
struct Waiter {
    woken: Condvar,
    reply: Mutex<Option<Vec<u8>>>,
}

pub(super) fn run(args: &CallArgs) -> io::Result<Seen> {
    let stream = TcpStream::connect(args.address)?;
    stream.set_nodelay(true)?;
    let shared = Arc::new((
        Pool::default(),
        Mutex::new(stream.try_clone()?),
        Mutex::new(stream),
        AtomicU32::new(0),
    ));
    with_threads(args, || {
        let shared = Arc::clone(&shared);
        let mut out = Vec::new();
        Ok(move |request: &[u8]| {
            let (pool, reading, writing, ids) = &*shared;
            let id = ids.fetch_add(1, Ordering::Relaxed);
            let waiter = Arc::new(Waiter::default());
            locked(&pool.state).waiting.insert(id, Arc::clone(&waiter));
            out.clear();
            frames::append(&mut out, id, request);
            locked(writing).write_all(&out)?;
            pool.join(id, &waiter, reading)?;
            let reply = locked(&waiter.reply).take();
            Ok(reply.is_some_and(|reply| reply == request))
        })
    })
}

impl Pool {
    /// Waits until the reply is there: asleep, or leading.
    fn join(&self, id: u32, waiter: &Waiter, stream: &Mutex<TcpStream>) -> io::Result<()> {
        let mut state = locked(&self.state);
        while locked(&waiter.reply).is_none() {
            if state.is_led {
                state.followers.push_back(id);
                let woken = waiter.woken.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                state.followers.retain(|other| *other != id);
                continue;
            }
            state.is_led = true;
            drop(state);
            let read = self.lead(waiter, stream);
            state = locked(&self.state);
            state.is_led = false;
            // Promotes another waiter, the oldest that has no reply.
            let mut followers = state.followers.iter();
            if let Some(next) = followers.find_map(|next| state.waiting.get(next)) {
                next.woken.notify_one();
            }
            read?;
        }
        Ok(())
    }

    /// Reads for all, until the own reply is there.
    fn lead(&self, own: &Waiter, stream: &Mutex<TcpStream>) -> io::Result<()> {
        let mut stream = locked(stream);
        while locked(&own.reply).is_none() {
            let mut header = [0; frames::HEADER];
            stream.read_exact(&mut header)?;
            let (id, length) = frames::header(&header).ok_or(io::ErrorKind::InvalidData)?;
            let mut body = vec![0; length];
            stream.read_exact(&mut body)?;
            let waiter = locked(&self.state).waiting.remove(&id);
            if let Some(waiter) = waiter {
                *locked(&waiter.reply) = Some(body);
                let _state = locked(&self.state);
                waiter.woken.notify_one();
            }
        }
        Ok(())
    }
}
