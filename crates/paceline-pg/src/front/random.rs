//! Random bytes of the system.

use rustix::rand::{getrandom, GetRandomFlags};

/// So many bytes that cannot be foreseen.
///
/// # Panics
/// If the system has none. It always has, once it has started.
pub(crate) fn bytes<const COUNT: usize>() -> [u8; COUNT] {
    let mut bytes = [0; COUNT];
    let mut filled = 0;
    while filled < COUNT {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("random bytes: {error}"),
        }
    }
    bytes
}
