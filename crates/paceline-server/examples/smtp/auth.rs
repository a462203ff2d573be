//! AUTH PLAIN and LOGIN (RFC 4954), step by step.

use std::collections::HashMap;

use base64::{engine::general_purpose::STANDARD, Engine};

use crate::command::Reply;

/// The users, and their passwords.
#[derive(Default)]
pub(crate) struct Users(HashMap<String, String>);

impl Users {
    pub(crate) fn add(&mut self, name: &str, password: &str) {
        self.0.insert(name.to_owned(), password.to_owned());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The name of the user, if the password is right. Equal work for each byte, whether or not it
    /// differs, so that the time shows nothing of the password.
    fn check(&self, name: &[u8], password: &[u8]) -> Option<String> {
        let name = std::str::from_utf8(name).ok()?;
        let known = self.0.get(name)?.as_bytes();
        let pairs = known.iter().zip(password);
        let differences = pairs.fold(0, |all, (one, other)| all | (one ^ other));
        (differences == 0 && known.len() == password.len()).then(|| name.to_owned())
    }
}

/// What the server waits for.
#[derive(Debug)]
pub(crate) enum Step {
    /// The one response of PLAIN.
    Plain,
    /// The user name of LOGIN.
    Name,
    /// The password of this user, of LOGIN.
    Password(Vec<u8>),
}

/// What follows from a response.
pub(crate) enum Progress {
    /// The challenge, in base64; then this step.
    Ask(&'static str, Step),
    /// This user has logged in.
    Passed(String),
    /// The user or the password is wrong.
    Failed,
    /// The exchange is no proper one.
    Refused(Reply),
}

/// `Username:` and `Password:`, as clients of LOGIN expect them.
const ASK_NAME: &str = "VXNlcm5hbWU6";
const ASK_PASSWORD: &str = "UGFzc3dvcmQ6";

/// Begins an exchange, with the response that came along.
pub(crate) fn begin(users: &Users, mechanism: &str, first: Option<&str>) -> Progress {
    let (challenge, step) = match mechanism {
        "PLAIN" => ("", Step::Plain),
        "LOGIN" => (ASK_NAME, Step::Name),
        other => {
            let text = format!("mechanism {other} is not offered");
            return Progress::Refused(Reply::new(504, text));
        }
    };
    match first {
        None => Progress::Ask(challenge, step),
        // RFC 4954, 4: a response of no bytes.
        Some("=") => go_on(users, step, b""),
        Some(response) => go_on(users, step, response.as_bytes()),
    }
}

/// The client has responded.
pub(crate) fn go_on(users: &Users, step: Step, response: &[u8]) -> Progress {
    if response == b"*" {
        return Progress::Refused(Reply::new(501, "cancelled"));
    }
    let Ok(response) = STANDARD.decode(response) else {
        return Progress::Refused(Reply::new(501, "the response is not in base64"));
    };
    match step {
        Step::Plain => plain(users, &response),
        Step::Name => Progress::Ask(ASK_PASSWORD, Step::Password(response)),
        Step::Password(name) => result(users.check(&name, &response)),
    }
}

/// `authorization NUL authentication NUL password`: the first one may be empty.
fn plain(users: &Users, response: &[u8]) -> Progress {
    let mut parts = response.split(|byte| *byte == 0);
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(whose), Some(name), Some(password), None) if whose.is_empty() || whose == name => {
            result(users.check(name, password))
        }
        (Some(_), Some(_), Some(_), None) => Progress::Failed,
        _ => Progress::Refused(Reply::new(501, "the response has not three parts")),
    }
}

fn result(user: Option<String>) -> Progress {
    user.map_or(Progress::Failed, Progress::Passed)
}
