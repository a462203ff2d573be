//! An errand: a handler waits for something of its own, a reply say, and its thread serves the pool
//! meanwhile.
//!
//! The thread that runs the handler knows how to wait (`turn/stay.rs`); the waiting handler knows
//! for what. This is the seam between them.

use std::{fmt, io, sync::Arc, time::Duration};

use super::{
    claim::{Claim, Duty},
    concurrent::ConcurrentContext,
    context::Context,
    handle::Handle,
    task::TaskContext,
};

/// What a thread serves while a handler of its own waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Serve {
    /// What belongs to the errand: the handle that its end comes from; and what belongs to this
    /// thread ([`Handle::pin_to`]). Other events only if no other thread of the pool is free. So a
    /// handler does not wait for another handler's request where it need not, and no pool is stuck
    /// because all its threads wait.
    #[default]
    Chain,
    /// Nothing: the thread is away until it has what it waits for, or its time is over. A shutdown
    /// does not end that, also of a call ([`Sent::join_in`](crate::bound::Sent::join_in)).
    Nothing,
    /// Every event of the pool, as if the thread were free. That the errand is done is noticed when
    /// what was begun meanwhile is.
    Any,
}

/// What a handler waits for, and how: see [`InHandler::serve_until`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Errand<'h> {
    /// For how long at most; `None`: as long as it takes. A handler that was called during another
    /// one's errand waits no longer than that one.
    pub within: Option<Duration>,
    /// What the thread does meanwhile.
    pub serve: Serve,
    /// The handle that the end of the errand comes from; only [`Serve::Chain`] asks.
    pub own: Option<&'h Handle>,
}

impl Errand<'_> {
    /// Whether an event that was claimed belongs to the errand.
    pub(crate) fn is_own(&self, claim: &Claim<'_>) -> bool {
        self.own.is_some_and(|handle| claim.is_of(handle))
    }
}

/// How an errand ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Returned {
    /// It is done.
    Done,
    /// The time was over first.
    TimedOut,
    /// The pool is shut down, and no thread serves there any more.
    Closing,
}

/// Makes a thread that is on an errand look whether it is done: from anywhere, as often as one
/// likes.
#[derive(Clone)]
pub struct Recall(Arc<dyn Fn() + Send + Sync>);

impl Recall {
    pub(crate) fn new(recall: Arc<dyn Fn() + Send + Sync>) -> Self {
        Self(recall)
    }

    pub(crate) fn function(&self) -> &Arc<dyn Fn() + Send + Sync> {
        &self.0
    }

    /// The errand is done, and `is_done` says so when it is asked: this makes the thread ask.
    pub fn now(&self) {
        (self.0)();
    }
}

impl fmt::Debug for Recall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recall").finish_non_exhaustive()
    }
}

/// Where no thread can be recalled.
pub(crate) fn nobody_returns() -> io::Error {
    let text = "wait inside a handler: its pool has ended, or can't name a thread to recall it \
                (a concurrent set, or the system's order)";
    io::Error::new(io::ErrorKind::Unsupported, text)
}

/// The context of a handler, of posted work, or of a timer that is called once: there its thread
/// can wait for something and serve its pool meanwhile. It can't be implemented elsewhere.
pub trait InHandler: sealed::Sealed {
    /// How others inform this thread that its errand is done.
    ///
    /// # Errors
    /// `Unsupported` if the pool can't name a thread: in a concurrent set, in the system's order,
    /// or at its end.
    fn recall(&self) -> io::Result<Recall> {
        self.duty().0.recall()
    }

    /// Serves the pool until `is_done` says yes, the errand's time is over, or the pool is shut
    /// down. This handler's own handle stays busy meanwhile.
    ///
    /// `is_done` is asked often, and must be quick. The thread that makes it true calls
    /// [`Recall::now`] afterwards.
    ///
    /// **Cost.** Beside what is served: one small allocation, and a part of the stack for as long
    /// as it lasts.
    ///
    /// **Hazards.** What is served meanwhile delays this handler: it goes on when that has
    /// returned, however long it is done. So replies to handlers that wait on one thread are
    /// noticed in the order of its stack. And a lock that is held across this call is held while
    /// other handlers run on this thread: if one of them wants it, that is a deadlock.
    ///
    /// ```
    /// use std::{
    ///     sync::{
    ///         atomic::{AtomicBool, Ordering},
    ///         Arc,
    ///     },
    ///     thread,
    /// };
    ///
    /// use paceline::{Errand, InHandler, Pool, Returned};
    ///
    /// let pool = Pool::builder().threads(1).build()?;
    /// let (sender, receiver) = std::sync::mpsc::channel();
    /// pool.post(move |cx| {
    ///     let done = Arc::new(AtomicBool::new(false));
    ///     let (recall, other) = (cx.recall().unwrap(), Arc::clone(&done));
    ///     thread::spawn(move || {
    ///         other.store(true, Ordering::Release);
    ///         recall.now();
    ///     });
    ///     let returned = cx.serve_until(Errand::default(), || done.load(Ordering::Acquire));
    ///     sender.send(returned.unwrap()).unwrap();
    /// })?;
    /// assert_eq!(receiver.recv()?, Returned::Done);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`recall`](Self::recall); `QuotaExceeded` if so many handlers wait on this thread already
    /// that it may be one more too many ([`Builder::nesting`](crate::Builder::nesting)); or what
    /// the wait itself said.
    fn serve_until(
        &mut self,
        errand: Errand<'_>,
        is_done: impl Fn() -> bool,
    ) -> io::Result<Returned> {
        self.duty().0.go(&errand, &is_done)
    }
}

/// The thread that runs a handler.
pub struct OnDuty<'c>(&'c dyn Duty);

impl fmt::Debug for OnDuty<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnDuty").finish_non_exhaustive()
    }
}

impl OnDuty<'_> {
    /// Runs `block`, which may block, while this thread is away.
    pub(crate) fn blocking<R>(&self, block: impl FnOnce() -> R) -> R {
        self.0.blocking(block)
    }

    /// The same for a block that ends when the pool is closed. It gets the question whether that is
    /// so; `wake` is called when the answer has changed, to make it ask.
    pub(crate) fn blocking_until_closed<R>(
        &self,
        wake: &Recall,
        block: impl Fn(&dyn Fn() -> bool) -> R,
    ) -> R {
        let mut result = None;
        let mut block = |is_closed: &dyn Fn() -> bool| result = Some(block(is_closed));
        self.blocking(|| self.0.until_closed(wake, &mut block));
        result.expect("the block has run")
    }
}

mod sealed {
    /// The contexts that can say it.
    pub trait Sealed {
        fn duty(&self) -> super::OnDuty<'_>;
    }
}

impl<S> sealed::Sealed for Context<'_, S> {
    fn duty(&self) -> OnDuty<'_> {
        OnDuty(self.on_duty())
    }
}

impl<S> sealed::Sealed for ConcurrentContext<'_, S> {
    fn duty(&self) -> OnDuty<'_> {
        OnDuty(self.duty)
    }
}

impl sealed::Sealed for TaskContext<'_> {
    fn duty(&self) -> OnDuty<'_> {
        OnDuty(self.duty)
    }
}

impl<S> InHandler for Context<'_, S> {}
impl<S> InHandler for ConcurrentContext<'_, S> {}
impl InHandler for TaskContext<'_> {}
