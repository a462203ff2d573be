//! The stored secret of a password.

use std::{borrow::Cow, fmt, str::FromStr};

use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::{decode, decode_key, encode, hmac, sha256, Failure, Key};

/// What a server stores of a password: enough to check a proof, and not enough to make one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Secret {
    pub(super) iterations: u32,
    pub(super) salt: Vec<u8>,
    pub(super) stored_key: Key,
    pub(super) server_key: Key,
}

/// What a client needs to prove that it knows the password behind one salt.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    pub(super) client_key: Key,
    pub(super) server_key: Key,
}

/// Omits the keys, which are as good as the password.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").finish_non_exhaustive()
    }
}

impl Keys {
    /// The keys of a password. This takes as long as there are iterations: milliseconds.
    pub(super) fn of_password(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let mut salted = Key::default();
        let password = normalised(password);
        pbkdf2::pbkdf2_hmac::<Sha256>(&password, salt, iterations, &mut salted);
        Self {
            client_key: hmac(&salted, &[b"Client Key"]),
            server_key: hmac(&salted, &[b"Server Key"]),
        }
    }
}

/// A password in its normal form. Like PostgreSQL, it keeps one that has none or is not UTF-8.
fn normalised(password: &[u8]) -> Cow<'_, [u8]> {
    let text = std::str::from_utf8(password).ok();
    match text.map(stringprep::saslprep) {
        Some(Ok(Cow::Owned(normal))) => Cow::Owned(normal.into_bytes()),
        _ => Cow::Borrowed(password),
    }
}

impl Secret {
    /// The secret of a password. This takes as long as there are iterations: milliseconds.
    #[must_use]
    pub fn of_password(password: &[u8], salt: &[u8], iterations: u32) -> Self {
        let keys = Keys::of_password(password, salt, iterations);
        Self {
            iterations,
            salt: salt.to_vec(),
            stored_key: sha256(&keys.client_key),
            server_key: keys.server_key,
        }
    }

    /// Whether this is the secret of a password that was sent in clear text. This takes as long as
    /// there are iterations: milliseconds.
    #[must_use]
    pub fn is_of_password(&self, password: &[u8]) -> bool {
        let keys = Keys::of_password(password, &self.salt, self.iterations);
        let stored = sha256(&keys.client_key).ct_eq(&self.stored_key);
        (stored & keys.server_key.ct_eq(&self.server_key)).into()
    }

    /// A secret that no password matches, for a user that does not exist: a client can't
    /// distinguish it from a real one. `seed` is a secret of the server: it keeps the salt of each
    /// name the same.
    #[must_use]
    pub fn mock(user: &[u8], seed: &Key, iterations: u32) -> Self {
        let salt = hmac(seed, &[b"salt", user]);
        Self {
            iterations,
            salt: salt[..16].to_vec(),
            stored_key: hmac(seed, &[b"stored", user]),
            server_key: hmac(seed, &[b"server", user]),
        }
    }
}

/// As PostgreSQL stores it: `SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER`.
impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (iterations, salt) = (self.iterations, encode(&self.salt));
        let (stored, server) = (encode(&self.stored_key), encode(&self.server_key));
        write!(f, "SCRAM-SHA-256${iterations}:{salt}${stored}:{server}")
    }
}

impl FromStr for Secret {
    type Err = Failure;

    fn from_str(text: &str) -> Result<Self, Failure> {
        const RULE: &str = "a stored secret is SCRAM-SHA-256$ITERATIONS:SALT$STORED:SERVER";
        let parts = || {
            let rest = text.strip_prefix("SCRAM-SHA-256$")?;
            let (first, keys) = rest.split_once('$')?;
            let (iterations, salt) = first.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            let iterations = iterations.parse().ok().filter(|count: &u32| *count > 0)?;
            Some((iterations, salt, stored, server))
        };
        let (iterations, salt, stored, server) = parts().ok_or(Failure::Malformed(RULE))?;
        Ok(Self {
            iterations,
            salt: decode(salt, RULE)?,
            stored_key: decode_key(stored, RULE)?,
            server_key: decode_key(server, RULE)?,
        })
    }
}
