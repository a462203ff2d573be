//! The clients that a fault meets in a known state, and what each of them knows afterwards.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    net::SocketAddr,
    process::{Child, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use paceline_check::ledger::{self, Fate, Key, Parts};

use super::{
    client::{Client, Trouble},
    state::{Asked, Entry, State, TABLE},
    tally::Tally,
};
use crate::{back::Kind, front, postgres::USER, role};

/// How long a client waits for a byte. No fault lasts longer than a part of it.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// How long a client waits before it connects again.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(10);

/// SQLSTATE "connection failure": the front-end says that the transaction is rolled back.
const ROLLED_BACK: &str = "08006";

/// SQLSTATE "transaction resolution unknown".
const UNKNOWN: &str = "08007";

/// A client that a fault meets.
#[derive(Debug)]
pub(super) struct Victim {
    number: u32,
    kind: Kind,
    front: SocketAddr,
    session: Option<Client>,
    entries: u64,
    book: BTreeMap<Key, ledger::Entry>,
    pub(super) tally: Tally,
}

/// A client that is in its state.
#[derive(Debug)]
pub(super) struct Ready<'v> {
    victim: &'v mut Victim,
    client: Client,
    entry: Entry,
    state: State,
}

impl Victim {
    pub(super) fn new(number: u32, kind: Kind, front: SocketAddr) -> Self {
        Self {
            number,
            kind,
            front,
            session: None,
            entries: 0,
            book: BTreeMap::new(),
            tally: Tally::default(),
        }
    }

    /// Brings the session into this state. `None` if the system refuses that: the fault before has
    /// not quite passed.
    pub(super) fn reach(&mut self, state: State) -> Option<Ready<'_>> {
        let mut client = self.session()?;
        let entry = self.next_entry();
        match state.reach(&mut client, &entry) {
            Ok(()) => Some(Ready {
                victim: self,
                client,
                entry,
                state,
            }),
            Err(trouble) => {
                self.settle(state, &entry, state.asked(), Err(&trouble));
                None
            }
        }
    }

    /// A process in this state, which is killed there. Its connection to the front-end breaks as the
    /// kernel breaks it.
    pub(super) fn die(&mut self, state: State, delay: Duration) {
        let entry = self.next_entry();
        match reach_in_process(state, &entry, self.front) {
            Ok(Some(process)) => {
                thread::sleep(delay);
                let killed = kill(process);
                self.tally
                    .fail_if(killed.err().map(|error| error.to_string()));
                self.write(state, &entry, fate_of_the_dead(state));
            }
            // It has not reached the state: whether it has written anything is open.
            Ok(None) => self.write(state, &entry, Fate::Unknown),
            Err(error) => self.tally.fail_if(Some(error.to_string())),
        }
    }

    /// Asks for a text of its own until the system answers, and says how long that took. Any other
    /// answer was another client's, or another request's.
    pub(super) fn ask(&mut self) -> Option<Duration> {
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(client) = self.session() {
                if self.asked(client) {
                    return Some(start.elapsed());
                }
            }
            thread::sleep(BETWEEN_ATTEMPTS);
        }
        self.tally.hung += 1;
        self.tally
            .note(format!("client {} gets no session any more", self.number));
        None
    }

    /// What it knows of its entries.
    pub(super) fn book(&self) -> &BTreeMap<Key, ledger::Entry> {
        &self.book
    }

    fn asked(&mut self, mut client: Client) -> bool {
        let expected = format!("{}.{}", self.number, self.entries);
        let left = client.leave_block();
        let answer = left.and_then(|()| client.query(&format!("SELECT '{expected}'")));
        match answer {
            Ok(answer) if answer.rows == [[expected.clone()]] && answer.tags.len() == 1 => {
                self.session = Some(client);
                true
            }
            Ok(answer) => {
                self.tally.misrouted += 1;
                let text = format!("client {} asks for {expected}: {answer:?}", self.number);
                self.tally.note(text);
                false
            }
            Err(trouble) => {
                self.count_trouble(&trouble);
                self.keep(client, &trouble);
                false
            }
        }
    }

    /// The session, or a new one.
    fn session(&mut self) -> Option<Client> {
        if let Some(client) = self.session.take() {
            return Some(client);
        }
        match Client::open(self.front, USER, front::DATABASE, PATIENCE) {
            Ok(client) => Some(client),
            Err(trouble) => {
                self.count_trouble(&trouble);
                None
            }
        }
    }

    fn next_entry(&mut self) -> Entry {
        self.entries += 1;
        Entry {
            client: self.number,
            number: self.entries,
            kind: self.kind,
        }
    }

    /// Writes down what an answer says of the entry.
    fn settle(
        &mut self,
        state: State,
        entry: &Entry,
        asked: Asked,
        end: Result<&[String], &Trouble>,
    ) {
        let fate = match end {
            Ok(tags) if tags.last().is_some_and(|tag| tag == "ROLLBACK") => Fate::Undone,
            Ok(_) => Fate::Acknowledged,
            Err(trouble) => {
                self.count_trouble(trouble);
                fate_of(trouble, asked)
            }
        };
        if fate == Fate::Unknown && (state, asked) == (State::Open, Asked::No) {
            let text =
                "an open block is reported as unknown, and its commit was not sent".to_owned();
            self.tally.fail_if(Some(text));
        }
        self.write(state, entry, fate);
    }

    fn write(&mut self, state: State, entry: &Entry, fate: Fate) {
        match (state.parts(), fate) {
            // A client that only reads: nothing of it can be lost.
            (0, Fate::Acknowledged) => self.tally.acknowledged += 1,
            (0, Fate::Undone | Fate::Unknown) => {}
            (parts, fate) => {
                let key = (entry.client, entry.number);
                self.book.insert(key, ledger::Entry { parts, fate });
            }
        }
    }

    fn count_trouble(&mut self, trouble: &Trouble) {
        self.tally.count_reason(&trouble.label());
        if *trouble == Trouble::Hung {
            self.tally.hung += 1;
            self.tally
                .note(format!("client {} waits without end", self.number));
        }
    }

    /// A session that was only refused something continues.
    fn keep(&mut self, client: Client, trouble: &Trouble) {
        if let Trouble::Refused(_) = trouble {
            self.session = Some(client);
        }
    }
}

impl Ready<'_> {
    /// Does what remains, and writes down what the answer says.
    pub(super) fn finish(self) {
        let Self {
            victim,
            mut client,
            entry,
            state,
        } = self;
        let mut asked = Asked::No;
        match state.finish(&mut client, &entry, &mut asked) {
            Ok(answer) => {
                victim.tally.fail_if(state.flaw(&answer));
                victim.settle(state, &entry, asked, Ok(&answer.tags));
                victim.session = Some(client);
            }
            Err(trouble) => {
                victim.settle(state, &entry, asked, Err(&trouble));
                victim.keep(client, &trouble);
            }
        }
    }
}

/// What an error says of the entry.
fn fate_of(trouble: &Trouble, asked: Asked) -> Fate {
    match (trouble, asked) {
        (Trouble::Refused(code), _) if code == UNKNOWN => Fate::Unknown,
        (Trouble::Refused(code), Asked::Yes) if code.starts_with("08") && code != ROLLED_BACK => {
            Fate::Unknown
        }
        (Trouble::Refused(_), _) | (_, Asked::No) => Fate::Undone,
        (Trouble::Ended(_) | Trouble::Hung, Asked::Yes) => Fate::Unknown,
    }
}

fn fate_of_the_dead(state: State) -> Fate {
    match state.asked() {
        Asked::Yes => Fate::Unknown,
        Asked::No => Fate::Undone,
    }
}

/// The rows of the table, by entry.
pub(super) fn present(front: SocketAddr) -> Result<BTreeMap<Key, Parts>, Trouble> {
    let mut client = Client::open(front, USER, front::DATABASE, PATIENCE)?;
    let answer = client.query(&format!("SELECT client, entry, part FROM {TABLE}"))?;
    let mut present: BTreeMap<Key, Parts> = BTreeMap::new();
    for row in &answer.rows {
        let unreadable = || Trouble::Refused(format!("an unreadable row: {row:?}"));
        let numbers: Option<Vec<u32>> = row.iter().map(|text| text.parse().ok()).collect();
        let [client, entry, part] = numbers.unwrap_or_default()[..] else {
            return Err(unreadable());
        };
        let parts = present.entry((client, entry.into())).or_default();
        *parts.entry(part).or_default() += 1;
    }
    Ok(present)
}

/// Starts a process that reaches the state. `None` if it has ended before that.
fn reach_in_process(
    state: State,
    entry: &Entry,
    front: SocketAddr,
) -> std::io::Result<Option<Child>> {
    let words = [
        "victim",
        state.name(),
        &front.to_string(),
        &entry.client.to_string(),
        &entry.number.to_string(),
        entry.kind.name(),
    ];
    let mut process = role::command(&words)?.stdout(Stdio::piped()).spawn()?;
    let output = process
        .stdout
        .take()
        .ok_or(std::io::ErrorKind::BrokenPipe)?;
    for line in BufReader::new(output).lines() {
        if line? == REACHED {
            return Ok(Some(process));
        }
    }
    process.wait()?;
    Ok(None)
}

fn kill(mut process: Child) -> std::io::Result<()> {
    process.kill()?;
    process.wait().map(drop)
}

/// What such a process prints.
const REACHED: &str = "reached";

/// The process of a client that is killed in its state: it reaches it, says so, and waits.
#[must_use]
pub(crate) fn play(words: &[&str]) -> ExitCode {
    let Some((state, entry, front)) = part(words) else {
        return ExitCode::from(2);
    };
    let client = Client::open(front, USER, front::DATABASE, PATIENCE);
    let Ok(mut client) = client else {
        return ExitCode::FAILURE;
    };
    if state.reach(&mut client, &entry).is_err() {
        return ExitCode::FAILURE;
    }
    println!("{REACHED}");
    // The parent reads this; it has ended, if that fails.
    let _ = std::io::stdout().flush();
    loop {
        thread::park();
    }
}

fn part(words: &[&str]) -> Option<(State, Entry, SocketAddr)> {
    let [state, front, client, number, kind] = words else {
        return None;
    };
    let entry = Entry {
        client: client.parse().ok()?,
        number: number.parse().ok()?,
        kind: Kind::ALL.into_iter().find(|known| known.name() == *kind)?,
    };
    let state = State::ALL
        .into_iter()
        .find(|known| known.name() == *state)?;
    Some((state, entry, front.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &str) -> Trouble {
        Trouble::Refused(code.to_owned())
    }

    /// An error that is taken for a rollback, and is none, would hide a lost commit.
    #[test]
    fn only_certain_errors_say_that_nothing_was_done() {
        for (trouble, asked, fate) in [
            (refused("08006"), Asked::Yes, Fate::Undone),
            (refused("40001"), Asked::Yes, Fate::Undone),
            (refused("08007"), Asked::Yes, Fate::Unknown),
            (refused("08003"), Asked::Yes, Fate::Unknown),
            (Trouble::Ended(None), Asked::Yes, Fate::Unknown),
            (Trouble::Hung, Asked::Yes, Fate::Unknown),
            (Trouble::Ended(None), Asked::No, Fate::Undone),
        ] {
            assert_eq!(fate_of(&trouble, asked), fate, "{trouble:?} {asked:?}");
        }
    }
}
