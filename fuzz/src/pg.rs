//! The messages of `paceline-pg-wire`.

use paceline_pg_wire::{
    auth::scram::{Client, Credentials, Secret, Server},
    backend::Reply,
    frontend::{read_password, Request, SaslInitial},
    startup::Startup,
    Header, Malformed, Message, Need, Step, Walk,
};

use crate::script::{pieces, Script};

/// The longest message that is needed whole.
const LIMIT: usize = 64;

/// What a walk over a stream has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    /// The tag of each message.
    tags: Vec<u8>,
    /// All bytes that belong to messages.
    bytes: Vec<u8>,
    end: Option<Malformed>,
}

/// A walk finds the same messages wherever the stream is cut, and each whole message is read, or
/// refused, without a panic.
pub(crate) fn a_stream_of_messages_may_be_cut_anywhere(data: &[u8]) {
    let mut script = Script::new(data);
    // Whether messages are needed whole must not depend on how much of them has come.
    let passed_on = script.byte();
    let cuts = script.cuts();
    let input = script.rest();
    let at_once = walk(&[input], passed_on);
    assert_eq!(at_once, walk(&pieces(input, &cuts), passed_on), "{input:?}");
    let bytes: Vec<&[u8]> = input.chunks(1).collect();
    assert_eq!(at_once, walk(&bytes, passed_on), "{input:?} byte by byte");
}

fn walk(pieces: &[&[u8]], passed_on: u8) -> Found {
    let mut walk = Walk::new(LIMIT);
    let mut found = Found::default();
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while let Some(length) = step(&mut walk, &buffer, passed_on, &mut found) {
            buffer.drain(..length);
        }
        if found.end.is_some() {
            break;
        }
    }
    found
}

/// Takes one part of the stream. How many bytes it has, if there is one.
fn step(walk: &mut Walk, input: &[u8], passed_on: u8, found: &mut Found) -> Option<usize> {
    let need = |header: Header| {
        if header.tag == passed_on {
            Need::Pieces
        } else {
            Need::Whole
        }
    };
    let (step, length) = match walk.step(input, need) {
        Ok(taken) => taken,
        Err(why) => {
            found.end = Some(why);
            return None;
        }
    };
    match step {
        Step::Message(message) => {
            found.tags.push(message.tag);
            read(message);
        }
        Step::Begin { header, .. } => found.tags.push(header.tag),
        Step::More { .. } => {}
        Step::Incomplete => {
            assert!(input.len() < LIMIT, "{} bytes wait", input.len());
            return None;
        }
    }
    assert!(length > 0, "a step takes at least a byte");
    found.bytes.extend_from_slice(&input[..length]);
    Some(length)
}

/// Reads a message as both sides would, and all its lists to their ends.
fn read(message: Message<'_>) {
    match Request::read(message) {
        Ok(Request::Bind(bind)) => {
            assert_eq!(bind.values.iter().count(), bind.values.len());
            let mut again = Vec::new();
            bind.renamed(&mut again, bind.statement);
            assert_eq!(again[Header::LENGTH..], *message.body);
        }
        Ok(Request::Parse(parse)) => {
            let mut again = Vec::new();
            parse.renamed(&mut again, parse.statement);
            assert_eq!(again[Header::LENGTH..], *message.body);
        }
        _ => {}
    }
    match Reply::read(message) {
        Ok(Reply::Row(values)) => assert_eq!(values.iter().count(), values.len()),
        Ok(Reply::RowDescription(columns)) => assert_eq!(columns.iter().count(), columns.len()),
        Ok(Reply::Error(report) | Reply::Notice(report)) => {
            report.iter().for_each(drop);
        }
        _ => {}
    }
}

/// The first packets of a stranger, and all steps of a login, are read or refused without a panic.
pub(crate) fn no_login_breaks_the_reader(data: &[u8]) {
    if let Ok(Some((startup, length))) = Startup::first(data) {
        assert!(length <= data.len());
        if let Startup::Session(session) = startup {
            session.parameters.iter().for_each(drop);
        }
    }
    if let Ok(step) = SaslInitial::read(data) {
        assert!(step.mechanism.len() < data.len());
    }
    assert!(
        read_password(data).is_ok_and(|password| password.len() < data.len()) || {
            read_password(data).is_err()
        }
    );
    let secret = Secret::mock(b"user", &[7; 32], 1);
    if let Ok((server, _)) = Server::begin(&secret, data, "server") {
        assert!(
            server.finish(data).is_err(),
            "no password matches this secret"
        );
    }
    let (server, _) = Server::begin(&secret, b"n,,n=,r=client", "server").expect("a good start");
    assert!(
        server.finish(data).is_err(),
        "no password matches this secret"
    );
    // Keys instead of a password: the iterations of a hostile server take time.
    if let Some(keys) = keys() {
        if let Ok((proved, _)) = Client::new("client").answer(data, &Credentials::Keys(keys)) {
            assert!(proved.verify(data).is_err());
        }
    }
}

/// The keys of a password behind some salt.
fn keys() -> Option<paceline_pg_wire::auth::scram::Keys> {
    let secret = Secret::of_password(b"pencil", b"salt", 1);
    let client = Client::new("a");
    let (server, first) = Server::begin(&secret, client.first().as_bytes(), "b").ok()?;
    let password = Credentials::Password(b"pencil".to_vec());
    let (_, last) = client.answer(first.as_bytes(), &password).ok()?;
    server
        .finish(last.as_bytes())
        .ok()
        .map(|success| success.keys)
}
