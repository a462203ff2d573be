//! One client and one server connection, without I/O and without a clock.
