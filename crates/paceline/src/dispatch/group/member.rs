//! One handle of a group.

use std::{io, time::Duration};

use super::{
    super::{
        channel::{Call, Channel},
        context::{Afterwards, Context, Lent, Origin},
        entry::Done,
        handle::Key,
        handler::Interest,
        provenance::{Accepted, Provenance},
    },
    GroupHandler, Members,
};

pub(in crate::dispatch) struct Member<S> {
    /// Of its own slot.
    pub(in crate::dispatch) key: Key,
    pub(in crate::dispatch) channel: Channel<S>,
    /// While it is not open.
    pub(in crate::dispatch) opening: Option<Opening<S>>,
}

/// How a member begins.
pub(in crate::dispatch) enum Begins<S> {
    Open,
    /// It was accepted by a listener.
    Accepted(Accepted),
    /// It is not open yet.
    Opening(Opens<S>),
}

/// How a member opens.
pub(crate) struct Opens<S> {
    pub(crate) within: Duration,
    /// Asked when it can be written to.
    pub(crate) outcome: Outcome<S>,
    pub(crate) provenance: Box<Provenance>,
}

/// A member that is not open yet.
pub(in crate::dispatch) struct Opening<S> {
    /// Asked when it can be written to. "Would block": not yet.
    pub(in crate::dispatch) outcome: Outcome<S>,
    /// It was notified before it was open: that is made up for.
    pub(in crate::dispatch) notified: bool,
}

/// Finds out whether a source is open.
pub(crate) type Outcome<S> = Box<dyn Fn(&S) -> io::Result<()> + Send>;

impl<S: Send + 'static> Member<S> {
    /// Does what its claimed readiness allows.
    pub(super) fn work<H: GroupHandler<S>>(
        &mut self,
        lent: Lent<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        handler: &mut H,
        members: &mut Members<'_, S>,
    ) -> Done {
        let opening = &mut self.opening;
        self.channel.work(lent, origin, afterwards, |cx, call| {
            match (opening.is_some(), call) {
                (true, _) => {
                    open(opening, cx)?;
                    handler.joined(cx, members)
                }
                (false, Call::Greet) => handler.joined(cx, members),
                (false, Call::Ready) => handler.ready(cx, members),
            }
        })
    }
}

/// Goes on if it is open now. From then on it waits for input, without a deadline.
fn open<S>(opening: &mut Option<Opening<S>>, cx: &mut Context<'_, S>) -> io::Result<()> {
    let Some(Opening { outcome, notified }) = opening else {
        return Ok(());
    };
    *notified |= cx.is_notified();
    cx.try_write(|source| outcome(source))?;
    let handle = cx.handle();
    // From its own handler: it is not over.
    let _ = handle.set_interest(Interest::READ);
    let _ = handle.clear_deadline();
    if *notified {
        let _ = handle.notify();
    }
    *opening = None;
    Ok(())
}
