//! How often memory was asked for: the system's allocator, counted if that was asked for.
//!
//! The only file with unsafe code. While nothing is counted an allocation costs one plain load more.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
};

/// Starts counting.
pub(crate) fn count() {
    COUNTING.store(true, Ordering::Relaxed);
}

/// How many allocations were counted; `None` if none are.
pub(crate) fn counted() -> Option<u64> {
    let counting = COUNTING.load(Ordering::Relaxed);
    counting.then(|| ALLOCATIONS.load(Ordering::Relaxed))
}

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static COUNTED: Counted = Counted;

/// The system's allocator, counted. Giving memory back is not counted.
struct Counted;

impl Counted {
    fn one_more() {
        if COUNTING.load(Ordering::Relaxed) {
            ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// SAFETY: every call is passed on as it came to the system's allocator, which keeps the promises of the trait.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::one_more();
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::one_more();
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        Self::one_more();
        // SAFETY: as above; `old` came from the system's allocator, by one of the calls here.
        unsafe { System.realloc(old, layout, new_size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(old, layout) }
    }
}
