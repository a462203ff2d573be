//! The half-sync engine: a connection gives its dialog to a worker, and takes it back.

use std::{io, sync::Arc};

use paceline::Next;

use super::{input::forget, over, Connection};
use crate::{
    codec::Codec,
    engine::{Desk, Job, Turned, Work},
    limits::Limit,
    session::{Ended, Session},
    wire::Wire,
};

impl<C: Codec, N: Session<C>> Connection<C, N> {
    /// Gives the dialog to a worker, with all input, when all output is sent: a peer that takes
    /// nothing is closed in time only while the dialog is here.
    pub(super) fn hand_over(
        &mut self,
        work: Work,
        new: usize,
        wire: &mut dyn Wire,
    ) -> io::Result<Next> {
        if wire.unsent() > 0 {
            match work {
                Work::Items => self.holds_item = true,
                Work::Part => self.wants_again = true,
            }
            return Ok(Next::Again);
        }
        let (Some(workers), Some(link)) = (&self.service.workers, &self.link) else {
            return Ok(Next::Continue);
        };
        let Some(dialog) = self.dialog.take() else {
            return Ok(Next::Continue);
        };
        let desk = self.desk.get_or_insert_with(|| Arc::new(Desk::new()));
        let room = over(&mut self.secure, wire, |wire| wire.room());
        let job = Job {
            work,
            dialog,
            input: std::mem::take(&mut self.input),
            new,
            ended: self.input_ended,
            room,
            link: Arc::clone(link),
            desk: Arc::clone(desk),
            since: self.service.now(),
        };
        match workers.submit(job) {
            Ok(()) => Ok(Next::Continue),
            Err(job) => {
                self.dialog = Some(job.dialog);
                self.refuse(wire)
            }
        }
    }

    /// There is no thread for the peer's item.
    pub(super) fn refuse(&mut self, wire: &mut dyn Wire) -> io::Result<Next> {
        self.service.counters().met(Limit::Overload);
        self.note_end(Ended::Limit(Limit::Overload));
        let service = &self.service;
        let refusal = Arc::clone(service.overload.as_ref().unwrap_or(&service.refusal));
        let encoding = self.link.as_ref().map(|link| link.encoding());
        if !refusal.is_empty() && encoding.unwrap_or_default().takes_refusals() {
            over(&mut self.secure, wire, |wire| {
                wire.send_all(&mut [refusal.into()])
            })?;
        }
        Ok(Next::CloseGently)
    }

    /// A worker has put the dialog back.
    pub(super) fn take_back(
        &mut self,
        turned: Turned<C, N>,
        wire: &mut dyn Wire,
    ) -> io::Result<Next> {
        let Turned {
            dialog,
            input,
            new,
            mut output,
            progress,
            since,
        } = turned;
        // The time on the worker's side is not the peer's.
        self.times.shift(self.service.now().saturating_sub(since));
        self.dialog = Some(dialog);
        self.input = input;
        if !output.is_empty() {
            over(&mut self.secure, wire, |wire| wire.send_all(&mut output))?;
        }
        match progress {
            Some(progress) => {
                forget(&mut self.input, progress.consumed);
                self.conclude(progress, new, wire)
            }
            None => self.refuse(wire),
        }
    }
}
