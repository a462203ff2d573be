//! Entries of which each client remembers whether they were acknowledged, undone, or unknown.
//!
//! The table has no unique key: an entry that is written twice must be seen twice.

mod judge;

use std::collections::BTreeMap;

use crate::{
    client::{Failure, Session, Value},
    finding::{Finding, Judgement},
    options::Options,
    random::Random,
    transaction::{execute_alone, transact, Ending, Wish},
    workload,
};

pub use judge::{audit, Audit, Entry, Fate, Key, Parts};

const INSERT: &str = "INSERT INTO paceline_check_ledger (client, entry, part) VALUES ($1, $2, $3)";
const COUNT: &str = "SELECT count(*) FROM paceline_check_ledger WHERE client = $1";
const ALL: &str = "SELECT client, entry, part FROM paceline_check_ledger";

/// The workload.
#[derive(Debug)]
pub(crate) struct Ledger {
    begin: String,
}

impl workload::Workload for Ledger {
    type Client = Client;

    const NAME: &'static str = "ledger";
    const TABLE: &'static str = "paceline_check_ledger";

    fn new(options: &Options) -> Self {
        Self {
            begin: options.begin(),
        }
    }

    fn prepare(&self, session: &mut Session) -> Result<(), Failure> {
        session.query(
            "CREATE TABLE paceline_check_ledger (client int NOT NULL, entry bigint NOT NULL, \
             part int NOT NULL)",
        )?;
        session.query("CREATE INDEX paceline_check_by_client ON paceline_check_ledger (client)")?;
        Ok(())
    }

    fn client(&self, number: u32, seed: u64) -> Client {
        Client {
            begin: self.begin.clone(),
            number,
            random: Random::new(seed),
            entries: Vec::new(),
            reads: 0,
            findings: Vec::new(),
        }
    }

    fn conclude(&self, clients: &[Client], session: &mut Session) -> Result<Judgement, Failure> {
        let present = present(session)?;
        let attempted = clients.iter().flat_map(Client::entries).collect();
        let audit = audit(&attempted, &present);
        let earlier = clients.iter().flat_map(|client| &client.findings).cloned();
        Ok(Judgement {
            findings: earlier.chain(audit.findings).collect(),
            facts: vec![
                ("entries_acknowledged", audit.acknowledged),
                ("entries_undone", audit.undone),
                ("entries_unknown", audit.unknown),
                ("of_them_done", audit.unknown_done),
                (
                    "own_reads_checked",
                    clients.iter().map(|client| client.reads).sum(),
                ),
            ],
        })
    }
}

/// Everything that the table has.
fn present(session: &mut Session) -> Result<BTreeMap<Key, Parts>, Failure> {
    let answer = session.query(ALL)?;
    let mut present: BTreeMap<Key, Parts> = BTreeMap::new();
    for row in 0..answer.rows.len() {
        let number = |column| {
            answer
                .number(row, column)
                .and_then(|n| u64::try_from(n).ok())
        };
        let small = |column| number(column).and_then(|n| u32::try_from(n).ok());
        let (Some(client), Some(entry), Some(part)) = (small(0), number(1), small(2)) else {
            let what = format!("row {row} of the ledger is unreadable");
            return Err(Failure::Protocol(what));
        };
        *present
            .entry((client, entry))
            .or_default()
            .entry(part)
            .or_default() += 1;
    }
    Ok(present)
}

/// A client of the ledger.
#[derive(Debug)]
pub(crate) struct Client {
    begin: String,
    number: u32,
    random: Random,
    /// Each entry; its place is its number.
    entries: Vec<Entry>,
    reads: u64,
    findings: Vec<Finding>,
}

impl workload::Client for Client {
    fn step(&mut self, session: &mut Session) -> Ending {
        match self.random.below(100) {
            0..5 => self.read_own(session),
            5..40 => self.enter(session, 1, insert_alone),
            40..90 => {
                let begin = self.begin.clone();
                let parts = 2 + u32::from(self.random.is_within(50));
                self.enter(session, parts, |session, key, parts| {
                    insert_together(session, &begin, key, parts, Wish::Commit(()))
                })
            }
            _ => {
                let begin = self.begin.clone();
                self.enter(session, 2, |session, key, parts| {
                    insert_together(session, &begin, key, parts, Wish::RollBack)
                })
            }
        }
    }
}

impl Client {
    fn entries(&self) -> impl Iterator<Item = (Key, Entry)> + '_ {
        let keys = (0..).map(|number| (self.number, number));
        keys.zip(self.entries.iter().copied())
    }

    /// Writes one more entry in the way of `write`.
    fn enter(
        &mut self,
        session: &mut Session,
        parts: u32,
        write: impl FnOnce(&mut Session, Key, u32) -> Ending,
    ) -> Ending {
        let key = (self.number, self.entries.len() as u64);
        let ending = write(session, key, parts);
        let fate = match ending {
            Ending::Committed => Fate::Acknowledged,
            Ending::RolledBack(_) => Fate::Undone,
            Ending::Unknown(_) => Fate::Unknown,
        };
        self.entries.push(Entry { parts, fate });
        ending
    }

    /// A client must see all that was acknowledged to it, and nothing that was not attempted.
    fn read_own(&mut self, session: &mut Session) -> Ending {
        let read = execute_alone(session, COUNT, &[Value::Number(self.number.into())]);
        let rows = read.result.and_then(|answer| answer.number(0, 0));
        if let (Ending::Committed, Some(rows)) = (&read.ending, rows) {
            self.reads += 1;
            let (least, most) = self.rows_expected();
            if !(least..=most).contains(&rows.unsigned_abs()) {
                let text = format!(
                    "client {} sees {rows} rows of its own, and expects {least} to {most}",
                    self.number
                );
                self.findings.push(Finding::new("own entries", text));
            }
        }
        read.ending
    }

    /// Without, and with the entries of unknown outcome.
    fn rows_expected(&self) -> (u64, u64) {
        let rows = |fate| {
            let entries = self.entries.iter().filter(move |entry| entry.fate == fate);
            entries.map(|entry| u64::from(entry.parts)).sum::<u64>()
        };
        let least = rows(Fate::Acknowledged);
        (least, least + rows(Fate::Unknown))
    }
}

fn insert_alone(session: &mut Session, key: Key, _: u32) -> Ending {
    execute_alone(session, INSERT, &row(key, 0)).ending
}

fn insert_together(
    session: &mut Session,
    begin: &str,
    key: Key,
    parts: u32,
    wish: Wish<()>,
) -> Ending {
    let done = transact(session, begin, |session| {
        for part in 0..parts {
            session.execute(INSERT, &row(key, part))?;
        }
        Ok(wish)
    });
    done.ending
}

fn row((client, entry): Key, part: u32) -> [Value<'static>; 3] {
    let entry = i64::try_from(entry).unwrap_or(i64::MAX);
    [
        Value::Number(client.into()),
        Value::Number(entry),
        Value::Number(part.into()),
    ]
}
