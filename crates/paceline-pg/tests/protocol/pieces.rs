//! Bytes come in any pieces, and long messages are passed on as they come.

use paceline_pg::protocol::{
    ClientHalf, Mode, Next, Output, Relay, RelaySettings, Release, ServerHalf, Values, Violation,
};
use paceline_pg_wire::{backend, frontend as f, TransactionStatus};

use crate::support::{
    postgres,
    rig::Rig,
    script::{bytes, replies, Send},
    session::Session,
};

fn exchange(rig: &mut Rig, messages: &[Send]) -> Vec<String> {
    rig.send(0, &bytes(messages)).expect("the client is good");
    rig.finish(0).expect("the server is good");
    replies(&rig.received(0))
}

/// A reply that was split at the end of a buffer was lost.
#[test]
fn split_at_every_byte() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let messages = [
        Send::Query("BEGIN; CREATE TABLE split (a text)"),
        Send::Parse("insert", "INSERT INTO split VALUES ($1) RETURNING a"),
        Send::Bind("", "insert", Some("some text")),
        Send::DescribePortal(""),
        Send::Execute("", 0),
        Send::CloseStatement("insert"),
        Send::Sync,
        Send::Query("COPY split FROM STDIN"),
        Send::CopyData("one\ntwo\n"),
        Send::CopyDone,
        Send::Query("COPY split TO STDOUT"),
        Send::Parse("", "SELEC"),
        Send::Sync,
        Send::Query("ROLLBACK"),
    ];
    let mut expected = None;
    for piece in [usize::MAX].into_iter().chain(1..60) {
        let session = Session::new(postgres);
        let mut rig = Rig::new(RelaySettings::new(Mode::Transaction), 1, vec![session]);
        rig.piece = piece;
        let seen = exchange(&mut rig, &messages);
        assert_eq!(
            &seen,
            expected.get_or_insert_with(|| seen.clone()),
            "pieces of {piece}"
        );
    }
}

/// A message of any length passes, and nothing of it is kept: a client that sends, or reads, a
/// large value would otherwise take its memory twice.
#[test]
fn a_long_message_is_passed_on_as_it_comes() {
    let Some(postgres) = postgres::server() else {
        return;
    };
    let settings = RelaySettings::new(Mode::Transaction);
    let mut rig = Rig::new(settings, 1, vec![Session::new(postgres)]);
    rig.piece = 5000;
    let parse = [Send::Parse("a", "SELECT $1::text"), Send::Sync];
    let _ = exchange(&mut rig, &parse);
    let value = vec![b'v'; 300_000];
    let mut long = Vec::new();
    f::bind(&mut long, b"", b"a", &[Some(&value)]);
    f::execute(&mut long, b"", 0);
    f::sync(&mut long);
    for piece in long.chunks(5000) {
        rig.send(0, piece).expect("the client is good");
        assert!(
            rig.clients[0].pending.len() < 5000,
            "bytes of the value are kept"
        );
    }
    rig.finish(0).expect("the server is good");
    let received = rig.received(0);
    assert!(received.windows(value.len()).any(|window| window == value));
}

/// The text of a statement without a name need not be kept, so it may have any length.
#[test]
fn a_long_statement_without_a_name_passes() {
    let (mut client, mut server, mut settings) = halves();
    settings.longest_statement = 1000;
    let mut relay = Relay {
        client: &mut client,
        server: &mut server,
        settings: &settings,
    };
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut out = Output {
        to_server: &mut to_server,
        to_client: &mut to_client,
    };
    let mut input = Vec::new();
    f::parse(&mut input, b"", &[b' '; 100_000], &[]);
    for piece in input.chunks(5000) {
        let taken = relay.from_client(piece, &mut out).expect("a good client");
        assert_eq!((taken.consumed, taken.direct), (piece.len(), piece.len()));
    }
    let mut input = Vec::new();
    f::parse(&mut input, b"named", &[b' '; 100_000], &[]);
    let refused = relay
        .from_client(&input[..5000], &mut out)
        .expect_err("it is too long");
    assert_eq!(refused, Violation::LongStatement);
}

/// The halves of a relay without a server.
fn halves() -> (ClientHalf, ServerHalf, RelaySettings) {
    let settings = RelaySettings::new(Mode::Transaction);
    (
        ClientHalf::new(Values::new(), true),
        ServerHalf::new(Values::new()),
        settings,
    )
}

/// A client that sends messages without an end, and no Sync, must not make the queue grow without
/// an end. The Flush makes the server answer, so that the client does not wait for ever.
#[test]
fn outstanding_messages_have_a_limit() {
    let (mut client, mut server, settings) = halves();
    let mut relay = Relay {
        client: &mut client,
        server: &mut server,
        settings: &settings,
    };
    let mut input = Vec::new();
    f::parse(&mut input, b"", b"SELECT 1", &[]);
    (0..100_000).for_each(|_| f::bind(&mut input, b"", b"", &[]));
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut out = Output {
        to_server: &mut to_server,
        to_client: &mut to_client,
    };
    let taken = relay.from_client(&input, &mut out).expect("a good client");
    assert!(taken.next == Next::Wait && taken.consumed < input.len() / 4);
    let again = relay
        .from_client(&input[taken.consumed..], &mut out)
        .expect("a good client");
    assert_eq!((again.next, again.consumed), (Next::Wait, 0));
    assert_eq!(to_server, b"H\0\0\0\x04", "one Flush");
    let mut replies = Vec::new();
    backend::parse_complete(&mut replies);
    (0..9000).for_each(|_| backend::bind_complete(&mut replies));
    to_server.clear();
    let mut out = Output {
        to_server: &mut to_server,
        to_client: &mut to_client,
    };
    let given = relay
        .from_server(&replies, &mut out)
        .expect("a good server");
    assert!(given.may_resume && given.direct == replies.len());
}

/// A relay copies nothing that passes unchanged.
#[test]
fn a_simple_query_is_sent_from_the_callers_buffer() {
    let (mut client, mut server, settings) = halves();
    let mut relay = Relay {
        client: &mut client,
        server: &mut server,
        settings: &settings,
    };
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut out = Output {
        to_server: &mut to_server,
        to_client: &mut to_client,
    };
    let mut input = Vec::new();
    f::query(&mut input, b"SELECT 1");
    let taken = relay.from_client(&input, &mut out).expect("a good client");
    assert_eq!((taken.consumed, taken.direct), (input.len(), input.len()));
    let mut replies = Vec::new();
    backend::row(&mut replies, [Some(&b"1"[..])]);
    backend::command_complete(&mut replies, b"SELECT 1");
    backend::ready_for_query(&mut replies, TransactionStatus::Idle);
    let given = relay
        .from_server(&replies, &mut out)
        .expect("a good server");
    assert_eq!(
        (given.consumed, given.direct),
        (replies.len(), replies.len())
    );
    assert_eq!((given.counts.queries, given.counts.transactions), (1, 1));
    assert!(to_server.is_empty() && to_client.is_empty());
}

/// The other half of the message would be read as the start of another client's message.
#[test]
fn half_a_message_keeps_the_server() {
    let (mut client, mut server, settings) = halves();
    let mut relay = Relay {
        client: &mut client,
        server: &mut server,
        settings: &settings,
    };
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut out = Output {
        to_server: &mut to_server,
        to_client: &mut to_client,
    };
    // Data outside of a copy: the server ignores it, and owes nothing.
    let mut input = Vec::new();
    f::copy_data(&mut input, &[b'x'; 100]);
    let (half, rest) = input.split_at(50);
    let taken = relay.from_client(half, &mut out).expect("a good client");
    assert_eq!((taken.direct, taken.release), (50, Release::Held));
    let taken = relay.from_client(rest, &mut out).expect("a good client");
    assert_eq!(
        (taken.direct, taken.release),
        (rest.len(), Release::Allowed)
    );
}
