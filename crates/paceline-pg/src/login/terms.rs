//! The arguments and the results of client logins.

use std::{fmt, sync::Arc};

use paceline_pg_wire::{
    auth::scram::{Keys, Secret},
    Malformed,
};

use super::{secrets::MockSeed, Hashing, SessionRequest, StartupRules, StoredPassword};
#[cfg(doc)]
use super::{ClientLogin, Hashed};

/// How clients authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthType {
    /// Not at all, and the user's name does not matter.
    Any,
    /// Not at all; the user must be known.
    Trust,
    /// By the password in clear text.
    Plain,
    /// By MD5, or by SCRAM if a SCRAM secret is stored.
    Md5,
    /// By SCRAM-SHA-256.
    Scram,
}

/// Whether clients may, or must, use TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientTls {
    /// Clients can't use TLS.
    Disabled,
    /// Clients may use TLS.
    Allowed,
    /// Clients must use TLS, except on a Unix socket.
    Required,
}

/// How a client has reached the front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// By TCP.
    Tcp,
    /// By a Unix socket: there is no TLS.
    Unix,
}

/// The settings of all logins.
#[derive(Clone)]
pub struct LoginSettings {
    /// Whether clients may use TLS.
    pub tls: ClientTls,
    /// How clients authenticate.
    pub auth_type: AuthType,
    /// The iterations of SCRAM for plain passwords and unknown users.
    pub scram_iterations: u32,
    /// Which parameters a client may give.
    pub rules: StartupRules,
    /// A secret of this process, so that the salt of an unknown user stays the same.
    pub mock_seed: MockSeed,
}

/// Omits the seed.
impl fmt::Debug for LoginSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("LoginSettings");
        fields
            .field("tls", &self.tls)
            .field("auth_type", &self.auth_type);
        fields.field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// Random bytes for one login.
#[derive(Clone, Copy)]
pub struct Seeds {
    /// The salt of MD5.
    pub md5_salt: [u8; 4],
    /// The server's part of the nonce of SCRAM.
    pub nonce: [u8; 18],
    /// The salt of a secret that is derived of a plain password.
    pub scram_salt: [u8; 16],
}

impl fmt::Debug for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seeds(..)")
    }
}

/// The caller's knowledge of the user, in answer to [`ClientStep::Start`].
#[derive(Clone, Debug)]
pub enum Admission {
    /// The user has this password. `verifier`: the secret derived of a plain one, if it is known.
    Known {
        /// The password.
        password: StoredPassword,
        /// What [`Hashed::derived`] gave for it earlier.
        verifier: Option<Arc<Secret>>,
    },
    /// The user does not exist. The replies do not show this to the client.
    Unknown,
    /// The client is known without a proof.
    Trusted,
}

/// The caller's next step, after it has sent the output.
#[derive(Debug)]
#[must_use]
pub enum ClientStep {
    /// Read further.
    More,
    /// Send, then begin the handshake of TLS; then call [`ClientLogin::tls_started`].
    StartTls,
    /// The client began with TLS: it must agree on the protocol `postgresql` (ALPN).
    StartDirectTls,
    /// Cancel the query of this client, and close without a reply.
    Cancel {
        /// In place of the number of a process.
        process: i32,
        /// The secret of the key.
        secret: Vec<u8>,
    },
    /// Check limits, find database and user, and call [`ClientLogin::admit`].
    Start(Box<SessionRequest>),
    /// Run this when another thread leads, and call [`ClientLogin::hashed`].
    Hash(Hashing),
    /// The client is authenticated. Next is the pool's welcome.
    Proved(Proof),
    /// Send the error that was appended, and close.
    Refused(Denied),
    /// Close without a reply.
    Close(Closing),
}

/// The consumed input, and the next step.
#[derive(Debug)]
#[must_use]
pub struct Fed {
    /// The first bytes of the input, which the caller drops.
    pub consumed: usize,
    /// The caller's next step.
    pub step: ClientStep,
}

/// The credentials of an authenticated client.
#[derive(Clone, Debug, Default)]
pub struct Proof {
    /// Keys that prove the same to servers with the same secret.
    pub keys: Option<Keys>,
    /// The password itself, if the client has sent it.
    pub password: Option<Arc<[u8]>>,
}

/// An error that the client was sent. Its text is the reason in the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied(pub String);

/// Why a connection is closed without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// The bytes are no valid first packet.
    Malformed(Malformed),
    /// Bytes follow a question about encryption: another peer may have injected them.
    BytesBehindQuestion,
    /// A question about encryption within TLS, or a second time.
    RepeatedQuestion,
    /// A TLS handshake without a question, where TLS is off or was asked for before.
    UnexpectedTls,
}

impl fmt::Display for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(why) => write!(f, "bad packet: {}", why.rule()),
            Self::BytesBehindQuestion => f.write_str("data behind an encryption request"),
            Self::RepeatedQuestion => f.write_str("encryption request repeated or inside TLS"),
            Self::UnexpectedTls => f.write_str("TLS without a request, where it is not allowed"),
        }
    }
}
