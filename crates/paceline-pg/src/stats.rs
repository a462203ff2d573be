//! Counters by database.
