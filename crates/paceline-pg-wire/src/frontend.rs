//! What a client sends.

mod build;

use crate::{
    fields::{Fields, Formats, Integers, Values},
    write, Malformed, Message,
};

pub use build::{
    bind, close, copy_data, copy_done, copy_fail, describe, execute, flush, parse,
    parse_definition, password, query, sasl_initial, sasl_response, sync, terminate,
};

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request<'b> {
    /// Runs a text of SQL, which may hold several statements.
    Query(&'b [u8]),
    /// Prepares a statement.
    Parse(Parse<'b>),
    /// Makes a portal of a statement and values.
    Bind(Bind<'b>),
    /// Asks what a statement or portal returns.
    Describe(Target<'b>),
    /// Closes a statement or portal.
    Close(Target<'b>),
    /// Runs a portal.
    Execute {
        /// The portal.
        portal: &'b [u8],
        /// At most so many rows; zero: all.
        rows: i32,
    },
    /// Sends what the server has, without an end of the requests so far.
    Flush,
    /// Ends the requests so far: the server answers with its transaction status.
    Sync,
    /// Calls a function of the server.
    FunctionCall,
    /// A piece of data to be copied in.
    CopyData(&'b [u8]),
    /// All data are sent.
    CopyDone,
    /// The copying fails on the client's side, with this reason.
    CopyFail(&'b [u8]),
    /// A password, or a step of SASL or GSSAPI: which one, only the conversation says.
    Authenticate(&'b [u8]),
    /// The session ends.
    Terminate,
}

/// Prepares a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parse<'b> {
    /// Its name; empty for the one without a name.
    pub statement: &'b [u8],
    /// The text.
    pub query: &'b [u8],
    /// The types of its parameters, as far as the client gives them; zero: not given.
    pub types: Integers<'b>,
    /// Everything behind the name.
    tail: &'b [u8],
}

/// Makes a portal of a statement and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bind<'b> {
    /// The portal; empty for the one without a name.
    pub portal: &'b [u8],
    /// The statement.
    pub statement: &'b [u8],
    /// How the values are written.
    pub formats: Formats<'b>,
    /// The values.
    pub values: Values<'b>,
    /// How the results are to be written.
    pub results: Formats<'b>,
    /// Everything behind the names.
    tail: &'b [u8],
}

/// A statement or a portal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'b> {
    /// The statement of this name.
    Statement(&'b [u8]),
    /// The portal of this name.
    Portal(&'b [u8]),
}

impl<'b> Request<'b> {
    /// Reads a message of a client.
    ///
    /// # Errors
    /// [`Malformed`] if the message is none of a client's.
    pub fn read(message: Message<'b>) -> Result<Self, Malformed> {
        let mut fields = Fields::new(message.body);
        let request = match message.tag {
            b'Q' => Self::Query(fields.text()?),
            b'P' => Self::Parse(Parse::read(&mut fields)?),
            b'B' => Self::Bind(Bind::read(&mut fields)?),
            b'D' => Self::Describe(Target::read(&mut fields)?),
            b'C' => Self::Close(Target::read(&mut fields)?),
            b'E' => Self::Execute {
                portal: fields.text()?,
                rows: fields.i32()?,
            },
            b'H' => Self::Flush,
            b'S' => Self::Sync,
            b'F' => {
                fields.rest();
                Self::FunctionCall
            }
            b'd' => Self::CopyData(fields.rest()),
            b'c' => Self::CopyDone,
            b'f' => Self::CopyFail(fields.text()?),
            b'p' => Self::Authenticate(fields.rest()),
            b'X' => Self::Terminate,
            _ => return Err(Malformed::new("no client sends a message of this type")),
        };
        fields.end().map(|()| request)
    }
}

impl<'b> Parse<'b> {
    /// Reads a Parse.
    ///
    /// # Errors
    /// [`Malformed`] if it is none.
    pub fn of(message: Message<'b>) -> Result<Self, Malformed> {
        match Request::read(message)? {
            Request::Parse(parse) => Ok(parse),
            _ => Err(Malformed::new("another message than a Parse")),
        }
    }

    fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let statement = fields.text()?;
        let tail = fields.clone().rest();
        Ok(Self {
            statement,
            query: fields.text()?,
            types: Integers::read(fields)?,
            tail,
        })
    }

    /// Text and types of the statement, as bytes: equal for statements that differ in the name
    /// alone.
    #[must_use]
    pub fn definition(&self) -> &'b [u8] {
        self.tail
    }

    /// Appends the message with another name for the statement.
    pub fn renamed(&self, output: &mut Vec<u8>, statement: &[u8]) {
        parse_definition(output, statement, self.tail);
    }
}

impl<'b> Bind<'b> {
    fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let portal = fields.text()?;
        let statement = fields.text()?;
        let tail = fields.clone().rest();
        Ok(Self {
            portal,
            statement,
            formats: Formats::read(fields)?,
            values: Values::read(fields)?,
            results: Formats::read(fields)?,
            tail,
        })
    }

    /// Appends the start of a message with a body of `length` bytes, up to its names.
    ///
    /// # Panics
    /// If that is more than a message can have: 2 GiB.
    pub fn head(output: &mut Vec<u8>, length: usize, portal: &[u8], statement: &[u8]) {
        let length = i32::try_from(length + 4).expect("a message has less than 2 GiB");
        output.push(b'B');
        output.extend_from_slice(&length.to_be_bytes());
        write::text(output, portal);
        write::text(output, statement);
    }

    /// Appends the message with another name for the statement.
    pub fn renamed(&self, output: &mut Vec<u8>, statement: &[u8]) {
        write::message(output, b'B', |body| {
            write::text(body, self.portal);
            write::text(body, statement);
            body.extend_from_slice(self.tail);
        });
    }
}

impl<'b> Target<'b> {
    /// Reads what a Describe or a Close is about.
    ///
    /// # Errors
    /// [`Malformed`] if the message is neither.
    pub fn of(message: Message<'b>) -> Result<Self, Malformed> {
        match Request::read(message)? {
            Request::Describe(target) | Request::Close(target) => Ok(target),
            _ => Err(Malformed::new("neither a Describe nor a Close")),
        }
    }

    fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        match fields.u8()? {
            b'S' => fields.text().map(Self::Statement),
            b'P' => fields.text().map(Self::Portal),
            _ => Err(Malformed::new("neither a statement nor a portal")),
        }
    }

    fn append(self, body: &mut Vec<u8>) {
        let (kind, name) = match self {
            Self::Statement(name) => (b'S', name),
            Self::Portal(name) => (b'P', name),
        };
        body.push(kind);
        write::text(body, name);
    }
}

/// The first step of SASL, in the body of an [`Authenticate`](Request::Authenticate).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaslInitial<'b> {
    /// The mechanism that the client has chosen.
    pub mechanism: &'b [u8],
    /// Its first message, if it sends one at once.
    pub data: Option<&'b [u8]>,
}

impl<'b> SaslInitial<'b> {
    /// Reads the body.
    ///
    /// # Errors
    /// [`Malformed`] if it is no first step of SASL.
    pub fn read(body: &'b [u8]) -> Result<Self, Malformed> {
        let mut fields = Fields::new(body);
        let (mechanism, data) = (fields.text()?, fields.value()?);
        fields.end().map(|()| Self { mechanism, data })
    }
}

/// The password in the body of an [`Authenticate`](Request::Authenticate).
///
/// # Errors
/// [`Malformed`] if it is none.
pub fn read_password(body: &[u8]) -> Result<&[u8], Malformed> {
    let mut fields = Fields::new(body);
    let password = fields.text()?;
    fields.end().map(|()| password)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The only message in `bytes`.
    fn only(bytes: &[u8]) -> Message<'_> {
        let (message, length) = Message::first(bytes, 1 << 20)
            .expect("a good message")
            .expect("a whole message");
        assert_eq!(length, bytes.len());
        message
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes);
        bytes
    }

    #[test]
    fn each_request_is_read_as_it_was_written() {
        let cases: [(Vec<u8>, Request<'_>); 11] = [
            (
                written(|out| query(out, b"SELECT 1")),
                Request::Query(b"SELECT 1"),
            ),
            (
                written(|out| describe(out, Target::Statement(b"s"))),
                Request::Describe(Target::Statement(b"s")),
            ),
            (
                written(|out| close(out, Target::Portal(b""))),
                Request::Close(Target::Portal(b"")),
            ),
            (
                written(|out| execute(out, b"p", 7)),
                Request::Execute {
                    portal: b"p",
                    rows: 7,
                },
            ),
            (written(flush), Request::Flush),
            (written(sync), Request::Sync),
            (
                written(|out| copy_data(out, b"1\t2\n")),
                Request::CopyData(b"1\t2\n"),
            ),
            (written(copy_done), Request::CopyDone),
            (
                written(|out| copy_fail(out, b"why")),
                Request::CopyFail(b"why"),
            ),
            (
                written(|out| password(out, b"p")),
                Request::Authenticate(b"p\0"),
            ),
            (written(terminate), Request::Terminate),
        ];
        for (bytes, request) in cases {
            assert_eq!(Request::read(only(&bytes)), Ok(request));
        }
    }

    /// A pooler gives each server its own names: everything else of the message stays, to the byte.
    #[test]
    fn a_statement_is_renamed_and_nothing_else() {
        let before = written(|out| parse(out, b"mine", b"SELECT $1", &[23, 0]));
        let Ok(Request::Parse(statement)) = Request::read(only(&before)) else {
            unreachable!("it is a Parse");
        };
        assert_eq!(statement.types.iter().collect::<Vec<_>>(), [23, 0]);
        let renamed = written(|out| statement.renamed(out, b"theirs"));
        assert_eq!(
            renamed,
            written(|out| parse(out, b"theirs", b"SELECT $1", &[23, 0]))
        );
        let values = [Some(&b"1"[..]), None];
        let before = written(|out| bind(out, b"p", b"mine", &values));
        let Ok(Request::Bind(portal)) = Request::read(only(&before)) else {
            unreachable!("it is a Bind");
        };
        assert_eq!((portal.portal, portal.statement), (&b"p"[..], &b"mine"[..]));
        assert_eq!(portal.values.iter().collect::<Vec<_>>(), values);
        let renamed = written(|out| portal.renamed(out, b"theirs"));
        assert_eq!(renamed, written(|out| bind(out, b"p", b"theirs", &values)));
    }

    /// Bytes behind the last field would be read differently by the next program on the way.
    #[test]
    fn a_message_ends_with_its_last_field() {
        for (tag, body) in [
            (b'Q', &b"SELECT 1"[..]),
            (b'Q', b"a\0b\0"),
            (b'S', b"x"),
            (b'E', b"p\0\0\0\0"),
            (b'D', b"Xname\0"),
            (b'B', b"p\0s\0\0\0\0\x01"),
            (b'?', b""),
        ] {
            assert!(Request::read(Message { tag, body }).is_err(), "{body:?}");
        }
    }

    #[test]
    fn the_first_step_of_sasl_names_its_mechanism() {
        let bytes = written(|out| sasl_initial(out, b"SCRAM-SHA-256", b"n,,n=,r=x"));
        let step = SaslInitial::read(only(&bytes).body).expect("a first step");
        assert_eq!(step.mechanism, b"SCRAM-SHA-256");
        assert_eq!(step.data, Some(&b"n,,n=,r=x"[..]));
        assert_eq!(read_password(b"secret\0"), Ok(&b"secret"[..]));
        assert!(read_password(b"secret").is_err() && read_password(b"a\0b\0").is_err());
    }
}
