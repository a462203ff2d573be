//! Appends the messages of a client to a buffer.

use super::Target;
use crate::write;

/// Appends a query.
pub fn query(output: &mut Vec<u8>, sql: &[u8]) {
    write::message(output, b'Q', |body| write::text(body, sql));
}

/// Appends a `Parse`.
pub fn parse(output: &mut Vec<u8>, statement: &[u8], sql: &[u8], types: &[u32]) {
    write::message(output, b'P', |body| {
        write::text(body, statement);
        write::text(body, sql);
        write::count(body, types.len());
        types
            .iter()
            .for_each(|oid| body.extend_from_slice(&oid.to_be_bytes()));
    });
}

/// Appends a `Parse` of a [definition](super::Parse::definition).
pub fn parse_definition(output: &mut Vec<u8>, statement: &[u8], definition: &[u8]) {
    write::message(output, b'P', |body| {
        write::text(body, statement);
        body.extend_from_slice(definition);
    });
}

/// Appends a `Bind` of values that are all text, for results that are all text.
pub fn bind(output: &mut Vec<u8>, portal: &[u8], statement: &[u8], values: &[Option<&[u8]>]) {
    write::message(output, b'B', |body| {
        write::text(body, portal);
        write::text(body, statement);
        write::count(body, 0);
        write::count(body, values.len());
        values.iter().for_each(|value| write::value(body, *value));
        write::count(body, 0);
    });
}

/// Appends a `Describe`.
pub fn describe(output: &mut Vec<u8>, target: Target<'_>) {
    write::message(output, b'D', |body| target.append(body));
}

/// Appends a `Close`.
pub fn close(output: &mut Vec<u8>, target: Target<'_>) {
    write::message(output, b'C', |body| target.append(body));
}

/// Appends an `Execute`: `rows` zero is all rows.
pub fn execute(output: &mut Vec<u8>, portal: &[u8], rows: i32) {
    write::message(output, b'E', |body| {
        write::text(body, portal);
        body.extend_from_slice(&rows.to_be_bytes());
    });
}

/// Appends a `Flush`.
pub fn flush(output: &mut Vec<u8>) {
    write::empty(output, b'H');
}

/// Appends a `Sync`.
pub fn sync(output: &mut Vec<u8>) {
    write::empty(output, b'S');
}

/// Appends a piece of data to be copied in.
pub fn copy_data(output: &mut Vec<u8>, data: &[u8]) {
    write::message(output, b'd', |body| body.extend_from_slice(data));
}

/// Appends the end of the data.
pub fn copy_done(output: &mut Vec<u8>) {
    write::empty(output, b'c');
}

/// Appends the failure of a copy.
pub fn copy_fail(output: &mut Vec<u8>, reason: &[u8]) {
    write::message(output, b'f', |body| write::text(body, reason));
}

/// Appends a password.
pub fn password(output: &mut Vec<u8>, password: &[u8]) {
    write::message(output, b'p', |body| write::text(body, password));
}

/// Appends the first step of SASL, with its mechanism.
pub fn sasl_initial(output: &mut Vec<u8>, mechanism: &[u8], data: &[u8]) {
    write::message(output, b'p', |body| {
        write::text(body, mechanism);
        write::value(body, Some(data));
    });
}

/// Appends a further step of SASL.
pub fn sasl_response(output: &mut Vec<u8>, data: &[u8]) {
    write::message(output, b'p', |body| body.extend_from_slice(data));
}

/// Appends the end of a session.
pub fn terminate(output: &mut Vec<u8>) {
    write::empty(output, b'X');
}
