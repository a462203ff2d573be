//! The logins of `paceline-pg`.

use std::sync::Arc;

use paceline_pg::login::{
    Admission, AuthType, ClientLogin, ClientStep, ClientTls, Closing, LoginSettings, Seeds,
    ServerCredentials, ServerLogin, ServerStart, ServerStep, ServerTls, StartupRules,
    StoredPassword, Transport,
};

use crate::script::{pieces, Script};

/// What a login has come to: each step by its name, and all bytes that were sent.
#[derive(Debug, Default, PartialEq, Eq)]
struct Course {
    steps: Vec<String>,
    sent: Vec<u8>,
}

const PASSWORD: &[u8] = b"a password that no input holds, 8f3a6c1e";

/// No input proves a password that it does not hold, none makes the login panic, and a login has the
/// same course wherever its input is cut.
pub(crate) fn no_client_logs_in_by_chance(data: &[u8]) {
    let mut script = Script::new(data);
    let settings = LoginSettings {
        tls: script.choose(&[ClientTls::Disabled, ClientTls::Allowed, ClientTls::Required]),
        auth_type: script.choose(&[AuthType::Plain, AuthType::Md5, AuthType::Scram]),
        scram_iterations: 1,
        rules: StartupRules {
            tracked: vec!["DateStyle".to_owned()],
            ignored: vec!["extra_float_digits".to_owned()],
            passes_others: script.choose(&[true, false]),
        },
        mock_seed: [3; 32],
    };
    let admission = if script.choose(&[true, false]) {
        Admission::Unknown
    } else {
        Admission::Known {
            password: StoredPassword::Plain(Arc::from(PASSWORD)),
            verifier: None,
        }
    };
    let cuts = script.cuts();
    let input = script.rest();
    let at_once = client_course(&[input], &settings, &admission);
    let proved = at_once.steps.iter().any(|step| step.starts_with("Proved"));
    assert!(!proved, "{at_once:?}");
    // Bytes behind a question about encryption are refused only if they come with it.
    let question = format!("{:?}", ClientStep::Close(Closing::BytesBehindQuestion));
    if !at_once.steps.contains(&question) {
        let cut = client_course(&pieces(input, &cuts), &settings, &admission);
        assert_eq!(at_once, cut, "{input:?}");
    }
}

fn client_course(pieces: &[&[u8]], settings: &LoginSettings, admission: &Admission) -> Course {
    let seeds = Seeds {
        md5_salt: *b"salt",
        nonce: [7; 18],
        scram_salt: [9; 16],
    };
    let mut login = ClientLogin::new(Transport::Tcp, seeds);
    let mut course = Course::default();
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        while feed_client(&mut login, &mut buffer, settings, admission, &mut course) {}
    }
    course
}

/// Takes one packet or message. Whether there may be another.
fn feed_client(
    login: &mut ClientLogin,
    buffer: &mut Vec<u8>,
    settings: &LoginSettings,
    admission: &Admission,
    course: &mut Course,
) -> bool {
    let fed = login.feed(buffer, settings, &mut course.sent);
    buffer.drain(..fed.consumed);
    let mut step = fed.step;
    loop {
        if !matches!(step, ClientStep::More) {
            course.steps.push(format!("{step:?}"));
        }
        step = match step {
            ClientStep::More => return fed.consumed > 0,
            ClientStep::Start(_) => login.admit(admission.clone(), settings, &mut course.sent),
            ClientStep::Hash(hashing) => login.hashed(hashing.run(), &mut course.sent),
            ClientStep::StartTls => {
                login.tls_started();
                return true;
            }
            _ => return false,
        };
    }
}

/// No server makes a login panic, and a login has the same course wherever the answers are cut.
pub(crate) fn no_server_breaks_a_login(data: &[u8]) {
    let mut script = Script::new(data);
    let tls = script.choose(&[ServerTls::Disabled, ServerTls::Preferred]);
    let cuts = script.cuts();
    let input = script.rest();
    // An answer to the request for TLS arrives alone.
    if tls == ServerTls::Disabled || input.first() != Some(&b'S') {
        let at_once = server_course(&[input], tls);
        assert_eq!(
            at_once,
            server_course(&pieces(input, &cuts), tls),
            "{input:?}"
        );
    }
}

fn server_course(pieces: &[&[u8]], tls: ServerTls) -> Course {
    let mut login = ServerLogin::new(ServerStart {
        tls,
        user: "ada".to_owned(),
        parameters: Vec::new(),
        credentials: ServerCredentials::Password(StoredPassword::Plain(Arc::from(PASSWORD))),
        nonce: [1; 18],
    });
    let mut course = Course::default();
    login.start(&mut course.sent);
    let mut buffer = Vec::new();
    for piece in pieces {
        buffer.extend_from_slice(piece);
        loop {
            let (consumed, step) = login.feed(&buffer, &mut course.sent);
            buffer.drain(..consumed);
            if !matches!(step, ServerStep::More) {
                // The proof is not computed: a hostile server chooses how long that takes.
                course.steps.push(format!("{step:?}"));
                break;
            }
            if consumed == 0 {
                break;
            }
        }
    }
    course
}
