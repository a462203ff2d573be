//! A conversation with `chat`: what one guest says all the others hear, and the speaker is given a receipt.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::conversation::{Conversation, End, Findings};
use super::wire::{Nudge, Nudges, Wire};

use ear::Ear;
use room::Room;

mod ear;
mod line;
mod room;

/// What all guests of one server share.
#[derive(Default)]
pub(super) struct Chat {
    /// The guests, and what was said.
    room: Arc<Room>,
    /// The sockets of all, where guests may nudge: whose turn it is to be nudged, a waiting speaker can't know.
    doors: Mutex<BTreeMap<u64, TcpStream>>,
}

impl Chat {
    /// What shows only when all have left.
    pub(super) fn settle(&self) -> Findings {
        self.room.settle()
    }

    /// Makes an edge at every guest, by an empty line, which means nothing; returns how many.
    fn nudge_everybody(&self) -> u64 {
        let doors = self.doors();
        let nudged = doors.values().map(|mut door| door.write_all(b"\n"));
        nudged.filter(Result::is_ok).count() as u64
    }

    /// The sockets, also after a panic of their holder.
    fn doors(&self) -> MutexGuard<'_, BTreeMap<u64, TcpStream>> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What came of reading once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Something.
    Words,
    /// Nothing, for a while.
    Silence,
    /// The end.
    End,
}

/// One guest.
pub(super) struct Guest {
    /// The socket.
    wire: Wire,
    /// What all guests share.
    chat: Arc<Chat>,
    /// Judges what it hears.
    ear: Ear,
    /// Its connection.
    number: u64,
    /// How many lines it has said.
    said: u64,
    /// When it spoke last.
    spoke: Instant,
}

impl Guest {
    /// Connects.
    pub(super) fn open(
        chat: &Arc<Chat>,
        address: SocketAddr,
        number: u64,
        nudge: Option<Nudge>,
    ) -> io::Result<Guest> {
        let ear = Ear::enter(&chat.room, number);
        let wire = Wire::open(address, nudge)?;
        if nudge == Some(Nudge::Message) {
            chat.doors().insert(number, wire.second()?);
        }
        Ok(Guest {
            wire,
            chat: Arc::clone(chat),
            ear,
            number,
            said: 0,
            spoke: Instant::now(),
        })
    }

    /// Listens until `enough`.
    fn listen(
        &mut self,
        found: &mut dyn FnMut(&Findings),
        enough: impl Fn(&Guest) -> bool,
    ) -> Result<(), End> {
        while !enough(self) {
            match self.hear(found)? {
                Heard::Words => {}
                Heard::Silence => self.nudge()?,
                Heard::End => return Err(End::Ended),
            }
        }
        Ok(())
    }

    /// Reads once.
    fn hear(&mut self, found: &mut dyn FnMut(&Findings)) -> Result<Heard, End> {
        let mut buffer = [0; 16 * 1024];
        let count = match self.wire.read(&mut buffer, self.spoke)? {
            Some(0) => {
                self.ear.end();
                return Ok(Heard::End);
            }
            Some(count) => count,
            None => return Ok(Heard::Silence),
        };
        let findings = self.ear.take(&buffer[..count]);
        found(&findings);
        if findings.garbled {
            Err(End::Garbled)
        } else {
            Ok(Heard::Words)
        }
    }

    /// Has it heard what it must, before it leaves? Whether it was there all the time shows when the server answers it
    /// once more: that its connection ends, gracefully or not, may also be a fault's doing. Twice: when it was asked for the
    /// first time the server may have been past its mail already.
    fn take_stock(&mut self, found: &mut dyn FnMut(&Findings)) -> Result<(), End> {
        let duty = self.ear.duty();
        for call in 1..=2 {
            self.spoke = Instant::now();
            self.ear.ask();
            self.wire.send(b"/who\n")?;
            self.listen(found, |guest| guest.ear.calls() == call)?;
        }
        found(&self.ear.settle(&duty));
        Ok(())
    }

    /// Makes edges, if that is allowed here.
    fn nudge(&mut self) -> Result<(), End> {
        if self.wire.nudge == Some(Nudge::Message) {
            self.wire.nudges.edges += self.chat.nudge_everybody();
        }
        self.knock()
    }

    /// Makes an edge by a guest that arrives and leaves, if that is allowed here.
    fn knock(&mut self) -> Result<(), End> {
        if self.wire.nudge == Some(Nudge::Connection) {
            self.chat.room.book().stranger();
        }
        self.wire.knock()
    }
}

impl Conversation for Guest {
    fn ask(&mut self, count: u64) -> Result<(), End> {
        self.spoke = Instant::now();
        self.said += count;
        let numbers = self.chat.room.book().say(self.number, count);
        let lines: String = numbers
            .map(|number| line::words(self.number, number) + "\n")
            .collect();
        self.wire.send(lines.as_bytes())
    }

    fn collect(&mut self, found: &mut dyn FnMut(&Findings)) -> Result<(), End> {
        self.listen(found, |guest| guest.unanswered() == 0)
    }

    fn close(&mut self, found: &mut dyn FnMut(&Findings)) -> Result<(), End> {
        self.take_stock(found)?;
        self.wire.send_no_more()?;
        loop {
            match self.hear(found)? {
                Heard::Words => {}
                Heard::Silence => self.knock()?,
                Heard::End if self.ear.is_between_lines() => return Ok(()),
                Heard::End => return Err(End::Ended),
            }
        }
    }

    fn reset(mut self: Box<Self>, found: &mut dyn FnMut(&Findings)) -> Result<(), End> {
        self.take_stock(found)?;
        self.ask(1)?;
        self.wire.await_input()
    }

    fn answered(&self) -> u64 {
        self.ear.receipts()
    }

    fn unanswered(&self) -> u64 {
        self.said - self.answered()
    }

    fn take_nudges(&mut self) -> Nudges {
        std::mem::take(&mut self.wire.nudges)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.chat.doors().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// What a chat does with the second line of each speaker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Wrong {
        Nothing,
        Loses,
        Doubles,
        TellsTheSpeaker,
        ChangesTheName,
        Ends,
        /// Says that it has reached one more.
        Boasts,
        /// Says that one more has missed it.
        Counts,
        /// Never reports arrivals and departures.
        KeepsQuiet,
    }

    /// Guests of a chat that is not ours: their numbers and sockets.
    type Guests = Arc<Mutex<Vec<(u64, TcpStream)>>>;

    /// A small chat on threads, which does this wrong; returns its address.
    fn chat(wrong: Wrong) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let guests = Guests::default();
            for (number, stream) in (1..).zip(listener.incoming().map_while(Result::ok)) {
                let guests = Arc::clone(&guests);
                thread::spawn(move || serve(wrong, number, stream, &guests));
            }
        });
        address
    }

    /// Serves one guest until it leaves.
    fn serve(wrong: Wrong, number: u64, mut stream: TcpStream, guests: &Guests) {
        let mut all = guests.lock().unwrap();
        announce(wrong, &format!("* guest-{number} has come\n"), &mut all);
        all.push((number, stream.try_clone().unwrap()));
        writeln!(stream, "* welcome, guest-{number}. /who").unwrap();
        drop(all);
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            let mut all = guests.lock().unwrap();
            if line == "/who" {
                writeln!(stream, "* here: guest-{number}").unwrap();
                continue;
            }
            let wrong = match line.split(' ').nth(1) {
                Some("1") => wrong,
                _ => Wrong::Nothing,
            };
            if wrong == Wrong::Ends {
                break;
            }
            tell(wrong, number, &line, &mut all);
            let reached = all.len() - 1 + usize::from(wrong == Wrong::Boasts);
            let missed = usize::from(wrong == Wrong::Counts);
            writeln!(stream, "* reached {reached}, missed by {missed}").unwrap();
        }
        let mut all = guests.lock().unwrap();
        all.retain(|(guest, _)| *guest != number);
        announce(wrong, &format!("* guest-{number} has gone\n"), &mut all);
        drop(all);
        let _gone = stream.shutdown(std::net::Shutdown::Both);
    }

    /// Reports an arrival or a departure to all guests. A connection that has ended gets nothing.
    fn announce(wrong: Wrong, text: &str, all: &mut [(u64, TcpStream)]) {
        for (_, stream) in all.iter_mut().filter(|_| wrong != Wrong::KeepsQuiet) {
            let _heard = stream.write_all(text.as_bytes());
        }
    }

    /// Sends a line to all the others, or does it wrong.
    fn tell(wrong: Wrong, number: u64, line: &str, all: &mut [(u64, TcpStream)]) {
        let name = number + u64::from(wrong == Wrong::ChangesTheName);
        let text = format!("guest-{name}: {line}\n");
        let text = match wrong {
            Wrong::Loses => String::new(),
            Wrong::Doubles => text.repeat(2),
            _ => text,
        };
        for (guest, stream) in all {
            if *guest != number || wrong == Wrong::TellsTheSpeaker {
                stream.write_all(text.as_bytes()).unwrap();
            }
        }
    }

    /// What three guests find, of whom one says two more lines: lost, doubled, misrouted, and how it ends for it.
    fn found(wrong: Wrong) -> ([u64; 3], Result<(), End>) {
        let (address, chat) = (chat(wrong), Arc::new(Chat::default()));
        let guest = |number| Guest::open(&chat, address, number, None).unwrap();
        let mut guests = [1, 2, 3].map(guest);
        let mut counts = [0; 3];
        let mut found = |findings: &Findings| {
            counts[0] += findings.lost;
            counts[1] += findings.doubled;
            counts[2] += findings.misrouted;
        };
        for guest in &mut guests {
            guest.ask(1).unwrap();
            guest.collect(&mut found).unwrap();
        }
        let spoken = guests[0]
            .ask(2)
            .and_then(|()| guests[0].collect(&mut found));
        for guest in &mut guests[1..] {
            guest.close(&mut found).unwrap();
        }
        let ended = spoken.and_then(|()| guests[0].close(&mut found));
        let settled = chat.settle();
        counts[0] += settled.lost;
        counts[2] += settled.misrouted;
        (counts, ended)
    }

    #[test]
    fn a_chat_that_does_wrong_is_caught() {
        assert_eq!(found(Wrong::Nothing), ([0, 0, 0], Ok(())));
        // Two have not heard it, and the receipt says that they have.
        assert_eq!(found(Wrong::Loses), ([4, 0, 0], Ok(())));
        assert_eq!(found(Wrong::Doubles), ([0, 2, 0], Ok(())));
        assert_eq!(found(Wrong::TellsTheSpeaker), ([0, 0, 1], Ok(())));
        // What came under another's name did not come under its own.
        assert_eq!(found(Wrong::ChangesTheName), ([4, 0, 2], Ok(())));
        assert_eq!(found(Wrong::Ends), ([0, 0, 0], Err(End::Ended)));
        // No guest has heard it, and no other was present.
        assert_eq!(found(Wrong::Boasts), ([1, 0, 1], Ok(())));
        assert_eq!(found(Wrong::Counts), ([0, 0, 1], Ok(())));
        // Each guest hears of those that came after it was welcomed, and the last one of two that went.
        let (counts, ended) = found(Wrong::KeepsQuiet);
        assert!(counts[0] >= 2 && counts[1..] == [0, 0], "{counts:?}");
        assert_eq!(ended, Ok(()));
    }
}
