//! The stored forms of passwords, and the slow steps that compute with them.

use std::{collections::HashMap, fmt, sync::Arc};

use paceline_pg_wire::auth::{
    md5,
    scram::{self, Client, Credentials, Key, Proved, Secret},
};

/// A password as the configuration or `auth_query` gives it.
#[derive(Clone, PartialEq, Eq)]
pub enum StoredPassword {
    /// In clear text.
    Plain(Arc<[u8]>),
    /// As `md5` and 32 digits.
    Md5(Arc<str>),
    /// As the secret of SCRAM-SHA-256.
    Scram(Arc<Secret>),
}

/// Prints the kind, and omits the password.
impl fmt::Debug for StoredPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "Plain(..)",
            Self::Md5(_) => "Md5(..)",
            Self::Scram(_) => "Scram(..)",
        })
    }
}

impl StoredPassword {
    /// Reads a stored password. It distinguishes the kinds like PostgreSQL.
    #[must_use]
    pub fn read(text: &[u8]) -> Self {
        let utf8 = std::str::from_utf8(text).ok();
        if let Some(hash) = utf8.filter(|text| is_md5(text)) {
            return Self::Md5(Arc::from(hash));
        }
        match utf8.and_then(|text| text.parse().ok()) {
            Some(secret) => Self::Scram(Arc::new(secret)),
            None => Self::Plain(Arc::from(text)),
        }
    }

    /// Whether it is empty: then no password matches.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Plain(password) if password.is_empty())
    }

    /// The MD5 form; `None` for a SCRAM secret, which does not determine it.
    pub(super) fn as_md5(&self, user: &str) -> Option<Arc<str>> {
        match self {
            Self::Plain(password) => Some(Arc::from(md5::stored(user.as_bytes(), password))),
            Self::Md5(hash) => Some(hash.clone()),
            Self::Scram(_) => None,
        }
    }
}

fn is_md5(text: &str) -> bool {
    let digits = text.strip_prefix("md5");
    digits.is_some_and(|digits| {
        digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Computations that take milliseconds.
pub struct Hashing(pub(super) Work);

pub(super) enum Work {
    /// The secret of a plain password, for a client that does SCRAM.
    Derive {
        password: Arc<[u8]>,
        salt: [u8; 16],
        iterations: u32,
    },
    /// Whether a password that a client has sent has this secret.
    Check {
        given: Box<[u8]>,
        secret: Arc<Secret>,
    },
    /// The proof for a server, from a plain password.
    Prove {
        client: Client,
        first: Box<[u8]>,
        password: Arc<[u8]>,
    },
}

/// The result of [`Hashing::run`].
pub struct Hashed(pub(super) Outcome);

pub(super) enum Outcome {
    Derived(Arc<Secret>),
    Checked(Match),
    Proved(Result<(Proved, String), scram::Failure>),
}

/// Whether a password is the right one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Right,
    Wrong,
}

impl Match {
    pub(super) fn of(is_right: bool) -> Self {
        if is_right {
            Self::Right
        } else {
            Self::Wrong
        }
    }
}

impl fmt::Debug for Hashing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hashing(..)")
    }
}

impl fmt::Debug for Hashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hashed(..)")
    }
}

impl Hashing {
    /// Computes. The time grows with the iterations: milliseconds.
    #[must_use]
    pub fn run(self) -> Hashed {
        Hashed(match self.0 {
            Work::Derive {
                password,
                salt,
                iterations,
            } => {
                let secret = Secret::of_password(&password, &salt, iterations);
                Outcome::Derived(Arc::new(secret))
            }
            Work::Check { given, secret } => {
                Outcome::Checked(Match::of(secret.is_of_password(&given)))
            }
            Work::Prove {
                client,
                first,
                password,
            } => {
                let password = Credentials::Password(password.to_vec());
                Outcome::Proved(client.answer(&first, &password))
            }
        })
    }
}

impl Hashed {
    /// The secret that was derived of a plain password, for [`Verifiers`].
    #[must_use]
    pub fn derived(&self) -> Option<Arc<Secret>> {
        match &self.0 {
            Outcome::Derived(secret) => Some(secret.clone()),
            _ => None,
        }
    }
}

/// Secrets that were derived of plain passwords: each user's is derived once.
#[derive(Debug, Default)]
pub struct Verifiers {
    by_user: HashMap<Box<str>, Verifier>,
}

struct Verifier {
    password: Arc<[u8]>,
    iterations: u32,
    secret: Arc<Secret>,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verifier(..)")
    }
}

impl Verifiers {
    /// The secret of this user, unless its password or the iterations have changed.
    #[must_use]
    pub fn get(&self, user: &str, stored: &StoredPassword, iterations: u32) -> Option<Arc<Secret>> {
        let StoredPassword::Plain(password) = stored else {
            return None;
        };
        let known = self.by_user.get(user)?;
        let is_same = known.password == *password && known.iterations == iterations;
        is_same.then(|| known.secret.clone())
    }

    /// Keeps the secret of a user.
    pub fn put(
        &mut self,
        user: &str,
        stored: &StoredPassword,
        iterations: u32,
        secret: Arc<Secret>,
    ) {
        if let StoredPassword::Plain(password) = stored {
            let verifier = Verifier {
                password: password.clone(),
                iterations,
                secret,
            };
            self.by_user.insert(user.into(), verifier);
        }
    }

    /// Forgets all secrets, such as after a change of `auth_file`.
    pub fn clear(&mut self) {
        self.by_user.clear();
    }
}

/// A secret of this process, so that the salt of an unknown user stays the same.
pub(super) type MockSeed = Key;
