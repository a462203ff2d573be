//! The front-end logs in to itself: the machine for servers against the machine for clients.

use super::*;

/// The end of a login between the two machines.
#[derive(Debug)]
enum End {
    In(ServerReady, Proof),
    Out(ServerFailure),
}

/// Carries bytes between both, `step` at a time.
fn run(auth: AuthType, stored: Admission, credentials: ServerCredentials, step: usize) -> End {
    let settings = settings(auth);
    let mut server = ServerLogin::new(ServerStart {
        tls: ServerTls::Disabled,
        user: "ada".to_owned(),
        parameters: vec![("application_name".to_owned(), b"test".to_vec())],
        credentials,
        nonce: [1; 18],
    });
    let mut client = tcp();
    let (mut to_client, mut to_server) = (Vec::new(), Vec::new());
    server.start(&mut to_client);
    let mut proof = None;
    for _ in 0..10_000 {
        proof = feed_client(
            &mut client,
            &mut to_client,
            &mut to_server,
            &settings,
            &stored,
            step,
        )
        .or(proof);
        if let Some(end) = feed_server(&mut server, &mut to_server, &mut to_client, step) {
            return end.map_or_else(End::Out, |ready| {
                End::In(ready, proof.expect("a client that is in has proved itself"))
            });
        }
    }
    unreachable!("the login does not end")
}

/// Shows the client's machine its input, first a few bytes of it, then more.
fn feed_client(
    client: &mut ClientLogin,
    input: &mut Vec<u8>,
    output: &mut Vec<u8>,
    settings: &LoginSettings,
    stored: &Admission,
    step: usize,
) -> Option<Proof> {
    let mut shown = step.min(input.len());
    loop {
        let fed = client.feed(&input[..shown], settings, output);
        input.drain(..fed.consumed);
        let mut next = fed.step;
        loop {
            next = match next {
                ClientStep::Start(request) => {
                    assert_eq!((&*request.user, &*request.database), ("ada", "ada"));
                    client.admit(stored.clone(), settings, output)
                }
                ClientStep::Hash(hashing) => client.hashed(hashing.run(), output),
                ClientStep::Proved(proof) => {
                    let parameters = [(&b"server_version"[..], &b"15.0"[..])];
                    welcome(output, parameters, 77, b"abcd");
                    return Some(proof);
                }
                ClientStep::More | ClientStep::Refused(_) => break,
                other => unreachable!("{other:?}"),
            };
        }
        if fed.consumed == 0 && shown >= input.len() {
            return None;
        }
        shown = (shown + step).min(input.len());
    }
}

fn feed_server(
    server: &mut ServerLogin,
    input: &mut Vec<u8>,
    output: &mut Vec<u8>,
    step: usize,
) -> Option<Result<ServerReady, ServerFailure>> {
    let mut shown = step.min(input.len());
    loop {
        let (consumed, next) = server.feed(&input[..shown], output);
        input.drain(..consumed);
        let next = match next {
            ServerStep::Hash(hashing) => server.hashed(hashing.run(), output),
            next => next,
        };
        match next {
            ServerStep::Ready(ready) => return Some(Ok(*ready)),
            ServerStep::Failed(failure) => return Some(Err(failure)),
            ServerStep::More => {}
            other => unreachable!("{other:?}"),
        }
        if consumed == 0 && shown >= input.len() {
            return None;
        }
        shown = (shown + step).min(input.len());
    }
}

fn password(text: &str) -> ServerCredentials {
    ServerCredentials::Password(plain(text))
}

fn scram_secret() -> StoredPassword {
    let secret = paceline_pg_wire::auth::scram::Secret::of_password(b"pencil", b"some salt", 3);
    StoredPassword::read(secret.to_string().as_bytes())
}

fn md5_hash() -> StoredPassword {
    let hash = paceline_pg_wire::auth::md5::stored(b"ada", b"pencil");
    StoredPassword::read(hash.as_bytes())
}

/// A login that works when its bytes come at once, and breaks when a packet boundary cuts a
/// message, is known of several poolers.
#[test]
fn split_at_every_byte() {
    use AuthType::{Any, Md5, Plain, Scram, Trust};
    for step in [1, 2, 3, 7, 1 << 16] {
        for auth in [Any, Trust, Plain, Md5, Scram] {
            for stored in [plain("pencil"), md5_hash(), scram_secret()] {
                if auth == Scram && matches!(stored, StoredPassword::Md5(_)) {
                    continue;
                }
                let end = run(auth, known(stored.clone()), password("pencil"), step);
                let End::In(ready, _) = end else {
                    unreachable!("{auth:?} with {stored:?}, {step} at a time: {end:?}");
                };
                assert_eq!(ready.key, Some((77, b"abcd".to_vec())));
                let version = (b"server_version".to_vec(), b"15.0".to_vec());
                assert_eq!(ready.parameters, [version]);
            }
        }
    }
}

/// A wrong password and an unknown user get the same bytes, up to what is random or derived of the
/// password.
#[test]
fn a_wrong_password_and_an_unknown_user_are_alike() {
    use AuthType::{Md5, Plain, Scram};
    for auth in [Plain, Md5, Scram] {
        let refused = |stored: Admission| match run(auth, stored, password("pen"), 1 << 16) {
            End::Out(failure) => failure,
            End::In(..) => unreachable!("{auth:?} accepts a wrong password"),
        };
        let wrong = refused(known(plain("pencil")));
        assert_eq!(wrong, refused(Admission::Unknown), "{auth:?}");
        assert_eq!(wrong, refused(known(plain(""))), "{auth:?}");
        if auth == Scram {
            assert_eq!(wrong, refused(known(md5_hash())));
            assert_eq!(wrong.message, "SASL authentication failed");
        } else {
            assert_eq!(wrong.message, "password authentication failed");
        }
        assert_eq!(wrong.code.as_deref(), Some("08P01"));
    }
}

/// What a client has proved by SCRAM serves for a server with the same secret.
#[test]
fn scram_keys_pass_through() {
    let stored = known(scram_secret());
    let first = run(AuthType::Scram, stored.clone(), password("pencil"), 5);
    let End::In(
        _,
        Proof {
            keys: Some(keys), ..
        },
    ) = first
    else {
        unreachable!("{first:?}");
    };
    let with_keys = ServerCredentials::Keys(keys.clone());
    assert!(matches!(
        run(AuthType::Md5, stored, with_keys.clone(), 5),
        End::In(..)
    ));
    // Another salt: the keys are worth nothing.
    let other = run(AuthType::Scram, known(plain("pencil")), with_keys, 5);
    assert!(matches!(other, End::Out(_)), "{other:?}");
}

/// The password of a user is not sent where only its hash is stored.
#[test]
fn what_is_missing_is_named() {
    for (auth, missing) in [
        (AuthType::Plain, "has not a plain password"),
        (
            AuthType::Scram,
            "has not a plain password, nor a client's proof",
        ),
    ] {
        let md5 = ServerCredentials::Password(md5_hash());
        let End::Out(failure) = run(auth, known(plain("pencil")), md5, 64) else {
            unreachable!("{auth:?}");
        };
        assert!(failure.message.ends_with(missing), "{}", failure.message);
    }
    let none = ServerCredentials::None;
    assert!(matches!(
        run(AuthType::Md5, known(plain("pencil")), none, 64),
        End::Out(_)
    ));
}

/// `userlist.txt` may hold a user without a password: no password is the right one.
#[test]
fn an_empty_password_matches_nothing() {
    for auth in [AuthType::Plain, AuthType::Md5, AuthType::Scram] {
        let end = run(auth, known(plain("")), password(""), 64);
        assert!(matches!(end, End::Out(_)), "{auth:?}: {end:?}");
    }
}
