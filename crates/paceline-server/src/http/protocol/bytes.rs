//! Which bytes may be where in a head.

/// A byte of a token (RFC 9110, 5.6.2).
pub(super) const IN_TOKEN: u8 = 1;
/// A byte of a target: what browsers send as it is (the URL standard). This is more than RFC 3986 allows,
/// but nothing that ends a target, or that servers read in different ways.
pub(super) const IN_TARGET: u8 = 2;
/// A byte of a path.
pub(super) const IN_PATH: u8 = 4;
/// A byte of a host that is no address of IPv6.
pub(super) const IN_HOST: u8 = 8;

/// The places of each byte.
const PLACES: [u8; 256] = {
    let mut places = [0; 256];
    let mut byte = 0;
    while byte < places.len() {
        places[byte] = places_of(byte as u8);
        byte += 1;
    }
    places
};

const fn places_of(byte: u8) -> u8 {
    let mut places = 0;
    if byte.is_ascii_alphanumeric() || is_in(b"!#$%&'*+-.^_`|~", byte) {
        places |= IN_TOKEN;
    }
    if byte.is_ascii_graphic() && !is_in(b"#\"<>", byte) {
        places |= IN_TARGET;
        if byte != b'\\' {
            places |= IN_PATH;
        }
    }
    if byte.is_ascii_alphanumeric() || is_in(b"-._~", byte) {
        places |= IN_HOST;
    }
    places
}

const fn is_in(set: &[u8], byte: u8) -> bool {
    let mut at = 0;
    while at < set.len() {
        if set[at] == byte {
            return true;
        }
        at += 1;
    }
    false
}

/// Whether each of `bytes` may be in this place.
pub(super) fn all(bytes: &[u8], place: u8) -> bool {
    bytes
        .iter()
        .all(|byte| PLACES[usize::from(*byte)] & place != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table says of every byte what the rules say.
    #[test]
    fn each_byte_is_where_it_may_be() {
        for byte in 0..=255_u8 {
            let is = |place| all(&[byte], place);
            let word = byte.is_ascii_alphanumeric();
            assert_eq!(is(IN_TOKEN), word || b"!#$%&'*+-.^_`|~".contains(&byte));
            assert_eq!(is(IN_HOST), word || b"-._~".contains(&byte));
            let in_target = byte.is_ascii_graphic() && !b"#\"<>".contains(&byte);
            assert_eq!(is(IN_TARGET), in_target);
            assert_eq!(is(IN_PATH), in_target && byte != b'\\');
        }
    }
}
