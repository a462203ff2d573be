//! What the tests of shared connections have in common: statements, and a lock that holds them up.

use paceline_pg_wire::frontend::{self, Target};

use crate::{
    client::{Client, Failure, Rows},
    pooler::Pooler,
    support::postgres::Postgres,
    wait_until,
};

/// One statement, without a name.
pub(crate) fn statement(sql: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    frontend::parse(&mut bytes, b"", sql.as_bytes(), &[]);
    frontend::bind(&mut bytes, b"", b"", &[]);
    frontend::describe(&mut bytes, Target::Portal(b""));
    frontend::execute(&mut bytes, b"", 0);
    frontend::sync(&mut bytes);
    bytes
}

/// A statement that is prepared by name, run, and closed again.
pub(crate) fn prepared(name: &[u8], sql: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    frontend::parse(&mut bytes, name, sql.as_bytes(), &[]);
    frontend::bind(&mut bytes, b"", name, &[]);
    frontend::execute(&mut bytes, b"", 0);
    frontend::close(&mut bytes, Target::Statement(name));
    frontend::sync(&mut bytes);
    bytes
}

pub(crate) fn ask(client: &mut Client, sql: &str) -> Result<Rows, Failure> {
    client.send(&statement(sql));
    client.finish()
}

pub(crate) fn one(value: impl ToString) -> Result<Rows, Failure> {
    Ok(vec![vec![value.to_string()]])
}

/// A lock that a client of the test holds, at the server itself: a statement that asks for it waits.
pub(crate) struct Lock {
    pub(crate) pooler: Pooler,
    holder: Client,
    number: u32,
}

impl Lock {
    /// `number` is of this test alone.
    pub(crate) fn hold(postgres: &Postgres, number: u32) -> Self {
        let pooler = Pooler::of(postgres, "");
        let mut holder = pooler.client();
        let taken = holder.query(&format!("SELECT pg_advisory_lock({number})"));
        taken.expect("it is free");
        Self {
            pooler,
            holder,
            number,
        }
    }

    /// The statement that waits for it, and answers with `value`.
    pub(crate) fn waits(&self, value: &str) -> String {
        let number = self.number;
        format!("SELECT '{value}' FROM pg_advisory_xact_lock_shared({number}) AS t")
    }

    pub(crate) fn wait_for_waiter(&self) {
        let mut other = self.pooler.client();
        let sql = format!(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {} AND NOT granted",
            self.number
        );
        wait_until("a statement waits for the lock", || {
            other.query(&sql) == one(1)
        });
    }

    pub(crate) fn release(mut self) {
        let sql = format!("SELECT pg_advisory_unlock({})", self.number);
        self.holder.query(&sql).expect("it is held");
    }
}

/// How many clients of `db` are in this state.
pub(crate) fn count_in_state(pooler: &Pooler, state: &str) -> usize {
    let rows = pooler.admin("SHOW CLIENTS");
    let is_in_state = |row: &&Vec<String>| row[2] == "db" && row[4] == state;
    rows.iter().filter(is_in_state).count()
}

/// How many clients of `db` have a request outstanding.
pub(crate) fn active(pooler: &Pooler) -> usize {
    count_in_state(pooler, "active")
}

/// How many clients of `db` have a request that is not sent.
pub(crate) fn waiting(pooler: &Pooler) -> usize {
    count_in_state(pooler, "waiting")
}

/// The resident memory of the program, in kB.
pub(crate) fn resident(pooler: &Pooler) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pooler.id()));
    let status = status.expect("the program runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|text| text.trim().split(' ').next()?.parse().ok());
    number.expect("a number")
}
