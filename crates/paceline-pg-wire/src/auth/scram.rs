//! SCRAM-SHA-256 (RFC 5802, RFC 7677) as PostgreSQL speaks it: without channel binding, and with
//! the user's name taken from the start of the session.
//!
//! ```text
//!   client                                  server
//!   Client::new            first  ------->  Server::begin
//!   Client::answer  <----- first
//!                          final  ------->  Server::finish
//!   Proved::verify  <----- final
//! ```

mod client;
mod secret;
mod server;

use std::fmt;

use base64::{prelude::BASE64_STANDARD, Engine};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

pub use client::{Client, Credentials, Proved};
pub use secret::{Keys, Secret};
pub use server::{Server, Success};

/// The mechanism.
pub const MECHANISM: &str = "SCRAM-SHA-256";

/// A key, a hash or a proof.
pub type Key = [u8; 32];

/// The most iterations that a client accepts of a server: each costs it time.
pub const MOST_ITERATIONS: u32 = 10_000_000;

/// Why an exchange has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Failure {
    /// The message breaks this rule.
    Malformed(&'static str),
    /// The proof is wrong: the password differs.
    WrongPassword,
    /// The server has not proved that it knows the secret.
    WrongServer,
    /// The server has refused, without a reason that this crate passes on.
    Refused,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(rule) => write!(f, "invalid SCRAM message: {rule}"),
            Self::WrongPassword => f.write_str("the password is wrong"),
            Self::WrongServer => f.write_str("the server does not know the password"),
            Self::Refused => f.write_str("the server has refused the password"),
        }
    }
}

impl std::error::Error for Failure {}

fn hmac(key: &[u8], parts: &[&[u8]]) -> Key {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key may have any length");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn sha256(bytes: &[u8]) -> Key {
    Sha256::digest(bytes).into()
}

fn xor(mut left: Key, right: &Key) -> Key {
    left.iter_mut()
        .zip(right)
        .for_each(|(left, right)| *left ^= right);
    left
}

fn encode(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn decode(text: &str, rule: &'static str) -> Result<Vec<u8>, Failure> {
    BASE64_STANDARD
        .decode(text)
        .map_err(|_| Failure::Malformed(rule))
}

fn decode_key(text: &str, rule: &'static str) -> Result<Key, Failure> {
    let bytes = decode(text, rule)?;
    Key::try_from(bytes.as_slice()).map_err(|_| Failure::Malformed(rule))
}

fn as_text(message: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(message).map_err(|_| Failure::Malformed("it is not UTF-8"))
}

/// The attribute at the start of `rest`, which must have this name, and what follows it.
fn attribute<'m>(
    rest: &'m str,
    name: &str,
    rule: &'static str,
) -> Result<(&'m str, &'m str), Failure> {
    let value = rest
        .strip_prefix(name)
        .and_then(|rest| rest.strip_prefix('='));
    let value = value.ok_or(Failure::Malformed(rule))?;
    Ok(value.split_once(',').unwrap_or((value, "")))
}

/// Whether a nonce has only the characters that it may have.
fn is_nonce(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| (0x21..0x7f).contains(&byte) && byte != b',')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of RFC 7677.
    const CLIENT_NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
    const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
    const SERVER_FIRST: &str = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
    const CLIENT_FINAL: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                                p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
    const SERVER_FINAL: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

    fn secret() -> Secret {
        let salt = decode("W22ZaJ0SNY7soEsUEjb6gQ==", "a salt").expect("base64");
        Secret::of_password(b"pencil", &salt, 4096)
    }

    fn pencil() -> Credentials {
        Credentials::Password(b"pencil".to_vec())
    }

    #[test]
    fn the_client_says_what_the_standard_says() {
        let client = Client::with_user("user", CLIENT_NONCE);
        assert_eq!(client.first(), "n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
        let (proved, last) = client
            .answer(SERVER_FIRST.as_bytes(), &pencil())
            .expect("a proof");
        assert_eq!(last, CLIENT_FINAL);
        assert_eq!(proved.verify(SERVER_FINAL.as_bytes()), Ok(()));
    }

    #[test]
    fn the_server_says_what_the_standard_says() {
        let first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        let (server, answer) = Server::begin(&secret(), first, SERVER_NONCE).expect("a start");
        assert_eq!(answer, SERVER_FIRST);
        let success = server
            .finish(CLIENT_FINAL.as_bytes())
            .expect("the right password");
        assert_eq!(success.message, SERVER_FINAL);
    }

    /// A pooler proves to a server what its client has proved to it, without the password.
    #[test]
    fn what_a_client_has_proved_serves_for_another_server() {
        let client = Client::new("one");
        let (server, first) =
            Server::begin(&secret(), client.first().as_bytes(), "two").expect("a start");
        let (_, last) = client.answer(first.as_bytes(), &pencil()).expect("a proof");
        let keys = server.finish(last.as_bytes()).expect("right").keys;
        let client = Client::new("three");
        let (server, first) =
            Server::begin(&secret(), client.first().as_bytes(), "four").expect("a start");
        let keys = Credentials::Keys(keys);
        let (proved, last) = client.answer(first.as_bytes(), &keys).expect("a proof");
        let success = server.finish(last.as_bytes()).expect("the keys suffice");
        assert_eq!(proved.verify(success.message.as_bytes()), Ok(()));
    }

    #[test]
    fn another_password_is_refused() {
        let client = Client::new("one");
        let (server, first) =
            Server::begin(&secret(), client.first().as_bytes(), "two").expect("a start");
        let wrong = Credentials::Password(b"pencils".to_vec());
        let (_, last) = client.answer(first.as_bytes(), &wrong).expect("a proof");
        assert_eq!(
            server.finish(last.as_bytes()).err(),
            Some(Failure::WrongPassword)
        );
    }

    /// A server in the middle does not know the secret.
    #[test]
    fn a_server_without_the_secret_is_found_out() {
        let client = Client::new("one");
        let (_, first) =
            Server::begin(&secret(), client.first().as_bytes(), "two").expect("a start");
        let (proved, _) = client.answer(first.as_bytes(), &pencil()).expect("a proof");
        let forged = format!("v={}", encode(&[7; 32]));
        assert_eq!(
            proved.clone().verify(forged.as_bytes()),
            Err(Failure::WrongServer)
        );
        assert_eq!(proved.verify(b"e=invalid-proof"), Err(Failure::Refused));
    }

    /// A password in clear text is checked against what is stored of it.
    #[test]
    fn a_secret_knows_its_password() {
        assert!(secret().is_of_password(b"pencil"));
        assert!(!secret().is_of_password(b"pencils") && !secret().is_of_password(b""));
    }

    /// A secret is written as PostgreSQL stores it in `pg_authid`.
    #[test]
    fn a_secret_is_read_as_it_is_written() {
        let text = secret().to_string();
        assert!(
            text.starts_with("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"),
            "{text}"
        );
        assert_eq!(text.parse(), Ok(secret()));
        for bad in [
            "",
            "md5d41d8cd98f00b204e9800998ecf8427e",
            "SCRAM-SHA-256$0:W22Z$AAAA:AAAA",
            "SCRAM-SHA-256$4096:W22Z$AAAA:AAAA",
            "SCRAM-SHA-256$4096:W22Z",
        ] {
            assert!(bad.parse::<Secret>().is_err(), "{bad}");
        }
    }

    /// No first message makes the server panic; it refuses unsupported ones with an error.
    #[test]
    fn first_messages_that_can_not_be_are_refused() {
        for bad in [
            &b""[..],
            b"n,,",
            b"n,,n=user",
            b"n,,n=user,r=",
            b"n,,n=user,r=a b",
            b"n,a=other,n=user,r=abc",
            b"p=tls-server-end-point,,n=user,r=abc",
            b"x,,n=user,r=abc",
            b"n,,m=1,n=user,r=abc",
            b"n,,n=\xff,r=abc",
        ] {
            assert!(Server::begin(&secret(), bad, "two").is_err(), "{bad:?}");
        }
    }

    /// The nonce shows that the answer is not an older one, and the flag that no peer on the way
    /// has changed it.
    #[test]
    fn last_messages_that_can_not_be_are_refused() {
        let proof = encode(&[0; 32]);
        for bad in [
            String::new(),
            format!("c=biws,r=other,p={proof}"),
            format!("c=eSws,r=onetwo,p={proof}"),
            format!("r=onetwo,c=biws,p={proof}"),
            "c=biws,r=onetwo".to_owned(),
            "c=biws,r=onetwo,p=AAAA".to_owned(),
            format!("c=biws,r=onetwo,p={proof},x=1"),
        ] {
            let (server, _) = Server::begin(&secret(), b"n,,n=,r=one", "two").expect("a start");
            let refused = server.finish(bad.as_bytes());
            assert!(matches!(refused, Err(Failure::Malformed(_))), "{bad}");
        }
    }

    /// A hostile server must not make a client compute for hours, or prove itself to a nonce that
    /// it has not chosen.
    #[test]
    fn a_client_refuses_a_hostile_server() {
        for bad in [
            "r=other,s=AAAA,i=4096",
            "r=one,s=AAAA,i=4096",
            "r=onetwo,s=AAAA,i=0",
            "r=onetwo,s=AAAA,i=4294967295",
            "r=onetwo,s=,i=4096",
            "r=onetwo,s=!,i=4096",
            "m=x,r=onetwo,s=AAAA,i=4096",
            "",
        ] {
            let refused = Client::new("one").answer(bad.as_bytes(), &pencil());
            assert!(matches!(refused, Err(Failure::Malformed(_))), "{bad}");
        }
    }
}
