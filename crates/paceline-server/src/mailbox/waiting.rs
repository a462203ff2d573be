//! What waits in a mailbox, in order, and what it costs.

use std::collections::VecDeque;

use super::Mail;

/// Mail in the order of its arrival. Empty, as an idle connection has it, it is one word; and what usually waits alone needs
/// one allocation.
#[derive(Default)]
pub(super) struct Waiting(Option<Box<Queue>>);

struct Queue {
    first: Mail,
    rest: VecDeque<Mail>,
    /// What all of it costs.
    bytes: usize,
}

impl Waiting {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// What all of it costs.
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| queue.bytes)
    }

    pub(super) fn push(&mut self, mail: Mail) {
        let cost = mail.cost();
        match &mut self.0 {
            Some(queue) => {
                queue.bytes += cost;
                queue.rest.push_back(mail);
            }
            None => {
                self.0 = Some(Box::new(Queue {
                    first: mail,
                    rest: VecDeque::new(),
                    bytes: cost,
                }));
            }
        }
    }

    /// The oldest mail. Behind the last one no memory is left.
    pub(super) fn pop(&mut self) -> Option<Mail> {
        let queue = self.0.as_mut()?;
        let Some(next) = queue.rest.pop_front() else {
            return self.0.take().map(|queue| queue.first);
        };
        let mail = std::mem::replace(&mut queue.first, next);
        queue.bytes -= mail.cost();
        Some(mail)
    }
}
