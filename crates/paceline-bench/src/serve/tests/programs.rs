//! The peers that are programs of their own.

use std::{
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, Stdio},
};

use super::{anywhere, checks, SETTING};
use crate::{
    peers::Program,
    servers::{counts::Counts, Means, ALL},
};

/// The programs keep the same promises, to the clients and to the process that started them.
#[test]
fn programs_do_the_same() {
    for server in ALL {
        if let Means::Program(program) = server.means {
            let (name, (_running, address)) = (server.name, Started::new(program));
            checks::pipelined(name, address);
            checks::split(name, address);
            checks::tasks(name, address);
            checks::end(name, address);
            checks::many(name, address);
            // Their output takes more until it is stopped: it is as large as the system makes it.
            checks::slow_readers(name, address, 150_000);
            checks::resets(name, address);
        }
    }
}

/// A server that is a program of its own. Dropped, it ends.
struct Started(Child);

impl Started {
    fn new(program: &Program) -> (Self, SocketAddr) {
        let path = program.build().unwrap();
        let mut command = program.command(&path, anywhere(), &SETTING, true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut line = || lines.next().unwrap().unwrap();
        let address = line().strip_prefix("listening on ").unwrap().parse();
        let mut questions = child.stdin.as_ref().unwrap();
        questions.write_all(b"counts\n").unwrap();
        serde_json::from_str::<Counts>(&line()).unwrap();
        (Self(child), address.unwrap())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let status = self.0.wait().unwrap();
        assert!(status.success() || std::thread::panicking(), "{status}");
    }
}
