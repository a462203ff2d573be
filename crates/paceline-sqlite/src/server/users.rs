//! Users, and what the server stores of their passwords.

use std::collections::HashMap;

use paceline_pg_wire::auth::scram;

use crate::store::random;

/// The users; without any, every client is trusted.
#[derive(Debug, Default)]
pub(super) struct Users(HashMap<String, String>);

/// What the server stores of a password.
pub(crate) enum Stored {
    Md5(String),
    Scram(scram::Secret),
}

const ITERATIONS: u32 = 4_096;

impl Users {
    pub(super) fn add(&mut self, name: String, secret: String) {
        self.0.insert(name, secret);
    }

    /// The names of all users, in order.
    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<_> = self.0.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Makes verifiers of passwords, once.
    pub(super) fn verify_by_scram(&mut self) -> std::io::Result<()> {
        for secret in self.0.values_mut() {
            let is_stored = secret.starts_with("md5") && secret.len() == 35
                || secret.parse::<scram::Secret>().is_ok();
            if !is_stored {
                let salt = random()?;
                *secret =
                    scram::Secret::of_password(secret.as_bytes(), &salt, ITERATIONS).to_string();
            }
        }
        Ok(())
    }

    /// What is stored of a user's password. For a user that does not exist it is a secret that no
    /// password fits, so that a client can't find out which users exist.
    pub(super) fn stored(&self, name: &str, seed: &[u8; 32]) -> Option<Stored> {
        if self.is_empty() {
            return None;
        }
        let mock = || Stored::Scram(scram::Secret::mock(name.as_bytes(), seed, ITERATIONS));
        Some(match self.0.get(name) {
            Some(md5) if md5.starts_with("md5") => Stored::Md5(md5.clone()),
            Some(secret) => secret.parse().map_or_else(|_| mock(), Stored::Scram),
            None => mock(),
        })
    }
}
