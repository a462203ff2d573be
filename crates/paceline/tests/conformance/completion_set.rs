//! The completion set, where it differs from the others: requests lie in the kernel, and a ring of
//! its completions is read. (What all sets have in common is in `conformance.rs`.)
//!
//! Where the system refuses io_uring, these say that they are skipped. (How it is refused is in
//! `echo.rs`: a process that is started has all descriptors for a moment, and here the peers of
//! closed ones must see the end at once.)

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    os::{fd::RawFd, unix::net::UnixStream},
    sync::mpsc,
    thread,
};

use crate::support::{
    bounded,
    by_hand::{self, serve_all},
    is_to_be_had, tcp_pair,
    unowned::Unowned,
    wait_until, LONG,
};
use paceline::{Context, EventHandler, Interest, Next, Pool, SetKind};
use socket2::SockRef;

/// Runs `body` within its bound, if there is a completion set.
fn on_a_completion_set(body: impl FnOnce() + Send + 'static) {
    if is_to_be_had(&SetKind::Completion) {
        bounded(body);
    }
}

fn pool(threads: usize) -> Pool {
    let pool = Pool::builder().threads(threads);
    pool.handle_set(SetKind::Completion).build().unwrap()
}

/// Reads all there is, and tells it.
fn reading<S>() -> (impl EventHandler<S>, mpsc::Receiver<Vec<u8>>)
where
    for<'s> &'s S: Read,
    S: Send + 'static,
{
    let (tell, told) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, S>| {
        let mut buffer = [0; 64];
        let count = cx.read(&mut buffer)?;
        let _ = tell.send(buffer[..count].to_vec());
        Ok(if count == 0 {
            Next::Close
        } else {
            Next::Continue
        })
    };
    (handler, told)
}

/// More happens at once than the ring has room for. The kernel ends the polls that find none; each
/// of them is reported nevertheless, and begins anew: also the second and the third time.
#[test]
fn more_than_the_ring_holds() {
    const HANDLES: usize = 300;
    on_a_completion_set(|| {
        let pool = pool(0);
        let handles: Vec<_> = (0..HANDLES)
            .map(|_| {
                let (near, far) = UnixStream::pair().unwrap();
                let (handler, reads) = reading();
                pool.register(near, Interest::READ, handler).unwrap();
                (far, reads)
            })
            .collect();
        for round in 0..3 {
            for (far, _) in &handles {
                (&*far).write_all(&[round]).unwrap();
            }
            let served = serve_all(&pool);
            assert!(served >= HANDLES, "{served} were served");
            for (number, (_, reads)) in handles.iter().enumerate() {
                let reads: Vec<_> = reads.try_iter().collect();
                assert_eq!(reads, [[round]], "handle {number}, round {round}");
            }
        }
    });
}

/// io_uring ends the requests of a thread when that ends. A handle that such a thread has
/// registered is served nevertheless, by any thread that is left.
#[test]
fn a_registration_outlives_the_thread_that_made_it() {
    on_a_completion_set(|| {
        let pool = pool(1);
        let (near, mut far) = UnixStream::pair().unwrap();
        let (handler, reads) = reading();
        let elsewhere = pool.clone();
        let registering = move || elsewhere.register(near, Interest::READ, handler).map(drop);
        let registered = thread::spawn(registering).join().unwrap();
        registered.map_err(|rejected| rejected.error).unwrap();
        for round in 0..3 {
            far.write_all(&[round]).unwrap();
            assert_eq!(reads.recv_timeout(LONG).unwrap(), [round]);
        }
    });
}

/// io_uring interrupts the thread that has submitted a request, in whatever call it sits, to do the
/// request's work: a read with a time-out fails then. Here a thread registers a handle, and sits in
/// such a read while much happens to its handle: nothing interrupts it.
#[test]
fn who_registers_is_not_interrupted_later() {
    on_a_completion_set(|| {
        let pool = pool(1);
        let (near, mut far) = UnixStream::pair().unwrap();
        let (handler, reads) = reading();
        let (own, mut others) = UnixStream::pair().unwrap();
        own.set_read_timeout(Some(LONG)).unwrap();
        let (tell, told) = mpsc::channel();
        let reader = thread::spawn(move || {
            pool.register(near, Interest::READ, handler).unwrap();
            tell.send(by_hand::own_task()).unwrap();
            let read = (&own).read(&mut [0; 1]);
            (pool, read)
        });
        let reader_task = told.recv_timeout(LONG).unwrap();
        wait_until(|| by_hand::sleeps(reader_task));
        for round in 0..100 {
            far.write_all(&[round]).unwrap();
            assert_eq!(reads.recv_timeout(LONG).unwrap(), [round]);
        }
        others.write_all(b"x").unwrap();
        let (_pool, read) = reader.join().unwrap();
        assert_eq!(read.unwrap(), 1, "it was interrupted");
    });
}

/// A poll holds on to the file that it polls. Who closes a handle at once after it was registered,
/// before the kernel's thread has come round to it, leaves nothing behind: when the call returns
/// the peer sees the end.
#[test]
fn closed_as_soon_as_registered() {
    on_a_completion_set(|| {
        let pool = pool(1);
        for _ in 0..200 {
            let (near, mut far) = UnixStream::pair().unwrap();
            far.set_nonblocking(true).unwrap();
            let (handler, _reads) = reading::<UnixStream>();
            let handle = pool.register(near, Interest::READ, handler).unwrap();
            handle.close_and_wait().unwrap();
            assert_eq!(
                far.read_to_end(&mut Vec::new())
                    .map_err(|error| error.kind()),
                Ok(0)
            );
        }
    });
}

/// The ring is torn down by the kernel some time after the pool is gone. No thread waits for that: the
/// peers of its handles see the end, and their addresses are free.
#[test]
fn a_pool_that_is_gone_holds_on_to_nothing() {
    on_a_completion_set(|| {
        let mut address: SocketAddr = "127.0.0.3:0".parse().unwrap();
        for _ in 0..10 {
            let pool = pool(2);
            let (near, mut far) = UnixStream::pair().unwrap();
            far.set_read_timeout(Some(LONG)).unwrap();
            let (handler, _reads) = reading::<UnixStream>();
            pool.register(near, Interest::READ, handler).unwrap();
            let make = |_: &TcpStream, _| Some(|_: &mut Context<'_, TcpStream>| Ok(Next::Close));
            let listener = pool.listen(address, make).unwrap();
            address = listener.local_addr();
            let report = pool.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
            drop((listener, pool));
            assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), 0);
        }
    });
}

/// Whatever comes to a socket, the kernel says that it may be urgent, which would cost each request
/// a second call. It is asked whether that is so.
#[test]
fn a_request_costs_one_call() {
    on_a_completion_set(|| {
        let pool = pool(0);
        let (near, mut far) = tcp_pair();
        let mine = near.try_clone().unwrap();
        let (tell, reads) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, TcpStream>| -> io::Result<Next> {
            let mut buffer = [0; 64];
            let count = cx.read(&mut buffer)?;
            tell.send(buffer[..count].to_vec()).unwrap();
            Ok(Next::Continue)
        };
        pool.register(near, Interest::READ, handler).unwrap();
        assert_eq!(serve_all(&pool), 0);
        for _ in 0..5 {
            far.write_all(b"request").unwrap();
            wait_until(|| mine.peek(&mut [0]).is_ok());
            assert_eq!(serve_all(&pool), 1);
            assert_eq!(reads.try_iter().collect::<Vec<_>>(), [b"request"]);
        }
        // And if it is so, nothing behind the mark is lost.
        far.write_all(b"before").unwrap();
        SockRef::from(&far).send_out_of_band(b"!").unwrap();
        far.write_all(b"after").unwrap();
        let mut all = Vec::new();
        wait_until(|| {
            serve_all(&pool);
            all.extend(reads.try_iter().flatten());
            all.len() == b"beforeafter".len()
        });
        assert_eq!(all, b"beforeafter");
    });
}

/// A number that is not open is refused when it is registered, not later.
#[test]
fn what_is_not_open_is_refused_at_once() {
    on_a_completion_set(|| {
        let handler = |_: &mut Context<'_, Unowned>| Ok(Next::Continue);
        let told = pool(0).register(Unowned(RawFd::MAX), Interest::READ, handler);
        let error = told.map(drop).unwrap_err().error;
        assert!(error.to_string().contains("register descriptor"), "{error}");
    });
}
