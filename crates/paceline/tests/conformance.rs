//! One suite for all handle sets: what a handler sees does not depend on where the leader waits, or everyone.
//!
//! Each case is a function over the set; each case on each set is a test of its own, `FILE::CASE::SET`.
//! Most cases go through the roles by hand, on Unix sockets and pipes: there, what one end did is seen at
//! the other when the call returns, so every count is exact.

#[path = "support/by_hand.rs"]
mod by_hand;
mod support;
#[path = "support/unowned.rs"]
mod unowned;
#[macro_use]
#[path = "conformance/world.rs"]
mod world;

#[path = "conformance/busy.rs"]
mod busy;
#[path = "conformance/hang_up.rs"]
mod hang_up;
#[path = "conformance/input.rs"]
mod input;
#[path = "conformance/output.rs"]
mod output;
#[path = "conformance/refusals.rs"]
mod refusals;
#[path = "conformance/shutdown.rs"]
mod shutdown;
#[path = "conformance/table.rs"]
mod table;
