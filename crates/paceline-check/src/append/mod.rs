//! List-append: transactions that read lists and append values to them.
//!
//! A read shows the whole list, and so the order of all appends to it. From this the judgement
//! knows which transaction must have been before which, and finds cycles.

mod cycles;
mod graph;
mod history;
mod judge;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};

use crate::{
    client::{self, Failure, Session},
    finding::{Finding, Judgement},
    options::{Isolation, Options},
    random::Random,
    transaction::{transact, Ending, Wish},
    workload,
};

pub use history::{History, Key, Operation, Outcome, Transaction, Value};
pub use judge::judge;

const READ: &str = "SELECT items FROM paceline_check_append WHERE id = $1";
const APPEND: &str = "INSERT INTO paceline_check_append (id, items) VALUES ($1, $2) \
     ON CONFLICT (id) DO UPDATE SET items = paceline_check_append.items || excluded.items";
const ALL: &str = "SELECT id, items FROM paceline_check_append";

/// How many lists are in use at once.
const LISTS: usize = 12;

/// How many values are appended to a list before another one takes its place: a list is read as a
/// whole.
const LONGEST: Value = 64;

/// The workload.
#[derive(Debug)]
pub(crate) struct Append {
    begin: String,
    expected: Isolation,
    lists: Arc<Lists>,
}

/// The lists in use, and the next value of each.
#[derive(Debug)]
struct Lists {
    /// Each list and how many values were given out for it; then the next list.
    state: Mutex<(Vec<(Key, Value)>, Key)>,
}

impl Lists {
    fn new() -> Self {
        let first = (0..).take(LISTS).map(|key| (key, 0)).collect::<Vec<_>>();
        let next = Key::try_from(first.len()).unwrap_or(Key::MAX);
        Self {
            state: Mutex::new((first, next)),
        }
    }

    /// A list in this place.
    fn key(&self, place: usize) -> Key {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0[place].0
    }

    /// A list in this place, and a value that no append has used.
    fn append(&self, place: usize) -> (Key, Value) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (lists, next) = &mut *state;
        if lists[place].1 >= LONGEST {
            lists[place] = (*next, 0);
            *next += 1;
        }
        let (key, value) = &mut lists[place];
        *value += 1;
        (*key, *value)
    }
}

impl workload::Workload for Append {
    type Client = Client;

    const NAME: &'static str = "append";
    const TABLE: &'static str = "paceline_check_append";

    fn new(options: &Options) -> Self {
        Self {
            begin: options.begin(),
            expected: options.expected(),
            lists: Arc::new(Lists::new()),
        }
    }

    fn prepare(&self, session: &mut Session) -> Result<(), Failure> {
        let create = "CREATE TABLE paceline_check_append (id int PRIMARY KEY, items text NOT NULL)";
        session.query(create).map(|_| ())
    }

    fn client(&self, _: u32, seed: u64) -> Client {
        Client {
            begin: self.begin.clone(),
            lists: Arc::clone(&self.lists),
            random: Random::new(seed),
            transactions: Vec::new(),
            unreadable: Vec::new(),
        }
    }

    fn conclude(&self, clients: &[Client], session: &mut Session) -> Result<Judgement, Failure> {
        let answer = session.query(ALL)?;
        let mut history = History::default();
        for row in 0..answer.rows.len() {
            let key = answer
                .number(row, 0)
                .and_then(|key| Key::try_from(key).ok());
            let key = key.ok_or_else(|| Failure::Protocol(format!("row {row} has no key")))?;
            let items =
                parsed(answer.text(row, 1).unwrap_or_default()).map_err(Failure::Protocol)?;
            history.last.insert(key, items);
        }
        let all = clients
            .iter()
            .flat_map(|client| client.transactions.iter().cloned());
        history.transactions = all.collect();
        let unreadable = clients.iter().flat_map(|client| client.unreadable.iter());
        let unreadable = unreadable.map(|what| Finding::new("unreadable", what));
        Ok(Judgement {
            findings: unreadable.chain(judge(&history, self.expected)).collect(),
            facts: facts(&history),
        })
    }
}

/// Counts of a history.
fn facts(history: &History) -> Vec<(&'static str, u64)> {
    let count = |is_it: fn(&Operation) -> bool| {
        let committed = history.transactions.iter();
        let committed = committed.filter(|one| one.outcome == Outcome::Committed);
        committed
            .flat_map(|one| &one.operations)
            .filter(|one| is_it(one))
            .count() as u64
    };
    vec![
        ("lists", history.last.len() as u64),
        (
            "appends_acknowledged",
            count(|one| matches!(one, Operation::Append(..))),
        ),
        (
            "reads_checked",
            count(|one| matches!(one, Operation::Read(..))),
        ),
    ]
}

/// A client of the lists.
#[derive(Debug)]
pub(crate) struct Client {
    begin: String,
    lists: Arc<Lists>,
    random: Random,
    transactions: Vec<Transaction>,
    unreadable: Vec<String>,
}

impl workload::Client for Client {
    fn step(&mut self, session: &mut Session) -> Ending {
        let mut operations = self.plan();
        let is_undone = self.random.is_within(4);
        let done = transact(session, &self.begin, |session| {
            operations
                .iter_mut()
                .try_for_each(|one| run(session, one))?;
            Ok(if is_undone {
                Wish::RollBack
            } else {
                Wish::Commit(())
            })
        });
        if let Ending::RolledBack(Some(Failure::Protocol(what))) = &done.ending {
            self.unreadable.push(what.clone());
        }
        let outcome = match &done.ending {
            Ending::Committed => Outcome::Committed,
            Ending::RolledBack(_) => Outcome::Undone,
            Ending::Unknown(_) => Outcome::Unknown,
        };
        self.transactions.push(Transaction {
            operations,
            outcome,
        });
        done.ending
    }
}

impl Client {
    /// One to four operations. Their reads are empty before they run.
    fn plan(&mut self) -> Vec<Operation> {
        let count = 1 + self.random.below(4);
        let mut one = || {
            let place = usize::try_from(self.random.below(LISTS as u64)).unwrap_or(0);
            if self.random.is_within(50) {
                let (key, value) = self.lists.append(place);
                Operation::Append(key, value)
            } else {
                Operation::Read(self.lists.key(place), Vec::new())
            }
        };
        let mut operations: Vec<_> = (0..count).map(|_| one()).collect();
        // Servers find deadlocks only after a second: most transactions avoid them.
        if self.random.is_within(95) {
            operations.sort_by_key(Operation::key);
        }
        operations
    }
}

/// Runs one operation, and keeps what it has read.
fn run(session: &mut Session, operation: &mut Operation) -> Result<(), Failure> {
    let number = |key: &Key| client::Value::Number((*key).into());
    match operation {
        Operation::Append(key, value) => {
            let item = format!(",{value}");
            session.execute(APPEND, &[number(key), client::Value::Text(&item)])?;
        }
        Operation::Read(key, list) => {
            let answer = session.execute(READ, &[number(key)])?;
            *list = parsed(answer.text(0, 0).unwrap_or_default()).map_err(Failure::Protocol)?;
        }
    }
    Ok(())
}

/// The values of a list, each behind a comma.
fn parsed(items: &str) -> Result<Vec<Value>, String> {
    let values = items.split(',').skip(1);
    let is_list = items.is_empty() || items.starts_with(',');
    let values = values
        .map(|item| item.parse().ok())
        .collect::<Option<Vec<_>>>();
    values
        .filter(|_| is_list)
        .ok_or_else(|| format!("`{items}` is no list"))
}
