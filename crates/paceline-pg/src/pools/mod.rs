//! The book of the front-end: which client waits, which client has which server, and when a
//! connection is opened or closed. It knows no socket, no thread and no clock.
//!
//! ```text
//!   client   Login -> Arriving -> Idle   await_welcome, Order::Welcome
//!            Idle -> Active              ask, at once
//!            Idle -> Waiting -> Active   ask, and later give_back of another client or Order::Give
//!            Active -> Idle              give_back, closed
//! ```
//!
//! - A pool has one queue. A server that is given back serves the first client that waits, and a
//!   new client never passes one that waits.
//! - Pools that share a limit (of a database, of a user) open connections in the order in which
//!   their first clients have arrived: see `grow`.
//! - Every call takes constant or logarithmic time on the way of a transaction, and allocates
//!   nothing once the lists have grown. Only `maintain` and commands of an administrator scan.
//!
//! The caller holds the book in one mutex, calls it, releases the mutex, and carries out the
//! orders.

mod admin;
mod assign;
mod book;
mod cancel;
mod configure;
mod entries;
mod failover;
mod grow;
mod list;
mod maintain;
mod orders;
mod settings;
mod slab;
mod snapshot;
mod states;

#[cfg(test)]
mod tests;

pub use admin::{Commanded, Disabled, OperationId, Phase, Scope, Shutdown};
pub use book::{Book, Left, Orders};
pub use cancel::{CancelAsked, CancelReady, ServerKey};
pub use configure::{Destination, Privilege, MOST_CLAIMS};
pub use entries::{ClientState, ServerState, Waits};
pub use orders::{
    Ask, CloseReason, FailureScope, GiveBack, LoginFailure, OpenReason, Order, Refusal, Welcome,
};
pub use settings::{DatabaseSettings, PoolLimits, Settings, UserSettings};
pub use slab::{CancelId, ClientId, DatabaseId, PoolId, ServerId, UserId};
pub use snapshot::{ClientRow, DatabaseRow, Lists, PoolRow, ServerRow, UserRow};
