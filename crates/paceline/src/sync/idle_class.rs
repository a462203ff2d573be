//! The lowest scheduling class: a thread that the system runs only when a core has nothing else to
//! do.

/// Puts the calling thread there, for good. `false`: it can't be had here.
#[cfg(target_os = "linux")]
pub(crate) fn enter() -> bool {
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: zero is the calling thread, and the kernel reads the parameter, which lives until the
    // call returns.
    let told = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &parameter) };
    // Sleeps of this thread may not be rounded to the usual 50 us; if they are, it only looks less
    // often. SAFETY: this option takes a number and no pointer.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
    told == 0
}

/// Puts the calling thread there, for good. `false`: it can't be had here.
#[cfg(not(target_os = "linux"))]
pub(crate) fn enter() -> bool {
    false
}
