//! What the three kinds of clients do, one transaction at a time.

use std::sync::atomic::{AtomicI64, Ordering};

use paceline_check::{
    client::{Failure, Session, Value},
    transaction::{execute_alone, execute_together, transact, Ending, Wish},
    Random,
};

use super::{
    book::Book,
    schema::{self, ACCOUNTS, BRANCHES, SEATS, TILLS},
};

/// A kind of client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Pays in one message.
    PointOfSale,
    /// Opens claims, and settles them.
    ClaimsCentre,
    /// Reads free seats, and books one.
    TravelAgent,
}

impl Kind {
    pub(crate) const ALL: [Self; 3] = [Self::PointOfSale, Self::ClaimsCentre, Self::TravelAgent];

    /// As the page names several of them.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PointOfSale => "points of sale",
            Self::ClaimsCentre => "claims centres",
            Self::TravelAgent => "travel agents",
        }
    }

    /// Its database.
    pub(crate) fn database(self) -> &'static str {
        match self {
            Self::PointOfSale | Self::ClaimsCentre => "bank",
            Self::TravelAgent => "travel",
        }
    }
}

/// The books of all clients.
#[derive(Debug)]
pub(crate) struct Books {
    pub(crate) payments: Book,
    pub(crate) claims: Book,
    pub(crate) settlements: Book,
    pub(crate) bookings: Book,
    /// The flight that is sold now.
    pub(crate) flight: AtomicI64,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) kind: Kind,
    pub(crate) number: i64,
    pub(crate) random: Random,
    /// An acknowledged claim that is not settled: its number.
    claim: Option<u64>,
}

impl Client {
    pub(crate) fn new(kind: Kind, number: i64) -> Self {
        Self {
            kind,
            number,
            random: Random::new(number.unsigned_abs() + 1),
            claim: None,
        }
    }

    /// Runs one transaction.
    pub(crate) fn step(&mut self, books: &Books, session: &mut Session) -> Ending {
        match self.kind {
            Kind::PointOfSale => self.pay(books, session),
            Kind::ClaimsCentre => self.claim(books, session),
            Kind::TravelAgent if self.random.is_within(50) => self.browse(books, session),
            Kind::TravelAgent => self.book(books, session),
        }
    }

    /// A payment changes three balances, and is entered. All of it is one message.
    fn pay(&mut self, books: &Books, session: &mut Session) -> Ending {
        let receipt = books.payments.begin();
        let (account, till) = (self.random.id_below(ACCOUNTS), self.number % TILLS);
        let (branch, amount) = (till % BRANCHES, 1 + self.random.id_below(100));
        let sql = format!(
            "BEGIN; \
             UPDATE accounts SET balance = balance + {amount} WHERE id = {account}; \
             UPDATE tills SET balance = balance + {amount} WHERE id = {till}; \
             UPDATE branches SET balance = balance + {amount} WHERE id = {branch}; \
             INSERT INTO payments VALUES ({receipt}, {account}, {till}, {branch}, {amount}); \
             COMMIT"
        );
        let ending = execute_together(session, &sql).ending;
        books.payments.settle(receipt, 1, &ending);
        ending
    }

    /// A claim is opened by a statement of its own, and settled in a transaction.
    fn claim(&mut self, books: &Books, session: &mut Session) -> Ending {
        match self.claim.take() {
            None => self.open_claim(books, session),
            Some(claim) => settle_claim(books, session, claim),
        }
    }

    fn open_claim(&mut self, books: &Books, session: &mut Session) -> Ending {
        let receipt = books.claims.begin();
        let values = [
            number(receipt),
            Value::Number(self.random.id_below(ACCOUNTS)),
            Value::Number(1 + self.random.id_below(5_000)),
        ];
        let sql = "INSERT INTO claims (receipt, account, amount, settled) VALUES ($1, $2, $3, 0)";
        let ending = execute_alone(session, sql, &values).ending;
        books.claims.settle(receipt, 1, &ending);
        if let Ending::Committed = ending {
            self.claim = Some(receipt);
        }
        ending
    }

    fn browse(&mut self, books: &Books, session: &mut Session) -> Ending {
        let flight = self
            .random
            .id_below(1 + books.flight.load(Ordering::Relaxed));
        let sql = "SELECT count(*) FROM seats WHERE flight = $1 AND holder = 0";
        match execute_alone(session, sql, &[Value::Number(flight)]).ending {
            // A read without an answer has changed nothing.
            Ending::Unknown(failure) => Ending::RolledBack(Some(failure)),
            ending => ending,
        }
    }

    /// Reads the free seats of the flight, takes one if it is still free, and enters the booking.
    fn book(&mut self, books: &Books, session: &mut Session) -> Ending {
        let receipt = books.bookings.begin();
        let flight = books.flight.load(Ordering::Relaxed);
        let choice = self.random.id_below(SEATS);
        let agent = self.number;
        let mut is_full = false;
        let done = transact(session, "BEGIN", |session| {
            let Some(seat) = free_seat(session, flight, choice)? else {
                is_full = true;
                return Ok(Wish::RollBack);
            };
            let place = [number(receipt), Value::Number(flight), Value::Number(seat)];
            let take =
                "UPDATE seats SET holder = $1 WHERE flight = $2 AND seat = $3 AND holder = 0";
            if session.execute(take, &place)?.changed() != Some(1) {
                return Ok(Wish::RollBack);
            }
            let [receipt, flight, seat] = place;
            let enter =
                "INSERT INTO bookings (receipt, flight, seat, agent) VALUES ($1, $2, $3, $4)";
            session.execute(enter, &[receipt, flight, seat, Value::Number(agent)])?;
            Ok(Wish::Commit(()))
        });
        books.bookings.settle(receipt, 1, &done.ending);
        if is_full && schema::open_flight(session, flight + 1).is_ok() {
            books.flight.fetch_max(flight + 1, Ordering::Relaxed);
        }
        done.ending
    }
}

/// One of the free seats of a flight.
fn free_seat(session: &mut Session, flight: i64, choice: i64) -> Result<Option<i64>, Failure> {
    let sql = "SELECT seat FROM seats WHERE flight = $1 AND holder = 0 ORDER BY seat";
    let answer = session.execute(sql, &[Value::Number(flight)])?;
    let choice = usize::try_from(choice).unwrap_or(0);
    let row = choice.checked_rem(answer.rows.len());
    Ok(row.and_then(|row| answer.number(row, 0)))
}

fn settle_claim(books: &Books, session: &mut Session, claim: u64) -> Ending {
    let receipt = books.settlements.begin();
    let done = transact(session, "BEGIN", |session| {
        let mark = "UPDATE claims SET settled = settled + 1 WHERE receipt = $1";
        let marked = session.execute(mark, &[number(claim)])?;
        // The audit of the claims finds one that is not there.
        if marked.changed() != Some(1) {
            return Ok(Wish::RollBack);
        }
        let enter = "INSERT INTO settlements (receipt, claim) VALUES ($1, $2)";
        session.execute(enter, &[number(receipt), number(claim)])?;
        Ok(Wish::Commit(()))
    });
    books.settlements.settle(receipt, 1, &done.ending);
    done.ending
}

fn number(number: u64) -> Value<'static> {
    Value::Number(i64::try_from(number).unwrap_or(i64::MAX))
}
