//! Paceline, in its default setting and in others.

use std::{
    io,
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use paceline::{
    scratch, Builder, Context, EventHandler, Leaders, Next, Order, Pool, SetKind, Sets, Wake,
};

use super::{
    counts::{self, LastThread, Leaderless},
    keep, Setting,
};
use crate::service::{perform_all, tasks, Rest, Task, ROOM};

/// The default: edge-triggered epoll, the newest follower first, a wake where it pays.
pub(super) fn default(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| builder)
}

/// A follower is woken on every event.
pub(super) fn eager(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| builder.wake(Wake::Eager))
}

/// One-shot epoll.
pub(super) fn one_shot(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| {
        builder.handle_set(SetKind::OneShot)
    })
}

/// `poll`.
pub(super) fn poll(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| {
        builder.handle_set(SetKind::Poll)
    })
}

/// A concurrent set. It has no leader, so it reports no time without one.
pub(super) fn concurrent(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    let pool = Pool::builder().threads(setting.threads);
    let pool = pool.handle_set(SetKind::Concurrent).build()?;
    pool.listener().on(listener, connection(setting))?;
    keep(pool)
}

/// A completion set.
pub(super) fn completion(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| {
        builder.handle_set(SetKind::Completion)
    })
}

/// The follower that has waited longest is first.
pub(super) fn oldest(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| builder.order(Order::Oldest))
}

/// The follower with the highest priority is first; each thread has its own.
pub(super) fn priority(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| {
        builder
            .order(Order::Priority)
            .thread_priority(|index| index.try_into().unwrap_or(u8::MAX))
    })
}

/// The system picks the follower.
pub(super) fn system(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| builder.order(Order::System))
}

/// Without a watcher.
pub(super) fn unwatched(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| builder.watcher(false))
}

/// With a board, which has histograms too.
pub(super) fn board(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve(listener, setting, |builder| builder.board(true))
}

/// With a leader that does not sleep at once.
pub(super) fn spinning(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    const SPIN: Duration = Duration::from_micros(50);
    serve(listener, setting, |builder| builder.leader_spin(SPIN))
}

/// Two sets, each with half of the threads.
pub(super) fn sets(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve_in_sets(listener, setting, Leaders::Assigned)
}

/// Two sets, and threads that serve both.
pub(super) fn roaming(listener: TcpListener, setting: &Setting) -> io::Result<()> {
    serve_in_sets(listener, setting, Leaders::Roaming)
}

fn serve_in_sets(listener: TcpListener, setting: &Setting, leaders: Leaders) -> io::Result<()> {
    const SETS: usize = 2;
    // One leads each, and one is free.
    let threads = setting.threads.max(SETS + 1);
    let sets = Sets::builder().sets(SETS).threads(threads);
    let sets = sets.leaders(leaders).build()?;
    let pools: Vec<_> = (0..sets.count())
        .map(|set| sets.pool(set).clone())
        .collect();
    counts::ask_leaderless(move || {
        let each = pools.iter().map(leaderless);
        each.fold(Leaderless::default(), |all, it| Leaderless {
            in_all: all.in_all + it.in_all,
            longest: all.longest.max(it.longest),
        })
    });
    sets.listener().on(listener, connection(setting))?;
    keep(sets)
}

/// Serves with `setting.threads` threads of the pool's own.
fn serve(
    listener: TcpListener,
    setting: &Setting,
    choose: impl FnOnce(Builder) -> Builder,
) -> io::Result<()> {
    let pool = choose(Pool::builder().threads(setting.threads)).build()?;
    let of_counts = pool.clone();
    counts::ask_leaderless(move || leaderless(&of_counts));
    pool.listener().on(listener, connection(setting))?;
    keep(pool)
}

/// What is made of each connection.
fn connection(setting: &Setting) -> impl FnMut(&TcpStream, SocketAddr) -> Option<Connection> {
    let (steps, announced) = (setting.steps, setting.announced);
    move |stream, _| {
        // If it has gone already, its first read will tell.
        let _ = stream.set_nodelay(true);
        Some(Connection {
            rest: Rest::NONE,
            last: LastThread::default(),
            steps,
            announced,
        })
    }
}

fn leaderless(pool: &Pool) -> Leaderless {
    let seen = pool.snapshot();
    Leaderless {
        in_all: seen.without_leader,
        longest: seen.longest_without_leader,
    }
}

/// One connection.
struct Connection {
    rest: Rest,
    last: LastThread,
    steps: u32,
    announced: bool,
}

impl EventHandler<TcpStream> for Connection {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut scratch = scratch();
        let buffer = &mut scratch[..ROOM];
        let before = self.rest.restore(buffer);
        let count = cx.read(&mut buffer[before..])?;
        if count == 0 {
            return Ok(Next::Close);
        }
        self.last.note();
        let whole = self.rest.keep(&buffer[..before + count]);
        self.perform(cx, &buffer[..whole]);
        cx.write_all(&buffer[..whole])?;
        Ok(Next::Continue)
    }
}

impl Connection {
    fn perform(&self, cx: &mut Context<'_, TcpStream>, whole: &[u8]) {
        if self.announced {
            tasks(whole).for_each(|task| self.perform_announced(cx, task))
        } else {
            perform_all(whole, self.steps)
        }
    }

    /// Says so beforehand if the task blocks.
    fn perform_announced(&self, cx: &mut Context<'_, TcpStream>, task: Task) {
        if task.blocks() {
            cx.blocking(|| task.perform(self.steps))
        } else {
            task.perform(self.steps)
        }
    }
}
