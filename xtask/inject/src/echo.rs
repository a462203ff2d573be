//! A conversation with `echo`, or with `relay` before it: every message returns.

use std::io;
use std::net::SocketAddr;
use std::time::Instant;

use super::conversation::{Conversation, End, Findings};
use super::wire::{Nudge, Nudges, Wire};

use message::Checker;

mod message;

/// A connection, with what was asked on it.
pub(super) struct Connection {
    /// The socket.
    wire: Wire,
    /// Its number, which every message carries.
    number: u64,
    /// How many messages were sent.
    sent: u64,
    /// When the client asked last.
    asked: Instant,
    /// Reads the replies.
    checker: Checker,
}

impl Connection {
    /// Opens one.
    pub(super) fn open(
        address: SocketAddr,
        number: u64,
        nudge: Option<Nudge>,
    ) -> io::Result<Connection> {
        Ok(Connection {
            wire: Wire::open(address, nudge)?,
            number,
            sent: 0,
            asked: Instant::now(),
            checker: Checker::new(number),
        })
    }

    /// Sends `count` messages.
    fn send(&mut self, count: u64) -> Result<(), End> {
        let mut bytes = Vec::new();
        for number in self.sent..self.sent + count {
            message::append(&mut bytes, self.number, number);
        }
        self.sent += count;
        self.wire.send(&bytes)
    }

    /// Makes an edge, if that is allowed here.
    fn nudge(&mut self) -> Result<(), End> {
        if self.wire.nudge != Some(Nudge::Message) {
            return self.wire.knock();
        }
        self.wire.nudges.messages += 1;
        self.wire.nudges.edges += 1;
        self.send(1)
    }
}

impl Conversation for Connection {
    fn ask(&mut self, count: u64) -> Result<(), End> {
        self.asked = Instant::now();
        self.send(count)
    }

    fn collect(&mut self, found: &mut dyn FnMut(&Findings)) -> Result<(), End> {
        while self.unanswered() > 0 {
            let mut buffer = [0; 16 * 1024];
            match self.wire.read(&mut buffer, self.asked)? {
                Some(0) => return Err(End::Ended),
                Some(count) => {
                    let findings = self.checker.take(&buffer[..count]);
                    found(&findings);
                    if findings.garbled {
                        return Err(End::Garbled);
                    }
                }
                None => self.nudge()?,
            }
        }
        Ok(())
    }

    fn close(&mut self, _found: &mut dyn FnMut(&Findings)) -> Result<(), End> {
        let since = Instant::now();
        self.wire.send_no_more()?;
        loop {
            match self.wire.read(&mut [0; 64], since)? {
                Some(0) => return Ok(()),
                Some(_) => return Err(End::Garbled),
                // No message can follow any more; a connection can.
                None => self.wire.knock()?,
            }
        }
    }

    fn reset(mut self: Box<Self>, _found: &mut dyn FnMut(&Findings)) -> Result<(), End> {
        self.ask(1)?;
        self.wire.await_input()
    }

    fn answered(&self) -> u64 {
        self.checker.next().min(self.sent)
    }

    fn unanswered(&self) -> u64 {
        self.sent - self.answered()
    }

    fn take_nudges(&mut self) -> Nudges {
        std::mem::take(&mut self.wire.nudges)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;

    use super::*;

    /// A server of one connection, which does this with it; and the client.
    fn served(serve: impl FnOnce(TcpStream) + Send + 'static) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || serve(listener.accept().unwrap().0));
        Connection::open(address, 9, None).unwrap()
    }

    /// Sends everything back.
    fn echo(mut stream: TcpStream) {
        let _ended = io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    }

    #[test]
    fn an_honest_server_answers_everything() {
        let mut connection = served(echo);
        connection.ask(100).unwrap();
        let mut answered = 0;
        connection
            .collect(&mut |findings| answered += findings.answered)
            .unwrap();
        assert_eq!((answered, connection.unanswered()), (100, 0));
        connection.close(&mut |_| ()).unwrap();
    }

    #[test]
    fn an_end_is_seen_and_what_was_asked_is_unanswered() {
        let mut connection = served(drop);
        let ended = connection
            .ask(3)
            .and_then(|()| connection.collect(&mut |_| ()));
        assert_eq!(ended, Err(End::Ended));
        assert_eq!(connection.unanswered(), 3);
    }

    #[test]
    fn a_server_that_drops_a_byte_is_caught() {
        let mut connection = served(|mut stream| {
            let mut bytes = [0; 4096];
            let count = stream.read(&mut bytes).unwrap();
            stream.write_all(&bytes[1..count]).unwrap();
        });
        connection.ask(2).unwrap();
        assert_eq!(connection.collect(&mut |_| ()), Err(End::Garbled));
    }

    /// The messages with these numbers of a connection.
    fn messages(connection: u64, numbers: &[u64]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for number in numbers {
            message::append(&mut bytes, connection, *number);
        }
        bytes
    }

    /// What a client that asks three times finds in these answers, with how it ends.
    fn judged(answers: Vec<u8>) -> (Findings, Result<(), End>) {
        let mut connection = served(move |mut stream| {
            stream.write_all(&answers).unwrap();
            // Read to the end, so that nothing is reset.
            let _ended = io::copy(&mut stream, &mut io::sink());
        });
        connection.ask(3).unwrap();
        let mut all = Findings::default();
        let mut found = |findings: &Findings| {
            all.answered += findings.answered;
            all.lost += findings.lost;
            all.doubled += findings.doubled;
            all.misrouted += findings.misrouted;
        };
        let collected = connection.collect(&mut found);
        let closed = collected.and_then(|()| connection.close(&mut found));
        (all, closed)
    }

    #[test]
    fn a_relay_that_loses_doubles_or_crosses_is_caught() {
        let (honest, closed) = judged(messages(9, &[0, 1, 2]));
        assert_eq!((honest.answered, closed), (3, Ok(())));
        let (loses, _) = judged(messages(9, &[0, 2]));
        assert_eq!(loses.lost, 1);
        let (doubles, _) = judged(messages(9, &[0, 1, 1, 2]));
        assert_eq!(doubles.doubled, 1);
        let crossed = [messages(8, &[0]), messages(9, &[0, 1, 2])].concat();
        assert_eq!(judged(crossed).0.misrouted, 1);
        let late = [messages(9, &[0, 1, 2]), messages(9, &[2])].concat();
        let (late, closed) = judged(late);
        assert!(late.doubled == 1 || closed == Err(End::Garbled));
    }
}
