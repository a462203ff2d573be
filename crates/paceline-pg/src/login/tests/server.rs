//! The login to a server, against scripts.

use paceline_pg_wire::{backend, NewReport, Severity, TransactionStatus};

use super::*;

fn login(tls: ServerTls) -> ServerLogin {
    ServerLogin::new(ServerStart {
        tls,
        user: "ada".to_owned(),
        parameters: vec![("database".to_owned(), b"bank".to_vec())],
        credentials: ServerCredentials::Password(plain("pencil")),
        nonce: [1; 18],
    })
}

fn started(tls: ServerTls) -> ServerLogin {
    let mut login = login(tls);
    login.start(&mut Vec::new());
    login
}

/// Feeds all messages of `input`, and gives the last step.
fn feed_all(login: &mut ServerLogin, input: &[u8]) -> ServerStep {
    let mut rest = input;
    loop {
        let (consumed, step) = login.feed(rest, &mut Vec::new());
        rest = &rest[consumed..];
        if consumed == 0 || rest.is_empty() || !matches!(step, ServerStep::More) {
            return step;
        }
    }
}

/// A server whose error has no SQLSTATE made other poolers read behind the message.
#[test]
fn login_error_without_sqlstate() {
    let mut login = started(ServerTls::Disabled);
    let ServerStep::Failed(failure) = feed_all(&mut login, b"E\0\0\0\x0bMnope\0\0") else {
        unreachable!("an error ends the login");
    };
    let expected = ServerFailure {
        severity: None,
        code: None,
        message: "nope".to_owned(),
    };
    assert_eq!((failure.is_temporary(), failure), (false, expected));
    // What follows is not read.
    assert_eq!(login.feed(b"Z\0\0\0\x05I", &mut Vec::new()).0, 0);
}

/// A server that can't start a process sends a text without a length.
#[test]
fn an_error_without_a_length_is_read_too() {
    let text = b"Ecould not fork new process\n\0";
    for tls in [ServerTls::Disabled, ServerTls::Preferred] {
        let mut login = started(tls);
        for end in 0..text.len() {
            let (consumed, step) = login.feed(&text[..end], &mut Vec::new());
            assert!(matches!((consumed, step), (0, ServerStep::More)), "{end}");
        }
        let ServerStep::Failed(failure) = feed_all(&mut login, text) else {
            unreachable!("an error ends the login");
        };
        assert_eq!(failure.message, "could not fork new process");
    }
}

#[test]
fn a_server_that_starts_is_waited_for() {
    let mut bytes = Vec::new();
    let report = NewReport::new(
        Severity::Fatal,
        "57P03",
        "the database system is starting up",
    );
    backend::error(&mut bytes, &report);
    let step = feed_all(&mut started(ServerTls::Disabled), &bytes);
    let ServerStep::Failed(failure) = step else {
        unreachable!("{step:?}");
    };
    assert!(failure.is_temporary());
    assert_eq!(failure.severity.as_deref(), Some("FATAL"));
}

#[test]
fn the_answer_to_the_question_for_tls_decides() {
    use ServerTls::{Preferred, Required};
    let mut out = Vec::new();
    let mut asking = login(Preferred);
    asking.start(&mut out);
    assert_eq!(out.len(), 8, "the question comes first, and alone");
    let (consumed, step) = asking.feed(b"S", &mut out);
    assert!(matches!((consumed, step), (1, ServerStep::StartTls)));
    asking.tls_started(&mut out);
    assert!(out.ends_with(b"user\0ada\0database\0bank\0\0"));
    for (tls, answer, is_over) in [
        (Preferred, &b"N"[..], false),
        (Required, b"N", true),
        (Required, b"S\x16", true),
        (Preferred, b"X", true),
        (Preferred, b"E\0\0\0\x08Mx\0", false),
        (Preferred, b"E\0\0\0\x08Mx\0\0", true),
    ] {
        let step = feed_all(&mut started(tls), answer);
        assert_eq!(matches!(step, ServerStep::Failed(_)), is_over, "{answer:?}");
    }
}

/// An attacker in the server's place must not succeed without the proof.
#[test]
fn a_server_proves_itself_before_it_is_believed() {
    let mut login = started(ServerTls::Disabled);
    let mut bytes = Vec::new();
    backend::sasl(&mut bytes);
    let mut out = Vec::new();
    let (_, step) = login.feed(&bytes, &mut out);
    assert!(matches!(step, ServerStep::More));
    bytes.clear();
    backend::authentication(&mut bytes, backend::Authentication::Ok);
    assert!(matches!(
        feed_all(&mut login, &bytes),
        ServerStep::Failed(_)
    ));
}

#[test]
fn messages_out_of_order_end_the_login() {
    let mut ready = Vec::new();
    backend::ready_for_query(&mut ready, TransactionStatus::Idle);
    let mut twice = Vec::new();
    backend::authentication(&mut twice, backend::Authentication::Ok);
    backend::authentication(&mut twice, backend::Authentication::Ok);
    let mut unknown = Vec::new();
    backend::authentication(&mut unknown, backend::Authentication::Other(7));
    for bytes in [
        ready,
        twice,
        unknown,
        b"?\0\0\0\x04".to_vec(),
        b"Z\0\0\0\0".to_vec(),
    ] {
        let step = feed_all(&mut started(ServerTls::Disabled), &bytes);
        assert!(matches!(step, ServerStep::Failed(_)), "{bytes:?}: {step:?}");
    }
}

/// The last value of a parameter holds, and notices are passed over.
#[test]
fn parameters_are_collected() {
    let mut bytes = Vec::new();
    backend::notice(
        &mut bytes,
        &NewReport::new(Severity::Notice, "00000", "hello"),
    );
    backend::authentication(&mut bytes, backend::Authentication::Ok);
    backend::parameter(&mut bytes, b"a", b"1");
    backend::parameter(&mut bytes, b"b", b"2");
    backend::parameter(&mut bytes, b"a", b"3");
    backend::key_data(&mut bytes, 9, &[1; 32]);
    backend::ready_for_query(&mut bytes, TransactionStatus::Idle);
    let ServerStep::Ready(ready) = feed_all(&mut started(ServerTls::Disabled), &bytes) else {
        unreachable!("the server is ready");
    };
    let pair = |name: &[u8], value: &[u8]| (name.to_vec(), value.to_vec());
    assert_eq!(ready.parameters, [pair(b"b", b"2"), pair(b"a", b"3")]);
    assert_eq!(ready.key, Some((9, vec![1; 32])));
}
