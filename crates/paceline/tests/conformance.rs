//! One suite for all handle sets: what a handler sees does not depend on where the leader waits, or
//! everyone.
//!
//! Each case is a function over the set; each case on each set is a test of its own,
//! `FILE::CASE::SET`. Most cases go through the roles by hand, on Unix sockets and pipes: there,
//! what one end did is seen at the other when the call returns, so every count is exact.

mod support;

mod conformance {
    #[macro_use]
    mod world;

    mod busy;
    mod completion_set;
    mod concurrent_set;
    mod hang_up;
    mod input;
    mod output;
    mod refusals;
    mod shutdown;
    mod table;
}
