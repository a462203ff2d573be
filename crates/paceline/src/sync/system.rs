//! What a thread asks the system for: the time, and how often it slept.
//!
//! Unsafe, because std does not tell a thread's switches, and its `Instant` takes twice the instructions at every event.

/// So often the calling thread gave its core away itself: who sleeps does, who computes does not. `None`: the system
/// does not tell, or a checker schedules.
#[cfg(all(target_os = "linux", not(any(loom, shuttle))))]
pub(crate) fn voluntary_switches() -> Option<u64> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: the kernel writes one whole `rusage` there, or says that it did not.
    let told = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
    if told != 0 {
        return None;
    }
    // SAFETY: it was written, see above.
    let usage = unsafe { usage.assume_init() };
    u64::try_from(usage.ru_nvcsw).ok()
}

/// Not told here.
#[cfg(any(not(target_os = "linux"), loom, shuttle))]
pub(crate) fn voluntary_switches() -> Option<u64> {
    None
}

/// The system's monotonic clock, in nanoseconds since some point.
#[cfg(target_os = "linux")]
#[inline]
pub(super) fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel writes one whole `timespec` there. (This clock always exists; were it not so, time would
    // stand still.)
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    (time.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(time.tv_nsec as u64)
}

/// The system's monotonic clock, in nanoseconds since it was first asked.
#[cfg(not(target_os = "linux"))]
pub(super) fn monotonic_nanos() -> u64 {
    static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let origin = ORIGIN.get_or_init(std::time::Instant::now);
    u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
