//! The relay of `paceline-pg`: any client, any server, bytes in any pieces.

use paceline_pg::protocol::{
    ClientHalf, Mode, Next, Output, Relay, RelaySettings, Release, ServerHalf, Values,
};
use paceline_pg_wire::{Header, TransactionStatus};

use crate::script::Script;

/// The most bytes that wait for the rest of a message, or for replies.
const LIMIT: usize = 1 << 16;

/// Types of messages that matter, of both sides.
const CLIENT: &[u8] = b"QPBDCEHSFdcfX";
const SERVER: &[u8] = b"Z123DTCIsntEGHdcVSNA";

/// Whatever both sides send, the relay neither panics nor keeps more than it may; it never says
/// that a server is free which owes something; and it takes the same bytes wherever they are cut.
pub(crate) fn no_peer_breaks_the_relay(data: &[u8]) {
    let mut script = Script::new(data);
    let mode = script.choose(&[Mode::Transaction, Mode::Session, Mode::Statement]);
    let statements = script.choose(&[0, 1, 2]);
    let piece = usize::from(script.byte()).max(1);
    let turns = turns(script);
    let at_once = run(&turns, mode, statements, usize::MAX);
    let in_pieces = run(&turns, mode, statements, piece);
    assert_eq!(at_once, in_pieces, "pieces of {piece}: {turns:?}");
}

/// Bytes of one side.
#[derive(Debug)]
enum Turn {
    Client(Vec<u8>),
    Server(Vec<u8>),
}

/// Messages of both sides, from a script. A few are malformed.
fn turns(mut script: Script<'_>) -> Vec<Turn> {
    let mut turns = Vec::new();
    while !script.is_empty() && turns.len() < 200 {
        let kind = script.byte();
        let tags = if kind & 1 == 0 { CLIENT } else { SERVER };
        let tag = script.choose(tags);
        let mut bytes = Vec::new();
        message(&mut bytes, tag, kind, &mut script);
        turns.push(if kind & 1 == 0 {
            Turn::Client(bytes)
        } else {
            Turn::Server(bytes)
        });
    }
    turns
}

/// Appends a message with a body that is likely for its type.
fn message(bytes: &mut Vec<u8>, tag: u8, kind: u8, script: &mut Script<'_>) {
    let names: [&[u8]; 4] = [b"\0", b"a\0", b"b\0", b"\0"];
    let name = |script: &mut Script<'_>| script.choose(&names);
    let texts: [&[u8]; 5] = [
        b"BEGIN\0",
        b"SELECT 1\0",
        b"DEALLOCATE a\0",
        b"COMMIT\0",
        b"x;y\0",
    ];
    let codes: [&[u8]; 5] = [b"26000", b"0A000", b"57014", b"42601", b"08P01"];
    let body = match (kind & 1, tag) {
        (0, b'Q') => script.choose(&texts).to_vec(),
        (0, b'P') => [name(script), script.choose(&texts), b"\0\0"].concat(),
        (0, b'B') => [name(script), name(script), b"\0\0\0\0\0\0"].concat(),
        (0, b'D' | b'C') => [script.choose(&[&b"S"[..], b"P"]), name(script)].concat(),
        (0, b'E') => [name(script), b"\0\0\0\0"].concat(),
        (0, b'f') => b"why\0".to_vec(),
        (1, b'Z') => vec![script.choose(b"IIITE")],
        (1, b'C') => script
            .choose(&[&b"SELECT 1\0"[..], b"DISCARD ALL\0"])
            .to_vec(),
        (1, b'S') => b"TimeZone\0UTC\0".to_vec(),
        (1, b'E') => {
            let severity = script.choose(&[&b"VERROR\0"[..], b"VERROR\0", b"VFATAL\0"]);
            [severity, b"C", script.choose(&codes), b"\0\0"].concat()
        }
        (_, b'd' | b'D' | b'N') => vec![b'x'; usize::from(script.byte())],
        (0, b'F') => vec![0; 10],
        // Too long for its type.
        _ if kind > 250 => vec![1; usize::from(script.byte())],
        _ => Vec::new(),
    };
    let length = u32::try_from(body.len() + 4).expect("a short message");
    bytes.push(tag);
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&body);
}

/// What both sides get, and how it ends.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    to_client: Vec<u8>,
    to_server: Vec<u8>,
    end: Option<String>,
    is_free: bool,
}

/// One run. The rest of a side's bytes waits for its next turn.
fn run(turns: &[Turn], mode: Mode, statements: usize, piece: usize) -> Outcome {
    let mut settings = RelaySettings::new(mode);
    settings.max_prepared_statements = statements;
    let mut client = ClientHalf::new(Values::new(), true);
    let mut server = ServerHalf::new(Values::new());
    let mut relay = Relay {
        client: &mut client,
        server: &mut server,
        settings: &settings,
    };
    let mut outcome = Outcome::default();
    let (mut of_client, mut of_server) = (Vec::new(), Vec::new());
    for turn in turns {
        let result = match turn {
            Turn::Client(bytes) => bytes.chunks(piece).try_for_each(|bytes| {
                of_client.extend_from_slice(bytes);
                take(&mut relay, &mut of_client, &mut outcome)
            }),
            Turn::Server(bytes) => bytes.chunks(piece).try_for_each(|bytes| {
                of_server.extend_from_slice(bytes);
                give(&mut relay, &mut of_server, &mut of_client, &mut outcome)
            }),
        };
        if let Err(end) = result {
            outcome.end = Some(end);
            break;
        }
        assert!(
            of_server.len() < LIMIT,
            "{} bytes of the server wait",
            of_server.len()
        );
    }
    outcome.is_free = relay.release() == Release::Allowed;
    if outcome.is_free {
        assert_eq!(relay.server.status(), TransactionStatus::Idle);
        assert!(!relay.server.is_busy());
    }
    // The halves agree on every boundary of a message, or the stream has ended.
    if outcome.end.is_none() {
        are_messages(&outcome.to_server);
        are_messages(&outcome.to_client);
    }
    outcome
}

fn take(relay: &mut Relay<'_>, input: &mut Vec<u8>, outcome: &mut Outcome) -> Result<(), String> {
    let mut to_server = Vec::new();
    let mut out = Output {
        to_server: &mut to_server,
        to_client: &mut outcome.to_client,
    };
    let taken = relay
        .from_client(input, &mut out)
        .map_err(|why| why.to_string())?;
    assert!(taken.direct <= taken.consumed && taken.consumed <= input.len());
    outcome.to_server.extend_from_slice(&input[..taken.direct]);
    outcome.to_server.extend_from_slice(&to_server);
    input.drain(..taken.consumed);
    match taken.next {
        Next::Terminate => Err("the client leaves".to_owned()),
        Next::More | Next::Wait => Ok(()),
    }
}

fn give(
    relay: &mut Relay<'_>,
    input: &mut Vec<u8>,
    of_client: &mut Vec<u8>,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut out = Output {
        to_server: &mut to_server,
        to_client: &mut to_client,
    };
    let given = relay
        .from_server(input, &mut out)
        .map_err(|why| why.to_string())?;
    assert!(given.direct <= given.consumed && given.consumed <= input.len());
    assert!(to_server.is_empty(), "replies cause no requests");
    outcome.to_client.extend_from_slice(&input[..given.direct]);
    outcome.to_client.extend_from_slice(&to_client);
    input.drain(..given.consumed);
    if given.may_resume {
        take(relay, of_client, outcome)?;
    }
    Ok(())
}

/// Only the last message of a stream may be incomplete.
fn are_messages(mut stream: &[u8]) {
    while let Some(header) = Header::first(stream).expect("the relay sends good headers") {
        stream = &stream[header.message().min(stream.len())..];
    }
}
