//! How fast the machine is just now.
//!
//! On a shared host the same program takes a quarter longer for seconds at a time, and nothing on this side tells why:
//! the cores may share one core of the host's, or its caches, with somebody else. So a small task that never changes
//! is timed before and after each measurement, on all cores at once: bytes over socket pairs.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    sync::Barrier,
    thread,
    time::{Duration, Instant},
};

/// How long a look takes: long against a time slice, short against a measurement.
const LOOK: Duration = Duration::from_millis(60);
/// Round trips between two readings of the clock.
const BATCH: u64 = 16;

/// Round trips per second of all cores together.
///
/// # Errors
/// If there is no descriptor left.
pub(crate) fn measure() -> io::Result<f64> {
    let cores = thread::available_parallelism()?.get();
    let start = Barrier::new(cores);
    thread::scope(|scope| {
        let on_each = (0..cores).map(|_| scope.spawn(|| of_one_core(&start)));
        let on_each: Vec<_> = on_each.collect();
        let speeds = on_each.into_iter().map(|core| match core.join() {
            Ok(speed) => speed,
            Err(_) => Err(io::Error::other("the task panicked")),
        });
        speeds.sum()
    })
}

/// Round trips per second of this thread, beside the others.
fn of_one_core(start: &Barrier) -> io::Result<f64> {
    let pair = UnixStream::pair();
    start.wait();
    let (mut near, mut far) = pair?;
    let (begin, mut trips) = (Instant::now(), 0);
    while begin.elapsed() < LOOK {
        for _ in 0..BATCH {
            near.write_all(&[0; 64])?;
            far.read_exact(&mut [0; 64])?;
        }
        trips += BATCH;
    }
    Ok(trips as f64 / begin.elapsed().as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All cores make some.
    #[test]
    fn there_is_a_speed() -> io::Result<()> {
        assert!(measure()? > 100.0);
        Ok(())
    }
}
