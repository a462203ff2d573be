//! The admin console.
