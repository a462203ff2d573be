//! The Leader/Followers pattern.
