//! The client's side.

use subtle::ConstantTimeEq;

use super::{
    as_text, attribute, decode, decode_key, encode, hmac, is_nonce, secret::Keys, sha256, xor,
    Failure, Key, MOST_ITERATIONS,
};

/// A client after its first message.
#[derive(Clone, Debug)]
pub struct Client {
    nonce: String,
    /// Its first message without the flag of channel binding.
    bare: String,
}

/// The credentials of a client.
#[derive(Clone)]
pub enum Credentials {
    /// The password. A proof takes as long as the server's iterations: milliseconds.
    Password(Vec<u8>),
    /// The keys behind the server's salt.
    Keys(Keys),
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Password(_) => "Password(..)",
            Self::Keys(_) => "Keys(..)",
        })
    }
}

/// A client that has sent its proof, and waits for the server's.
#[derive(Clone, Debug)]
pub struct Proved {
    signature: Key,
}

const FLAG: &str = "n,,";

impl Client {
    /// A client of a PostgreSQL server, which knows the user already. `nonce` is random, and was
    /// never used before; it has printable characters without a comma.
    #[must_use]
    pub fn new(nonce: &str) -> Self {
        Self::with_user("", nonce)
    }

    /// A client that names its user, as other servers want it.
    #[must_use]
    pub(super) fn with_user(user: &str, nonce: &str) -> Self {
        Self {
            nonce: nonce.to_owned(),
            bare: format!("n={user},r={nonce}"),
        }
    }

    /// The client's first message.
    #[must_use]
    pub fn first(&self) -> String {
        format!("{FLAG}{}", self.bare)
    }

    /// Reads the server's first message, and gives the client's last one.
    ///
    /// # Errors
    /// [`Failure::Malformed`] if the message is none, or the server has not continued the nonce of
    /// this client.
    pub fn answer(
        &self,
        first: &[u8],
        credentials: &Credentials,
    ) -> Result<(Proved, String), Failure> {
        let first = as_text(first)?;
        let (nonce, rest) = attribute(first, "r", "the nonce is missing")?;
        let server = nonce.strip_prefix(self.nonce.as_str());
        if !server.is_some_and(is_nonce) {
            return Err(Failure::Malformed("the server has not continued the nonce"));
        }
        let (salt, rest) = attribute(rest, "s", "the salt is missing")?;
        let salt = decode(salt, "the salt is not base64")?;
        if salt.is_empty() {
            return Err(Failure::Malformed("the salt is empty"));
        }
        let (iterations, _extensions) = attribute(rest, "i", "the iterations are missing")?;
        let iterations = iterations.parse().ok();
        let iterations = iterations
            .filter(|count| (1..=MOST_ITERATIONS).contains(count))
            .ok_or(Failure::Malformed("the number of iterations can't be"))?;
        let keys = match credentials {
            Credentials::Password(password) => Keys::of_password(password, &salt, iterations),
            Credentials::Keys(keys) => keys.clone(),
        };
        let binding = encode(FLAG.as_bytes());
        let without_proof = format!("c={binding},r={nonce}");
        let said = [&self.bare, ",", first, ",", &without_proof].map(str::as_bytes);
        let proof = xor(keys.client_key, &hmac(&sha256(&keys.client_key), &said));
        let proved = Proved {
            signature: hmac(&keys.server_key, &said),
        };
        Ok((proved, format!("{without_proof},p={}", encode(&proof))))
    }
}

impl Proved {
    /// Reads the server's last message.
    ///
    /// # Errors
    /// [`Failure::WrongServer`] if the server does not know the secret; [`Failure::Refused`] if it
    /// says that the proof is wrong; [`Failure::Malformed`] if the message is none.
    pub fn verify(self, last: &[u8]) -> Result<(), Failure> {
        let last = as_text(last)?;
        if last.starts_with("e=") {
            return Err(Failure::Refused);
        }
        let (signature, _extensions) = attribute(last, "v", "the server's signature is missing")?;
        let signature = decode_key(signature, "the signature is not 32 bytes in base64")?;
        if bool::from(signature.ct_eq(&self.signature)) {
            Ok(())
        } else {
            Err(Failure::WrongServer)
        }
    }
}
