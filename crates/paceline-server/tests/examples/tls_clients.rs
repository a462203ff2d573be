//! TLS of `line_echo`, by clients that others have written: `openssl`, `sslscan`, Python's ssl.

use std::{
    fs,
    io::{Read, Write},
    process::Stdio,
};

use super::{
    certificates::Certificates,
    program::{python, run, tool, Program, Server},
};

/// `line_echo` with a certificate for `localhost`, and one for `other.test`.
fn start(certificates: &Certificates) -> Server {
    certificates.sign("other", &["other.test"]);
    let (chain, key) = (
        certificates.chain("localhost"),
        certificates.key("localhost"),
    );
    let (other, other_key) = (certificates.chain("other"), certificates.key("other"));
    let named = ["--tls-named", "other.test", &other, &other_key];
    let args = [&["--tls", &chain, &key][..], &named].concat();
    Server::start("line_echo", &args)
}

/// OpenSSL verifies the certificate, in both versions, and its lines come back.
#[test]
fn openssl_in_both_versions() {
    let certificates = Certificates::new();
    let server = start(&certificates);
    for (version, name) in [("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")] {
        let Some(mut openssl) = tool("openssl", "version") else {
            return;
        };
        openssl
            .args(["s_client", "-brief", version, "-verify_return_error"])
            .args(["-servername", "localhost", "-verify_hostname", "localhost"])
            .args(["-CAfile", &certificates.root()])
            .args(["-connect", &server.address.to_string()])
            .stdin(Stdio::piped());
        let mut client = Program::start(&mut openssl);
        let mut input = client.stdin();
        input.write_all(b"hello\n").unwrap();
        assert_eq!(client.line(), "hello");
        input.write_all(b"Q\n").unwrap();
        let ended = client.wait();
        assert!(
            ended.errors.contains("Verification: OK"),
            "{}",
            ended.errors
        );
        assert!(ended.errors.contains(name), "{}", ended.errors);
    }
    server.end();
}

/// The name that a client asks for decides which certificate it gets; an unknown one, the first.
#[test]
fn python_verifies_each_name() {
    let certificates = Certificates::new();
    let server = start(&certificates);
    let Some(mut python) = python("tls_client.py") else {
        return;
    };
    let ended = run(python.args([&server.port(), &certificates.root()]));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.lines.last().unwrap(), "all passed");
    server.end();
}

/// SIGHUP reads the files anew: new connections see the new certificate, old ones go on. A bad file
/// leaves the old one in force.
#[test]
fn certificates_are_read_anew() {
    let certificates = Certificates::new();
    let server = start(&certificates);
    let Some(mut python) = python("tls_reload.py") else {
        return;
    };
    let mut client = Program::start(
        python
            .args([&server.port(), &certificates.root()])
            .stdin(Stdio::piped()),
    );
    let mut input = client.stdin();
    let first = client.line();
    certificates.sign("localhost", &["localhost", "127.0.0.1"]);
    server.signal("HUP");
    server.wait_for_error("certificates read anew");
    writeln!(input, "until another certificate than {first}").unwrap();
    let second = client.line();
    assert_ne!(first, second);
    fs::write(certificates.key("localhost"), "no key").unwrap();
    server.signal("HUP");
    server.wait_for_error("the old certificates stay: ");
    drop(input);
    assert_eq!(client.line(), "the old connection goes on");
    assert_eq!(client.wait().code, Some(0));
    server.end();
}

/// sslscan finds no old version. Its report is printed.
#[test]
fn sslscan_finds_no_old_version() {
    let certificates = Certificates::new();
    let server = start(&certificates);
    let Some(mut sslscan) = tool("sslscan", "--version") else {
        return;
    };
    let quick = [
        "--no-colour",
        "--no-ciphersuites",
        "--no-groups",
        "--no-heartbleed",
    ];
    let ended = run(sslscan.args(quick).arg(server.address.to_string()));
    let report = ended.lines.join("\n");
    println!("{report}");
    let has = |version: &str, state: &str| {
        let mut lines = ended.lines.iter();
        lines.any(|line| line.starts_with(version) && line.ends_with(state))
    };
    for version in ["SSLv2", "SSLv3", "TLSv1.0", "TLSv1.1"] {
        assert!(has(version, "disabled"), "{version}\n{report}");
    }
    for version in ["TLSv1.2", "TLSv1.3"] {
        assert!(has(version, "enabled"), "{version}\n{report}");
    }
}

/// Plain text on the TLS port ends with an alert, and no line of it is echoed.
#[test]
fn plain_text_is_refused() {
    let server = Server::start("line_echo", &["--tls-self-signed", "--access-log"]);
    let mut client = server.connect();
    client.write_all(b"hello\n").unwrap();
    let mut answer = Vec::new();
    // The server may reset the connection.
    let _ = client.read_to_end(&mut answer);
    assert!(!String::from_utf8_lossy(&answer).contains("hello"));
    let ended = server.end();
    assert!(
        ended.errors.contains("plain text instead of TLS"),
        "{}",
        ended.errors
    );
}

/// A certificate made at the start serves a client that does not verify it.
#[test]
fn the_certificate_of_a_trial_works_too() {
    let server = Server::start("line_echo", &["--tls-self-signed"]);
    let Some(mut openssl) = tool("openssl", "version") else {
        return;
    };
    openssl
        .args([
            "s_client",
            "-brief",
            "-connect",
            &server.address.to_string(),
        ])
        .stdin(Stdio::piped());
    let mut client = Program::start(&mut openssl);
    let mut input = client.stdin();
    input.write_all(b"hello\n").unwrap();
    assert_eq!(client.line(), "hello");
    drop(input);
    client.wait();
    server.end();
}
