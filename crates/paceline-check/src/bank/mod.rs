//! Transfers between accounts. Their total never changes: in no read, and not at the end.

mod judge;

use crate::{
    client::{Answer, Failure, Session, Value},
    finding::{Finding, Judgement},
    options::{Isolation, Options},
    random::Random,
    transaction::{execute_alone, transact, Ending, Transaction, Wish},
    workload,
};
use judge::{judge_balances, Expected, Totals, Transfer};

const ACCOUNTS: i64 = 40;
const INITIAL: i64 = 1_000;
const MOST_PER_TRANSFER: i64 = 100;

const SUM: &str = "SELECT count(*), sum(balance), min(balance) FROM paceline_check_bank";
const ALL: &str = "SELECT id, balance FROM paceline_check_bank ORDER BY id";
const LOWER: &str = "SELECT balance FROM paceline_check_bank WHERE id < $1";
const UPPER: &str = "SELECT balance FROM paceline_check_bank WHERE id >= $1";
const ONE: &str = "SELECT balance FROM paceline_check_bank WHERE id = $1";
const SET: &str = "UPDATE paceline_check_bank SET balance = $1 WHERE id = $2";
const TAKE: &str =
    "UPDATE paceline_check_bank SET balance = balance - $1 WHERE id = $2 AND balance >= $3";
const GIVE: &str = "UPDATE paceline_check_bank SET balance = balance + $1 WHERE id = $2";

/// The workload.
#[derive(Debug)]
pub(crate) struct Bank {
    begin: String,
    isolation: Isolation,
    expected: Expected,
}

impl workload::Workload for Bank {
    type Client = Client;

    const NAME: &'static str = "bank";
    const TABLE: &'static str = "paceline_check_bank";

    fn new(options: &Options) -> Self {
        Self {
            begin: options.begin(),
            isolation: options.isolation.max(options.expected()),
            expected: Expected {
                accounts: ACCOUNTS.unsigned_abs(),
                total: ACCOUNTS * INITIAL,
            },
        }
    }

    fn prepare(&self, session: &mut Session) -> Result<(), Failure> {
        session.query(
            "CREATE TABLE paceline_check_bank (id int PRIMARY KEY, balance bigint NOT NULL)",
        )?;
        let rows: Vec<_> = (0..ACCOUNTS)
            .map(|id| format!("({id}, {INITIAL})"))
            .collect();
        let insert = format!("INSERT INTO paceline_check_bank VALUES {}", rows.join(", "));
        session.query(&insert).map(|_| ())
    }

    fn client(&self, _: u32, seed: u64) -> Client {
        Client {
            begin: self.begin.clone(),
            isolation: self.isolation,
            expected: self.expected,
            random: Random::new(seed),
            transfers: Vec::new(),
            reads: 0,
            findings: Vec::new(),
        }
    }

    fn conclude(&self, clients: &[Client], session: &mut Session) -> Result<Judgement, Failure> {
        let answer = session.query(ALL)?;
        let balances = (0..answer.rows.len())
            .map(|row| numbers(&answer, row, [0, 1]).map(|[id, balance]| (id, balance)))
            .collect::<Result<_, _>>()?;
        let transfers = || clients.iter().flat_map(|client| &client.transfers).copied();
        let (wrong, compared) = judge_balances(INITIAL, transfers(), &balances);
        let last = Totals::of(balances.into_values());
        let earlier = clients.iter().flat_map(|client| &client.findings).cloned();
        Ok(Judgement {
            findings: earlier
                .chain(self.expected.judge("the final read", last))
                .chain(wrong)
                .collect(),
            facts: vec![
                (
                    "reads_checked",
                    clients.iter().map(|client| client.reads).sum::<u64>() + 1,
                ),
                ("transfers", transfers().count() as u64),
                ("accounts_compared", compared),
            ],
        })
    }
}

/// A client of the bank.
#[derive(Debug)]
pub(crate) struct Client {
    begin: String,
    /// The stronger of what is asked for and what is expected.
    isolation: Isolation,
    expected: Expected,
    random: Random,
    transfers: Vec<Transfer>,
    reads: u64,
    findings: Vec<Finding>,
}

impl workload::Client for Client {
    fn step(&mut self, session: &mut Session) -> Ending {
        match self.random.below(10) {
            0 | 1 => self.read_sum(session),
            // Two statements see the same accounts only where a transaction has one snapshot.
            2 | 3 if self.isolation >= Isolation::Snapshot => self.read_halves(session),
            2 => self.read_all(session),
            _ => self.transfer(session),
        }
    }
}

impl Client {
    fn read_sum(&mut self, session: &mut Session) -> Ending {
        let read = execute_alone(session, SUM, &[]);
        self.judge("a sum", read, |answer| {
            let [accounts, total, least] = numbers(&answer, 0, [0, 1, 2])?;
            Ok(Totals {
                accounts: accounts.unsigned_abs(),
                total,
                least,
            })
        })
    }

    fn read_all(&mut self, session: &mut Session) -> Ending {
        let read = execute_alone(session, ALL, &[]);
        self.judge("a read", read, |answer| Ok(Totals::of(column(&answer, 1)?)))
    }

    fn read_halves(&mut self, session: &mut Session) -> Ending {
        let middle = self.random.id_below(ACCOUNTS);
        let read = transact(session, &self.begin, |session| {
            let mut balances = column(&session.execute(LOWER, &[Value::Number(middle)])?, 0)?;
            balances.extend(column(
                &session.execute(UPPER, &[Value::Number(middle)])?,
                0,
            )?);
            Ok(Wish::Commit(balances))
        });
        self.judge("a read in two parts", read, |balances| {
            Ok(Totals::of(balances))
        })
    }

    /// Only a read whose transaction has committed is a promise.
    fn judge<T>(
        &mut self,
        what: &str,
        read: Transaction<T>,
        totals: impl FnOnce(T) -> Result<Totals, Failure>,
    ) -> Ending {
        if let (Ending::Committed, Some(result)) = (&read.ending, read.result) {
            self.reads += 1;
            self.findings.extend(match totals(result) {
                Ok(totals) => self.expected.judge(what, totals),
                Err(failure) => Some(Finding::new("unreadable", format!("{what}: {failure}"))),
            });
        }
        read.ending
    }

    fn transfer(&mut self, session: &mut Session) -> Ending {
        let from = self.account();
        let to = (from + 1 + self.random.id_below(ACCOUNTS - 1)) % ACCOUNTS;
        let amount = 1 + self.random.id_below(MOST_PER_TRANSFER);
        // A client that computes the new balances itself shows whether updates get lost.
        let body = if self.isolation >= Isolation::Snapshot && self.random.is_within(50) {
            computed
        } else {
            relative
        };
        let done = transact(session, &self.begin, |session| {
            body(session, from, to, amount)
        });
        let is_acknowledged = match &done.ending {
            Ending::Committed => true,
            Ending::Unknown(_) => false,
            Ending::RolledBack(_) => return done.ending,
        };
        self.transfers.push(Transfer {
            from,
            to,
            amount,
            is_acknowledged,
        });
        done.ending
    }

    fn account(&mut self) -> i64 {
        self.random.id_below(ACCOUNTS)
    }
}

/// Reads both balances, and writes new ones.
fn computed(session: &mut Session, from: i64, to: i64, amount: i64) -> Result<Wish<()>, Failure> {
    let mut balance = |id| {
        let answer = session.execute(ONE, &[Value::Number(id)])?;
        numbers(&answer, 0, [0]).map(|[balance]| balance)
    };
    let (source, destination) = (balance(from)?, balance(to)?);
    if source < amount {
        return Ok(Wish::RollBack);
    }
    session.execute(SET, &[Value::Number(source - amount), Value::Number(from)])?;
    session.execute(
        SET,
        &[Value::Number(destination + amount), Value::Number(to)],
    )?;
    Ok(Wish::Commit(()))
}

/// Lets the server compute the new balances.
fn relative(session: &mut Session, from: i64, to: i64, amount: i64) -> Result<Wish<()>, Failure> {
    let amount = Value::Number(amount);
    let taken = session.execute(TAKE, &[amount, Value::Number(from), amount])?;
    if taken.changed() != Some(1) {
        return Ok(Wish::RollBack);
    }
    session.execute(GIVE, &[amount, Value::Number(to)])?;
    Ok(Wish::Commit(()))
}

/// The numbers in these columns of a row.
fn numbers<const N: usize>(
    answer: &Answer,
    row: usize,
    columns: [usize; N],
) -> Result<[i64; N], Failure> {
    let mut numbers = [0; N];
    for (number, column) in numbers.iter_mut().zip(columns) {
        *number = answer
            .number(row, column)
            .ok_or_else(|| Failure::Protocol(format!("row {row} has no number at {column}")))?;
    }
    Ok(numbers)
}

/// The numbers of a column.
fn column(answer: &Answer, column: usize) -> Result<Vec<i64>, Failure> {
    let rows = 0..answer.rows.len();
    rows.map(|row| numbers(answer, row, [column]).map(|[number]| number))
        .collect()
}
