//! Callers that wait while another thread makes the connection anew.

use std::{
    io,
    os::unix::net::UnixStream,
    sync::{mpsc, Arc, Mutex},
    thread,
    time::Duration,
};

use paceline::{
    bound::{Builder, Deadline, Mux},
    Pool,
};

use crate::support::{bound::Framed, bounded, gate::Gate, LONG};

/// A connection that was lost. A thread makes it anew, and is held by the gate while it does.
fn lost_and_made_anew() -> (Mux<Framed>, Arc<Gate>, thread::JoinHandle<io::Result<()>>) {
    let (near, far) = UnixStream::pair().unwrap();
    let first = Mutex::new(Some(near));
    let gate = Gate::shut();
    let inside = Arc::clone(&gate);
    let connect = move || match first.lock().unwrap().take() {
        Some(stream) => Ok(stream),
        None => {
            inside.pass();
            Err(io::Error::new(
                io::ErrorKind::ConnectionRefused,
                "not this time",
            ))
        }
    };
    let mux = Builder::new().connect_with(connect, Framed::default());
    let mux = mux.unwrap();
    drop(far);
    assert!(mux.call(b"finds it lost", LONG).is_err());
    assert!(mux.is_lost());
    let connecting = {
        let mux = mux.clone();
        thread::spawn(move || mux.prepare().map(drop))
    };
    gate.wait_for(1);
    (mux, gate, connecting)
}

/// B2: a connection is made anew, and that takes long. A call that came meanwhile waited until the
/// attempt had ended, whatever its own deadline was. Now it waits until its deadline.
#[test]
fn a_call_waits_for_a_connection_until_its_deadline() {
    bounded(|| {
        let (mux, gate, connecting) = lost_and_made_anew();
        let late = mux.call(b"x", Duration::from_millis(1)).unwrap_err();
        assert_eq!(late.kind(), io::ErrorKind::TimedOut, "{late}");
        assert_eq!(gate.inside(), 1, "the attempt goes on");
        let shares = {
            let mux = mux.clone();
            thread::spawn(move || mux.call(b"x", LONG).map(drop))
        };
        gate.let_through(2);
        for outcome in [connecting.join().unwrap(), shares.join().unwrap()] {
            // The second one may have made an attempt of its own, if it came too late for the
            // first.
            assert_eq!(
                outcome.unwrap_err().kind(),
                io::ErrorKind::ConnectionRefused
            );
        }
    });
}

/// S1: the same for a handler whose pool is shut down meanwhile.
#[test]
fn the_end_of_a_pool_ends_the_wait_for_a_connection() {
    bounded(|| {
        let (mux, gate, connecting) = lost_and_made_anew();
        let pool = Pool::builder().threads(1).build().unwrap();
        let (tell, told) = mpsc::channel();
        let (caller, begun) = (mux.clone(), Gate::shut());
        let inside = Arc::clone(&begun);
        pool.post(move |cx| {
            inside.pass();
            let reply = caller.call_in(cx, b"x", Deadline::NEVER);
            tell.send(reply.map(drop)).unwrap();
        })
        .unwrap();
        begun.wait_for(1);
        begun.let_through(1);
        let _ = pool.shutdown(Duration::ZERO);
        let error = told.recv_timeout(LONG).unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
        assert_eq!(gate.inside(), 1, "the attempt goes on");
        gate.let_through(1);
        assert!(connecting.join().unwrap().is_err());
    });
}
