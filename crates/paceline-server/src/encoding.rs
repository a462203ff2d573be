//! How a message of a [`Room`](crate::Room) goes to each of its members: as it is, as a line, as a
//! server-sent event, as a frame of a WebSocket. No I/O, no clock.
//!
//! ```text
//!   Room::send(payload) --> Body --- Raw -------> payload       connections without an encoding
//!                                |-- Line ------> payload CR LF line sessions
//!                                |-- Event -----> data: payload streams of server-sent events
//!                                +-- WebSocket -> one frame     WebSockets
//! ```
//!
//! Each form is made once, for the first member that needs it, and all members with this encoding
//! share the buffer.

use std::sync::{
    atomic::{AtomicU8, Ordering},
    Arc, OnceLock,
};

use crate::{sse, websocket::Outgoing};

/// In which form a connection gets the messages of its rooms, and what is sent to its
/// [`Remote`](crate::Remote).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// As they are.
    #[default]
    Raw,
    /// Each as one line, which CR LF ends. A line break within the message becomes a space, so that
    /// no message can forge another one.
    Line,
    /// Each as one server-sent event. Bytes that are not UTF-8 become U+FFFD.
    Event,
    /// Each as one frame of a WebSocket: text if it is UTF-8, and bytes otherwise.
    WebSocket,
}

impl Encoding {
    /// Whether the peer can read a refusal in plain text: within a stream of events or of frames it
    /// would be noise.
    pub(crate) fn takes_refusals(self) -> bool {
        matches!(self, Self::Raw | Self::Line)
    }

    const ALL: [Self; 4] = [Self::Raw, Self::Line, Self::Event, Self::WebSocket];
}

/// The encoding of one connection.
#[derive(Debug, Default)]
pub(crate) struct EncodingCell(AtomicU8);

impl EncodingCell {
    /// Relaxed: the connection's own calls set it and read it, and they do not overlap.
    pub(crate) fn set(&self, encoding: Encoding) {
        self.0.store(encoding as u8, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Encoding {
        let number = usize::from(self.0.load(Ordering::Relaxed));
        Encoding::ALL.get(number).copied().unwrap_or_default()
    }
}

/// One message in all forms that its addressees need.
#[derive(Debug)]
pub(crate) struct Body {
    payload: Arc<[u8]>,
    line: OnceLock<Arc<[u8]>>,
    event: OnceLock<Arc<[u8]>>,
    frame: OnceLock<Arc<[u8]>>,
}

impl Body {
    pub(crate) fn new(payload: Arc<[u8]>) -> Self {
        Self {
            payload,
            line: OnceLock::new(),
            event: OnceLock::new(),
            frame: OnceLock::new(),
        }
    }

    /// How many bytes a connection with this encoding sends. An event of many short lines is several
    /// times as long as its payload.
    pub(crate) fn size(&self, encoding: Encoding) -> usize {
        self.encoded(encoding).len()
    }

    pub(crate) fn encoded(&self, encoding: Encoding) -> &Arc<[u8]> {
        let payload = &self.payload;
        match encoding {
            Encoding::Raw => payload,
            Encoding::Line => self.line.get_or_init(|| line(payload)),
            Encoding::Event => self.event.get_or_init(|| event(payload)),
            Encoding::WebSocket => self.frame.get_or_init(|| frame(payload)),
        }
    }
}

fn line(payload: &[u8]) -> Arc<[u8]> {
    let is_break = |byte: u8| matches!(byte, b'\r' | b'\n');
    let without_breaks = payload
        .iter()
        .map(|byte| if is_break(*byte) { b' ' } else { *byte });
    without_breaks.chain(*b"\r\n").collect()
}

fn event(payload: &[u8]) -> Arc<[u8]> {
    let mut encoded = Vec::with_capacity(payload.len() + 8);
    // Only a name or an id can be refused, and this event has neither.
    let _ = sse::Event::new(&String::from_utf8_lossy(payload)).append(&mut encoded);
    encoded.into()
}

fn frame(payload: &[u8]) -> Arc<[u8]> {
    let mut encoded = Vec::with_capacity(payload.len() + 10);
    // Only a control frame can be refused.
    let _ = Outgoing::of(payload).append(&mut encoded);
    encoded.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message is one line, one event, one frame, whatever is in it.
    #[test]
    fn each_form_is_one_message() {
        let body = Body::new(Arc::from(&b"a\r\nb"[..]));
        assert_eq!(&**body.encoded(Encoding::Raw), b"a\r\nb");
        assert_eq!(&**body.encoded(Encoding::Line), b"a  b\r\n");
        assert_eq!(&**body.encoded(Encoding::Event), b"data: a\ndata: b\n\n");
        assert_eq!(&**body.encoded(Encoding::WebSocket), b"\x81\x04a\r\nb");
        let body = Body::new(Arc::from(&b"\xff"[..]));
        assert_eq!(
            &**body.encoded(Encoding::Event),
            "data: \u{fffd}\n\n".as_bytes()
        );
        assert_eq!(&**body.encoded(Encoding::WebSocket), b"\x82\x01\xff");
    }

    /// All members with one encoding share one buffer.
    #[test]
    fn each_form_is_made_once() {
        for encoding in Encoding::ALL {
            let body = Body::new(Arc::from(&b"x"[..]));
            let first = Arc::clone(body.encoded(encoding));
            assert!(Arc::ptr_eq(&first, body.encoded(encoding)), "{encoding:?}");
            let cell = EncodingCell::default();
            assert_eq!(cell.get(), Encoding::Raw);
            cell.set(encoding);
            assert_eq!(cell.get(), encoding);
        }
    }
}
