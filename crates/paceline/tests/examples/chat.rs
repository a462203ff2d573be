//! The example `chat` does what its help says: messages reach the others, the speaker is told, slow
//! readers are bounded.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Instant,
};

use crate::support::{
    self, bounded,
    example::{signal, Server},
    pause, LONG,
};
use socket2::{Domain, Socket, Type};

/// Builds the example, before a test's time begins.
fn chat() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| support::example("chat"))
}

fn start(more: &[&str]) -> Server {
    let mut command = Command::new(chat());
    command.args(["--listen", "127.0.0.1:0", "--threads", "3"]);
    Server::start(command.args(more))
}

/// Ends the server, and tells what it said.
fn end(server: Server) -> String {
    signal("TERM", server.id());
    let output = server.output();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

struct Guest {
    stream: TcpStream,
    lines: BufReader<TcpStream>,
    name: String,
}

impl Guest {
    /// Comes in, and is greeted without having said a word.
    fn new(server: &Server) -> Self {
        Self::on(server.connect())
    }

    fn on(stream: TcpStream) -> Self {
        let lines = BufReader::new(stream.try_clone().unwrap());
        let mut guest = Self {
            stream,
            lines,
            name: String::new(),
        };
        let greeting = guest.hear();
        let name = greeting.strip_prefix("* welcome, ").unwrap_or_default();
        guest.name = name.split('.').next().unwrap_or_default().to_owned();
        assert!(guest.name.starts_with("guest-"), "{greeting}");
        guest
    }

    fn say(&mut self, line: &str) {
        self.stream
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
    }

    /// The next line; empty at the end.
    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

/// A connection that takes little before it reads.
fn with_little_room(address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(32 * 1024).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    socket.connect(&address.into()).unwrap();
    socket.into()
}

/// What one says the others hear, and it is told that they have.
#[test]
fn others_hear_and_the_speaker_is_told() {
    chat();
    bounded(|| {
        let server = start(&[]);
        let mut ann = Guest::new(&server);
        ann.say("is anybody here?");
        assert_eq!(ann.hear(), "* reached 0, missed by 0");
        let mut bob = Guest::new(&server);
        assert_eq!(ann.hear(), format!("* {} has come", bob.name));
        let mut eve = Guest::new(&server);
        assert_eq!(ann.hear(), format!("* {} has come", eve.name));
        assert_eq!(bob.hear(), format!("* {} has come", eve.name));
        ann.say("/name ann");
        for guest in [&mut bob, &mut eve] {
            assert_eq!(guest.hear(), format!("* {} is now ann", ann.name));
        }
        assert_eq!(ann.hear(), format!("* {} is now ann", ann.name));
        ann.say("hello");
        assert_eq!(bob.hear(), "ann: hello");
        assert_eq!(eve.hear(), "ann: hello");
        assert_eq!(ann.hear(), "* reached 2, missed by 0");
        bob.say("/who");
        assert_eq!(
            bob.hear(),
            format!("* here: ann, {}, {}", bob.name, eve.name)
        );
        bob.say("/nonsense");
        assert!(bob.hear().starts_with("* expected"));
        bob.say("/quit");
        assert_eq!(bob.hear(), "");
        assert_eq!(ann.hear(), format!("* {} has gone", bob.name));
        drop(eve);
        assert!(end(server).contains("everything was finished"));
    });
}

/// A guest that does not read misses what its mailbox can't hold, and holds up nobody; when it
/// reads again it is told.
#[test]
fn a_slow_reader_is_bounded() {
    // More than the buffers of the system take.
    const LINES: usize = 10_000;
    chat();
    bounded(|| {
        let server = start(&[]);
        let mut slow = Guest::on(with_little_room(server.address));
        let mut ann = Guest::new(&server);
        let mut quick = Guest::new(&server);
        ann.hear();
        let words = "x".repeat(900);
        let (mut reached, mut missed) = (0, 0);
        for _ in 0..LINES {
            ann.say(&words);
            assert_eq!(quick.hear(), format!("{}: {words}", ann.name));
        }
        // The slow one reads now; until then the receipts of what is in its mailbox are missing.
        let mut heard = 0;
        while heard + missed < LINES {
            let line = slow.hear();
            match line.strip_prefix("* you have missed ") {
                Some(number) => missed += number.parse::<usize>().unwrap(),
                None => heard += usize::from(line.contains(&words)),
            }
        }
        assert!(heard > 0 && missed > 0);
        assert_eq!(
            heard + missed,
            LINES,
            "each line is heard or missed, and none both"
        );
        for _ in 0..LINES {
            let receipt = ann.hear();
            reached += usize::from(receipt == "* reached 2, missed by 0");
            assert!(receipt.starts_with("* reached"), "{receipt}");
        }
        assert_eq!(reached, heard, "the speaker knows");
        end(server);
    });
}

/// Two guests went in the middle of speaking, each with mail from the other that it had not read
/// yet: the two mailboxes held each other, and whoever else had a letter in them was never told
/// what became of it. A mailbox is emptied when its owner goes.
#[test]
fn guests_that_go_together_hold_back_no_receipt() {
    const ROUNDS: usize = 100;
    const LINES: usize = 20;
    bounded(|| {
        let server = start(&[]);
        let mut eve = Guest::new(&server);
        for _ in 0..ROUNDS {
            let mut going = [Guest::new(&server), Guest::new(&server)];
            for guest in &mut going {
                guest.say(&("to each other\n".repeat(300) + "/quit"));
            }
            eve.say(&["to both"; LINES].join("\n"));
            let mut receipts = 0;
            while receipts < LINES {
                receipts += usize::from(eve.hear().starts_with("* reached"));
            }
        }
        end(server);
    });
}

/// Who says and hears nothing for long is sent away; the others stay.
#[test]
fn the_idle_are_sent_away() {
    chat();
    bounded(|| {
        let server = start(&["--idle", "1"]);
        let mut idle = Guest::new(&server);
        let mut busy = Guest::new(&server);
        // What the idle one hears of the busy one's coming is the last that happens there.
        assert_eq!(idle.hear(), format!("* {} has come", busy.name));
        let start = Instant::now();
        loop {
            busy.say("/who");
            let answer = busy.hear();
            if answer.ends_with("has gone") {
                break;
            }
            assert!(start.elapsed() < LONG, "{answer}");
            pause();
        }
        assert_eq!(idle.hear(), "", "it is closed");
        assert!(end(server).contains("1 of them sent away"));
    });
}

/// A line that never ends is refused, and one that ends too late.
#[test]
fn too_long_a_line_ends_it() {
    chat();
    bounded(|| {
        let server = start(&[]);
        for end_of_line in ["", "\n"] {
            let mut guest = Guest::new(&server);
            let text = "x".repeat(5000) + end_of_line;
            guest.stream.write_all(text.as_bytes()).unwrap();
            let mut line = String::new();
            let told = guest.lines.read_line(&mut line);
            assert!(matches!(told, Ok(0)) || told.is_err(), "{line}");
        }
        end(server);
    });
}
