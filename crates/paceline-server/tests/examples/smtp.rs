//! `smtp`, by clients that others have written: Python's smtplib, and `swaks`.

use std::fs;

use super::{
    certificates::Certificates,
    program::{python, run, tool, Folder, Server},
};

/// A server with TLS, a user, and a maildir.
fn start(certificates: &Certificates, mail: &Folder) -> Server {
    let (chain, key) = (
        certificates.chain("localhost"),
        certificates.key("localhost"),
    );
    let dir = mail.path().to_str().unwrap();
    let args = ["--dir", dir, "--user", "ann:secret", "--size", "2097152"];
    Server::start("smtp", &[&args[..], &["--tls", &chain, &key]].concat())
}

/// Plain and with TLS, both ways to log in, dots, eight bits, pipelining, 1 MiB, and one too long.
#[test]
fn smtplib() {
    let (certificates, mail) = (Certificates::new(), Folder::new());
    let server = start(&certificates, &mail);
    let Some(mut python) = python("smtp_client.py") else {
        return;
    };
    let dir = mail.path().to_str().unwrap();
    let ended = run(python.args([&server.port(), &certificates.root(), dir]));
    assert_eq!(ended.code, Some(0), "{}", ended.errors);
    assert_eq!(ended.lines.last().unwrap(), "all passed");
    server.end();
}

/// swaks verifies the certificate, logs in and pipelines; and then without any of that.
#[test]
fn swaks() {
    let (certificates, mail) = (Certificates::new(), Folder::new());
    let server = start(&certificates, &mail);
    let address = server.address.to_string();
    let root = certificates.root();
    let message = [
        "--to",
        "ben@example.org",
        "--from",
        "ann@example.org",
        "--server",
        &address,
    ];
    let login = ["--auth-user", "ann", "--auth-password", "secret"];
    let secure = ["--tls", "--tls-verify", "--tls-ca-path", &root];
    let ways: [&[&str]; 4] = [
        &[],
        &["--pipeline"],
        &[&secure[..], &login, &["--auth", "PLAIN", "--pipeline"]].concat(),
        &[&secure[..], &login, &["--auth", "LOGIN"]].concat(),
    ];
    for way in ways {
        let Some(mut swaks) = tool("swaks", "--version") else {
            return;
        };
        let body = ["--body", "first\n.second\n..\n"];
        let ended = run(swaks.args(message).args(way).args(body));
        assert_eq!(ended.code, Some(0), "{way:?}: {:#?}", ended.lines);
        let files = mail.list("new");
        assert_eq!(files.len(), 1, "{way:?}");
        let text = fs::read_to_string(&files[0]).unwrap();
        assert!(
            text.contains("\r\n\r\nfirst\r\n.second\r\n..\r\n"),
            "{way:?}: {text}"
        );
        fs::remove_file(&files[0]).unwrap();
    }
    server.end();
}

/// Without a folder, each mail is a line on standard output.
#[test]
fn mail_without_a_folder_is_summed_up() {
    let Some(mut swaks) = tool("swaks", "--version") else {
        return;
    };
    let server = Server::start("smtp", &[]);
    let address = server.address.to_string();
    let message = ["--to", "ben@example.org", "--from", "ann@example.org"];
    let data = ["--data", "Subject: hello\\n\\nyou\\n"];
    let ended = run(swaks.args(message).args(data).args(["--server", &address]));
    assert_eq!(ended.code, Some(0), "{:#?}", ended.lines);
    let line = server.line();
    let start = "mail from <ann@example.org> to ben@example.org: ";
    assert!(
        line.starts_with(start) && line.ends_with(" bytes, subject \"hello\""),
        "{line}"
    );
    server.end();
}
