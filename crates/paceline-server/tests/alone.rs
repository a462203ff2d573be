//! What the whole process shares: signals, the environment, the allocator, descriptors. A test of signals or of the
//! environment is a process of its own.

mod support;

mod alone {
    mod allocations;
    mod descriptors;
    mod signals;
    mod stuck;
    #[cfg(feature = "systemd")]
    mod systemd;
}
