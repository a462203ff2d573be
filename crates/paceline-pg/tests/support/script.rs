//! Sequences of messages that a client sends, and what of their replies may differ between two
//! sessions.

use paceline_pg_wire::{
    backend::Reply,
    frontend::{self as f, Target},
    Message,
};

/// A message of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    /// A simple query.
    Query(&'static str),
    /// A Parse: the name, and the text.
    Parse(&'static str, &'static str),
    /// A Bind: the portal, the statement, and its only value, if it has one.
    Bind(&'static str, &'static str, Option<&'static str>),
    /// A Describe of a statement.
    DescribeStatement(&'static str),
    /// A Describe of a portal.
    DescribePortal(&'static str),
    /// An Execute: the portal, and the most rows.
    Execute(&'static str, i32),
    /// A Close of a statement.
    CloseStatement(&'static str),
    /// A Close of a portal.
    ClosePortal(&'static str),
    /// A Flush.
    Flush,
    /// A Sync.
    Sync,
    /// A call of the function that adds these numbers.
    Add(&'static str, &'static str),
    /// Data.
    CopyData(&'static str),
    /// The end of the data.
    CopyDone,
    /// The failure of a copy.
    CopyFail,
}

impl Send {
    /// Appends the message.
    pub(crate) fn append(self, out: &mut Vec<u8>) {
        match self {
            Self::Query(sql) => f::query(out, sql.as_bytes()),
            Self::Parse(name, sql) => f::parse(out, name.as_bytes(), sql.as_bytes(), &[]),
            Self::Bind(portal, name, value) => {
                let values: Vec<Option<&[u8]>> = value.iter().map(|v| Some(v.as_bytes())).collect();
                f::bind(out, portal.as_bytes(), name.as_bytes(), &values);
            }
            Self::DescribeStatement(name) => f::describe(out, Target::Statement(name.as_bytes())),
            Self::DescribePortal(name) => f::describe(out, Target::Portal(name.as_bytes())),
            Self::Execute(portal, rows) => f::execute(out, portal.as_bytes(), rows),
            Self::CloseStatement(name) => f::close(out, Target::Statement(name.as_bytes())),
            Self::ClosePortal(name) => f::close(out, Target::Portal(name.as_bytes())),
            Self::Flush => f::flush(out),
            Self::Sync => f::sync(out),
            Self::Add(one, other) => add(out, one.as_bytes(), other.as_bytes()),
            Self::CopyData(data) => f::copy_data(out, data.as_bytes()),
            Self::CopyDone => f::copy_done(out),
            Self::CopyFail => f::copy_fail(out, b"the client gives up"),
        }
    }
}

/// The messages as bytes.
pub(crate) fn bytes(messages: &[Send]) -> Vec<u8> {
    let mut bytes = Vec::new();
    messages
        .iter()
        .for_each(|message| message.append(&mut bytes));
    bytes
}

/// The number of the function that adds two integers.
const INT4PL: u32 = 177;

/// Appends a call of a function with two values, all written as text.
fn add(out: &mut Vec<u8>, one: &[u8], other: &[u8]) {
    let mut body = Vec::new();
    body.extend_from_slice(&INT4PL.to_be_bytes());
    body.extend_from_slice(&[0, 0, 0, 2]);
    for value in [one, other] {
        let length = u32::try_from(value.len()).expect("a short value");
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(value);
    }
    body.extend_from_slice(&[0, 0]);
    let length = u32::try_from(body.len() + 4).expect("a short message");
    out.push(b'F');
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&body);
}

/// The replies in a stream, without what differs between two sessions that do the same: numbers of
/// tables, the wording of errors.
pub(crate) fn replies(stream: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    let mut at = 0;
    while let Some((message, length)) =
        Message::first(&stream[at..], 1 << 30).expect("good messages")
    {
        all.push(reply(message));
        at += length;
    }
    assert_eq!(at, stream.len(), "the stream ends within a message");
    all
}

fn reply(message: Message<'_>) -> String {
    let text = String::from_utf8_lossy;
    match Reply::read(message).expect("a reply") {
        Reply::Error(report) => format!("error {}", text(report.code())),
        Reply::Notice(report) => format!("notice {}", text(report.code())),
        Reply::RowDescription(columns) => {
            let columns = columns.iter();
            let columns = columns.map(|c| format!("{}:{}", text(c.name), c.oid));
            format!("columns {}", columns.collect::<Vec<_>>().join(" "))
        }
        _ => format!(
            "{} {}",
            char::from(message.tag),
            text(message.body).escape_debug()
        ),
    }
}
