//! Tests of what the whole process shares: descriptors, threads, memory, the allocator, signals.
//!
//! Every test of this program takes its turn: a test that builds a pool opens files to count the
//! cores, and another one that counts descriptors would see them.

mod support;

mod alone {
    mod allocations;
    mod s2_nothing_leaks_unlisted;
    mod signals;
    mod turns;
}
