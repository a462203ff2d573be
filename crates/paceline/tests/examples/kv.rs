//! The example `kv` does what its help says, for clients that behave and for others.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use crate::support::{
    self, bounded,
    example::{run, signal, Server},
};
use socket2::SockRef;

const TOO_LONG: &str = "ERROR a line has at most 1024 bytes";
const UNKNOWN: &str = "ERROR expected GET key, SET key value, DEL key or QUIT";

/// Builds the example, before a test's time begins.
fn kv() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| support::example("kv"))
}

fn start() -> Server {
    Server::start(Command::new(kv()).args(["--listen", "127.0.0.1:0", "--threads", "3"]))
}

/// Ends the server; it has nothing left to do.
fn end(server: Server) {
    signal("TERM", server.id());
    let output = server.output();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("everything was finished"), "{said}");
}

/// A client that asks and waits, or asks and does not.
struct Client {
    stream: TcpStream,
    answers: BufReader<TcpStream>,
}

impl Client {
    fn new(server: &Server) -> Self {
        let stream = server.connect();
        let answers = BufReader::new(stream.try_clone().unwrap());
        Self { stream, answers }
    }

    fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).unwrap();
    }

    /// The next line, without its end. Empty: the server has closed.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end_matches('\n').to_owned()
    }

    fn ask(&mut self, line: &str) -> String {
        self.send(format!("{line}\n"));
        self.answer()
    }

    /// All that is still to come.
    fn rest(mut self) -> String {
        let mut rest = String::new();
        self.answers.read_to_string(&mut rest).unwrap();
        rest
    }
}

/// Every command, one at a time; what one connection sets another one gets.
#[test]
fn answers_every_command() {
    kv();
    bounded(|| {
        let server = start();
        let (mut one, mut other) = (Client::new(&server), Client::new(&server));
        assert_eq!(one.ask("GET colour"), "NONE");
        assert_eq!(one.ask("SET colour dark blue "), "OK");
        assert_eq!(other.ask("GET colour"), "VALUE dark blue ");
        assert_eq!(other.ask("SET colour red\r"), "OK");
        assert_eq!(one.ask("GET colour\r"), "VALUE red");
        assert_eq!(one.ask("DEL colour"), "OK");
        assert_eq!(one.ask("DEL colour"), "NONE");
        assert_eq!(other.ask("GET colour"), "NONE");
        assert_eq!(one.ask("QUIT"), "BYE");
        assert_eq!(one.answer(), "");
        assert_eq!(other.ask("GET colour"), "NONE");
        end(server);
    });
}

/// A line that is no command gets one line of error, and the connection stays.
#[test]
fn tells_what_it_does_not_understand() {
    kv();
    bounded(|| {
        let server = start();
        let mut client = Client::new(&server);
        let wrong = [
            "", " ", "get a", "GET", "GET a b", "SET a", "DEL", "QUIT now", "HELP",
        ];
        for line in wrong {
            assert_eq!(client.ask(line), UNKNOWN, "{line:?}");
        }
        client.send(b"\xff\xfe\0\n");
        assert_eq!(client.answer(), UNKNOWN);
        assert_eq!(client.ask("GET a"), "NONE");
        end(server);
    });
}

/// Ten thousand requests are on their way before the first answer is read: all are answered, in
/// order.
#[test]
fn answers_ten_thousand_pipelined_requests_in_order() {
    kv();
    bounded(|| {
        let server = start();
        let mut client = Client::new(&server);
        let requests: String = (0..5000)
            .map(|number| format!("SET key{number} {number}\nGET key{number}\n"))
            .collect();
        client.send(requests);
        for number in 0..5000 {
            assert_eq!(client.answer(), "OK");
            assert_eq!(client.answer(), format!("VALUE {number}"));
        }
        end(server);
    });
}

/// Answers that are far more than the sockets hold, to a client that does not read yet. The server
/// stops answering until there is room, and loses nothing, though no input comes that could remind
/// it of the requests that it has read already. Others are served meanwhile.
#[test]
fn waits_for_a_client_that_does_not_read() {
    kv();
    bounded(|| {
        let server = start();
        let (mut slow, mut other) = (Client::new(&server), Client::new(&server));
        SockRef::from(&slow.stream)
            .set_recv_buffer_size(256 * 1024)
            .unwrap();
        let value = "v".repeat(1000);
        assert_eq!(slow.ask(&format!("SET key {value}")), "OK");
        // Less than the server reads at once.
        slow.send("GET key\n".repeat(7000));
        for _ in 0..100 {
            assert_eq!(other.ask("GET key"), format!("VALUE {value}"));
        }
        for _ in 0..7000 {
            assert_eq!(slow.answer(), format!("VALUE {value}"));
        }
        end(server);
    });
}

/// The same with more requests than the server reads at once, from a client that sends nothing
/// after them: the connection is closed when all is answered.
#[test]
fn answers_all_to_a_client_that_has_stopped_sending() {
    kv();
    bounded(|| {
        let server = start();
        let mut client = Client::new(&server);
        let value = "v".repeat(1000);
        assert_eq!(client.ask(&format!("SET key {value}")), "OK");
        client.send("GET key\nGET no\n".repeat(10_000));
        client.stream.shutdown(Shutdown::Write).unwrap();
        for _ in 0..10_000 {
            assert_eq!(client.answer(), format!("VALUE {value}"));
            assert_eq!(client.answer(), "NONE");
        }
        assert_eq!(client.answer(), "", "then it closes");
        end(server);
    });
}

/// However a conversation is cut into two pieces, the answers are the same.
#[test]
fn requests_may_be_split_at_every_byte() {
    kv();
    bounded(|| {
        let server = start();
        let mut other = Client::new(&server);
        let longest = "v".repeat(1024 - "SET key ".len());
        let asked = format!("SET key {longest}\r\nGET key\nnonsense\r\nDEL key\nQUIT\n");
        let answered = format!("OK\nVALUE {longest}\n{UNKNOWN}\nOK\nBYE\n");
        for cut in 1..asked.len() {
            let mut client = Client::new(&server);
            client.send(&asked[..cut]);
            // When this is answered, the first piece has been looked at, or is being.
            assert_eq!(other.ask("GET none"), "NONE");
            client.send(&asked[cut..]);
            assert_eq!(client.rest(), answered, "cut at {cut}");
        }
        end(server);
    });
}

/// Byte by byte.
#[test]
fn requests_may_come_in_single_bytes() {
    kv();
    bounded(|| {
        let server = start();
        let mut client = Client::new(&server);
        for byte in b"SET a 1\r\nGET a\nQUIT\n" {
            client.send([*byte]);
        }
        assert_eq!(client.rest(), "OK\nVALUE 1\nBYE\n");
        end(server);
    });
}

/// A line beyond the limit gets one error, as soon as it is known to be too long, whether or not
/// its end ever comes; what follows it is answered.
#[test]
fn refuses_too_long_a_line() {
    kv();
    bounded(|| {
        let server = start();
        let mut client = Client::new(&server);
        let line = |length: usize| format!("SET key {}", "v".repeat(length - "SET key ".len()));
        assert_eq!(client.ask(&line(1024)), "OK");
        assert_eq!(client.ask(&line(1025)), TOO_LONG);
        assert_eq!(client.ask(&line(1_000_000)), TOO_LONG);
        assert_eq!(client.ask("GET no"), "NONE");
        client.send("x".repeat(2000));
        assert_eq!(client.answer(), TOO_LONG);
        client.send("x".repeat(100_000));
        client.send("\nGET no\n");
        assert_eq!(client.answer(), "NONE");
        end(server);
    });
}

/// A client that goes in the middle of a line, gracefully or not, has done nothing and disturbs
/// nobody.
#[test]
fn survives_a_client_that_leaves_in_the_middle_of_a_line() {
    kv();
    bounded(|| {
        let server = start();
        let mut other = Client::new(&server);
        for _ in 0..20 {
            let mut client = Client::new(&server);
            client.send("SET whole 1\nSET broken 2");
            client.stream.shutdown(Shutdown::Write).unwrap();
            assert_eq!(client.rest(), "OK\n");
            // Its answers are never read: the system resets the connection.
            let mut client = Client::new(&server);
            client.send("GET whole\nSET broken 2");
        }
        assert_eq!(other.ask("GET whole"), "VALUE 1");
        assert_eq!(other.ask("GET broken"), "NONE");
        end(server);
    });
}

/// What has arrived when the signal comes is answered, from several clients, also if none of them
/// has read anything yet.
#[test]
fn finishes_what_has_arrived_on_sigterm() {
    kv();
    bounded(|| {
        let server = start();
        let mut clients: Vec<_> = (0..5).map(|_| Client::new(&server)).collect();
        let value = "v".repeat(1000);
        for client in &mut clients {
            assert_eq!(client.ask(&format!("SET key {value}")), "OK");
        }
        for client in &mut clients {
            client.send("GET key\n".repeat(2000));
        }
        signal("TERM", server.id());
        let answer = format!("VALUE {value}\n");
        for client in clients {
            assert_eq!(client.rest(), answer.repeat(2000));
        }
        let output = server.output();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("everything was finished"), "{said}");
        assert!(said.contains("5 connections"), "{said}");
    });
}

/// Help is no failure and teaches the protocol; a wrong option is told with it.
#[test]
fn helps() {
    kv();
    bounded(|| {
        let output = run(Command::new(kv()).arg("--help"));
        assert_eq!(output.status.code(), Some(0));
        let said = String::from_utf8(output.stdout).unwrap();
        for word in ["--listen", "--threads", "usage:", "GET key", "1024 bytes"] {
            assert!(said.contains(word), "{said}");
        }
        let wrong = [
            (&["--nonsense"][..], "unknown option --nonsense"),
            (&["--listen"], "--listen needs a value"),
            (&["--threads", "many"], "many is not a number"),
            (&["--threads", "0"], "nobody would serve"),
        ];
        for (arguments, message) in wrong {
            let output = run(Command::new(kv()).args(arguments));
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(said.contains(message) && said.contains("usage:"), "{said}");
        }
    });
}
