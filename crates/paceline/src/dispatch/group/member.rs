//! One handle of a group.

use std::{io, time::Duration};

use super::{
    super::{
        channel::{Call, Channel},
        context::{Afterwards, Context, Origin},
        entry::Done,
        handle::Key,
        handler::Interest,
        overdue::judge,
        provenance::{Accepted, Provenance},
        readiness_guard::ReadinessGuard,
    },
    GroupHandler, Members,
};
use crate::sync::Timestamp;

/// A member is in a box, which moves from group to group: a list of members costs a group little, and so does a move.
pub(in crate::dispatch) struct Member<S> {
    /// Of its own slot.
    pub(in crate::dispatch) key: Key,
    pub(in crate::dispatch) channel: Channel<S>,
    /// While it is not open.
    pub(in crate::dispatch) opening: Option<Box<Opening<S>>>,
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
    /// When it must be open.
    pub(in crate::dispatch) deadline: Timestamp,
}

/// Finds out whether a source is open.
pub(crate) type Outcome<S> = Box<dyn Fn(&S) -> io::Result<()> + Send>;

impl<S: Send + 'static> Member<S> {
    /// Does what its claimed readiness allows.
    pub(super) fn work<H: GroupHandler<S>>(
        &mut self,
        guard: ReadinessGuard<'_>,
        origin: Origin<'_>,
        afterwards: &mut Afterwards,
        handler: &mut H,
        members: &mut Members<'_, S>,
    ) -> Done {
        let opening = &mut self.opening;
        if guard.seen.is_special() {
            if let Some(what) = judge(&guard, &origin, Some(self.channel.descriptor())) {
                let call = |cx: &mut Context<'_, S>| {
                    if opening.is_none() {
                        return handler.overdue(cx, what, members);
                    }
                    // It may have opened meanwhile. If not, its time is over.
                    open(opening, cx).map_err(too_late)?;
                    handler.joined(cx, members)
                };
                return self
                    .channel
                    .work_overdue(guard, origin, afterwards, what, call);
            }
        }
        self.channel.work(guard, origin, afterwards, |cx, call| {
            match (opening.is_some(), call) {
                (true, _) => {
                    open(opening, cx)?;
                    handler.joined(cx, members)
                }
                (false, Call::Greet) => handler.joined(cx, members),
                (false, _) => handler.ready(cx, members),
            }
        })
    }
}

/// Why a connection is closed that is not open when its time is over.
pub(crate) fn too_late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// Goes on if it is open now. From then on it waits for input, without a deadline.
fn open<S>(opening: &mut Option<Box<Opening<S>>>, cx: &mut Context<'_, S>) -> io::Result<()> {
    let Some(Opening {
        outcome,
        notified,
        deadline,
    }) = opening.as_deref_mut()
    else {
        return Ok(());
    };
    *notified |= cx.is_notified();
    cx.try_write(|source| outcome(source))?;
    let handle = cx.handle();
    // From its own handler: it is not over.
    let _ = handle.set_interest(Interest::READ);
    cx.clear_deadline(*deadline);
    if *notified {
        let _ = handle.notify();
    }
    *opening = None;
    Ok(())
}
