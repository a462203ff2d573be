//! Framed connections, limits and TLS on the Leader/Followers pattern: plain blocking sessions, few
//! threads.
//!
//! ```text
//!   bytes of the peer --> Codec --> items --> Session --> Peer: replies
//!                                                |
//!                                                +--> Room, Remote, Dialer: other connections
//! ```
//!
//! A server is a codec, which finds the items in the bytes of a connection, and a session, which
//! handles them. Every limit and time-out is on by default ([`Limits`]).
//!
//! ```no_run
//! use paceline_server::{codec::{line, Message}, Next, Peer, Server};
//!
//! fn main() -> std::io::Result<()> {
//!     Server::builder()
//!         .listen("127.0.0.1:7000", line(8192), |_peer| {
//!             |line: Message<'_>, cx: &mut Peer<'_>| {
//!                 cx.reply(line)?; // may block: another thread leads meanwhile
//!                 Ok(Next::Continue)
//!             }
//!         })
//!         .run() // until Ctrl-C; then connections end between two items, and a report is printed
//! }
//! ```
//!
//! The [guide] has a program for each task.
#![forbid(unsafe_code)]

pub mod codec;
#[doc = include_str!("guide.md")]
pub mod guide {}

mod access_log;
mod connection;
mod cork;
mod counters;
mod datagram;
mod dialer;
mod dialog;
mod encoding;
mod engine;
#[cfg_attr(not(feature = "tracing"), path = "events_none.rs")]
mod events;
#[cfg(feature = "http")]
pub mod http;
mod inlet;
mod limits;
mod link;
mod listen;
mod mailbox;
mod moment;
mod page;
mod peer;
mod remote;
mod room;
mod routes;
#[cfg_attr(not(feature = "_tls"), path = "secure_none.rs")]
mod secure;
mod server;
mod service;
mod session;
mod spare;
pub mod sse;
mod stream;
mod sync;
mod times;
#[cfg(feature = "_tls")]
pub mod tls;
mod unix_path;
pub mod websocket;
mod wire;

pub use datagram::UdpPeer;
pub use dialer::Dialer;
pub use encoding::Encoding;
pub use engine::{Engine, HalfSync};
pub use inlet::Inlet;
pub use limits::{LeastRate, Limit, Limits};
pub use link::ConnectionId;
pub use listen::{AtLimit, Listen};
pub use mailbox::{Delivery, Receipt};
/// The core, for the settings of pools, levels and simulated worlds.
pub use paceline;
pub use paceline::{Next, Piece};
pub use page::{page, Page, PageBuilder};
pub use peer::{Peer, PeerAddress};
pub use remote::Remote;
pub use room::{Room, RoomMessage};
pub use routes::RouteReport;
pub use server::{DrainReport, Server, ServerBuilder, ServiceReport};
pub use session::{Ended, Session};

/// The programs of the project's README, of which some use the core alone, are tests of this crate.
#[cfg(all(doctest, feature = "_tls", feature = "json"))]
#[doc = include_str!("../../../README.md")]
struct ProjectReadme;

/// So is the program of the crate's README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
