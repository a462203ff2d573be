//! A context as a stream: its output, and std's traits.

use std::{
    fmt,
    io::{self, IoSlice, Read, Write},
};

use super::{
    super::{
        outbox::{send_slices, total, Piece},
        Rejected,
    },
    Context,
};

impl<S> Context<'_, S>
where
    for<'s> &'s S: Write,
{
    /// Writes as much as the descriptor takes now. Nothing is kept.
    ///
    /// # Errors
    /// "Would block" if it takes nothing now, or if kept output must go first.
    pub fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if !self.outbox.is_empty() {
            return Err(self.guard.refuse());
        }
        self.try_write(|mut source| source.write(bytes))
    }

    /// Sends all of `bytes`. What the descriptor does not take now is kept, and sent when it can
    /// be; until then no input is dispatched (see
    /// [`read_while_sending`](Self::read_while_sending)).
    ///
    /// # Errors
    /// [`OutputLimit`](crate::OutputLimit) (of kind `QuotaExceeded`) if more might be kept than the
    /// pool allows (were none of it taken now); then nothing of `bytes` was taken. Send large
    /// answers in pieces, with [`Next::Again`](crate::Next::Again). Otherwise what the descriptor
    /// said; never "would block".
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.outbox.admit(bytes.len())?;
        let sent = if self.outbox.is_empty() {
            let mut slices = [IoSlice::new(bytes)];
            self.guard.send(self.source, &mut slices, write_slices)?
        } else {
            0
        };
        self.outbox.keep(&bytes[sent..], write_slices);
        Ok(())
    }

    /// Sends all of `slices` in this order, as [`write_all`](Self::write_all) does with one: up to
    /// sixteen of them by one system call. The limit of kept output holds for all together.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub fn write_all_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<()> {
        self.outbox.admit(total(slices))?;
        let mut sent = self.send_now(slices.iter().map(|slice| &**slice))?;
        for slice in slices {
            let of_this = sent.min(slice.len());
            self.outbox.keep(&slice[of_this..], write_slices);
            sent -= of_this;
        }
        Ok(())
    }

    /// Sends a piece that the pool owns from here on: a `Vec<u8>`, a `String`, an `Arc<[u8]>`,
    /// bytes that live as long as the program. As [`write_all`](Self::write_all), but what the
    /// descriptor does not take now is kept without a copy (see [`Piece`]).
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all); gives the piece back.
    pub fn send(&mut self, piece: impl Into<Piece>) -> Result<(), Rejected<Piece>> {
        let mut pieces = [piece.into()];
        let sent = self.send_all(&mut pieces);
        let [piece] = pieces;
        sent.map_err(|error| Rejected::new(piece, error))
    }

    /// Sends several pieces in this order, as [`send`](Self::send) does with one: up to sixteen of
    /// them by one system call. The limit of kept output holds for all together. On `Ok` the pool
    /// has taken them, and empty pieces are left.
    ///
    /// ```
    /// # use std::{io::Read, os::unix::net::UnixStream, sync::Arc};
    /// # use paceline::{Context, Interest, Next, Pool};
    /// # let pool = Pool::builder().threads(1).build()?;
    /// # let (source, mut peer) = UnixStream::pair()?;
    /// let page: Arc<[u8]> = Arc::from(*b"<html>");
    /// let handler = move |cx: &mut Context<'_, UnixStream>| {
    ///     let head = format!("Content-Length: {}\r\n\r\n", page.len());
    ///     cx.send_all(&mut [head.into(), Arc::clone(&page).into()])?;
    ///     Ok(Next::Close)
    /// };
    /// pool.register(source, Interest::WRITE, handler)?;
    /// let mut answer = String::new();
    /// peer.read_to_string(&mut answer)?;
    /// assert_eq!(answer, "Content-Length: 6\r\n\r\n<html>");
    /// # std::io::Result::Ok(())
    /// ```
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all); `pieces` are as they were.
    pub fn send_all(&mut self, pieces: &mut [Piece]) -> io::Result<()> {
        let lengths = pieces.iter().map(Piece::len);
        self.outbox.admit(lengths.fold(0, usize::saturating_add))?;
        let mut sent = self.send_now(pieces.iter().map(Piece::as_ref))?;
        for piece in pieces {
            let mut piece = std::mem::take(piece);
            sent -= piece.skip(sent);
            self.outbox.keep_piece(piece, write_slices);
        }
        Ok(())
    }

    /// Sends what the descriptor takes of them now; nothing, if kept output must go first. How many
    /// bytes it took.
    fn send_now<'b>(&mut self, slices: impl Iterator<Item = &'b [u8]>) -> io::Result<usize> {
        if self.outbox.is_empty() {
            send_slices(&mut self.guard, self.source, slices, write_slices)
        } else {
            Ok(0)
        }
    }

    /// Sends formatted text whole, as [`write_all`](Self::write_all): what `write!(cx, ...)` calls.
    ///
    /// # Errors
    /// As [`write_all`](Self::write_all).
    pub fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        match text.as_str() {
            Some(text) => self.write_all(text.as_bytes()),
            None => self.write_all(fmt::format(text).as_bytes()),
        }
    }
}

/// Writes slices to a source; a single one by a plain write.
#[inline]
fn write_slices<S>(mut source: &S, slices: &[IoSlice<'_>]) -> io::Result<usize>
where
    for<'s> &'s S: Write,
{
    match slices {
        [one] => source.write(one),
        several => source.write_vectored(several),
    }
}

/// For code that reads from std's trait: `BufReader`, `io::copy`, parsers.
///
/// It reads as [`Context::read`](Self::read), which a handler calls without an import; but an empty
/// buffer takes nothing and is no error, as the trait demands. "Would block" goes through std's
/// adapters unchanged, so `?` may pass it on. What an adapter has read by then is in the adapter:
/// one that lives only for this call, such as a `BufReader`, drops it.
impl<S> Read for Context<'_, S>
where
    for<'s> &'s S: Read,
{
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            Ok(0)
        } else {
            Context::read(self, buffer)
        }
    }
}

/// For code that writes to std's trait: `write!`, `BufWriter`, `io::copy`, serializers.
///
/// A generic writer can't go on after "would block". So every write here is a
/// [`write_all`](Context::write_all): it takes all of its bytes, which are sent or kept, or fails
/// with [`OutputLimit`](crate::OutputLimit) and takes none. A writer that makes several writes may
/// fail between two of them. `flush` does nothing: the pool sends what is kept as soon as the peer
/// takes it.
///
/// ```
/// use std::io::{self, Write};
/// use paceline::{simulated::Simulation, Context, Interest, Next, Pool, SetKind};
///
/// fn greet(mut to: impl Write, name: &str) -> io::Result<()> {
///     write!(to, "hello, {name}")
/// }
///
/// # let world = Simulation::new(1);
/// # let pool = Pool::builder().threads(1).handle_set(SetKind::Simulated(world.clone())).build()?;
/// # let (stream, peer) = world.stream();
/// let handler = |cx: &mut Context<'_, _>| {
///     greet(cx, "world")?;
///     Ok(Next::Close)
/// };
/// pool.register(stream, Interest::WRITE, handler)?;
/// assert_eq!(peer.wait_for(12), b"hello, world");
/// # io::Result::Ok(())
/// ```
impl<S> Write for Context<'_, S>
where
    for<'s> &'s S: Write,
{
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Context::write_all(self, bytes)?;
        Ok(bytes.len())
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write_all_vectored(slices)?;
        Ok(total(slices))
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        Context::write_all(self, bytes)
    }

    fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        Context::write_fmt(self, text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
