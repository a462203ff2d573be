//! Servers for trials: a front-end process, and a real PostgreSQL or the embedded back-end behind it.
//!
//! ```text
//!   faults ---> front     the pooler, a process of this program
//!           |-> link      a connection between the two that breaks at will
//!           +-> back      postgres (Debian's), or embedded: a process of this program
//!
//!   role       this program in the part of such a server
//! ```
//!
//! Each server ends with the program that has started it, however that one ends.
#![forbid(unsafe_code)]

pub mod back;
pub mod faults;
pub mod folder;
pub mod front;
pub mod link;
pub mod postgres;
pub mod role;

mod signals;

use std::{
    io, thread,
    time::{Duration, Instant},
};

/// The longest time for a server to start or to end.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `condition` holds, and fails with `what` if that lasts longer than [`PATIENCE`].
///
/// # Errors
/// A time-out that names `what`.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) -> io::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !condition() {
        if Instant::now() > end {
            let text = format!("waiting for this: {what}");
            return Err(io::Error::new(io::ErrorKind::TimedOut, text));
        }
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
