//! What a server sends.

mod build;
mod rows;

use crate::{
    fields::{Fields, Formats, Integers, Values},
    write, Malformed, Message, Report, TransactionStatus,
};

pub use build::{
    authentication, bind_complete, close_complete, command_complete, copy, copy_data, copy_done,
    empty_query, error, function_result, key_data, negotiate, no_data, notice, notification,
    parameter, parameter_types, parse_complete, portal_suspended, ready_for_query, row,
    row_description, sasl, CopyDirection,
};
pub use rows::RowWriter;

/// A message of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply<'b> {
    /// A request for authentication, or its success.
    Authentication(Authentication<'b>),
    /// The key for cancels of the session.
    KeyData {
        /// The number of the server's process.
        process: i32,
        /// The secret that only this client knows.
        secret: &'b [u8],
    },
    /// A setting of the session, which the server reports.
    Parameter {
        /// Its name.
        name: &'b [u8],
        /// Its value.
        value: &'b [u8],
    },
    /// The versions and options that the server does not have.
    Negotiate {
        /// The newest minor version that it has.
        minor: i32,
        /// The options that it does not know.
        unknown: Texts<'b>,
    },
    /// The requests up to here are done.
    Ready(TransactionStatus),
    /// The columns of the rows that follow.
    RowDescription(Columns<'b>),
    /// A row.
    Row(Values<'b>),
    /// A statement is done; its tag says what it did.
    Complete(&'b [u8]),
    /// A statement without a text is done.
    EmptyQuery,
    /// A portal has more rows.
    Suspended,
    /// A statement is prepared.
    ParseComplete,
    /// A portal is made.
    BindComplete,
    /// A statement or a portal is closed.
    CloseComplete,
    /// The types of the parameters of a statement.
    ParameterTypes(Integers<'b>),
    /// A statement or a portal returns no rows.
    NoData,
    /// The request has failed.
    Error(Report<'b>),
    /// Something that the client may want to know.
    Notice(Report<'b>),
    /// A notification that the client listens for.
    Notification {
        /// The process that has sent it.
        process: i32,
        /// Its channel.
        channel: &'b [u8],
        /// What it says.
        payload: &'b [u8],
    },
    /// The server waits for data.
    CopyIn(Copy<'b>),
    /// Data follow.
    CopyOut(Copy<'b>),
    /// Data go both ways.
    CopyBoth(Copy<'b>),
    /// A piece of data.
    CopyData(&'b [u8]),
    /// All data are sent.
    CopyDone,
    /// What a function has returned; `None` is NULL.
    FunctionResult(Option<&'b [u8]>),
}

/// A request for authentication, or its success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authentication<'b> {
    /// The client is authenticated.
    Ok,
    /// By its password, in clear text.
    Password,
    /// By its password, hashed with this salt.
    Md5([u8; 4]),
    /// By SASL, with one of these mechanisms.
    Sasl(Texts<'b>),
    /// The next step of SASL.
    SaslContinue(&'b [u8]),
    /// The last step of SASL.
    SaslFinal(&'b [u8]),
    /// In a way that this crate does not know, with its number.
    Other(i32),
}

/// Several texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Texts<'b>(&'b [u8]);

/// The columns of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns<'b> {
    count: usize,
    bytes: &'b [u8],
}

/// One column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column<'b> {
    /// Its name.
    pub name: &'b [u8],
    /// The table that it is of; zero: of none.
    pub table: u32,
    /// Its number in that table; zero: in none.
    pub attribute: i16,
    /// Its type.
    pub oid: u32,
    /// The size of its type; negative: it varies.
    pub size: i16,
    /// What its type is restricted to; -1: to nothing.
    pub modifier: i32,
    /// Whether its values are binary.
    pub is_binary: bool,
}

/// How data are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy<'b> {
    /// Whether the data are binary.
    pub is_binary: bool,
    /// How each column is written.
    pub columns: Formats<'b>,
}

impl<'b> Reply<'b> {
    /// Reads a message of a server.
    ///
    /// # Errors
    /// [`Malformed`] if a server sends no such message.
    pub fn read(message: Message<'b>) -> Result<Self, Malformed> {
        let mut fields = Fields::new(message.body);
        let reply = match message.tag {
            b'R' => Self::Authentication(Authentication::read(&mut fields)?),
            b'K' => Self::KeyData {
                process: fields.i32()?,
                secret: fields.rest(),
            },
            b'S' => Self::Parameter {
                name: fields.text()?,
                value: fields.text()?,
            },
            b'v' => Self::Negotiate {
                minor: fields.i32()?,
                unknown: Texts::counted(&mut fields)?,
            },
            b'Z' => Self::Ready(TransactionStatus::from_byte(fields.u8()?)?),
            b'T' => Self::RowDescription(Columns::read(&mut fields)?),
            b'D' => Self::Row(Values::read(&mut fields)?),
            b'C' => Self::Complete(fields.text()?),
            b'I' => Self::EmptyQuery,
            b's' => Self::Suspended,
            b'1' => Self::ParseComplete,
            b'2' => Self::BindComplete,
            b'3' => Self::CloseComplete,
            b't' => Self::ParameterTypes(Integers::read(&mut fields)?),
            b'n' => Self::NoData,
            b'E' => Self::Error(Report::read(&mut fields)?),
            b'N' => Self::Notice(Report::read(&mut fields)?),
            b'A' => Self::Notification {
                process: fields.i32()?,
                channel: fields.text()?,
                payload: fields.text()?,
            },
            b'G' => Self::CopyIn(Copy::read(&mut fields)?),
            b'H' => Self::CopyOut(Copy::read(&mut fields)?),
            b'W' => Self::CopyBoth(Copy::read(&mut fields)?),
            b'd' => Self::CopyData(fields.rest()),
            b'c' => Self::CopyDone,
            b'V' => Self::FunctionResult(fields.value()?),
            _ => return Err(Malformed::new("no server sends a message of this type")),
        };
        fields.end().map(|()| reply)
    }
}

impl<'b> Authentication<'b> {
    fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        Ok(match fields.i32()? {
            0 => Self::Ok,
            3 => Self::Password,
            5 => {
                let salt = fields.bytes(4)?;
                Self::Md5([salt[0], salt[1], salt[2], salt[3]])
            }
            10 => Self::Sasl(Texts::ended(fields)?),
            11 => Self::SaslContinue(fields.rest()),
            12 => Self::SaslFinal(fields.rest()),
            other => {
                fields.rest();
                Self::Other(other)
            }
        })
    }
}

impl<'b> Texts<'b> {
    /// Reads texts up to an empty one.
    fn ended(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let all = fields.clone().rest();
        let mut length = 0;
        loop {
            let text = fields.text()?;
            if text.is_empty() {
                return Ok(Self(&all[..length]));
            }
            length += text.len() + 1;
        }
    }

    /// Reads as many texts as the message says.
    fn counted(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let count = fields.i32()?;
        let all = fields.clone().rest();
        let mut length = 0;
        for _ in 0..count {
            length += fields.text()?.len() + 1;
        }
        Ok(Self(&all[..length]))
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &'b [u8]> + 'b {
        let texts = self.0.split_inclusive(|byte| *byte == 0);
        texts.map(|text| &text[..text.len() - 1])
    }
}

impl<'b> Columns<'b> {
    /// Reads as many columns as the message says, and checks all of them.
    fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let count = fields.count()?;
        let bytes = fields.clone().rest();
        let before = bytes.len();
        for _ in 0..count {
            Column::read(fields)?;
        }
        let length = before - fields.clone().rest().len();
        Ok(Self {
            count,
            bytes: &bytes[..length],
        })
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = Column<'b>> + 'b {
        let mut fields = Fields::new(self.bytes);
        // `read` has checked each of them.
        (0..self.count).map_while(move |_| Column::read(&mut fields).ok())
    }
}

impl<'b> Column<'b> {
    fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        Ok(Self {
            name: fields.text()?,
            table: fields.u32()?,
            attribute: fields.i16()?,
            oid: fields.u32()?,
            size: fields.i16()?,
            modifier: fields.i32()?,
            is_binary: fields.i16()? == 1,
        })
    }

    fn append(&self, body: &mut Vec<u8>) {
        write::text(body, self.name);
        body.extend_from_slice(&self.table.to_be_bytes());
        body.extend_from_slice(&self.attribute.to_be_bytes());
        body.extend_from_slice(&self.oid.to_be_bytes());
        body.extend_from_slice(&self.size.to_be_bytes());
        body.extend_from_slice(&self.modifier.to_be_bytes());
        body.extend_from_slice(&i16::from(self.is_binary).to_be_bytes());
    }
}

impl<'b> Copy<'b> {
    fn read(fields: &mut Fields<'b>) -> Result<Self, Malformed> {
        let is_binary = match fields.u8()? {
            0 => false,
            1 => true,
            _ => return Err(Malformed::new("a format other than text and binary")),
        };
        let columns = Formats::read(fields)?;
        Ok(Self { is_binary, columns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NewReport, Severity};

    /// Reads the only message in `bytes`.
    fn read(bytes: &[u8]) -> Reply<'_> {
        let (message, length) = Message::first(bytes, 1 << 20)
            .expect("a good message")
            .expect("a whole message");
        assert_eq!(length, bytes.len());
        Reply::read(message).expect("a message of a server")
    }

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut bytes);
        bytes
    }

    #[test]
    fn each_reply_is_read_as_it_was_written() {
        let cases: [(Vec<u8>, Reply<'_>); 14] = [
            (
                written(|out| authentication(out, Authentication::Md5(*b"salt"))),
                Reply::Authentication(Authentication::Md5(*b"salt")),
            ),
            (
                written(|out| key_data(out, 5, b"four")),
                Reply::KeyData {
                    process: 5,
                    secret: b"four",
                },
            ),
            (
                written(|out| parameter(out, b"TimeZone", b"UTC")),
                Reply::Parameter {
                    name: b"TimeZone",
                    value: b"UTC",
                },
            ),
            (
                written(|out| ready_for_query(out, TransactionStatus::Failed)),
                Reply::Ready(TransactionStatus::Failed),
            ),
            (
                written(|out| command_complete(out, b"SELECT 1")),
                Reply::Complete(b"SELECT 1"),
            ),
            (written(empty_query), Reply::EmptyQuery),
            (written(portal_suspended), Reply::Suspended),
            (written(parse_complete), Reply::ParseComplete),
            (written(bind_complete), Reply::BindComplete),
            (written(close_complete), Reply::CloseComplete),
            (written(no_data), Reply::NoData),
            (
                written(|out| copy_data(out, b"1\n")),
                Reply::CopyData(b"1\n"),
            ),
            (written(copy_done), Reply::CopyDone),
            (
                written(|out| function_result(out, None)),
                Reply::FunctionResult(None),
            ),
        ];
        for (bytes, reply) in cases {
            assert_eq!(read(&bytes), reply);
        }
    }

    #[test]
    fn rows_and_columns_are_read_as_they_were_written() {
        let column = Column {
            name: b"id",
            table: 16_384,
            attribute: 1,
            oid: 23,
            size: 4,
            modifier: -1,
            is_binary: true,
        };
        let bytes = written(|out| row_description(out, &[column, column]));
        let Reply::RowDescription(columns) = read(&bytes) else {
            unreachable!("it describes rows");
        };
        assert_eq!(columns.iter().collect::<Vec<_>>(), [column, column]);
        let bytes = written(|out| row(out, [Some(&b"1"[..]), None]));
        let Reply::Row(values) = read(&bytes) else {
            unreachable!("it is a row");
        };
        assert_eq!(values.iter().collect::<Vec<_>>(), [Some(&b"1"[..]), None]);
        let bytes = written(|out| copy(out, CopyDirection::In, false, 3));
        let Reply::CopyIn(copy) = read(&bytes) else {
            unreachable!("the server waits for data");
        };
        assert!(!copy.is_binary && copy.columns.len() == 3);
    }

    #[test]
    fn lists_of_texts_are_read_as_they_were_written() {
        let bytes = written(sasl);
        let Reply::Authentication(Authentication::Sasl(mechanisms)) = read(&bytes) else {
            unreachable!("it wants SASL");
        };
        assert_eq!(mechanisms.iter().collect::<Vec<_>>(), [b"SCRAM-SHA-256"]);
        let bytes = written(|out| negotiate(out, 2, &[b"_pq_.a", b"_pq_.b"]));
        let Reply::Negotiate { minor: 2, unknown } = read(&bytes) else {
            unreachable!("it negotiates");
        };
        assert_eq!(unknown.iter().collect::<Vec<_>>(), [b"_pq_.a", b"_pq_.b"]);
    }

    #[test]
    fn a_report_has_its_fields() {
        let report = NewReport::new(Severity::Fatal, "57P01", "shutting down").hint("wait");
        let bytes = written(|out| error(out, &report));
        let Reply::Error(report) = read(&bytes) else {
            unreachable!("it is an error");
        };
        assert_eq!(report.severity(), b"FATAL");
        assert_eq!(
            (report.code(), report.message()),
            (&b"57P01"[..], &b"shutting down"[..])
        );
        assert_eq!(
            (report.get(b'H'), report.get(b'D')),
            (Some(&b"wait"[..]), None)
        );
    }

    /// A hostile server must not make a client read behind a message.
    #[test]
    fn bad_messages_are_refused() {
        for (tag, body) in [
            (b'Z', &b"X"[..]),
            (b'Z', b""),
            (b'C', b"no end"),
            (b'E', b"Mtext\0"),
            (b'R', b"\0\0\0\x05abc"),
            (b'R', b"\0\0\0\x0aSCRAM\0"),
            (b'T', b"\0\x01id\0"),
            (b'v', b"\0\0\0\0\x7f\xff\xff\xff"),
            (b'G', b"\x02\0\0"),
            (b'1', b"x"),
            (b'?', b""),
        ] {
            assert!(Reply::read(Message { tag, body }).is_err(), "{body:?}");
        }
    }
}
