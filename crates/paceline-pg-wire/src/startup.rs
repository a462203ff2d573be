//! The packets before the first message: the start of a session, and what may come in its place.

use crate::{fields::Fields, write, Malformed};

/// The longest packet that a client may begin with.
pub const LIMIT: usize = 10_000;

const SSL: i32 = 80_877_103;
const GSS_ENCRYPTION: i32 = 80_877_104;
const CANCEL: i32 = 80_877_102;

/// The first byte of a TLS handshake.
const TLS_HANDSHAKE: u8 = 0x16;

/// The first packet of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Startup<'b> {
    /// A TLS handshake without a question before it. It takes no bytes: they belong to TLS.
    Tls,
    /// The client asks for TLS: the server answers `S` or `N`.
    AskTls,
    /// The client asks for GSSAPI encryption: the server answers `G` or `N`.
    AskGss,
    /// A request to cancel the query of another session. The server does not answer.
    Cancel(CancelKey<'b>),
    /// A session.
    Session(Session<'b>),
}

/// The key of the session to cancel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelKey<'b> {
    /// The number of the server's process.
    pub process: i32,
    /// 4 to 256 bytes that only the session's client knows.
    pub secret: &'b [u8],
}

/// The start of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Session<'b> {
    /// The version of the protocol.
    pub version: Version,
    /// The names and values that the client asks for.
    pub parameters: Parameters<'b>,
}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Three, since 2003.
    pub major: u16,
    /// 0, or 2 since PostgreSQL 18.
    pub minor: u16,
}

/// The names and values of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters<'b>(&'b [u8]);

impl<'b> Startup<'b> {
    /// The packet at the start of `input`, and its length; `None` if it is not whole.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no first packet. A server then closes the connection.
    pub fn first(input: &'b [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        if input.first() == Some(&TLS_HANDSHAKE) {
            return Ok(Some((Self::Tls, 0)));
        }
        let Some((length, _)) = input.split_first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(i32::from_be_bytes(*length)).unwrap_or(0);
        if !(8..=LIMIT).contains(&length) {
            return Err(Malformed::new(
                "the length of a first packet is not 8 to 10,000",
            ));
        }
        match input.get(4..length) {
            Some(body) => Self::read(body).map(|startup| Some((startup, length))),
            None => Ok(None),
        }
    }

    fn read(body: &'b [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(body);
        match fields.i32()? {
            SSL => fields.end().map(|()| Self::AskTls),
            GSS_ENCRYPTION => fields.end().map(|()| Self::AskGss),
            CANCEL => CancelKey::read(fields).map(Self::Cancel),
            code => {
                let [a, b, c, d] = code.to_be_bytes();
                let version = Version {
                    major: u16::from_be_bytes([a, b]),
                    minor: u16::from_be_bytes([c, d]),
                };
                let parameters = Parameters::read(version, fields)?;
                Ok(Self::Session(Session {
                    version,
                    parameters,
                }))
            }
        }
    }
}

impl<'b> CancelKey<'b> {
    fn read(mut fields: Fields<'b>) -> Result<Self, Malformed> {
        let process = fields.i32()?;
        let secret = fields.rest();
        if (4..=256).contains(&secret.len()) {
            Ok(Self { process, secret })
        } else {
            Err(Malformed::new(
                "the secret of a cancel key has not 4 to 256 bytes",
            ))
        }
    }
}

impl<'b> Parameters<'b> {
    /// Checks the parameters of the versions that this crate knows.
    fn read(version: Version, mut fields: Fields<'b>) -> Result<Self, Malformed> {
        let all = fields.rest();
        if version.major != 3 {
            return Ok(Self(&[]));
        }
        let mut rest = Fields::new(all);
        loop {
            let name = rest.text()?;
            if name.is_empty() {
                rest.end()?;
                return Ok(Self(all));
            }
            rest.text()?;
        }
    }

    /// Each name with its value, in the order of the client.
    pub fn iter(&self) -> impl Iterator<Item = (&'b [u8], &'b [u8])> + 'b {
        let mut fields = Fields::new(self.0);
        // `read` has checked each of them.
        std::iter::from_fn(move || {
            let name = fields.text().ok().filter(|name| !name.is_empty())?;
            Some((name, fields.text().ok()?))
        })
    }

    /// The value of this name: the last one, if the client gives several.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'b [u8]> {
        let given = self.iter().filter(|(given, _)| *given == name.as_bytes());
        given.last().map(|(_, value)| value)
    }
}

/// Appends a request for TLS.
pub fn ask_tls(output: &mut Vec<u8>) {
    write::packet(output, |body| body.extend_from_slice(&SSL.to_be_bytes()));
}

/// Appends a request to cancel the query of a session.
pub fn cancel(output: &mut Vec<u8>, key: CancelKey<'_>) {
    write::packet(output, |body| {
        body.extend_from_slice(&CANCEL.to_be_bytes());
        body.extend_from_slice(&key.process.to_be_bytes());
        body.extend_from_slice(key.secret);
    });
}

/// Appends the start of a session. It omits parameters with an empty name, because that would end
/// the list.
pub fn session<'p>(
    output: &mut Vec<u8>,
    version: Version,
    parameters: impl IntoIterator<Item = (&'p [u8], &'p [u8])>,
) {
    write::packet(output, |body| {
        body.extend_from_slice(&version.major.to_be_bytes());
        body.extend_from_slice(&version.minor.to_be_bytes());
        for (name, value) in parameters {
            if name.first().is_some_and(|byte| *byte != 0) {
                write::text(body, name);
                write::text(body, value);
            }
        }
        body.push(0);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    const V3: Version = Version { major: 3, minor: 0 };

    /// A server that trusts the length of an unknown peer would keep 2 GiB, or read behind the end.
    #[test]
    fn only_lengths_that_can_be_are_waited_for() {
        for length in [0_u32, 7, 10_001, 0x7fff_ffff, 0xffff_ffff] {
            assert!(Startup::first(&length.to_be_bytes()).is_err(), "{length}");
        }
        assert_eq!(Startup::first(&8_u32.to_be_bytes()), Ok(None));
        assert_eq!(Startup::first(b""), Ok(None));
    }

    #[test]
    fn questions_and_cancels_are_read() {
        let mut bytes = Vec::new();
        ask_tls(&mut bytes);
        assert_eq!(Startup::first(&bytes), Ok(Some((Startup::AskTls, 8))));
        assert_eq!(Startup::first(b"\x16\x03\x01"), Ok(Some((Startup::Tls, 0))));
        let key = CancelKey {
            process: 77,
            secret: b"a secret of 3.2",
        };
        let mut bytes = Vec::new();
        cancel(&mut bytes, key);
        let length = bytes.len();
        assert_eq!(
            Startup::first(&bytes),
            Ok(Some((Startup::Cancel(key), length)))
        );
    }

    #[test]
    fn a_session_has_its_parameters() {
        let mut bytes = Vec::new();
        let given: [(&[u8], &[u8]); 3] = [(b"user", b"ada"), (b"database", b""), (b"user", b"bo")];
        session(&mut bytes, V3, given);
        bytes.extend_from_slice(b"next");
        let (startup, length) = Startup::first(&bytes).expect("good").expect("whole");
        let Startup::Session(session) = startup else {
            unreachable!("it is a session");
        };
        assert_eq!((session.version, length), (V3, bytes.len() - 4));
        assert_eq!(session.parameters.iter().collect::<Vec<_>>(), given);
        assert_eq!(session.parameters.get("user"), Some(&b"bo"[..]));
        assert_eq!(session.parameters.get("options"), None);
    }

    /// Parameters without an end, and bytes behind the end, are errors. Parameters of an unknown
    /// version are not checked.
    #[test]
    fn parameters_end_with_the_packet() {
        for body in [
            &b"user\0ada\0"[..],
            b"user\0ada",
            b"user\0",
            b"",
            b"user\0ada\0\0x",
        ] {
            let mut bytes = Vec::new();
            write::packet(&mut bytes, |packet| {
                packet.extend_from_slice(&[0, 3, 0, 0]);
                packet.extend_from_slice(body);
            });
            assert!(Startup::first(&bytes).is_err(), "{body:?}");
        }
        let old = [0, 0, 0, 8, 0, 2, 0, 0];
        assert!(matches!(
            Startup::first(&old),
            Ok(Some((Startup::Session(_), 8)))
        ));
    }
}
