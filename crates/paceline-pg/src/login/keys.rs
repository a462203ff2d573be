//! The keys by which clients cancel. Only the key identifies the client.

use std::collections::HashMap;

use subtle::ConstantTimeEq;

/// The key of a client.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ClientKey {
    /// Takes the place of a process number: positive, and unique among clients.
    pub process: i32,
    secret: [u8; MOST],
    length: u8,
}

/// The length of a secret up to protocol 3.0, and since 3.2.
const SHORT: usize = 4;
const MOST: usize = 32;

/// Omits the secret.
impl std::fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut fields = f.debug_struct("ClientKey");
        fields
            .field("process", &self.process)
            .finish_non_exhaustive()
    }
}

impl ClientKey {
    /// The secret that only this client knows.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        &self.secret[..usize::from(self.length)]
    }
}

/// The clients by their keys.
#[derive(Debug)]
pub struct CancelKeys<C> {
    clients: HashMap<i32, (Secret, C)>,
}

/// A secret as it is kept for each client: few speak a protocol that has a long one.
enum Secret {
    Short([u8; SHORT]),
    Long(Box<[u8; MOST]>),
}

impl Secret {
    fn of(key: &ClientKey) -> Self {
        match key.secret().try_into() {
            Ok(short) => Self::Short(short),
            Err(_) => Self::Long(Box::new(key.secret)),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            Self::Short(secret) => secret,
            Self::Long(secret) => &secret[..],
        }
    }
}

/// Omits the secret.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl<C> Default for CancelKeys<C> {
    fn default() -> Self {
        Self {
            clients: HashMap::new(),
        }
    }
}

impl<C: Copy> CancelKeys<C> {
    /// Gives a client its key, of `random` bytes: 4 bytes of secret for protocol 3.0, 32 since
    /// 3.2.
    pub fn add(&mut self, client: C, minor: u16, random: [u8; 36]) -> ClientKey {
        let [a, b, c, d, secret @ ..] = random;
        let mut process = i32::from_be_bytes([a & 0x7f, b, c, d]).max(1);
        while self.clients.contains_key(&process) {
            process = process.checked_add(1).unwrap_or(1);
        }
        let length = if minor >= 2 { MOST } else { SHORT };
        let key = ClientKey {
            process,
            secret,
            length: length as u8,
        };
        self.clients.insert(process, (Secret::of(&key), client));
        key
    }

    /// The client of this key. The time does not depend on where the secret differs.
    #[must_use]
    pub fn find(&self, process: i32, secret: &[u8]) -> Option<C> {
        let (kept, client) = self.clients.get(&process)?;
        bool::from(kept.bytes().ct_eq(secret)).then_some(*client)
    }

    /// Removes the key of a client that has ended, by its number.
    pub fn remove(&mut self, process: i32) {
        self.clients.remove(&process);
    }

    /// How many keys there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A guess of the number alone, or of a part of the secret, must not cancel a stranger's query.
    #[test]
    fn only_the_whole_key_names_a_client() {
        let mut keys = CancelKeys::default();
        let old = keys.add('a', 0, [7; 36]);
        let new = keys.add('b', 2, [7; 36]);
        assert_ne!(old.process, new.process);
        assert_eq!((old.secret().len(), new.secret().len()), (4, 32));
        assert_eq!(keys.find(old.process, &[7; 4]), Some('a'));
        assert_eq!(keys.find(new.process, &[7; 32]), Some('b'));
        assert_eq!(keys.find(new.process, &[7; 4]), None);
        assert_eq!(keys.find(old.process, &[7; 32]), None);
        assert_eq!(keys.find(old.process, &[7, 7, 7, 8]), None);
        keys.remove(old.process);
        assert_eq!((keys.find(old.process, &[7; 4]), keys.len()), (None, 1));
    }

    #[test]
    fn numbers_are_positive_and_never_shared() {
        let mut keys = CancelKeys::default();
        for client in 0..3 {
            let key = keys.add(client, 0, [0xff; 36]);
            assert!(key.process > 0, "{key:?}");
        }
        assert_eq!(keys.add(3, 0, [0; 36]).process, 3);
        assert_eq!(keys.len(), 4);
    }

    /// Thousands of idle clients have an entry each.
    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<(i32, (Secret, u64))>() <= 32);
    }
}
