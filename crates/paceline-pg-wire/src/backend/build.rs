//! Appends the messages of a server to a buffer.

use super::{Authentication, Column, Texts};
use crate::{write, NewReport, TransactionStatus};

/// Appends a request for authentication, or its success.
pub fn authentication(output: &mut Vec<u8>, authentication: Authentication<'_>) {
    let (number, data): (i32, &[u8]) = match &authentication {
        Authentication::Ok => (0, &[]),
        Authentication::Password => (3, &[]),
        Authentication::Md5(salt) => (5, salt),
        Authentication::Sasl(mechanisms) => (10, mechanisms.0),
        Authentication::SaslContinue(data) => (11, data),
        Authentication::SaslFinal(data) => (12, data),
        Authentication::Other(number) => (*number, &[]),
    };
    write::message(output, b'R', |body| {
        body.extend_from_slice(&number.to_be_bytes());
        body.extend_from_slice(data);
        if matches!(authentication, Authentication::Sasl(_)) {
            body.push(0);
        }
    });
}

/// Appends a request for SASL with SCRAM-SHA-256 alone.
pub fn sasl(output: &mut Vec<u8>) {
    authentication(output, Authentication::Sasl(Texts(b"SCRAM-SHA-256\0")));
}

/// Appends the key for cancels of the session.
pub fn key_data(output: &mut Vec<u8>, process: i32, secret: &[u8]) {
    write::message(output, b'K', |body| {
        body.extend_from_slice(&process.to_be_bytes());
        body.extend_from_slice(secret);
    });
}

/// Appends a setting of the session.
pub fn parameter(output: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    write::message(output, b'S', |body| {
        write::text(body, name);
        write::text(body, value);
    });
}

/// Appends the newest minor version, and the options that the server does not know.
pub fn negotiate(output: &mut Vec<u8>, minor: i32, unknown: &[&[u8]]) {
    let count = i32::try_from(unknown.len()).unwrap_or(i32::MAX);
    write::message(output, b'v', |body| {
        body.extend_from_slice(&minor.to_be_bytes());
        body.extend_from_slice(&count.to_be_bytes());
        unknown.iter().for_each(|name| write::text(body, name));
    });
}

/// Appends the end of the requests up to here.
pub fn ready_for_query(output: &mut Vec<u8>, status: TransactionStatus) {
    write::message(output, b'Z', |body| body.push(status.byte()));
}

/// Appends the columns of the rows that follow.
pub fn row_description(output: &mut Vec<u8>, columns: &[Column<'_>]) {
    write::message(output, b'T', |body| {
        write::count(body, columns.len());
        columns.iter().for_each(|column| column.append(body));
    });
}

/// Appends a row.
pub fn row<'v>(
    output: &mut Vec<u8>,
    values: impl IntoIterator<Item = Option<&'v [u8]>, IntoIter: ExactSizeIterator>,
) {
    let values = values.into_iter();
    write::message(output, b'D', |body| {
        write::count(body, values.len());
        values.for_each(|value| write::value(body, value));
    });
}

/// Appends the end of a statement, with the tag of what it did.
pub fn command_complete(output: &mut Vec<u8>, tag: &[u8]) {
    write::message(output, b'C', |body| write::text(body, tag));
}

/// Appends the end of a statement without a text.
pub fn empty_query(output: &mut Vec<u8>) {
    write::empty(output, b'I');
}

/// Appends that a portal has more rows.
pub fn portal_suspended(output: &mut Vec<u8>) {
    write::empty(output, b's');
}

/// Appends that a statement is prepared.
pub fn parse_complete(output: &mut Vec<u8>) {
    write::empty(output, b'1');
}

/// Appends that a portal is made.
pub fn bind_complete(output: &mut Vec<u8>) {
    write::empty(output, b'2');
}

/// Appends that a statement or a portal is closed.
pub fn close_complete(output: &mut Vec<u8>) {
    write::empty(output, b'3');
}

/// Appends that a statement or a portal returns no rows.
pub fn no_data(output: &mut Vec<u8>) {
    write::empty(output, b'n');
}

/// Appends the types of the parameters of a statement.
pub fn parameter_types(output: &mut Vec<u8>, types: &[u32]) {
    write::message(output, b't', |body| {
        write::count(body, types.len());
        types
            .iter()
            .for_each(|oid| body.extend_from_slice(&oid.to_be_bytes()));
    });
}

/// Appends an error.
pub fn error(output: &mut Vec<u8>, report: &NewReport) {
    report.append(output, b'E');
}

/// Appends a notice.
pub fn notice(output: &mut Vec<u8>, report: &NewReport) {
    report.append(output, b'N');
}

/// Appends a notification.
pub fn notification(output: &mut Vec<u8>, process: i32, channel: &[u8], payload: &[u8]) {
    write::message(output, b'A', |body| {
        body.extend_from_slice(&process.to_be_bytes());
        write::text(body, channel);
        write::text(body, payload);
    });
}

/// The direction in which data are copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyDirection {
    /// To the server.
    In,
    /// To the client.
    Out,
}

/// Appends that data are copied: `columns` of them, all binary or all text.
pub fn copy(output: &mut Vec<u8>, direction: CopyDirection, is_binary: bool, columns: usize) {
    let tag = match direction {
        CopyDirection::In => b'G',
        CopyDirection::Out => b'H',
    };
    write::message(output, tag, |body| {
        body.push(u8::from(is_binary));
        write::count(body, columns);
        (0..columns).for_each(|_| body.extend_from_slice(&[0, u8::from(is_binary)]));
    });
}

/// Appends a piece of data.
pub fn copy_data(output: &mut Vec<u8>, data: &[u8]) {
    write::message(output, b'd', |body| body.extend_from_slice(data));
}

/// Appends the end of the data.
pub fn copy_done(output: &mut Vec<u8>) {
    write::empty(output, b'c');
}

/// Appends what a function has returned; `None` is NULL.
pub fn function_result(output: &mut Vec<u8>, value: Option<&[u8]>) {
    write::message(output, b'V', |body| write::value(body, value));
}
