//! What comes in: bytes become replies, as they come.
//!
//! It belongs to the thread that reads the connection: read into its [`space`](Inbound::space),
//! report the count ([`filled`](Inbound::filled)), and [`feed`](Inbound::feed). It never asks for
//! more than what is there, so a body that has not arrived yet holds no caller up. Bytes of a body
//! go into the buffer of the call that waits for it.
//!
//! ```text
//!   BETWEEN --[a whole header]--> BODY --[its last byte]--> BETWEEN
//!      ^  |                        |
//!      '--' not whole: wait        '-- of a call, of no call (skipped), of the peer,
//!                                      or read by its caller itself
//! ```

use std::io;

use super::{
    calls::{Calls, Found, Key},
    protocol::{Header, Protocol, Whose},
    wire_order::WireOrder,
    word::{Phase, Told},
};

/// A header that is not whole by then is none.
const LONGEST_HEADER: usize = 4096;

/// As much is read at once.
const BUFFER: usize = if cfg!(loom) {
    2 * LONGEST_HEADER
} else {
    64 * 1024
};

/// Whose bytes are being read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Body {
    /// The reply of this call.
    Of(Key),
    /// The reply of this call, by its own caller.
    ReadBy(Key),
    /// Bytes that no call wants.
    Skipped,
    /// A message of the peer's own.
    Peer,
}

/// The state of the stream: between two messages, or inside of one.
pub(crate) struct Inbound {
    /// What was read and is not used yet: from `start` to `end`.
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    /// The message that has begun.
    body: Option<Body>,
    /// So many bytes are to be thrown away before it.
    skip: usize,
    /// So many bytes of it are to come.
    missing: usize,
    /// The beginning of a message of the peer's own.
    message: Vec<u8>,
    /// A longer message is an error.
    longest: usize,
}

/// What came of being fed.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fed {
    /// Everything was used, but for a part of a header: more must be read.
    All,
    /// The reply of this call has begun, and its caller wants to read it by itself
    /// ([`Inbound::read_body`]).
    ToBeReadBy(Key),
}

/// What is known of the calls, and the protocol that is spoken.
pub(crate) struct Table<'m, P> {
    pub(crate) calls: &'m Calls,
    pub(crate) order: &'m WireOrder,
    pub(crate) protocol: &'m P,
}

impl Inbound {
    /// At the beginning of a stream whose messages are not longer than so many bytes.
    pub(crate) fn new(longest: usize) -> Self {
        Self {
            buffer: vec![0; BUFFER].into(),
            start: 0,
            end: 0,
            body: None,
            skip: 0,
            missing: 0,
            message: Vec::new(),
            longest,
        }
    }

    /// At the beginning of another stream.
    pub(crate) fn begin_anew(&mut self) {
        (self.start, self.end) = (0, 0);
        (self.skip, self.missing) = (0, 0);
        self.body = None;
        self.message.clear();
    }

    /// Where to read to. It is never empty after everything was fed.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// So many bytes were read.
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
    }

    /// Uses up what was read. `tell` is called for each call whose reply is whole; `reader` is the
    /// call, if any, whose own caller does the feeding and wants to read its body by itself.
    ///
    /// # Errors
    /// What came is not of this protocol. Nothing that follows can be understood.
    pub(crate) fn feed<P: Protocol>(
        &mut self,
        table: &Table<'_, P>,
        reader: Option<Key>,
        tell: &mut dyn FnMut(Key, Told),
    ) -> io::Result<Fed> {
        loop {
            if self.body.is_none() && !self.begin(table, reader)? {
                return Ok(Fed::All);
            }
            let skipped = self.skip.min(self.end - self.start);
            self.start += skipped;
            self.skip -= skipped;
            if self.skip > 0 {
                return Ok(Fed::All);
            }
            if let Some(Body::ReadBy(key)) = self.body {
                return Ok(Fed::ToBeReadBy(key));
            }
            if !self.feed_body(table, tell) {
                return Ok(Fed::All);
            }
        }
    }

    /// Reads a header. Whether a message has begun.
    fn begin<P: Protocol>(
        &mut self,
        table: &Table<'_, P>,
        reader: Option<Key>,
    ) -> io::Result<bool> {
        let bytes = &self.buffer[self.start..self.end];
        if bytes.is_empty() {
            return Ok(false);
        }
        // However much has come at once: the limit is the same.
        let bytes = &bytes[..bytes.len().min(LONGEST_HEADER)];
        let Some(header) = table.protocol.header(bytes)? else {
            return if bytes.len() < LONGEST_HEADER {
                Ok(false)
            } else {
                Err(broken(format!("no header within {LONGEST_HEADER} bytes")))
            };
        };
        if header.length > self.longest {
            let (length, longest) = (header.length, self.longest);
            let text = format!("a message of {length} bytes; at most {longest} are accepted");
            return Err(broken(text));
        }
        if header.skip == 0 && header.length == 0 {
            return Err(broken("a message of no bytes".to_owned()));
        }
        self.body = Some(whose(table, &header, reader)?);
        (self.skip, self.missing) = (header.skip, header.length);
        Ok(true)
    }

    /// Adds to the message that has begun. Whether it is whole.
    fn feed_body<P: Protocol>(
        &mut self,
        table: &Table<'_, P>,
        tell: &mut dyn FnMut(Key, Told),
    ) -> bool {
        let count = self.missing.min(self.end - self.start);
        let part = &self.buffer[self.start..self.start + count];
        match self.body {
            Some(Body::Of(key)) => table.calls.append(key, part),
            Some(Body::Peer) => self.message.extend_from_slice(part),
            Some(Body::Skipped | Body::ReadBy(_)) | None => {}
        }
        self.start += count;
        self.missing -= count;
        if self.missing > 0 {
            return false;
        }
        match self.body.take() {
            Some(Body::Of(key)) => {
                let told = table.calls.complete(key);
                tell(key, told);
            }
            Some(Body::Peer) => {
                table.calls.counters.peer_messages.add(1);
                table.protocol.peer_message(&self.message);
                self.message.clear();
            }
            Some(Body::Skipped | Body::ReadBy(_)) | None => {}
        }
        true
    }

    /// The caller of this body does not read it by itself after all.
    pub(crate) fn read_for(&mut self, key: Key) {
        debug_assert_eq!(self.body, Some(Body::ReadBy(key)));
        self.body = Some(Body::Of(key));
    }

    /// How many bytes of the body that its caller reads by itself are to come.
    pub(crate) fn missing(&self) -> usize {
        self.missing
    }

    /// What was read already of the body that its caller reads by itself; what of it does not fit
    /// into `into`, or has not come, is still missing.
    pub(crate) fn read_body(&mut self, into: &mut [u8]) -> usize {
        let count = self.missing.min(self.end - self.start).min(into.len());
        into[..count].copy_from_slice(&self.buffer[self.start..self.start + count]);
        self.start += count;
        self.missing -= count;
        count
    }

    /// So many bytes of the body were read past the buffer, which had none of them.
    pub(crate) fn note_read_past(&mut self, count: usize) {
        debug_assert!(self.start == self.end && count <= self.missing);
        self.missing -= count;
    }

    /// The caller reads no more of its body; what is missing is skipped.
    pub(crate) fn end_own_reading(&mut self) {
        self.body = (self.missing > 0).then_some(Body::Skipped);
    }
}

/// Finds out whose the message is.
fn whose<P: Protocol>(
    table: &Table<'_, P>,
    header: &Header,
    reader: Option<Key>,
) -> io::Result<Body> {
    let found = match header.whose {
        Whose::Call(id) if !table.calls.is_in_order() => table.calls.begin_reply(id),
        Whose::Oldest if table.calls.is_in_order() => match table.order.take() {
            Some(key) => table.calls.begin_reply_of(key),
            None => table.calls.unknown_reply(),
        },
        Whose::Peer => return Ok(Body::Peer),
        whose => {
            let text = format!("{whose:?} in a protocol with ids of {} bits", P::ID_BITS);
            return Err(broken(text));
        }
    };
    Ok(match found {
        Found::Call(key, Phase::AsleepToRead) => Body::ReadBy(key),
        Found::Call(key, _) if reader == Some(key) => Body::ReadBy(key),
        Found::Call(key, _) => Body::Of(key),
        Found::Nobody => Body::Skipped,
    })
}

fn broken(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}
