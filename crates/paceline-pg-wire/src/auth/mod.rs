//! How a client proves who it is: MD5 and SCRAM-SHA-256, for both sides.
//!
//! Nothing here draws random numbers: salts and nonces are arguments.

pub mod md5;
pub mod scram;
