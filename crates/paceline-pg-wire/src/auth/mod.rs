//! Authentication by MD5 and SCRAM-SHA-256, for both sides.
//!
//! Salts and nonces are arguments: this module draws no random numbers.

pub mod md5;
pub mod scram;
