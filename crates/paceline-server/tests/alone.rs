//! Tests that need a process of their own, because they count what the whole process does.

#[path = "alone/allocations.rs"]
mod allocations;
