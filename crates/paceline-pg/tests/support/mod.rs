//! What the tests share.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub(crate) mod postgres;
pub(crate) mod rig;
pub(crate) mod script;
pub(crate) mod session;
