//! What the whole process shares: signals, the environment, the allocator. A test of signals or of the
//! environment is a process of its own.

mod support;

mod alone {
    mod allocations;
    mod signals;
    mod stuck;
    #[cfg(feature = "systemd")]
    mod systemd;
}
