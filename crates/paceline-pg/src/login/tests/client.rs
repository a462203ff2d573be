//! The login of a client, against scripts.

use super::*;
use AuthType::{Md5, Plain, Scram, Trust};

fn opening(input: &[u8], settings: &LoginSettings) -> (Fed, Vec<u8>) {
    let mut out = Vec::new();
    let fed = tcp().feed(input, settings, &mut out);
    (fed, out)
}

fn with_tls(tls: ClientTls) -> LoginSettings {
    LoginSettings {
        tls,
        ..settings(Trust)
    }
}

fn ssl_request() -> Vec<u8> {
    let mut bytes = Vec::new();
    startup::ask_tls(&mut bytes);
    bytes
}

const GSS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 48];

/// A peer on the way puts bytes behind the question: taken as the client's, they would be read
/// after the handshake as if they had been encrypted.
#[test]
fn bytes_behind_sslrequest() {
    for question in [ssl_request(), GSS_REQUEST.to_vec()] {
        for tls in [ClientTls::Disabled, ClientTls::Allowed] {
            let settings = with_tls(tls);
            let bytes = [question.clone(), hello(0, &[])].concat();
            let (fed, out) = opening(&bytes, &settings);
            assert!(matches!(
                fed.step,
                ClientStep::Close(Closing::BytesBehindQuestion)
            ));
            assert!(out.is_empty(), "nothing is answered");
        }
    }
}

#[test]
fn questions_are_answered_once() {
    let settings = with_tls(ClientTls::Allowed);
    let mut login = tcp();
    let mut out = Vec::new();
    let fed = login.feed(&GSS_REQUEST, &settings, &mut out);
    assert!(matches!((fed.consumed, fed.step), (8, ClientStep::More)));
    let fed = login.feed(&ssl_request(), &settings, &mut out);
    assert!(matches!(
        (fed.consumed, fed.step),
        (8, ClientStep::StartTls)
    ));
    assert_eq!(out, b"NS");
    // The login reads no input before the handshake is done.
    assert_eq!(login.feed(&hello(0, &[]), &settings, &mut out).consumed, 0);
    login.tls_started();
    let again = login.feed(&ssl_request(), &settings, &mut out);
    let closed = ClientStep::Close(Closing::RepeatedQuestion);
    assert_eq!(format!("{:?}", again.step), format!("{closed:?}"));
}

#[test]
fn a_unix_socket_has_no_tls() {
    let settings = with_tls(ClientTls::Required);
    let mut login = ClientLogin::new(Transport::Unix, SEEDS);
    let mut out = Vec::new();
    let fed = login.feed(&ssl_request(), &settings, &mut out);
    assert!(matches!(fed.step, ClientStep::More));
    let fed = login.feed(&hello(0, &[]), &settings, &mut out);
    assert!(matches!(fed.step, ClientStep::Start(_)), "{:?}", fed.step);
    assert_eq!(out, b"N");
}

#[test]
fn tls_may_begin_at_once_only_where_it_may_begin() {
    let (fed, _) = opening(b"\x16\x03\x01", &with_tls(ClientTls::Required));
    assert!(matches!(
        (fed.consumed, fed.step),
        (0, ClientStep::StartDirectTls)
    ));
    let (fed, _) = opening(b"\x16\x03\x01", &with_tls(ClientTls::Disabled));
    assert!(matches!(
        fed.step,
        ClientStep::Close(Closing::UnexpectedTls)
    ));
    let (fed, out) = opening(&hello(0, &[]), &with_tls(ClientTls::Required));
    assert!(matches!(fed.step, ClientStep::Refused(_)));
    assert_eq!(error_text(&out).as_deref(), Some("SSL required"));
}

/// A client that offers 3.9999 or a protocol option gets the newest version of both sides.
#[test]
fn versions_are_negotiated() {
    for (offered, options, expected) in [
        (0, &[][..], None),
        (2, &[], None),
        (9999, &[], Some((0x3_0002, 0, 2))),
        (0, &[("_pq_.x", "1")], Some((0x3_0000, 1, 0))),
        (
            2,
            &[("_pq_.x", "1"), ("_pq_.y", "")],
            Some((0x3_0002, 2, 2)),
        ),
    ] {
        let (fed, out) = opening(&hello(offered, options), &settings(Trust));
        let ClientStep::Start(request) = fed.step else {
            unreachable!("3.{offered}: {:?}", fed.step);
        };
        let Some((version, unknown, minor)) = expected else {
            assert!(out.is_empty() && request.minor == offered);
            continue;
        };
        assert_eq!(request.minor, minor);
        let (message, length) = Message::first(&out, 1000).expect("good").expect("whole");
        assert_eq!(length, out.len(), "it is sent once");
        let Ok(Reply::Negotiate {
            minor,
            unknown: names,
        }) = Reply::read(message)
        else {
            unreachable!("{message:?}");
        };
        assert_eq!((minor, names.iter().count()), (version, unknown));
    }
}

/// One byte longer than a name may be.
const LONG: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\
                    0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

#[test]
fn a_session_that_can_not_be_is_refused_by_name() {
    for (further, text) in [
        (("work_mem", "1"), "unsupported startup parameter: work_mem"),
        (("replication", "database"), "replication connections are not supported"),
        (("user", ""), "no username supplied"),
        (("user", LONG), "username too long"),
        (("database", LONG), "database name too long"),
        (("options", "-x"), "unsupported options startup parameter: only '-c config=val' and '--config=val' are allowed"),
    ] {
        let (fed, out) = opening(&hello(0, &[further]), &settings(Trust));
        assert!(matches!(fed.step, ClientStep::Refused(_)), "{further:?}");
        assert_eq!(error_text(&out).as_deref(), Some(text));
    }
    let old = [0, 0, 0, 8, 0, 2, 0, 0];
    let (_, out) = opening(&old, &settings(Trust));
    assert_eq!(
        error_text(&out).as_deref(),
        Some("old V2 protocol not supported")
    );
}

/// Session mode passes other parameters on to the server, as drivers want it.
#[test]
fn other_parameters_are_passed_on_in_session_mode() {
    let mut settings = settings(Trust);
    settings.rules.passes_others = true;
    settings.rules.ignored.push("extra_float_digits".to_owned());
    let further = [
        ("statement_timeout", "5"),
        ("APPLICATION_NAME", "x"),
        ("extra_float_digits", "3"),
        ("replication", "off"),
        ("database", "bank"),
    ];
    let (fed, _) = opening(&hello(0, &further), &settings);
    let ClientStep::Start(request) = fed.step else {
        unreachable!("{:?}", fed.step);
    };
    assert_eq!(
        request.others,
        [("statement_timeout".to_owned(), b"5".to_vec())]
    );
    assert_eq!(
        request.parameters,
        [("application_name".to_owned(), b"x".to_vec())]
    );
    assert_eq!(request.database, "bank");
}

#[test]
fn a_cancel_is_read_and_has_no_reply() {
    let mut bytes = Vec::new();
    let key = startup::CancelKey {
        process: 5,
        secret: b"1234",
    };
    startup::cancel(&mut bytes, key);
    let (fed, out) = opening(&bytes, &settings(Trust));
    let ClientStep::Cancel { process, secret } = fed.step else {
        unreachable!("{:?}", fed.step);
    };
    assert_eq!((process, &*secret, out.len()), (5, &b"1234"[..], 0));
}

/// Brings a login to its question.
fn asked(auth: AuthType, admission: Admission) -> (ClientLogin, LoginSettings) {
    let settings = settings(auth);
    let mut login = tcp();
    let mut out = Vec::new();
    let fed = login.feed(&hello(0, &[]), &settings, &mut out);
    assert!(matches!(fed.step, ClientStep::Start(_)));
    if let ClientStep::Hash(hashing) = login.admit(admission, &settings, &mut out) {
        assert!(matches!(
            login.hashed(hashing.run(), &mut out),
            ClientStep::More
        ));
    }
    (login, settings)
}

/// After any wrong password message, the login ends with an error and takes no more input.
#[test]
fn a_strange_answer_ends_the_login() {
    for auth in [Plain, Md5, Scram] {
        for answer in [
            &b"p\0\0\0\x04"[..],
            b"p\0\0\0\x05\0",
            b"Q\0\0\0\x05\0",
            b"p\0\0\0\x07ab\0",
        ] {
            let (mut login, settings) = asked(auth, known(plain("pencil")));
            let mut out = Vec::new();
            let fed = login.feed(answer, &settings, &mut out);
            assert!(
                matches!(fed.step, ClientStep::Refused(_)),
                "{auth:?} {answer:?}"
            );
            assert!(error_text(&out).is_some());
            assert_eq!(login.feed(answer, &settings, &mut out).consumed, 0);
        }
    }
}

/// A message of 2 GiB must not be waited for.
#[test]
fn a_password_has_a_limit() {
    let (mut login, settings) = asked(Plain, known(plain("pencil")));
    let fed = login.feed(b"p\0\x10\0\0", &settings, &mut Vec::new());
    assert!(matches!(fed.step, ClientStep::Close(Closing::Malformed(_))));
    let long = "x".repeat(65_534);
    let (mut login, settings) = asked(Plain, known(plain(&long)));
    let mut bytes = Vec::new();
    paceline_pg_wire::frontend::password(&mut bytes, long.as_bytes());
    let fed = login.feed(&bytes, &settings, &mut Vec::new());
    assert!(matches!(fed.step, ClientStep::Proved(_)));
}

#[test]
fn trust_needs_a_known_user() {
    let settings = settings(Trust);
    let mut login = tcp();
    let mut out = Vec::new();
    assert!(matches!(
        login.feed(&hello(0, &[]), &settings, &mut out).step,
        ClientStep::Start(_)
    ));
    let step = login.admit(Admission::Unknown, &settings, &mut out);
    assert!(matches!(step, ClientStep::Refused(_)));
    assert_eq!(
        error_text(&out).as_deref(),
        Some("\"trust\" authentication failed")
    );
}

/// A secret that was derived once serves until the password or the iterations change.
#[test]
fn a_verifier_is_derived_once() {
    let mut verifiers = Verifiers::default();
    let stored = plain("pencil");
    let settings = settings(Scram);
    let (mut login, mut out) = (tcp(), Vec::new());
    let _start = login.feed(&hello(0, &[]), &settings, &mut out);
    let ClientStep::Hash(hashing) = login.admit(known(stored.clone()), &settings, &mut out) else {
        unreachable!("a plain password is hashed");
    };
    let hashed = hashing.run();
    let secret = hashed.derived().expect("a secret");
    verifiers.put("ada", &stored, 2, secret);
    assert!(verifiers.get("ada", &stored, 2).is_some());
    assert!(verifiers.get("ada", &stored, 3).is_none());
    assert!(verifiers.get("ada", &plain("pen"), 2).is_none());
    assert!(verifiers.get("bo", &stored, 2).is_none());
    let (mut login, mut out) = (tcp(), Vec::new());
    let _start = login.feed(&hello(0, &[]), &settings, &mut out);
    let admission = Admission::Known {
        password: stored.clone(),
        verifier: verifiers.get("ada", &stored, 2),
    };
    let step = login.admit(admission, &settings, &mut out);
    assert!(matches!(step, ClientStep::More), "{step:?}");
}

/// Three advisories of PgBouncer were about malformed messages of logins. Each change of a good
/// exchange is refused, or waits for more.
#[test]
fn scram_malformed_fuzz() {
    use paceline_pg_wire::{auth::scram::Client, frontend};
    let client = Client::new("abc");
    let mut first = Vec::new();
    frontend::sasl_initial(&mut first, b"SCRAM-SHA-256", client.first().as_bytes());
    let mut last = Vec::new();
    let proof = [b'A'; 44];
    let last_text = [&b"c=biws,r=abc"[..], &[b'H'; 18], b",p=", &proof].concat();
    frontend::sasl_response(&mut last, &last_text);
    let (mut dice, mut refused) = (1_u64, 0);
    for _ in 0..3_000 {
        let (mut login, settings) = asked(Scram, known(plain("pencil")));
        let mut bytes = [first.clone(), last.clone()].concat();
        for _ in 0..3 {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let place = usize::try_from(dice >> 33).expect("31 bits") % bytes.len();
            bytes[place] = dice.to_be_bytes()[1];
        }
        let mut out = Vec::new();
        loop {
            let fed = login.feed(&bytes, &settings, &mut out);
            bytes.drain(..fed.consumed);
            match fed.step {
                ClientStep::More if fed.consumed > 0 => {}
                ClientStep::More => break,
                ClientStep::Refused(_) | ClientStep::Close(_) => {
                    refused += 1;
                    break;
                }
                other => unreachable!("{other:?}"),
            }
        }
    }
    assert!(refused > 1_000, "{refused}");
}
