//! What the tests share.

pub mod postgres;
pub mod rig;
pub mod session;
