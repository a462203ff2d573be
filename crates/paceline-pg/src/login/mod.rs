//! The logins of clients and the logins to servers, without I/O and without a clock.
//!
//! ```text
//!   client login                               server login
//!   new                                        new, start
//!   feed -> StartTls   tls_started             feed -> StartTls   tls_started
//!        -> Cancel                                  -> Hash       hashed
//!        -> Start      admit                        -> Ready
//!        -> Hash       hashed                       -> Failed
//!        -> Proved     (the pool's welcome)
//! ```
//!
//! Bytes and random numbers are arguments. A step that computes for milliseconds is a value,
//! [`Hashing`]: the caller runs it when another thread leads.

mod client;
mod keys;
mod secrets;
mod server;
mod session;
mod terms;

#[cfg(test)]
mod tests;

pub use client::{welcome, ClientLogin};
pub use keys::{CancelKeys, ClientKey};
pub use secrets::{Hashed, Hashing, StoredPassword, Verifiers};
pub use server::{
    ServerCredentials, ServerFailure, ServerLogin, ServerReady, ServerStart, ServerStep, ServerTls,
};
pub use session::{SessionRequest, StartupRules};
pub use terms::{
    Admission, AuthType, ClientStep, ClientTls, Closing, Denied, Fed, LoginSettings, Proof, Seeds,
    Transport,
};
