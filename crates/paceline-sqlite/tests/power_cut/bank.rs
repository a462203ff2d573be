//! A bank: its load, and what must hold in every image of its disk.
//!
//! A transfer changes two accounts and appends to the ledger, so the ledger explains the balances. After
//! it, the client lets the server send `ack WRITER NUMBER`.

use std::{
    collections::BTreeMap, net::SocketAddr, ops::RangeInclusive, path::Path, thread, time::Duration,
};

use paceline_sqlite::Server;
use postgres::{Client, SimpleQueryMessage};

use crate::{common::connect, trace::Acknowledged};

const ACCOUNTS: i64 = 64;
const START: i64 = 1_000;

/// The writer of the first row of the ledger, which is there when the bank is.
pub(crate) const FOUNDER: i64 = 0;

/// For each writer the last transfer that a client has seen.
pub(crate) type Seen = BTreeMap<i64, i64>;

pub(crate) fn note(seen: &mut Seen, acknowledged: &[Acknowledged]) {
    for Acknowledged { writer, number } in acknowledged {
        let last = seen.entry(*writer).or_default();
        *last = (*last).max(*number);
    }
}

/// Makes the bank.
pub(crate) fn found(client: &mut Client) {
    let accounts = format!(
        "CREATE TABLE account(id integer PRIMARY KEY, balance bigint NOT NULL, name text);
         CREATE TABLE ledger(writer int, n int, source int, target int, amount int,
             PRIMARY KEY (writer, n));
         INSERT INTO account
             SELECT i, {START}, repeat('x', 500) FROM generate_series(1, {ACCOUNTS}) AS g(i);
         INSERT INTO ledger VALUES ({FOUNDER}, 1, 1, 1, 0)"
    );
    client.batch_execute(&accounts).expect("a bank");
    show(client);
}

/// A read that shows each writer's last transfer.
pub(crate) fn show(client: &mut Client) {
    let last = "SELECT 'ack ' || writer || ' ' || max(n) FROM ledger GROUP BY writer";
    client.simple_query(last).expect("the ledger");
}

/// Writers make the transfers of these numbers, and a reader shows the ledger meanwhile.
pub(crate) fn run(address: SocketAddr, writers: i64, transfers: RangeInclusive<i64>) {
    let writers: Vec<_> = (1..=writers)
        .map(|writer| {
            let transfers = transfers.clone();
            thread::spawn(move || write(address, writer, transfers))
        })
        .collect();
    let mut reader = connect(address);
    while !writers.iter().all(thread::JoinHandle::is_finished) {
        show(&mut reader);
    }
    for writer in writers {
        writer.join().expect("no panic");
    }
}

fn write(address: SocketAddr, writer: i64, transfers: RangeInclusive<i64>) {
    let mut client = connect(address);
    for number in transfers {
        transfer(&mut client, writer, number);
    }
}

fn transfer(client: &mut Client, writer: i64, number: i64) {
    let source = 1 + (writer * 11 + number * 7) % ACCOUNTS;
    let target = 1 + (source + number % 13) % ACCOUNTS;
    let amount = 1 + number % 5;
    let statements = format!(
        "UPDATE account SET balance = balance - {amount} WHERE id = {source};
         UPDATE account SET balance = balance + {amount} WHERE id = {target};
         INSERT INTO ledger VALUES ({writer}, {number}, {source}, {target}, {amount})"
    );
    let acknowledge = format!("SELECT 'ack {writer} {number}'");
    // Half of the writers send everything in one message, so that the reply to COMMIT leaves with the
    // row. For the others the message is the transaction.
    if writer % 2 == 0 {
        let message = format!("BEGIN; {statements}; COMMIT; {acknowledge}");
        client.batch_execute(&message).expect("a transfer");
    } else {
        client.batch_execute(&statements).expect("a transfer");
        client.batch_execute(&acknowledge).expect("a row");
    }
}

/// What an image is.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Sound,
    /// The file is damaged, or a transfer is there in part.
    Corrupt(String),
    /// What a client has seen is gone.
    Lost(String),
}

/// Opens an image as a restarted server does, and compares it with what clients have seen.
pub(crate) fn check(folder: &Path, seen: &Seen) -> Verdict {
    let server = Server::builder(folder)
        .database("bank")
        .listen("127.0.0.1:0")
        .threads(1)
        .start();
    let server = match server {
        Ok(server) => server,
        Err(error) => return Verdict::Corrupt(format!("the server does not start: {error}")),
    };
    let found = find(&mut connect(server.local_addr()));
    // No statement runs: what the report counts is no part of the verdict.
    let _ = server.shutdown(Duration::from_secs(5));
    match found {
        Ok(bank) => bank.verdict(seen),
        Err(error) => Verdict::Corrupt(format!("a query fails: {error}")),
    }
}

/// What is in an image.
#[derive(Debug)]
struct Found {
    integrity: String,
    /// How many tables of the bank exist.
    tables: i64,
    /// For each writer: its last transfer, and how many transfers it has.
    ledger: Vec<(i64, i64, i64)>,
    total: i64,
    /// Balances and ledger, weighted by account: zero if each transfer is there as a whole.
    unexplained: i64,
}

fn find(client: &mut Client) -> Result<Found, postgres::Error> {
    let integrity = rows(client, "PRAGMA integrity_check")?.join("; ");
    let tables = "SELECT count(*) FROM sqlite_master WHERE name IN ('account', 'ledger')";
    let tables = number(client, tables)?;
    let mut found = Found {
        integrity,
        tables,
        ledger: Vec::new(),
        total: 0,
        unexplained: 0,
    };
    if tables == 2 {
        let ledger =
            "SELECT writer || ' ' || max(n) || ' ' || count(*) FROM ledger GROUP BY writer";
        found.ledger = rows(client, ledger)?.iter().map(|row| three(row)).collect();
        found.total = number(client, "SELECT sum(balance) FROM account")?;
        let unexplained = format!(
            "SELECT (SELECT sum((balance - {START}) * id) FROM account)
                 - (SELECT sum(amount * (target - source)) FROM ledger)"
        );
        found.unexplained = number(client, &unexplained)?;
    }
    Ok(found)
}

/// The first values of all rows.
fn rows(client: &mut Client, query: &str) -> Result<Vec<String>, postgres::Error> {
    let messages = client.simple_query(query)?;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
        _ => None,
    });
    Ok(rows.collect())
}

fn number(client: &mut Client, query: &str) -> Result<i64, postgres::Error> {
    let rows = rows(client, query)?;
    Ok(rows[0].parse().expect("a number"))
}

fn three(row: &str) -> (i64, i64, i64) {
    let mut numbers = row.split(' ').map(|word| word.parse().expect("a number"));
    let mut next = || numbers.next().expect("three numbers");
    (next(), next(), next())
}

impl Found {
    fn verdict(&self, seen: &Seen) -> Verdict {
        if self.integrity != "ok" {
            return Verdict::Corrupt(self.integrity.clone());
        }
        if self.tables != 2 {
            return Verdict::Lost(format!("{} of the bank's tables", self.tables));
        }
        let has_gap = self.ledger.iter().any(|(_, last, count)| last != count);
        if has_gap || self.total != ACCOUNTS * START || self.unexplained != 0 {
            return Verdict::Corrupt(format!("{self:?}"));
        }
        let lost = seen
            .iter()
            .find(|(writer, last)| self.last(**writer) < **last);
        match lost {
            Some((writer, last)) => {
                let found = self.last(*writer);
                Verdict::Lost(format!(
                    "writer {writer}: {last} was seen, {found} is there"
                ))
            }
            None => Verdict::Sound,
        }
    }

    /// The last transfer of a writer; zero if there is none.
    fn last(&self, writer: i64) -> i64 {
        let found = self.ledger.iter().find(|(of, ..)| *of == writer);
        found.map_or(0, |(_, last, _)| *last)
    }
}
