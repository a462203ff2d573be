//! What a thread asks the system for: the time, how often it slept, its cores, its nice value.
//!
//! Unsafe, because std does not report a thread's switches, its `Instant` takes twice the
//! instructions at every event, and it knows nothing of cores and nice values.

use std::io;

/// How often the calling thread gave its core away itself: a sleep counts, a computation does not.
/// `None`: the system does not report it, or a checker schedules.
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

/// Not known here.
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
    // SAFETY: the kernel writes one whole `timespec` there. (This clock always exists; were it not
    // so, time would stand still.)
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

/// One more than the highest number of a core that can be asked for: far more than the kernel can
/// have.
#[cfg(target_os = "linux")]
const CORES: usize = 1 << 16;

/// Confines the calling thread to these cores, counted from zero. Those that do not exist are left
/// out, unless that leaves none.
#[cfg(target_os = "linux")]
pub(crate) fn confine(cores: &[usize]) -> io::Result<()> {
    const BITS: usize = libc::c_ulong::BITS as usize;
    let highest = cores.iter().copied().max().unwrap_or(0);
    if highest >= CORES {
        let text = format!("there is no core {highest}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut mask: Vec<libc::c_ulong> = vec![0; highest / BITS + 1];
    for core in cores {
        mask[core / BITS] |= 1 << (core % BITS);
    }
    // SAFETY: zero is the calling thread. The kernel reads the mask, so many bytes of it, and it
    // lives until the call returns; it does not look at it as a `cpu_set_t` of a certain size.
    let told = unsafe { libc::sched_setaffinity(0, size_of_val(&*mask), mask.as_ptr().cast()) };
    told_error(told)
}

/// Sets the nice value of the calling thread, and of no other: on Linux it is the thread's.
#[cfg(target_os = "linux")]
pub(crate) fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: it takes numbers and no pointer; zero is the calling thread.
    let told = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    told_error(told)
}

#[cfg(target_os = "linux")]
fn told_error(told: libc::c_int) -> io::Result<()> {
    match told {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Not to be had here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn confine(_cores: &[usize]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Not to be had here: elsewhere it is the whole process that has a nice value.
#[cfg(not(target_os = "linux"))]
pub(crate) fn set_nice(_nice: i32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
