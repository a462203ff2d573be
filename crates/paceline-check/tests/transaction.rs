//! What a client knows of a transaction whose server answers oddly: scripted servers, of which each
//! answers one request after the other.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

use paceline_check::{
    client::{Failure, Protocol, Session, Target, Value},
    transaction::{execute_alone, transact, Ending, Wish},
};
use paceline_pg_wire::{
    auth::scram,
    backend::{self, Authentication},
    frontend::{Request, SaslInitial},
    startup::Startup,
    Message, NewReport, Severity, TransactionStatus,
};

const LIMIT: Duration = Duration::from_secs(60);

/// What a scripted server does with one request.
enum Act {
    /// Answers with this tag and status.
    Complete(&'static str, TransactionStatus),
    /// Refuses with this SQLSTATE; the transaction has failed.
    Refuse(&'static str),
    /// Ends the session with this SQLSTATE.
    End(&'static str),
    /// Closes the connection.
    Close,
}

use Act::{Close, Complete, End, Refuse};
use TransactionStatus::{Failed, Idle, InBlock};

/// The session of a client with a server that acts like this.
fn with_server<T>(acts: Vec<Act>, client: impl FnOnce(Session) -> T) -> T {
    served(
        |mut stream| {
            log_in(&mut stream);
            acts.into_iter().for_each(|act| perform(&mut stream, act));
        },
        |target| client(Session::open(&target, Protocol::Simple, LIMIT).expect("a session")),
    )
}

/// Runs a server for one connection beside a client.
fn served<T>(server: impl FnOnce(TcpStream) + Send, client: impl FnOnce(Target) -> T) -> T {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let target = Target {
        port: listener.local_addr().expect("its address").port(),
        password: Some("pencil".to_owned()),
        ..Target::default()
    };
    thread::scope(|scope| {
        scope.spawn(move || server(listener.accept().expect("a client").0));
        client(target)
    })
}

fn log_in(stream: &mut TcpStream) {
    read_until(stream, |input| {
        Startup::first(input).expect("a start").is_some()
    });
    let mut output = Vec::new();
    backend::authentication(&mut output, Authentication::Ok);
    backend::ready_for_query(&mut output, Idle);
    stream.write_all(&output).expect("the client reads");
}

/// Reads one request.
fn read_until(stream: &mut TcpStream, is_whole: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut input = Vec::new();
    while !is_whole(&input) {
        let mut piece = [0; 1 << 10];
        let count = stream.read(&mut piece).expect("the client sends");
        assert!(count > 0, "the client has closed its connection");
        input.extend_from_slice(&piece[..count]);
    }
    input
}

fn message(stream: &mut TcpStream) -> Vec<u8> {
    read_until(stream, |input| {
        Message::first(input, 1 << 20).expect("a message").is_some()
    })
}

fn perform(stream: &mut TcpStream, act: Act) {
    message(stream);
    let mut output = Vec::new();
    let mut error = |severity, code| {
        backend::error(&mut output, &NewReport::new(severity, code, "scripted"));
    };
    match act {
        Complete(tag, status) => {
            backend::command_complete(&mut output, tag.as_bytes());
            backend::ready_for_query(&mut output, status);
        }
        Refuse(code) => {
            error(Severity::Error, code);
            backend::ready_for_query(&mut output, Failed);
        }
        End(code) => error(Severity::Fatal, code),
        Close => {}
    }
    stream.write_all(&output).expect("the client reads");
}

/// The ending of a transaction with one statement, as a letter, and whether there is a result.
fn ending(acts: Vec<Act>) -> (char, bool) {
    with_server(acts, |mut session| {
        let done = transact(&mut session, "BEGIN", |session| {
            session.query("UPDATE").map(|_| Wish::Commit(()))
        });
        (letter(&done.ending), done.result.is_some())
    })
}

fn letter(ending: &Ending) -> char {
    match ending {
        Ending::Committed => 'C',
        Ending::RolledBack(_) => 'R',
        Ending::Unknown(_) => 'U',
    }
}

fn begun(then: Vec<Act>) -> Vec<Act> {
    let begin = [Complete("BEGIN", InBlock), Complete("UPDATE 1", InBlock)];
    begin.into_iter().chain(then).collect()
}

#[test]
fn an_acknowledged_commit_is_committed() {
    assert_eq!(ending(begun(vec![Complete("COMMIT", Idle)])), ('C', true));
}

/// PostgreSQL answers the COMMIT of a failed transaction with the tag ROLLBACK and no error.
#[test]
fn a_commit_that_says_rollback_is_rolled_back() {
    assert_eq!(ending(begun(vec![Complete("ROLLBACK", Idle)])).0, 'R');
}

#[test]
fn a_commit_without_a_reply_is_unknown() {
    assert_eq!(ending(begun(vec![Close])).0, 'U');
    assert_eq!(ending(begun(vec![End("57P01")])).0, 'U');
}

#[test]
fn a_refused_commit_is_what_its_sqlstate_says() {
    let refused = |code| ending(begun(vec![Refuse(code), Complete("ROLLBACK", Idle)])).0;
    assert_eq!(
        ["40001", "23505", "08007", "40003"].map(refused),
        ['R', 'R', 'U', 'U']
    );
}

/// Nothing was committed before COMMIT is sent, so the loss of the connection is no secret.
#[test]
fn a_connection_lost_before_the_commit_is_a_rollback() {
    assert_eq!(
        ending(vec![Complete("BEGIN", InBlock), Close]),
        ('R', false)
    );
    assert_eq!(ending(vec![End("57P01")]), ('R', false));
}

/// A statement of its own may be committed whenever its reply is missing.
#[test]
fn a_statement_alone_is_unknown_without_a_reply() {
    for (acts, expected) in [
        (vec![Complete("INSERT 0 1", Idle)], 'C'),
        (vec![Refuse("23505")], 'R'),
        (vec![Close], 'U'),
        (vec![End("57P01")], 'U'),
    ] {
        let done = with_server(acts, |mut session| {
            execute_alone(&mut session, "INSERT $1", &[Value::Number(1)])
        });
        assert_eq!(letter(&done.ending), expected);
    }
}

/// A server in the middle that does not know the password says that the login has succeeded.
#[test]
fn a_server_that_skips_its_proof_is_refused() {
    let server = |mut stream: TcpStream| {
        read_until(&mut stream, |input| {
            Startup::first(input).expect("a start").is_some()
        });
        let mut output = Vec::new();
        backend::sasl(&mut output);
        stream.write_all(&output).expect("the client reads");
        let first = message(&mut stream);
        let (first, _) = Message::first(&first, 1 << 20)
            .ok()
            .flatten()
            .expect("a message");
        let Ok(Request::Authenticate(body)) = Request::read(first) else {
            panic!("no step of SCRAM: {first:?}");
        };
        let begun = SaslInitial::read(body).expect("the first step").data;
        let secret = scram::Secret::of_password(b"another", b"salt", 4096);
        let begun = scram::Server::begin(&secret, begun.expect("a nonce"), "nonce");
        let (_, answer) = begun.expect("a start");
        let mut output = Vec::new();
        backend::authentication(&mut output, Authentication::SaslContinue(answer.as_bytes()));
        stream.write_all(&output).expect("the client reads");
        message(&mut stream);
        let mut output = Vec::new();
        backend::authentication(&mut output, Authentication::Ok);
        backend::ready_for_query(&mut output, Idle);
        stream.write_all(&output).expect("the client reads");
    };
    let refused = served(server, |target| {
        Session::open(&target, Protocol::Simple, LIMIT)
    });
    match refused {
        Err(Failure::Protocol(text)) => assert!(text.contains("has not proved"), "{text}"),
        other => panic!("{other:?}"),
    }
}
