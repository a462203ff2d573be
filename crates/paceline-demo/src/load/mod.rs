//! The demo's clients, and what they and the readings of the system have shown.

pub(crate) mod book;
pub(crate) mod clients;
mod schema;
pub(crate) mod watch;

use std::{
    collections::BTreeMap,
    io,
    sync::{
        atomic::{AtomicBool, AtomicI64, Ordering},
        Mutex, MutexGuard, PoisonError,
    },
    thread,
    time::{Duration, Instant},
};

use paceline_check::{
    client::{Failure, Protocol, Session, Target},
    transaction::Ending,
};

use crate::journal::Journal;
use book::Book;
use clients::{Books, Client, Kind};
use watch::Seen;

/// How long a client waits for a reply: longer than any fault of the demo.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How long a client waits before it connects again.
const BETWEEN_ATTEMPTS: Duration = Duration::from_millis(50);

/// How long a wait may be in which a client does not see the end.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How long the last reading is attempted.
const RECOVERY: Duration = Duration::from_secs(20);

/// How long a reading waits for a reply: shorter, so that the demo ends in time.
const READING: Duration = Duration::from_secs(5);

/// The clients and the readings.
#[derive(Debug)]
pub(crate) struct Load {
    /// The front-end.
    front: Target,
    books: Books,
    /// The first number of this run in each book.
    first: u64,
    measured: Mutex<Measured>,
    seen: Mutex<Seen>,
    is_over: AtomicBool,
}

/// What the clients have measured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) committed: u64,
    pub(crate) undone: u64,
    pub(crate) unknown: u64,
    /// Committed ones of each kind of client.
    pub(crate) of_kind: BTreeMap<&'static str, u64>,
    /// Of the committed ones since the last status, in microseconds.
    latencies: Vec<u32>,
    pub(crate) longest: Duration,
    /// Why transactions failed.
    pub(crate) reasons: BTreeMap<String, u64>,
}

/// What happened between two statuses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    pub(crate) per_second: f64,
    pub(crate) p99: Duration,
}

impl Load {
    /// Makes the tables through the front-end.
    pub(crate) fn prepare(front: &Target) -> Result<Self, Failure> {
        let mut bank = open(front, "bank", TIMEOUT)?;
        schema::make_bank(&mut bank)?;
        let mut travel = open(front, "travel", TIMEOUT)?;
        schema::make_travel(&mut travel)?;
        let mut first = 0;
        for table in ["payments", "claims", "settlements"] {
            first = first.max(schema::highest(&mut bank, "receipt", table)?);
        }
        first = first.max(schema::highest(&mut travel, "receipt", "bookings")?);
        let flight = schema::highest(&mut travel, "flight", "seats")?;
        bank.close();
        travel.close();
        let first = first.unsigned_abs() + 1;
        let book = || Book::new(first);
        Ok(Self {
            front: front.clone(),
            books: Books {
                payments: book(),
                claims: book(),
                settlements: book(),
                bookings: book(),
                flight: AtomicI64::new(flight),
            },
            first,
            measured: Mutex::default(),
            seen: Mutex::default(),
            is_over: AtomicBool::new(false),
        })
    }

    /// Starts so many clients, which together attempt so many transactions each second.
    pub(crate) fn start<'s>(
        &'s self,
        scope: &'s thread::Scope<'s, '_>,
        clients: u32,
        rate: u32,
    ) -> io::Result<()> {
        let between = Duration::from_secs(1) * clients / rate.max(1);
        let start = Instant::now();
        for number in 0..clients {
            let kind = Kind::ALL[number as usize % Kind::ALL.len()];
            let first = start + between / clients * number;
            let client = Client::new(kind, number.into());
            let builder = thread::Builder::new().name(format!("client-{number}"));
            builder.spawn_scoped(scope, move || self.live(client, first, between))?;
        }
        Ok(())
    }

    /// Lets the clients end after their present transaction.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn live(&self, mut client: Client, mut next: Instant, between: Duration) {
        let mut session = None;
        while !self.is_over() {
            let now = Instant::now();
            if now < next {
                thread::sleep((next - now).min(LONGEST_PAUSE));
                continue;
            }
            // A turn that was missed is not made up for.
            next = (next + between).max(now);
            let kept = session.take().and_then(usable);
            let database = client.kind.database();
            let current = kept.map_or_else(|| open(&self.front, database, TIMEOUT), Ok);
            let Ok(mut current) = current else {
                thread::sleep(BETWEEN_ATTEMPTS);
                continue;
            };
            let begun = Instant::now();
            let ending = client.step(&self.books, &mut current);
            self.measured().count(client.kind, &ending, begun.elapsed());
            session = Some(current);
        }
        if let Some(session) = session.and_then(usable) {
            session.close();
        }
    }

    fn measured(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the clients have measured so far.
    pub(crate) fn totals(&self) -> Measured {
        let mut measured = self.measured();
        // The latencies belong to the status.
        let latencies = std::mem::take(&mut measured.latencies);
        let totals = measured.clone();
        measured.latencies = latencies;
        totals
    }

    /// The pace since the last call, which was so long ago.
    pub(crate) fn pace(&self, since: Duration) -> Pace {
        let mut latencies = std::mem::take(&mut self.measured().latencies);
        latencies.sort_unstable();
        let index = (latencies.len() * 99 / 100).min(latencies.len().saturating_sub(1));
        let p99 = latencies.get(index).copied().unwrap_or(0);
        let count = u32::try_from(latencies.len()).unwrap_or(u32::MAX);
        Pace {
            per_second: f64::from(count) / since.as_secs_f64().max(0.001),
            p99: Duration::from_micros(p99.into()),
        }
    }

    /// What the readings have shown so far.
    pub(crate) fn seen(&self) -> Seen {
        self.locked_seen().clone()
    }

    fn locked_seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the system again and again until the clients end.
    pub(crate) fn read_until_end(&self, every: Duration) {
        let mut next = Instant::now() + every / 2;
        while !self.is_over() {
            let now = Instant::now();
            if now < next {
                thread::sleep((next - now).min(LONGEST_PAUSE));
                continue;
            }
            next = now + every;
            let unread = self.read().err().map(|error| error.to_string());
            self.locked_seen().unread = unread;
        }
    }

    /// Reads the system once, and judges it.
    fn read(&self) -> Result<(), Failure> {
        let mut bank = open(&self.front, "bank", READING)?;
        let mut travel = open(&self.front, "travel", READING)?;
        let mut seen = self.seen();
        watch::read(&mut seen, &self.books, &mut bank, &mut travel)?;
        bank.close();
        travel.close();
        seen.unread = None;
        *self.locked_seen() = seen;
        Ok(())
    }

    /// The last reading, when all clients have ended. The system may still recover.
    pub(crate) fn read_all(&self, journal: &Journal) -> Result<(), Failure> {
        let end = Instant::now() + RECOVERY;
        loop {
            match self.read().and_then(|()| self.count_all()) {
                Err(error) if Instant::now() < end => {
                    journal.add(format!("the last reading is tried again: {error}"));
                    thread::sleep(Duration::from_secs(1));
                }
                done => return done,
            }
        }
    }

    fn count_all(&self) -> Result<(), Failure> {
        let mut bank = open(&self.front, "bank", READING)?;
        let mut travel = open(&self.front, "travel", READING)?;
        let mut seen = self.seen();
        watch::count_all(&mut seen, &self.books, self.first, &mut bank, &mut travel)?;
        bank.close();
        travel.close();
        *self.locked_seen() = seen;
        Ok(())
    }
}

impl Measured {
    fn count(&mut self, kind: Kind, ending: &Ending, latency: Duration) {
        match ending {
            Ending::Committed => {
                self.committed += 1;
                *self.of_kind.entry(kind.name()).or_default() += 1;
                let micros = u32::try_from(latency.as_micros()).unwrap_or(u32::MAX);
                self.latencies.push(micros);
                self.longest = self.longest.max(latency);
            }
            Ending::RolledBack(reason) => {
                self.undone += 1;
                if let Some(reason) = reason {
                    *self.reasons.entry(reason.label()).or_default() += 1;
                }
            }
            Ending::Unknown(reason) => {
                self.unknown += 1;
                let label = format!("unknown: {}", reason.label());
                *self.reasons.entry(label).or_default() += 1;
            }
        }
    }
}

/// The session, unless it is over or the server has ended it meanwhile.
fn usable(mut session: Session) -> Option<Session> {
    (!session.is_over() && !session.has_been_ended()).then_some(session)
}

fn open(front: &Target, database: &str, timeout: Duration) -> Result<Session, Failure> {
    Session::open(&watch::target(front, database), Protocol::Extended, timeout)
}
