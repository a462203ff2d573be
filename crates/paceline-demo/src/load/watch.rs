//! Reads the whole system again and again, and compares it with the books.

use std::collections::BTreeMap;

use paceline_check::{
    client::{Answer, Failure, Session, Target},
    ledger::Parts,
};

use super::{
    book::{Book, Counts, Window},
    clients::Books,
};

/// A table whose rows are entries of a book.
struct Register<'b> {
    table: &'static str,
    database: Database,
    book: &'b Book,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Database {
    Bank,
    Travel,
}

/// Sums that must be equal: in one statement, so that they are of one moment.
const SUMS: &str = "SELECT (SELECT sum(balance) FROM accounts), (SELECT sum(balance) FROM tills), \
     (SELECT sum(balance) FROM branches), (SELECT coalesce(sum(amount), 0) FROM payments)";

/// Settlements of claims, and the marks that they have set.
const MARKS: &str = "SELECT (SELECT coalesce(sum(settled), 0) FROM claims), \
     (SELECT count(*) FROM settlements)";

/// Bookings, the seats that have a holder, and bookings of the seat of another one.
const HOLDERS: &str = "SELECT (SELECT count(*) FROM bookings), \
     (SELECT count(*) FROM seats WHERE holder <> 0), \
     (SELECT count(*) FROM bookings b JOIN seats s ON s.flight = b.flight AND s.seat = b.seat \
      WHERE s.holder = b.receipt)";

/// What the last reading of the system has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// The sum of all balances.
    pub(crate) total: i64,
    pub(crate) seats_sold: i64,
    pub(crate) counts: Counts,
    /// What was wrong in any reading.
    pub(crate) wrong: Vec<String>,
    /// Why the last reading has failed.
    pub(crate) unread: Option<String>,
    /// How many readings there were.
    pub(crate) readings: u64,
}

impl Seen {
    pub(crate) fn agrees(&self) -> bool {
        self.wrong.is_empty() && self.counts.agrees()
    }
}

/// Reads both databases, and adds what is seen. A failure leaves the entries for the next reading.
pub(crate) fn read(
    seen: &mut Seen,
    books: &Books,
    bank: &mut Session,
    travel: &mut Session,
) -> Result<(), Failure> {
    let sums = numbers(&bank.query(SUMS)?)?;
    seen.total = sums[0];
    seen.compare("the sums of accounts, tills, branches and payments", &sums);
    seen.compare(
        "the marks of claims and their settlements",
        &numbers(&bank.query(MARKS)?)?,
    );
    let holders = numbers(&travel.query(HOLDERS)?)?;
    seen.seats_sold = holders[0];
    seen.compare(
        "bookings, seats with a holder, and seats whose holder has booked them",
        &holders,
    );
    let mut counts = Counts::default();
    for register in registers(books) {
        let session = match register.database {
            Database::Bank => &mut *bank,
            Database::Travel => &mut *travel,
        };
        if let Some(window) = register.book.window() {
            let present = register.present(session, window)?;
            seen.wrong.extend(register.book.audit(window, present));
        }
        counts = counts.and(register.book.counts());
    }
    seen.counts = counts;
    seen.readings += 1;
    Ok(())
}

/// Compares how many entries each table has with the books: a reading looks only at new ones.
/// `first` are the first numbers of this run, by table.
pub(crate) fn count_all(
    seen: &mut Seen,
    books: &Books,
    first: u64,
    bank: &mut Session,
    travel: &mut Session,
) -> Result<(), Failure> {
    for register in registers(books) {
        let session = match register.database {
            Database::Bank => &mut *bank,
            Database::Travel => &mut *travel,
        };
        let table = register.table;
        let sql = format!(
            "SELECT count(*), count(DISTINCT receipt) FROM {table} WHERE receipt >= {first}"
        );
        let rows = numbers(&session.query(&sql)?)?;
        seen.compare(&format!("rows and numbers of {table}"), &rows);
        let (least, most) = register.book.counts().entries_expected();
        if !(least..=most).contains(&rows[0].unsigned_abs()) {
            let text = format!(
                "{table} has {} entries, and {least} to {most} are right",
                rows[0]
            );
            seen.wrong.push(text);
        }
    }
    Ok(())
}

fn registers(books: &Books) -> [Register<'_>; 4] {
    let register = |table, database, book| Register {
        table,
        database,
        book,
    };
    [
        register("payments", Database::Bank, &books.payments),
        register("claims", Database::Bank, &books.claims),
        register("settlements", Database::Bank, &books.settlements),
        register("bookings", Database::Travel, &books.bookings),
    ]
}

impl Register<'_> {
    /// How often the table has each number of a window.
    fn present(
        &self,
        session: &mut Session,
        window: Window,
    ) -> Result<BTreeMap<u64, Parts>, Failure> {
        let Window { first, end } = window;
        let answer = session.query(&format!(
            "SELECT receipt FROM {} WHERE receipt >= {first} AND receipt < {end}",
            self.table
        ))?;
        let mut present: BTreeMap<u64, Parts> = BTreeMap::new();
        for row in 0..answer.rows.len() {
            let number = answer
                .number(row, 0)
                .and_then(|number| u64::try_from(number).ok());
            let number = number.ok_or_else(|| Failure::Protocol("no receipt".to_owned()))?;
            *present.entry(number).or_default().entry(0).or_default() += 1;
        }
        Ok(present)
    }
}

impl Seen {
    fn compare(&mut self, what: &str, numbers: &[i64]) {
        if numbers.iter().any(|number| *number != numbers[0]) {
            self.wrong.push(format!("{what} differ: {numbers:?}"));
        }
    }
}

/// The numbers of the first row.
fn numbers(answer: &Answer) -> Result<Vec<i64>, Failure> {
    let columns = answer.rows.first().map_or(0, Vec::len);
    let numbers = (0..columns).map(|column| answer.number(0, column));
    let numbers: Option<Vec<_>> = numbers.collect();
    let no_numbers = || Failure::Protocol("the system has answered without numbers".to_owned());
    numbers
        .filter(|numbers| !numbers.is_empty())
        .ok_or_else(no_numbers)
}

/// The databases as the front-end names them.
pub(crate) fn target(front: &Target, database: &str) -> Target {
    Target {
        database: database.to_owned(),
        ..front.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Planted: half of a payment is there.
    #[test]
    fn sums_that_differ_are_found() {
        let mut seen = Seen::default();
        seen.compare("sums", &[7, 7, 7, 7]);
        assert!(seen.agrees());
        seen.compare("sums", &[7, 7, 6, 7]);
        assert_eq!(seen.wrong, ["sums differ: [7, 7, 6, 7]"]);
        assert!(!seen.agrees());
    }
}
