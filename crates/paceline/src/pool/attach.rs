//! Connections that many threads share, read by a pool.

use std::{io, sync::Arc};

use super::Pool;
use crate::{
    bound::{Mux, Protocol},
    dispatch::nobody_returns,
};

impl Pool {
    /// Has this pool read the connection of `mux`, and each one that comes after it, for its own
    /// handlers: they call with [`Mux::call_in`], and their threads serve this pool while they wait
    /// for the reply. So a pool can be client and server at once, with however few threads.
    ///
    /// Threads that are in no handler may call too, as ever; while one of them reads, the pool does
    /// not. It is for good: neither keeps the other alive, and when the pool has ended all callers
    /// read for themselves. Each connection takes one more descriptor.
    ///
    /// ```
    /// # use std::{io, net::{TcpListener, TcpStream}, sync::mpsc, thread, time::Duration};
    /// # use std::io::{Read, Write};
    /// use paceline::{bound::{Header, Mux, Protocol, Whose}, Pool};
    /// # struct Tiny;
    /// # impl Protocol for Tiny {
    /// #     type Request = u8;
    /// #     const ID_BITS: u32 = 8;
    /// #     fn encode(&self, request: &u8, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
    /// #         out.extend([id as u8, *request]);
    /// #         Ok(())
    /// #     }
    /// #     fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
    /// #         let whose = |id: &u8| Whose::Call((*id).into());
    /// #         let header = |id| Header { whose: whose(id), skip: 1, length: 1 };
    /// #         Ok(bytes.first().map(header))
    /// #     }
    /// # }
    /// # fn main() -> io::Result<()> {
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let stream = TcpStream::connect(listener.local_addr()?)?;
    /// # let (mut server, _) = listener.accept()?;
    /// # thread::spawn(move || {
    /// #     let mut request = [0; 2];
    /// #     server.read_exact(&mut request).unwrap();
    /// #     server.write_all(&[request[0], request[1] * 2]).unwrap();
    /// #     let _ = server.read(&mut request);
    /// # });
    /// # let mux = paceline::bound::Builder::new().calls(16).build(stream, Tiny)?;
    /// # let (sender, receiver) = mpsc::channel();
    ///
    /// let pool = Pool::builder().threads(1).build()?;
    /// pool.attach(&mux)?;
    /// pool.post(move |cx| {
    ///     // The only thread of this pool serves it until the reply is there.
    ///     let reply = mux.call_in(cx, &21, Duration::from_secs(5)).unwrap();
    ///     sender.send(reply[0]).unwrap();
    /// })?;
    /// assert_eq!(receiver.recv().unwrap(), 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `AlreadyExists`: a pool reads it. `Unsupported`: no thread of this pool can be woken for a
    /// reply by name (a concurrent set, or the system's order). Or the system's error.
    pub fn attach<P: Protocol>(&self, mux: &Mux<P>) -> io::Result<()> {
        let hub = self.hub();
        if hub.lead.can_recall() && !hub.registry.is_open() {
            mux.attach(&Arc::downgrade(&hub.registry))
        } else {
            Err(nobody_returns())
        }
    }
}
