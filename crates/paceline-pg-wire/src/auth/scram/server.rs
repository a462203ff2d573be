//! The server's side.

use subtle::ConstantTimeEq;

use super::{
    as_text, attribute, decode_key, encode, hmac, is_nonce, secret::Keys, sha256, xor, Failure,
    Secret,
};

/// A server that waits for the proof of its client.
#[derive(Debug)]
pub struct Server {
    secret: Secret,
    /// The start of the client's first message: its flag of channel binding.
    flag: &'static str,
    nonce: String,
    /// The messages so far, which the proof covers.
    said: String,
}

/// The client knows the password.
#[derive(Debug)]
pub struct Success {
    /// The server's last message, which proves that it knows the secret.
    pub message: String,
    /// The keys that authenticate the client at other servers with the same secret.
    pub keys: Keys,
}

impl Server {
    /// Reads the client's first message. `nonce` is random, and was never used before; it has
    /// printable characters without a comma.
    ///
    /// # Errors
    /// [`Failure::Malformed`] if the message is none, or asks for channel binding.
    pub fn begin(secret: &Secret, first: &[u8], nonce: &str) -> Result<(Self, String), Failure> {
        let first = as_text(first)?;
        let (flag, bare) = split_flag(first)?;
        let (_user, rest) = attribute(bare, "n", "the user's name is missing")?;
        let (client, _extensions) = attribute(rest, "r", "the client's nonce is missing")?;
        if !is_nonce(client) {
            return Err(Failure::Malformed(
                "the client's nonce has other characters",
            ));
        }
        let nonce = format!("{client}{nonce}");
        let salt = encode(&secret.salt);
        let answer = format!("r={nonce},s={salt},i={}", secret.iterations);
        let server = Self {
            secret: secret.clone(),
            flag,
            said: format!("{bare},{answer}"),
            nonce,
        };
        Ok((server, answer))
    }

    /// Reads the client's last message.
    ///
    /// # Errors
    /// [`Failure::WrongPassword`] if the proof is wrong; [`Failure::Malformed`] if the message is
    /// none.
    pub fn finish(self, last: &[u8]) -> Result<Success, Failure> {
        let last = as_text(last)?;
        let (without_proof, proof) = last
            .rsplit_once(",p=")
            .ok_or(Failure::Malformed("the proof is missing"))?;
        let (binding, rest) = attribute(without_proof, "c", "the channel binding is missing")?;
        if binding != encode(self.flag.as_bytes()) {
            return Err(Failure::Malformed("the channel binding is another one"));
        }
        let (nonce, _extensions) = attribute(rest, "r", "the nonce is missing")?;
        if nonce != self.nonce {
            return Err(Failure::Malformed("the nonce is another one"));
        }
        let proof = decode_key(proof, "the proof is not 32 bytes in base64")?;
        let said = [self.said.as_bytes(), b",", without_proof.as_bytes()];
        let client_key = xor(proof, &hmac(&self.secret.stored_key, &said));
        let is_right = sha256(&client_key).ct_eq(&self.secret.stored_key);
        if !bool::from(is_right) {
            return Err(Failure::WrongPassword);
        }
        let server_key = self.secret.server_key;
        Ok(Success {
            message: format!("v={}", encode(&hmac(&server_key, &said))),
            keys: Keys {
                client_key,
                server_key,
            },
        })
    }
}

/// The flag of channel binding at the start of a first message, and the rest.
fn split_flag(first: &str) -> Result<(&'static str, &str), Failure> {
    for flag in ["n,,", "y,,"] {
        if let Some(bare) = first.strip_prefix(flag) {
            return Ok((flag, bare));
        }
    }
    Err(Failure::Malformed(
        "it asks for channel binding, or for another user",
    ))
}
