//! PostgreSQL's wire protocol, for both sides, without I/O and without a clock.
//!
//! ```text
//!   bytes --> Walk --> Message { tag, body } --> frontend::Request   what a client sends
//!                                            --> backend::Reply      what a server sends
//!
//!   frontend, backend: one function for each message appends it to a buffer
//!   startup: the packets before the first message . auth: MD5 and SCRAM-SHA-256
//! ```
//!
//! Everything borrows from the bytes of the caller. A program that passes messages on reads the
//! five bytes of a header, and copies nothing.
//!
//! ```
//! use paceline_pg_wire::{backend, frontend::{self, Request}, Message, TransactionStatus};
//!
//! let mut bytes = Vec::new();
//! frontend::query(&mut bytes, b"SELECT 1");
//! let (message, length) = Message::first(&bytes, 1 << 20)?.expect("a whole message");
//! assert_eq!(Request::read(message)?, Request::Query(b"SELECT 1"));
//! assert_eq!(length, bytes.len());
//!
//! let mut answer = Vec::new();
//! backend::command_complete(&mut answer, b"SELECT 1");
//! backend::ready_for_query(&mut answer, TransactionStatus::Idle);
//! # Ok::<(), paceline_pg_wire::Malformed>(())
//! ```
#![forbid(unsafe_code)]

pub mod auth;
pub mod backend;
mod fields;
mod frame;
pub mod frontend;
mod malformed;
mod report;
pub mod startup;
mod write;

pub use fields::{Formats, Integers, Values};
pub use frame::{Header, Message, Need, Step, Walk};
pub use malformed::Malformed;
pub use report::{NewReport, Report, Severity};

/// The transaction status of a session between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransactionStatus {
    /// In no transaction block.
    Idle,
    /// In a transaction block.
    InBlock,
    /// In a transaction block that has failed: only its end is accepted.
    Failed,
}

impl TransactionStatus {
    /// Its byte in ReadyForQuery.
    #[must_use]
    pub fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InBlock => b'T',
            Self::Failed => b'E',
        }
    }

    /// Reads the byte of a ReadyForQuery.
    ///
    /// # Errors
    /// [`Malformed`] if the byte is none of the three.
    pub fn from_byte(byte: u8) -> Result<Self, Malformed> {
        match byte {
            b'I' => Ok(Self::Idle),
            b'T' => Ok(Self::InBlock),
            b'E' => Ok(Self::Failed),
            _ => Err(Malformed::new("a transaction status other than I, T and E")),
        }
    }
}
