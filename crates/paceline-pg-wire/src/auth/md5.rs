//! Passwords by MD5. PostgreSQL still accepts them; SCRAM replaces them.

use md5::{Digest, Md5};

/// What a server stores: `md5` and the hash of password and user.
#[must_use]
pub fn stored(user: &[u8], password: &[u8]) -> String {
    format!("md5{}", hash(&[password, user]))
}

/// What a client sends for a [`stored`] password and the salt of its server.
///
/// ```
/// use paceline_pg_wire::auth::md5;
///
/// let stored = md5::stored(b"ada", b"pencil");
/// let response = md5::response(&stored, *b"salt").expect("it is an MD5 password");
/// assert!(md5::is_right(&stored, *b"salt", response.as_bytes()));
/// ```
#[must_use]
pub fn response(stored: &str, salt: [u8; 4]) -> Option<String> {
    let hex = stored.strip_prefix("md5")?;
    Some(format!("md5{}", hash(&[hex.as_bytes(), &salt])))
}

/// Whether a client's response is the right one. The time does not depend on where it differs.
#[must_use]
pub fn is_right(stored: &str, salt: [u8; 4], given: &[u8]) -> bool {
    use subtle::ConstantTimeEq;
    response(stored, salt).is_some_and(|right| right.as_bytes().ct_eq(given).into())
}

fn hash(parts: &[&[u8]]) -> String {
    let mut hasher = Md5::new();
    parts.iter().for_each(|part| hasher.update(part));
    let digest = hasher.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash is of the password and then the user. The examples are those of RFC 1321.
    #[test]
    fn a_password_is_stored_as_postgresql_does() {
        assert_eq!(stored(b"", b""), "md5d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(stored(b"c", b"ab"), "md5900150983cd24fb0d6963f7d28e17f72");
    }

    #[test]
    fn only_the_right_response_is_right() {
        let stored = stored(b"ada", b"secret");
        let good = response(&stored, *b"abcd").expect("an MD5 password");
        assert!(is_right(&stored, *b"abcd", good.as_bytes()));
        assert!(!is_right(&stored, *b"abce", good.as_bytes()));
        assert!(!is_right(&stored, *b"abcd", &good.as_bytes()[..34]));
        assert!(!is_right(
            "SCRAM-SHA-256$4096:..",
            *b"abcd",
            good.as_bytes()
        ));
    }
}
