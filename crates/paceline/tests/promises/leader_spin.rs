//! `leader_spin`: a leader that finds nothing looks again for a while before it sleeps.

use std::{
    io::{Read, Write},
    os::unix::net::UnixStream,
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{own_task, sleeps, status, time_run},
    wait_until, LONG,
};
use paceline::{turn::Left, Context, Interest, Next, Pool};

fn echo(pool: &Pool) -> std::io::Result<UnixStream> {
    let (ours, peer) = UnixStream::pair()?;
    let handler = |cx: &mut Context<'_, UnixStream>| {
        let mut byte = [0; 1];
        cx.read(&mut byte)?;
        cx.write_all(&byte)?;
        Ok(Next::Continue)
    };
    let _ = pool.register(ours, Interest::READ, handler)?;
    Ok(peer)
}

fn ask(peer: &mut UnixStream) {
    peer.write_all(b"x").expect("the pool reads");
    peer.read_exact(&mut [0; 1]).expect("the pool replies");
}

/// Runs `work` beside the one thread of a pool, with its number and a connection to it; then the
/// pool is shut down.
fn beside_a_leader(spin: Duration, work: impl FnOnce(u32, &mut UnixStream)) {
    let pool = Pool::builder().threads(0).leader_spin(spin).build();
    let pool = pool.expect("a pool");
    let mut peer = echo(&pool).expect("a registration");
    let (sender, tasks) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            sender.send(own_task()).expect("the test waits");
            pool.join()
        });
        work(tasks.recv().expect("a thread joins"), &mut peer);
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// A leader that spins for ever would cost a core for nothing (async-io 8, 40): it sleeps when its
/// while is over, and after an event the while begins anew and ends too.
#[test]
fn it_ends() {
    bounded(|| {
        let spin = Duration::from_millis(1);
        beside_a_leader(spin, |task, peer| {
            for _ in 0..3 {
                wait_until(|| sleeps(task));
                ask(peer);
            }
            wait_until(|| sleeps(task));
        });
    });
}

/// While it spins it obeys what would have ended its sleep: events, its deadline, and a shutdown.
#[test]
fn it_is_ended_by_whatever_ends_a_sleep() {
    bounded(|| {
        let pool = Pool::builder().threads(0).leader_spin(LONG).build();
        let pool = pool.expect("a pool");
        let mut peer = echo(&pool).expect("a registration");
        let left = pool.join_timeout(Duration::from_millis(2));
        assert!(matches!(left, Ok(Left::TimedOut)), "{left:?}");
        thread::scope(|scope| {
            let joined = scope.spawn(|| pool.join());
            (0..3).for_each(|_| ask(&mut peer));
            assert!(pool.shutdown(LONG).is_clean());
            assert!(joined.join().is_ok_and(|left| left.is_ok()));
        });
    });
}

/// What it is for: between two requests that follow each other, nobody goes to sleep. While nothing
/// comes it looks on, and so runs on: one that slept would have had no reason to get up. (That it
/// never slept does not show that alone: on a busy machine the next request may be there before it
/// can.)
#[test]
fn it_answers_without_having_slept() {
    bounded(|| {
        beside_a_leader(LONG, |task, peer| {
            ask(peer);
            let given_up = || status(task, "voluntary_ctxt_switches:");
            let before = given_up();
            for _ in 0..3 {
                let ran = time_run(task);
                wait_until(|| time_run(task) > ran + 1);
                (0..30).for_each(|_| ask(peer));
            }
            assert_eq!(given_up(), before);
        });
    });
}
