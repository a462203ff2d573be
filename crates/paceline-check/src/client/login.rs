//! The start of a session: parameters, and the user's authentication.

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
};

use paceline_pg_wire::{
    auth::{
        md5,
        scram::{self, Credentials, Proved},
    },
    backend::{Authentication, Reply},
    frontend,
    startup::{self, Version},
    TransactionStatus,
};

use super::{Failure, ServerError, Session, Target};

/// What the server reports as the name of the program.
const PROGRAM: &[u8] = b"paceline check";

/// How far the proof is.
enum Proof {
    /// The server has not asked for a step of SCRAM.
    None,
    /// The client has sent its nonce.
    Begun(scram::Client),
    /// The client has sent its proof, and the server owes its own.
    Sent(Proved),
    /// The server has proved itself.
    Complete,
}

/// Sends the start of a session, and answers until the server is ready.
pub(super) fn log_in(session: &mut Session, target: &Target) -> Result<(), Failure> {
    startup::session(
        &mut session.output,
        Version { major: 3, minor: 0 },
        [
            (&b"user"[..], target.user.as_bytes()),
            (b"database", target.database.as_bytes()),
            (b"application_name", PROGRAM),
            (b"client_encoding", b"UTF8"),
        ],
    );
    session.send("sending the start of a session")?;
    let mut proof = Proof::None;
    loop {
        let mut output = Vec::new();
        match session.receive("waiting for the login")? {
            Reply::Authentication(wish) => {
                proof = answered(proof, wish, target, &mut output)?;
            }
            Reply::Error(report) => return Err(Failure::of_server(ServerError::new(&report))),
            Reply::Ready(status) => return ready(session, status),
            _ => {}
        }
        session.output = output;
        session.send("sending a proof of the password")?;
    }
}

fn ready(session: &mut Session, status: TransactionStatus) -> Result<(), Failure> {
    session.status = status;
    Ok(())
}

/// Appends the answer to a wish of the server, and gives how far the proof is then.
fn answered(
    proof: Proof,
    wish: Authentication<'_>,
    target: &Target,
    output: &mut Vec<u8>,
) -> Result<Proof, Failure> {
    match (wish, proof) {
        (Authentication::Ok, Proof::Begun(_) | Proof::Sent(_)) => Err(Failure::Protocol(
            "the server has not proved that it knows the password".to_owned(),
        )),
        (Authentication::Ok, proof) => Ok(proof),
        (Authentication::Password, proof) => {
            frontend::password(output, password(target)?.as_bytes());
            Ok(proof)
        }
        (Authentication::Md5(salt), proof) => {
            let stored = md5::stored(target.user.as_bytes(), password(target)?.as_bytes());
            let response = md5::response(&stored, salt).unwrap_or_default();
            frontend::password(output, response.as_bytes());
            Ok(proof)
        }
        (Authentication::Sasl(mechanisms), Proof::None)
            if mechanisms
                .iter()
                .any(|name| name == scram::MECHANISM.as_bytes()) =>
        {
            let client = scram::Client::new(&nonce());
            let first = client.first();
            frontend::sasl_initial(output, scram::MECHANISM.as_bytes(), first.as_bytes());
            Ok(Proof::Begun(client))
        }
        (Authentication::SaslContinue(data), Proof::Begun(client)) => {
            let secret = Credentials::Password(password(target)?.as_bytes().to_vec());
            let (proved, last) = client.answer(data, &secret).map_err(scram_failure)?;
            frontend::sasl_response(output, last.as_bytes());
            Ok(Proof::Sent(proved))
        }
        (Authentication::SaslFinal(data), Proof::Sent(proved)) => {
            proved.verify(data).map_err(scram_failure)?;
            Ok(Proof::Complete)
        }
        (other, _) => Err(Failure::Protocol(format!(
            "the server wants a proof that this client can't give: {other:?}"
        ))),
    }
}

fn scram_failure(failure: scram::Failure) -> Failure {
    Failure::Protocol(format!("SCRAM: {failure}"))
}

fn password(target: &Target) -> Result<&str, Failure> {
    let password = target.password.as_deref();
    password.ok_or_else(|| {
        Failure::Protocol(format!("{target} asks for a password, and none is given"))
    })
}

/// A text that no other login has used: the standard library seeds each `RandomState` anew.
fn nonce() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}
