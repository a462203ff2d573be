//! What the console shows.
