//! The book: which client waits, and which has which server.
