//! How far the two cores are from each other: how long a cache line takes from one to the other and back.
//!
//! On a shared host the same program takes a third longer for seconds or minutes at a time, whatever the program,
//! and no other process seems to use the machine. It is the host: it has moved our cores to places of its own processor
//! that share no cache, and server and client, which communicate through memory, pay for the distance.
//! So the way is timed before and after each measurement, and what was measured at different distances is not
//! compared.

use std::{
    hint, io,
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::thread::{sched_setaffinity, CpuSet};

/// How long the line is exchanged.
const SPAN: Duration = Duration::from_millis(20);
/// Round trips between two readings of the clock.
const BATCH: u64 = 64;
/// Distances that differ by no more than this factor are the same.
const SAME: f64 = 1.5;
/// The end of the game.
const OVER: u64 = u64::MAX;

/// Nanoseconds for a round trip between cores 0 and 1.
///
/// # Errors
/// If there are no two cores that this process may use.
pub(crate) fn measure() -> io::Result<f64> {
    let line = AtomicU64::new(0);
    thread::scope(|scope| {
        let far = scope.spawn(|| {
            stay_on(1)?;
            give_back(&line);
            io::Result::Ok(())
        });
        let there = || line.load(Ordering::Acquire) != 0;
        while !there() && !far.is_finished() {
            thread::yield_now();
        }
        // A thread of its own too: a confined thread stays confined, and so do the processes that it starts.
        let near = there().then(|| scope.spawn(|| stay_on(0).map(|()| play(&line))));
        let measured = near.map(|near| joined(near.join()));
        line.store(OVER, Ordering::Release);
        joined(far.join())?;
        measured.unwrap_or_else(|| Err(io::Error::other("there is no second core")))
    })
}

fn joined<T>(ended: thread::Result<io::Result<T>>) -> io::Result<T> {
    ended.unwrap_or_else(|_| Err(io::Error::other("a thread panicked")))
}

/// Whether two distances are the same.
pub(crate) fn is_same(one: f64, other: f64) -> bool {
    one.max(other) <= one.min(other) * SAME
}

fn stay_on(core: usize) -> io::Result<()> {
    let mut cores = CpuSet::new();
    cores.set(core);
    Ok(sched_setaffinity(None, &cores)?)
}

/// Sends the line and waits until it is back, again and again; it is odd on the way. The median of some trips at a time:
/// that the host takes a core away for a moment is no distance.
fn play(line: &AtomicU64) -> f64 {
    let (start, mut spans) = (Instant::now(), Vec::new());
    while spans.is_empty() || start.elapsed() < SPAN {
        let begin = Instant::now();
        for _ in 0..BATCH {
            let sent = line.load(Ordering::Relaxed) + 1;
            line.store(sent, Ordering::Release);
            while line.load(Ordering::Acquire) == sent {
                hint::spin_loop();
            }
        }
        spans.push(begin.elapsed());
    }
    spans.sort_unstable();
    spans[spans.len() / 2].as_secs_f64() * 1e9 / BATCH as f64
}

/// Sends back every value until the end. The other side sends the first.
fn give_back(line: &AtomicU64) {
    line.store(2, Ordering::Release);
    loop {
        match line.load(Ordering::Acquire) {
            OVER => return,
            come if come % 2 == 1 => line.store(come + 1, Ordering::Release),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    /// No line is back within a nanosecond, and none needs a millisecond. (Where there are no two cores, nothing is
    /// checked.) The calling thread stays unconfined.
    #[test]
    fn there_is_a_distance() -> io::Result<()> {
        let allowed = || sched_getaffinity(None);
        let before = allowed()?;
        match measure() {
            Ok(nanos) => assert!((1.0..1e6).contains(&nanos), "{nanos}"),
            Err(error) => println!("not measured: {error}"),
        }
        assert_eq!(allowed()?, before);
        Ok(())
    }

    #[test]
    fn near_is_not_far() {
        assert!(is_same(92.0, 110.0) && is_same(340.0, 390.0));
        assert!(!is_same(92.0, 340.0) && !is_same(340.0, 92.0));
    }
}
