//! A place for each descriptor, found by its number without a lock, made when it is first needed.

use std::sync::OnceLock;

/// So many descriptors share a page.
const PAGE: usize = 256;

/// So many pages are possible: half a million descriptors.
const PAGES: usize = 2048;

/// The places of all descriptors.
pub(super) struct Slots<T> {
    pages: Box<[OnceLock<Box<[T]>>]>,
}

impl<T: Default> Slots<T> {
    /// No place is made yet.
    pub(super) fn new() -> Self {
        let pages = (0..PAGES).map(|_| OnceLock::new()).collect();
        Self { pages }
    }

    /// The place of descriptor `fd`; `None` if the number is too high.
    pub(super) fn of(&self, fd: usize) -> Option<&T> {
        let page = self.pages.get(fd / PAGE)?;
        let page = page.get_or_init(|| (0..PAGE).map(|_| T::default()).collect());
        page.get(fd % PAGE)
    }
}
