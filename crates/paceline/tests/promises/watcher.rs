//! The watcher: behind handlers that often block by surprise, somebody leads long before the next
//! tick.

use std::{
    fs, io,
    io::{Read, Write},
    os::unix::net::UnixStream,
    thread,
    time::Duration,
};

use crate::support::{bounded, by_hand::pause, wait_until, LONG};
use paceline::{Builder, Context, EventHandler, Interest, Next, Pool};

/// Echoes a byte; for `b` it blocks first, and does not say so.
struct Blocking;

impl EventHandler<UnixStream> for Blocking {
    fn ready(&mut self, cx: &mut Context<'_, UnixStream>) -> io::Result<Next> {
        let mut byte = [0; 1];
        cx.read(&mut byte)?;
        if byte[0] == b'b' {
            thread::sleep(Duration::from_millis(3));
        }
        cx.write_all(&byte)?;
        Ok(Next::Continue)
    }
}

/// A pool with two connections to it.
struct Stage {
    pool: Pool,
    peers: [UnixStream; 2],
}

impl Stage {
    fn new(name: &str, choose: fn(Builder) -> Builder) -> Self {
        let pool = choose(Pool::builder().threads(4).name(name)).build();
        let pool = pool.expect("a pool");
        let connect = || {
            let (ours, peer) = UnixStream::pair().expect("a pair");
            let registered = pool.register(ours, Interest::READ, Blocking);
            let _ = registered.expect("a registration");
            peer
        };
        let peers = [connect(), connect()];
        Self { pool, peers }
    }

    /// One request blocks, and beside it many others are answered.
    fn block_once(&mut self) {
        let [one, other] = &mut self.peers;
        one.write_all(b"b").expect("the pool reads");
        for _ in 0..20 {
            other.write_all(b"x").expect("the pool reads");
            other.read_exact(&mut [0; 1]).expect("the pool replies");
        }
        one.read_exact(&mut [0; 1]).expect("the pool replies");
    }
}

/// Whether this process has a thread of this name.
fn has_thread(name: &str) -> bool {
    let tasks = fs::read_dir("/proc/self/task").expect("the kernel tells");
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.into_iter().any(|comm| comm.trim_end() == name)
}

/// It comes when it is needed, has the standby take over, and goes with the pool.
#[test]
fn takes_part_where_handlers_block_by_surprise() {
    bounded(|| {
        let mut stage = Stage::new("by", |pool| pool);
        assert!(!has_thread("by-watcher"));
        while stage.pool.snapshot().rings == 0 {
            stage.block_once();
        }
        wait_until(|| has_thread("by-watcher"));
        // Without surprises it goes to sleep, from which the end of the pool must wake it.
        pause(Duration::from_millis(200));
        assert!(stage.pool.shutdown(LONG).is_clean());
        wait_until(|| !has_thread("by-watcher"));
    });
}

/// Who does not want one gets none.
#[test]
fn stays_away_where_it_is_not_wanted() {
    bounded(|| {
        let unwanted = Stage::new("un", |pool| pool.watcher(false));
        let eager = Stage::new("ea", |pool| pool.wake(paceline::Wake::Eager));
        for (mut stage, name) in [(unwanted, "un-watcher"), (eager, "ea-watcher")] {
            (0..20).for_each(|_| stage.block_once());
            assert_eq!(stage.pool.snapshot().rings, 0);
            assert!(!has_thread(name), "{name}");
            assert!(stage.pool.shutdown(LONG).is_clean());
        }
    });
}
