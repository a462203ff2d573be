//! A request that moves to another level with its connection.

use super::protocol::{BodyStart, Head, KeptHead};

/// A request that moves to another level.
pub(super) struct Moving {
    pub(super) head: KeptHead,
    body: MovingBody,
}

/// Its body.
enum MovingBody {
    Whole(Vec<u8>),
    Follows(Option<u64>),
}

impl Moving {
    pub(super) fn new(head: Head<'_>, body: BodyStart<'_>) -> Self {
        Self {
            head: head.keep(),
            body: match body {
                BodyStart::Whole(bytes) => MovingBody::Whole(bytes.to_vec()),
                BodyStart::Follows { length } => MovingBody::Follows(length),
            },
        }
    }

    pub(super) fn body(&self) -> BodyStart<'_> {
        match &self.body {
            MovingBody::Whole(bytes) => BodyStart::Whole(bytes),
            MovingBody::Follows(length) => BodyStart::Follows { length: *length },
        }
    }
}
