//! The questions to a client that must authenticate, and the checks of its answers.

use std::sync::Arc;

use paceline_pg_wire::{
    auth::{
        md5,
        scram::{Secret, Server, MECHANISM},
    },
    backend::{self, Authentication},
    frontend::{read_password, SaslInitial},
    Message,
};
use subtle::ConstantTimeEq;

use super::{
    super::{
        secrets::{Match, Work},
        terms::{ClientStep, Closing, LoginSettings, Proof},
        Hashing, StoredPassword,
    },
    nonce_text, ClientLogin, Question, State, Waiting, LIMIT, WRONG_PASSWORD,
};

const SASL_FAILED: &str = "SASL authentication failed";

impl ClientLogin {
    pub(super) fn ask_plain(
        &mut self,
        user: String,
        stored: Option<StoredPassword>,
        out: &mut Vec<u8>,
    ) -> ClientStep {
        backend::authentication(out, Authentication::Password);
        self.state = State::Asked(Question::Plain { user, stored });
        ClientStep::More
    }

    pub(super) fn ask_md5(
        &mut self,
        user: &str,
        stored: Option<&StoredPassword>,
        out: &mut Vec<u8>,
    ) -> ClientStep {
        backend::authentication(out, Authentication::Md5(self.seeds.md5_salt));
        let stored = stored.filter(|stored| !stored.is_empty());
        let stored = stored.and_then(|stored| stored.as_md5(user));
        self.state = State::Asked(Question::Md5 { stored });
        ClientStep::More
    }

    pub(super) fn ask_scram(
        &mut self,
        user: &str,
        stored: Option<StoredPassword>,
        verifier: Option<Arc<Secret>>,
        settings: &LoginSettings,
        out: &mut Vec<u8>,
    ) -> ClientStep {
        let iterations = settings.scram_iterations;
        let secret = match (stored, verifier) {
            (Some(StoredPassword::Scram(secret)), _) => secret,
            (Some(StoredPassword::Plain(password)), None) if !password.is_empty() => {
                self.state = State::Hashing(Waiting::Derive);
                return ClientStep::Hash(Hashing(Work::Derive {
                    password,
                    salt: self.seeds.scram_salt,
                    iterations,
                }));
            }
            (Some(StoredPassword::Plain(password)), Some(secret)) if !password.is_empty() => secret,
            // An MD5 hash can't check a proof. The client sees no difference to a wrong password.
            _ => Arc::new(Secret::mock(
                user.as_bytes(),
                &settings.mock_seed,
                iterations,
            )),
        };
        self.begin_scram(secret, out)
    }

    pub(super) fn begin_scram(&mut self, secret: Arc<Secret>, out: &mut Vec<u8>) -> ClientStep {
        backend::sasl(out);
        self.state = State::Asked(Question::ScramFirst { secret });
        ClientStep::More
    }

    pub(super) fn answer(
        &mut self,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(usize, ClientStep), Closing> {
        let message = Message::first(input, LIMIT).map_err(Closing::Malformed)?;
        let Some((message, length)) = message else {
            return Ok((0, ClientStep::More));
        };
        let state = std::mem::replace(&mut self.state, State::Done);
        let State::Asked(question) = state else {
            return Ok((0, ClientStep::More));
        };
        if message.tag != b'p' {
            return Ok((length, self.deny(out, "expected a password response")));
        }
        let step = match question {
            Question::Plain { user, stored } => self.check_plain(message.body, &user, stored, out),
            Question::Md5 { stored } => self.check_md5(message.body, stored.as_deref(), out),
            Question::ScramFirst { secret } => self.continue_scram(message.body, &secret, out),
            Question::ScramLast { server } => self.finish_scram(message.body, server, out),
        };
        Ok((length, step))
    }

    fn check_plain(
        &mut self,
        body: &[u8],
        user: &str,
        stored: Option<StoredPassword>,
        out: &mut Vec<u8>,
    ) -> ClientStep {
        let Ok(given) = read_password(body) else {
            return self.deny(out, "invalid password packet");
        };
        if given.is_empty() {
            return self.deny(out, "empty password returned by client");
        }
        let is_right = match stored {
            Some(StoredPassword::Plain(password)) => password.ct_eq(given).into(),
            Some(StoredPassword::Md5(hash)) => {
                let given = md5::stored(user.as_bytes(), given);
                hash.as_bytes().ct_eq(given.as_bytes()).into()
            }
            Some(StoredPassword::Scram(secret)) => {
                let password = Arc::from(given);
                self.state = State::Hashing(Waiting::Check { password });
                let given = Box::from(given);
                return ClientStep::Hash(Hashing(Work::Check { given, secret }));
            }
            None => false,
        };
        self.conclude(Match::of(is_right), Some(Arc::from(given)), out)
    }

    fn check_md5(&mut self, body: &[u8], stored: Option<&str>, out: &mut Vec<u8>) -> ClientStep {
        let Ok(given) = read_password(body) else {
            return self.deny(out, "invalid password packet");
        };
        if given.is_empty() {
            return self.deny(out, "empty password returned by client");
        }
        let salt = self.seeds.md5_salt;
        let is_right = stored.is_some_and(|stored| md5::is_right(stored, salt, given));
        self.conclude(Match::of(is_right), None, out)
    }

    fn conclude(
        &mut self,
        found: Match,
        password: Option<Arc<[u8]>>,
        out: &mut Vec<u8>,
    ) -> ClientStep {
        match found {
            Match::Right => ClientStep::Proved(Proof {
                keys: None,
                password,
            }),
            Match::Wrong => self.deny(out, WRONG_PASSWORD),
        }
    }

    fn continue_scram(&mut self, body: &[u8], secret: &Secret, out: &mut Vec<u8>) -> ClientStep {
        let Ok(SaslInitial { mechanism, data }) = SaslInitial::read(body) else {
            return self.deny(out, SASL_FAILED);
        };
        if mechanism != MECHANISM.as_bytes() {
            let text = "client selected an invalid SASL authentication mechanism";
            return self.deny(out, text);
        }
        let nonce = nonce_text(&self.seeds.nonce);
        match Server::begin(secret, data.unwrap_or_default(), &nonce) {
            Ok((server, first)) => {
                let first = Authentication::SaslContinue(first.as_bytes());
                backend::authentication(out, first);
                self.state = State::Asked(Question::ScramLast { server });
                ClientStep::More
            }
            Err(_) => self.deny(out, SASL_FAILED),
        }
    }

    fn finish_scram(&mut self, body: &[u8], server: Server, out: &mut Vec<u8>) -> ClientStep {
        match server.finish(body) {
            Ok(success) => {
                let last = Authentication::SaslFinal(success.message.as_bytes());
                backend::authentication(out, last);
                ClientStep::Proved(Proof {
                    keys: Some(success.keys),
                    password: None,
                })
            }
            Err(_) => self.deny(out, SASL_FAILED),
        }
    }
}
