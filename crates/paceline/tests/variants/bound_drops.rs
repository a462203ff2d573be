//! A lost connection was dropped under the locks of its `Mux`: a stream whose destructor called
//! that one waited for itself. Now it is dropped without a lock, when others can connect anew.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::fd::{AsFd, BorrowedFd},
    sync::{mpsc, Arc, Mutex},
};

use crate::support::{bound::Framed, bounded, tcp_pair, LONG};
use paceline::bound::Mux;

type OnDrop = Box<dyn FnOnce() + Send>;

/// A stream that calls something when it is dropped.
struct Calls {
    stream: TcpStream,
    on_drop: Arc<Mutex<Option<OnDrop>>>,
}

impl AsFd for Calls {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Read for &Calls {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&self.stream).read(into)
    }
}

impl Write for &Calls {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&self.stream).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let on_drop = self.on_drop.lock().unwrap().take();
        on_drop.into_iter().for_each(|call| call());
    }
}

/// The destructor takes another connection in place of the lost one, and uses the `Mux` in every
/// other way.
#[test]
fn a_lost_stream_is_dropped_without_a_lock() {
    bounded(|| {
        let ((near, far), (next, _next_far)) = (tcp_pair(), tcp_pair());
        let on_drop: Arc<Mutex<Option<OnDrop>>> = Arc::default();
        let stream = Calls {
            stream: near,
            on_drop: Arc::clone(&on_drop),
        };
        let mux = Mux::new(stream, Framed::default()).unwrap();
        let (sender, dropped) = mpsc::channel();
        let again = mux.clone();
        *on_drop.lock().unwrap() = Some(Box::new(move || {
            let _ = (again.callers(), again.snapshot(), again.is_lost());
            let reconnected = again.reconnect(next).is_ok();
            sender.send((reconnected, again.is_lost())).unwrap();
        }));
        drop(far);
        assert!(mux.call(&[1][..], LONG).is_err());
        assert_eq!(dropped.recv_timeout(LONG), Ok((true, false)));
    });
}
