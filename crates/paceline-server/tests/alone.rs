//! What the whole process shares: signals, the environment. Each test is a process of its own.

mod support;

mod alone {
    mod signals;
    mod stuck;
    #[cfg(feature = "systemd")]
    mod systemd;
}
