//! How often a thread gave its core away itself, as the system counts it: who sleeps does, who computes does not.

/// So often the calling thread has slept. `None`: the system does not tell, or a checker schedules.
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

/// So often the calling thread has slept. `None`: the system does not tell, or a checker schedules.
#[cfg(not(all(target_os = "linux", not(any(loom, shuttle)))))]
pub(crate) fn voluntary_switches() -> Option<u64> {
    None
}
