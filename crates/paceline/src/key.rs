//! The key of a registration, and its name in reports.

use std::fmt;

/// The name of a registration: its slot, and which of the slot's registrations it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HandleId(Key);

impl HandleId {
    pub(crate) fn new(key: Key) -> Self {
        Self(key)
    }

    /// For structures that keep it in a word.
    pub(crate) fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(Key::from_bits(bits))
    }
}

impl fmt::Display for HandleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.index, self.0.generation)
    }
}

impl fmt::Debug for HandleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Slot and generation, also as the 64 bits that travel through a handle set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl Key {
    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.index) << 32 | u64::from(self.generation)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self {
            index: (bits >> 32) as u32,
            generation: bits as u32,
        }
    }
}
