//! Messages that know where they belong, and those who count what went wrong with them.
//!
//! A message is: connection, number in sequence, length (four bytes each), contents that follow
//! from connection and number. Whoever receives one can tell whether it is the one that had to
//! come.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file uses a part of it"
)]

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

const HEADER: usize = 12;

/// No message has more contents.
pub const MOST: usize = 4096;

/// Appends a message to `buffer`.
pub fn push(buffer: &mut Vec<u8>, connection: u32, sequence: u32, length: usize) {
    assert!(length <= MOST);
    buffer.extend(connection.to_ne_bytes());
    buffer.extend(sequence.to_ne_bytes());
    buffer.extend((length as u32).to_ne_bytes());
    buffer.extend((0..length).map(|at| content(connection, sequence, at)));
}

fn content(connection: u32, sequence: u32, at: usize) -> u8 {
    (connection.wrapping_mul(31) ^ sequence.wrapping_mul(7)).wrapping_add(at as u32) as u8
}

/// What was seen, and what was wrong with it.
#[derive(Debug, Default)]
pub struct Tally {
    /// Messages that came as they had to.
    pub messages: AtomicU64,
    /// Messages that never came, though nobody cut their connection.
    pub lost: AtomicU64,
    /// Messages that came again.
    pub doubled: AtomicU64,
    /// Messages of another connection.
    pub misrouted: AtomicU64,
    /// Streams whose bytes made no sense any more.
    pub garbled: AtomicU64,
}

impl Tally {
    pub fn messages(&self) -> u64 {
        self.messages.load(Ordering::Relaxed)
    }

    pub fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Ordering::Relaxed);
    }

    /// Fails unless everything came once, in order, and where it belongs.
    pub fn assert_clean(&self) {
        let wrong = [&self.lost, &self.doubled, &self.misrouted, &self.garbled];
        let wrong = wrong.map(|count| count.load(Ordering::Relaxed));
        assert_eq!(wrong, [0; 4], "lost, doubled, misrouted, garbled");
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [lost, doubled, misrouted] =
            [&self.lost, &self.doubled, &self.misrouted].map(|count| count.load(Ordering::Relaxed));
        write!(f, "{lost} lost, {doubled} doubled, {misrouted} misrouted")
    }
}

/// Reads one end of a connection and compares each message with the one that had to come.
#[derive(Debug)]
pub struct Inspector {
    /// `None` until the first message says it.
    connection: Option<u32>,
    next: u32,
    /// Bytes of a message that is not whole yet.
    partial: Vec<u8>,
    garbled: bool,
}

impl Inspector {
    /// For the one who knows which connection it is.
    pub fn of(connection: u32) -> Self {
        Self {
            connection: Some(connection),
            ..Self::of_any()
        }
    }

    /// For the one who learns it from the first message.
    pub fn of_any() -> Self {
        Self {
            connection: None,
            next: 0,
            partial: Vec::new(),
            garbled: false,
        }
    }

    pub fn connection(&self) -> Option<u32> {
        self.connection
    }

    /// How many messages came.
    pub fn count(&self) -> u32 {
        self.next
    }

    /// Looks at what was received. Tells how many messages it completed.
    pub fn feed(&mut self, bytes: &[u8], tally: &Tally) -> u32 {
        let before = self.next;
        self.partial.extend_from_slice(bytes);
        let mut at = 0;
        while let Some((head, length)) = self.whole_message(at, tally) {
            self.judge(head, at + HEADER..at + HEADER + length, tally);
            at += HEADER + length;
        }
        self.partial.drain(..at);
        self.next.wrapping_sub(before)
    }

    /// Connection, number and length of the message that starts at `at`, if all of it is there.
    fn whole_message(&mut self, at: usize, tally: &Tally) -> Option<([u32; 2], usize)> {
        let header = self.partial.get(at..at + HEADER)?;
        let word = |at: usize| u32::from_ne_bytes(header[at..at + 4].try_into().unwrap());
        let length = word(8) as usize;
        if length > MOST && !self.garbled {
            self.garbled = true;
            tally.garbled.fetch_add(1, Ordering::Relaxed);
        }
        let whole = !self.garbled && self.partial.len() >= at + HEADER + length;
        whole.then_some(([word(0), word(4)], length))
    }

    fn judge(&mut self, [connection, sequence]: [u32; 2], at: std::ops::Range<usize>, to: &Tally) {
        let one = |count: &AtomicU64| count.fetch_add(1, Ordering::Relaxed);
        if *self.connection.get_or_insert(connection) != connection {
            one(&to.misrouted);
            return;
        }
        if sequence < self.next {
            one(&to.doubled);
            return;
        }
        to.lose(u64::from(sequence - self.next));
        self.next = sequence + 1;
        let mut contents = self.partial[at].iter().enumerate();
        let intact = contents.all(|(at, byte)| *byte == content(connection, sequence, at));
        if intact {
            one(&to.messages)
        } else {
            one(&to.garbled)
        };
    }
}
