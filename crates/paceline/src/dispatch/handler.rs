//! What an application writes: the handler of a handle's events.

use std::{fmt, io, ops, time::Duration};

use super::{Context, Handle, HandlerKind, Overdue};

/// The application's service for one handle.
///
/// A closure `FnMut(&mut Context<'_, S>) -> io::Result<Next>` is a handler too.
///
/// The pool calls it from one thread at a time ([H1](crate::glossary#h1)), after that thread has
/// given the lead away ([L3](crate::glossary#l3)). It may block: another thread leads meanwhile.
///
/// ```
/// use std::{io, net::TcpStream};
/// use paceline::{Closed, Context, EventHandler, Next, Pool};
///
/// /// Answers each piece of input with the number of bytes so far.
/// #[derive(Default)]
/// struct Count(usize);
///
/// impl EventHandler<TcpStream> for Count {
///     fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
///         let mut buffer = [0; 1024];
///         let count = cx.read(&mut buffer)?; // "would block" goes to the pool, which waits
///         if count == 0 {
///             return Ok(Next::Close);
///         }
///         self.0 += count;
///         write!(cx, "{}\n", self.0)?;
///         Ok(Next::Continue)
///     }
///
///     fn closed(&mut self, why: Closed) {
///         println!("{} bytes, {why}", self.0);
///     }
/// }
///
/// let pool = Pool::new()?;
/// pool.listen("127.0.0.1:0", |_, _| Some(Count::default()))?;
/// # io::Result::Ok(())
/// ```
pub trait EventHandler<S>: Send + 'static {
    /// Something that the handle is interested in may be done now.
    ///
    /// An `Err` closes the handle, with one exception: "would block" from the lent source
    /// ([`Context::read`] and its like) means "nothing more now", so `?` does what one expects.
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next>;

    /// Whether [`connected`](Self::connected) is to be called for connections that were accepted or
    /// registered too. It costs one more turn for each, so by default it is not. Asked once.
    fn speaks_first(&self) -> bool {
        false
    }

    /// The kind of its calls, if it is not that of its type: see
    /// [`Pool::handler_kind`](crate::Pool::handler_kind). Asked once.
    fn kind(&self) -> Option<HandlerKind> {
        None
    }

    /// An outgoing connection stands ([`Pool::connect`](crate::Pool::connect)), or a handle was
    /// registered whose handler [speaks first](Self::speaks_first): called once, before everything
    /// else.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    fn connected(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        let _ = cx;
        Ok(Next::Continue)
    }

    /// What the handle is interested in may be done now, but it has waited in the line for `age`,
    /// longer than the pool's [`age_limit`](crate::Builder::age_limit): called instead of
    /// [`ready`](Self::ready), with the same source on loan. The service may answer that it is
    /// overloaded and close, skip what has come, or serve it all the same (`self.ready(cx)`). By
    /// default it fails, which closes the handle.
    ///
    /// # Errors
    /// As [`ready`](Self::ready).
    fn expired(&mut self, cx: &mut Context<'_, S>, age: Duration) -> io::Result<Next> {
        let _ = cx;
        let text = format!("what was ready has waited in the line for {age:?}");
        Err(io::Error::new(io::ErrorKind::TimedOut, text))
    }

    /// A time of the handle is over: its [deadline](Handle::set_deadline) has passed, or nothing
    /// happened there for as long as its [idle time-out](Handle::set_timeout) allows. The source is
    /// on loan as in [`ready`](Self::ready), also while output is kept and while the handle has no
    /// interest. The handler may write a last word and close, or go on: set another deadline and
    /// return [`Next::Continue`]. By default it fails with `TimedOut`, which closes the handle.
    ///
    /// The time that output needs after a [`Next::Close`] or [`Next::CloseGently`] from here is
    /// bounded ([`Builder::linger_time`](crate::Builder::linger_time)). If the handler has asked
    /// for the end before, it is not called: the handle is closed. If it panics here and is
    /// [kept](Panics::Keep), it is not called again for this deadline.
    ///
    /// # Errors
    /// One of kind `TimedOut` closes the handle with [`Closed::TimedOut`]; others as
    /// [`ready`](Self::ready). What is kept is dropped then.
    ///
    /// ```
    /// # use std::{io, net::TcpStream};
    /// # use paceline::{Context, EventHandler, Next, Overdue};
    /// # struct Session;
    /// impl EventHandler<TcpStream> for Session {
    ///     # fn ready(&mut self, _: &mut Context<'_, TcpStream>) -> io::Result<Next> {
    ///     #     Ok(Next::Continue)
    ///     # }
    ///     // fn ready ..
    ///     fn overdue(
    ///         &mut self,
    ///         cx: &mut Context<'_, TcpStream>,
    ///         what: Overdue,
    ///     ) -> io::Result<Next> {
    ///         cx.write_all(match what {
    ///             Overdue::Idle => b"421 idle for too long\r\n",
    ///             _ => b"421 the request took too long\r\n",
    ///         })?;
    ///         Ok(Next::CloseGently)
    ///     }
    /// }
    /// ```
    fn overdue(&mut self, cx: &mut Context<'_, S>, what: Overdue) -> io::Result<Next> {
        let _ = (cx, what);
        Err(io::ErrorKind::TimedOut.into())
    }

    /// The handle goes on in another level, under this key; the one that it had is stale. Called
    /// before any other method there.
    fn moved(&mut self, handle: &Handle) {
        let _ = handle;
    }

    /// A move that this handler has asked for ([`Context::move_to`]) could not be made: the handle
    /// stays where it is, and nothing is lost.
    fn stayed(&mut self, why: io::Error) {
        let _ = why;
    }

    /// The handle is closed; nothing will be called after this. Called exactly once, outside of
    /// every lock; the source is dropped right afterwards. If this closes other handles, their
    /// `closed` is called after it has returned.
    fn closed(&mut self, why: Closed) {
        let _ = why;
    }
}

impl<S, F> EventHandler<S> for F
where
    F: FnMut(&mut Context<'_, S>) -> io::Result<Next> + Send + 'static,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        self(cx)
    }
}

/// Handlers of several types behind one pointer: for a service that is chosen at run time.
impl<S: 'static> EventHandler<S> for Box<dyn EventHandler<S>> {
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        (**self).ready(cx)
    }

    fn speaks_first(&self) -> bool {
        (**self).speaks_first()
    }

    fn kind(&self) -> Option<HandlerKind> {
        (**self).kind()
    }

    fn connected(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        (**self).connected(cx)
    }

    fn expired(&mut self, cx: &mut Context<'_, S>, age: Duration) -> io::Result<Next> {
        (**self).expired(cx, age)
    }

    fn overdue(&mut self, cx: &mut Context<'_, S>, what: Overdue) -> io::Result<Next> {
        (**self).overdue(cx, what)
    }

    fn moved(&mut self, handle: &Handle) {
        (**self).moved(handle);
    }

    fn stayed(&mut self, why: io::Error) {
        (**self).stayed(why);
    }

    fn closed(&mut self, why: Closed) {
        (**self).closed(why);
    }
}

/// What shall become of the handle after its handler ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// Wait for more. A handler that stopped before its *source* ran dry is called again after the
    /// others had their turn.
    Continue,
    /// Call again after the others had their turn, whatever is ready then: for a handler that has
    /// input left in a buffer of its own, which the pool can't see. While output is kept it is not
    /// called, as for input; so a handler that stops because [`Context::unsent`] is not zero goes
    /// on when all is sent.
    Again,
    /// Go on in another level: what [`Context::move_to`] gives. Without that it is as `Continue`.
    Move,
    /// Close the handle, after kept output was sent. (If input is left unread the system may reset
    /// a TCP connection, and the peer may lose what it has not read yet: see
    /// [`CloseGently`](Self::CloseGently).)
    Close,
    /// As `Close`, and the peer gets everything: when kept output was sent the pool ends the output
    /// of the socket, reads and drops what the peer still sends, and closes the handle
    /// ([`Closed::Finished`]) when the peer has ended its side too. That is bounded by a
    /// [time](crate::Builder::linger_time) and a number of [bytes](crate::Builder::linger_limit).
    /// The handler is not called meanwhile, and neither a suspension nor another interest or time
    /// changes the end; [`Handle::close`] does. For a last word to a peer that may still be
    /// sending: after an error, a time-out, or an answer that needs no more of the request.
    ///
    /// What is no connected stream socket closes as with `Close`. A shutdown of the pool waits for
    /// it, within its own time.
    CloseGently,
}

/// Why a handle was closed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Closed {
    /// Its handler asked for it ([`Next::Close`]), and the system has taken all of its output.
    Finished,
    /// A thread called [`Handle::close`](super::Handle::close) or its like. Kept output is dropped.
    Requested,
    /// The handler failed, kept output could not be sent, or the handle set refused to watch it
    /// further. What was kept is dropped.
    Failed(io::Error),
    /// The handler, or its source, panicked with this message. Kept output is dropped.
    Panicked(String),
    /// A time of the handle was over, and its handler did not go on ([`EventHandler::overdue`]); or
    /// an outgoing connection did not stand in time. Kept output is dropped.
    TimedOut,
    /// The pool was shut down.
    Shutdown,
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finished => f.write_str("finished"),
            Self::Requested => f.write_str("closed on request"),
            Self::Failed(error) => write!(f, "failed: {error}"),
            Self::Panicked(message) => write!(f, "the handler panicked: {message}"),
            Self::TimedOut => f.write_str("its time was over"),
            Self::Shutdown => f.write_str("the pool was shut down"),
        }
    }
}

/// What becomes of a handle whose handler panicked, in [`EventHandler::ready`]; of all members of a
/// group, in its `ready`, `joined` or `notified`. A source that panics always closes its handle; a
/// panic in `closed`, in a drop, in work for afterwards or in a hook is only reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Panics {
    /// It is closed, with [`Closed::Panicked`].
    #[default]
    Close,
    /// It is kept, and its handler called again for whatever is left: for the same input, if it had
    /// not read that. Its state is as the panic left it.
    Keep,
    /// The process is aborted, after the hook was called.
    Abort,
}

/// The events that a handle waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest(u8);

impl Interest {
    /// Nothing: events are remembered, not dispatched.
    pub const NONE: Self = Self(0);
    /// Input, the end of the stream, and errors.
    pub const READ: Self = Self(1);
    /// Room for output, and errors. While there is room the handler is called again and again: add
    /// it only while there is something to write.
    pub const WRITE: Self = Self(2);

    /// Whether everything in `other` is in this one.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// As bits of `Ready`: read and write are its lowest two.
    pub(super) const fn bits(self) -> u8 {
        self.0
    }
}

impl ops::BitOr for Interest {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
