//! S1: a handler that waits for a reply is ended by the shutdown of its pool, wherever its thread
//! waits.
//!
//! The pool that read the connection gave it up as soon as its shutdown began. The thread then read
//! by itself, away from the pool, and stayed until the call's own deadline. Now such a wait ends
//! when the pool is closed, as every other wait inside a handler does.

use std::{
    io,
    sync::{
        mpsc::{self, Receiver},
        Arc,
    },
    thread,
    time::Duration,
};

use paceline::{
    bound::{Deadline, Mux},
    Pool, Serve, SetKind,
};

use crate::support::{
    bound::{call, mux, wait_asleep, Framed},
    bounded,
    gate::Gate,
    wait_until, LONG,
};

/// A handler of this pool calls and waits for ever; what comes of it.
fn ask(pool: &Pool, mux: &Mux<Framed>, serve: Serve) -> Receiver<io::Result<Vec<u8>>> {
    let (tell, told) = mpsc::channel();
    let mux = mux.clone();
    pool.post(move |cx| {
        let call = mux.prepare().unwrap().send(b"ask").unwrap();
        let reply = call.join_in(cx, Deadline::NEVER, serve);
        let reply = reply.map(|reply| reply.to_vec());
        tell.send(reply.map_err(|rejected| rejected.error)).unwrap();
    })
    .unwrap();
    told
}

/// The handler was ended by the end of its pool.
fn assert_ended(told: &Receiver<io::Result<Vec<u8>>>) {
    let error = told.recv_timeout(LONG).unwrap().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
}

/// Its own pool reads the connection, with threads that have nothing else to do or with none. The
/// pool gives the connection up when it begins to end.
#[test]
fn of_the_pool_that_reads_the_connection() {
    bounded(|| {
        for (serve, threads) in [
            (Serve::Chain, 1),
            (Serve::Chain, 2),
            (Serve::Any, 1),
            (Serve::Any, 2),
        ] {
            let pool = Pool::builder().threads(threads).build().unwrap();
            let (mux, mut peer) = mux();
            pool.attach(&mux).unwrap();
            let told = ask(&pool, &mux, serve);
            peer.request();
            let _ = pool.shutdown(Duration::ZERO);
            assert_ended(&told);
            assert!(!mux.is_lost());
            assert_eq!(mux.callers().under_way, 0);
        }
    });
}

/// No pool reads the connection: the handler's thread leads it, and others of the pool sleep behind
/// it.
#[test]
fn while_it_leads_the_connection_and_while_it_follows() {
    bounded(|| {
        for set in [SetKind::Epoll, SetKind::Concurrent] {
            let pool = Pool::builder().threads(3).handle_set(set);
            let pool = pool.build().unwrap();
            let (mux, mut peer) = mux();
            let told = [(); 3].map(|()| ask(&pool, &mux, Serve::Chain));
            told.iter().for_each(|_| drop(peer.request()));
            wait_asleep(&mux, 2);
            let _ = pool.shutdown(Duration::ZERO);
            told.iter().for_each(assert_ended);
            assert!(!mux.callers().led);
        }
    });
}

/// A thread that is in no handler leads; it reads on, and has its reply.
#[test]
fn while_another_thread_leads_the_connection() {
    bounded(|| {
        let pool = Pool::builder().threads(1).build().unwrap();
        let (mux, mut peer) = mux();
        let leader = {
            let mux = mux.clone();
            thread::spawn(move || call(&mux, b"leader"))
        };
        let (id, _) = peer.request();
        wait_asleep(&mux, 0);
        let told = ask(&pool, &mux, Serve::Any);
        peer.request();
        wait_asleep(&mux, 1);
        let _ = pool.shutdown(Duration::ZERO);
        assert_ended(&told);
        peer.reply(id, b"answer");
        assert_eq!(leader.join().unwrap().unwrap(), b"answer");
    });
}

/// The pool ends while the handler does something else, and the handler calls afterwards.
#[test]
fn of_a_pool_that_has_ended_before() {
    bounded(|| {
        for is_attached in [false, true] {
            let pool = Pool::builder().threads(1).build().unwrap();
            let (mux, mut peer) = mux();
            if is_attached {
                pool.attach(&mux).unwrap();
            }
            let (gate, caller) = (Gate::shut(), mux.clone());
            let (inside, (tell, told)) = (Arc::clone(&gate), mpsc::channel());
            pool.post(move |cx| {
                inside.pass();
                let reply = caller.call_in(cx, b"ask", Deadline::NEVER);
                tell.send(reply.map(|reply| reply.to_vec())).unwrap();
            })
            .unwrap();
            gate.wait_for(1);
            let report = pool.shutdown(Duration::ZERO);
            assert_eq!(report.stuck_threads.len(), 1);
            gate.let_through(1);
            assert_ended(&told);
            peer.request();
        }
    });
}

/// The pool has time to drain: a reply that comes in that time is the handler's.
#[test]
fn but_not_before_the_drain_is_over() {
    bounded(|| {
        for threads in [1, 2] {
            let pool = Pool::builder().threads(threads).build().unwrap();
            let (mux, mut peer) = mux();
            pool.attach(&mux).unwrap();
            let told = ask(&pool, &mux, Serve::Chain);
            let (id, _) = peer.request();
            let ender = thread::spawn(move || pool.shutdown(LONG));
            // The pool has given the connection up.
            wait_until(|| mux.callers().waits);
            peer.reply(id, b"in time");
            assert_eq!(told.recv_timeout(LONG).unwrap().unwrap(), b"in time");
            assert!(ender.join().unwrap().is_clean());
        }
    });
}
