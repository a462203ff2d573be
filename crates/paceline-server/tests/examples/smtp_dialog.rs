//! `smtp`, byte by byte: sequences that a proper client does not send, and what an attacker would.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use super::program::{read_all, run_example, Folder, Server};

/// A client that sends lines, and reads replies.
struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Server) -> Self {
        let mut client = Self(BufReader::new(server.connect()));
        assert_eq!(client.code(), 220);
        client
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    /// The code of the next reply, whose lines all have the same one. 0: the stream has ended.
    fn code(&mut self) -> u16 {
        let mut first = None;
        loop {
            let mut line = String::new();
            if self.0.read_line(&mut line).unwrap() == 0 {
                return 0;
            }
            assert!(line.ends_with("\r\n"), "{line:?}");
            let code: u16 = line[..3].parse().unwrap();
            assert_eq!(*first.get_or_insert(code), code, "{line:?}");
            if line.as_bytes()[3] == b' ' {
                return code;
            }
        }
    }

    /// Sends each line, and expects this code for it.
    fn dialog(&mut self, lines: &[(&str, u16)]) {
        for (line, code) in lines {
            self.send(format!("{line}\r\n").as_bytes());
            assert_eq!(self.code(), *code, "{line}");
        }
    }
}

/// Which command may come when, and which parameters: each mistake has its code, and changes nothing.
#[test]
fn the_order_of_commands() {
    let server = Server::start("smtp", &["--domain", "example.org", "--recipients", "2"]);
    let mut client = Client::connect(&server);
    client.dialog(&[
        ("MAIL FROM:<a@example.org>", 503),
        ("RCPT TO:<b@example.org>", 503),
        ("DATA", 503),
        ("EHLO", 501),
        ("EHLO client.example.org", 250),
        ("RCPT TO:<b@example.org>", 503),
        ("MAIL FROM:a@example.org", 501),
        ("MAIL TO:<a@example.org>", 501),
        ("MAIL FROM:<a@>", 553),
        ("MAIL FROM:<a@example.org> SIZE=x", 501),
        ("MAIL FROM:<a@example.org> SIZE=99999999999999999999", 552),
        ("MAIL FROM:<a@example.org> BODY=9BIT", 501),
        ("MAIL FROM:<a@example.org> SMTPUTF8", 555),
        ("STARTTLS", 503),
        ("AUTH PLAIN", 502),
        ("mail from:<> size=100 body=8bitmime", 250),
    ]);
    drop(client);
    let mut client = Client::connect(&server);
    client.dialog(&[
        ("HELO client", 250),
        ("MAIL FROM:<@route.example,@x:a@example.org>", 250),
        ("MAIL FROM:<a@example.org>", 503),
        ("DATA", 503),
        ("RCPT TO:<b@elsewhere.org>", 550),
        ("RCPT TO:<Postmaster>", 250),
        ("RCPT TO:<\"b >\\\" c\"@EXAMPLE.org>", 250),
        ("RCPT TO:<c@example.org>", 452),
        ("NOOP anything", 250),
        ("VRFY b", 252),
        ("VRFY", 501),
        ("HELP", 214),
        ("EXPN list", 502),
        ("HELLO", 500),
        ("RSET now", 501),
        ("RSET", 250),
        ("RCPT TO:<b@example.org>", 503),
        ("MAIL FROM:<a@example.org>", 250),
        ("RCPT TO:<b@example.org>", 250),
        ("DATA", 354),
        ("body\r\n.", 250),
        ("RCPT TO:<b@example.org>", 503),
        ("QUIT", 221),
    ]);
    assert_eq!(client.code(), 0);
    assert!(server
        .line()
        .starts_with("mail from <a@example.org> to b@example.org: 6 bytes"));
    drop(client);
    server.end();
}

/// What a client sends behind STARTTLS in plain text may be an attacker's: none of it is obeyed (CVE-2011-0411).
#[test]
fn plain_text_behind_starttls_is_refused() {
    let server = Server::start("smtp", &["--tls-self-signed", "--access-log"]);
    let mut client = Client::connect(&server);
    client.dialog(&[("EHLO client", 250)]);
    client.send(b"STARTTLS\r\nNOOP\r\n");
    assert_eq!(client.code(), 220);
    // What was left unread may make the system reset the connection.
    let mut rest = String::new();
    let _ = client.0.read_line(&mut rest);
    assert_eq!(rest, "");
    let ended = server.end();
    assert!(
        ended
            .errors
            .contains("6 bytes in plain text before the TLS handshake"),
        "{}",
        ended.errors
    );
}

/// A line that ends with LF alone can't end a message: two servers would see two different messages.
#[test]
fn a_message_can_not_be_smuggled() {
    for end in ["\n.\n", "\n.\r\n", "\r\n.\n", "\r.\r\n", "\r\n.\r"] {
        let server = Server::start("smtp", &[]);
        let mut client = Client::connect(&server);
        client.dialog(&[
            ("EHLO client", 250),
            ("MAIL FROM:<a@example.org>", 250),
            ("RCPT TO:<b@example.org>", 250),
            ("DATA", 354),
        ]);
        let smuggled =
            "MAIL FROM:<evil@example.org>\r\nRCPT TO:<b@example.org>\r\nDATA\r\nx\r\n.\r\n";
        client.send(format!("one{end}{smuggled}").as_bytes());
        assert_eq!(client.code(), 554, "{end:?}");
        assert_eq!(client.code(), 0, "{end:?}");
        drop(client);
        let ended = server.end();
        assert_eq!(ended.lines, [""; 0], "{end:?}");
    }
}

/// A client whose connection ends within a message leaves no file; one that a signal finds within its
/// message is served to its end.
#[test]
fn half_a_message() {
    let mail = Folder::new();
    let server = Server::start("smtp", &["--dir", mail.path().to_str().unwrap()]);
    let begin = [
        ("EHLO client", 250),
        ("MAIL FROM:<a@example.org>", 250),
        ("RCPT TO:<b@example.org>", 250),
        ("DATA", 354),
    ];
    let mut cut = Client::connect(&server);
    cut.dialog(&begin);
    cut.send(b"half\r\na mess");
    cut.0.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
    read_all(&mut cut.0);
    drop(cut);
    let mut whole = Client::connect(&server);
    whole.dialog(&begin);
    whole.send(b"first half\r\n");
    let mut idle = Client::connect(&server);
    idle.dialog(&[("NOOP", 250)]);
    server.signal("TERM");
    assert_eq!(idle.code(), 421);
    assert_eq!(idle.code(), 0);
    drop(idle);
    whole.send(b"second half\r\n.\r\n");
    assert_eq!(whole.code(), 250);
    assert_eq!(whole.code(), 421);
    drop(whole);
    let ended = server.wait();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.errors.contains(", 0 cut"), "{}", ended.errors);
    assert_eq!(mail.list("tmp").len(), 0);
    let files = mail.list("new");
    assert_eq!(files.len(), 1);
    let text = fs::read_to_string(&files[0]).unwrap();
    assert!(text.ends_with("first half\r\nsecond half\r\n"), "{text}");
}

/// Commands and guesses are bounded.
#[test]
fn mistakes_are_bounded() {
    let args = ["--user", "ann:secret", "--insecure-auth", "--require-auth"];
    let server = Server::start("smtp", &args);
    let mut client = Client::connect(&server);
    client.dialog(&[
        ("EHLO client", 250),
        ("MAIL FROM:<a@example.org>", 530),
        ("AUTH CRAM-MD5", 504),
        ("AUTH PLAIN", 334),
        ("*", 501),
        ("AUTH PLAIN !", 501),
        ("AUTH LOGIN YW5u", 334),
        ("d3Jvbmc=", 535),
        ("AUTH PLAIN AGFubgB3cm9uZw==", 535),
        ("AUTH PLAIN AGJlbgBzZWNyZXQ=", 535),
    ]);
    assert_eq!(client.code(), 421);
    assert_eq!(client.code(), 0);
    drop(client);
    let mut client = Client::connect(&server);
    client.dialog(&[
        ("EHLO client", 250),
        ("AUTH PLAIN AGFubgBzZWNyZXQ=", 235),
        ("MAIL FROM:<a@example.org>", 250),
        ("RSET", 250),
        ("X-1", 500),
    ]);
    for _ in 2..20 {
        client.dialog(&[("X", 500)]);
    }
    client.dialog(&[("X", 500)]);
    assert_eq!(client.code(), 421);
    let mut long = Client::connect(&server);
    long.send(&[b'x'; 12_289]);
    assert_eq!(long.code(), 500);
    assert_eq!(long.code(), 0);
    drop((client, long));
    server.end();
}

/// Options that would leave a hole, or a server without use.
#[test]
fn options_that_contradict_each_other() {
    let cases: [(&[&str], &str); 4] = [
        (&["--require-auth"], "--require-auth needs a --user"),
        (&["--user", "ann:secret"], "AUTH is offered only under TLS"),
        (&["--user", "ann"], "--user: want NAME:PASSWORD"),
        (&["--name", "two words"], "is not the name of a host"),
    ];
    for (args, text) in cases {
        let ended = run_example("smtp", args);
        assert_eq!(ended.code, Some(2), "{args:?}");
        assert!(ended.errors.contains(text), "{args:?}: {}", ended.errors);
    }
}
