//! Tests of both logins: they run against each other, and against scripts.

mod both;
mod client;
mod server;

use super::*;
use paceline_pg_wire::{backend::Reply, startup, startup::Version, Message};

/// Settings with this type of authentication.
fn settings(auth_type: AuthType) -> LoginSettings {
    LoginSettings {
        tls: ClientTls::Disabled,
        auth_type,
        scram_iterations: 2,
        rules: StartupRules {
            tracked: vec!["application_name".to_owned()],
            ..StartupRules::default()
        },
        mock_seed: [3; 32],
    }
}

const SEEDS: Seeds = Seeds {
    md5_salt: *b"salt",
    nonce: [7; 18],
    scram_salt: [9; 16],
};

fn tcp() -> ClientLogin {
    ClientLogin::new(Transport::Tcp, SEEDS)
}

fn plain(password: &str) -> StoredPassword {
    StoredPassword::Plain(password.as_bytes().into())
}

fn known(password: StoredPassword) -> Admission {
    Admission::Known {
        password,
        verifier: None,
    }
}

/// The first packet of user `ada` with these further parameters.
fn hello(minor: u16, further: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let user = (&b"user"[..], &b"ada"[..]);
    let further = further.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes()));
    let version = Version { major: 3, minor };
    startup::session(&mut bytes, version, std::iter::once(user).chain(further));
    bytes
}

/// The text of the error that ends `bytes`.
fn error_text(bytes: &[u8]) -> Option<String> {
    let mut rest = bytes;
    while let Ok(Some((message, length))) = Message::first(rest, 1 << 20) {
        if let Ok(Reply::Error(report)) = Reply::read(message) {
            return Some(String::from_utf8_lossy(report.message()).into_owned());
        }
        rest = &rest[length..];
    }
    None
}
