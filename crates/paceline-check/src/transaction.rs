//! One transaction, and what its client knows of its end.
//!
//! ```text
//!   BEGIN --> body --> COMMIT --> tag COMMIT          --> Committed
//!               |        |        tag ROLLBACK, error --> RolledBack
//!               |        +------> no reply, 08007 ..  --> Unknown
//!               +--> error, or the body's own wish    --> RolledBack
//! ```
//!
//! A connection that breaks before COMMIT is sent leaves nothing behind: the server rolls back.
//! A connection that breaks afterwards leaves the client without knowledge. Such a transaction is
//! never repeated here, and its effects may be there or not.

use paceline_pg_wire::TransactionStatus;

use crate::client::{Answer, Failure, Session, Value};

/// How a transaction has ended, as far as its client knows.
#[derive(Debug)]
pub enum Ending {
    /// The server has acknowledged the commit.
    Committed,
    /// Nothing of it remains; the reason, unless the client has chosen this.
    RolledBack(Option<Failure>),
    /// It has happened, or it has not.
    Unknown(Failure),
}

/// What the body of a transaction wants.
#[derive(Debug)]
pub enum Wish<T> {
    /// To commit, with this result.
    Commit(T),
    /// To roll back.
    RollBack,
}

/// A transaction that has ended.
#[derive(Debug)]
#[must_use]
pub struct Transaction<T> {
    /// How it has ended.
    pub ending: Ending,
    /// What its body has returned; `None` if it did not reach its end, or wanted to roll back.
    pub result: Option<T>,
}

/// Runs `body` between `begin` and COMMIT or ROLLBACK.
pub fn transact<T>(
    session: &mut Session,
    begin: &str,
    body: impl FnOnce(&mut Session) -> Result<Wish<T>, Failure>,
) -> Transaction<T> {
    let wish = session.query(begin).and_then(|_| body(session));
    let (ending, result) = match wish {
        Ok(Wish::Commit(result)) => (commit(session), Some(result)),
        Ok(Wish::RollBack) => (Ending::RolledBack(None), None),
        Err(failure) if failure.label() == UNKNOWN => (Ending::Unknown(failure), None),
        Err(failure) => (Ending::RolledBack(Some(failure)), None),
    };
    leave_block(session);
    Transaction { ending, result }
}

/// Runs one statement that is a transaction of its own.
pub fn execute_alone(
    session: &mut Session,
    sql: &str,
    values: &[Value<'_>],
) -> Transaction<Answer> {
    let answer = session.execute(sql, values);
    let (ending, result) = match answer {
        Ok(answer) => (acknowledged(&answer), Some(answer)),
        Err(failure) => (of_failed_commit(failure), None),
    };
    Transaction { ending, result }
}

/// Runs statements that end with COMMIT in one message.
pub fn execute_together(session: &mut Session, sql: &str) -> Transaction<Answer> {
    let answer = session.query(sql);
    let (ending, result) = match answer {
        Ok(answer) => (committed(&answer), Some(answer)),
        Err(failure) => (of_failed_commit(failure), None),
    };
    leave_block(session);
    Transaction { ending, result }
}

/// SQLSTATE "transaction resolution unknown".
const UNKNOWN: &str = "08007";

fn commit(session: &mut Session) -> Ending {
    match session.query("COMMIT") {
        Ok(answer) => committed(&answer),
        Err(failure) => of_failed_commit(failure),
    }
}

/// The COMMIT of a failed transaction succeeds, with the tag of a rollback.
fn committed(answer: &Answer) -> Ending {
    match answer.tags.last() {
        Some(tag) if tag == "ROLLBACK" => Ending::RolledBack(None),
        _ => acknowledged(answer),
    }
}

/// A commit that its replicas have not confirmed may be lost at a failover.
fn acknowledged(answer: &Answer) -> Ending {
    if answer.is_unreplicated {
        let what = "the server has committed without its replicas";
        Ending::Unknown(Failure::Protocol(what.to_owned()))
    } else {
        Ending::Committed
    }
}

fn of_failed_commit(failure: Failure) -> Ending {
    match failure {
        Failure::Refused(error) if error.has_rolled_back() => {
            Ending::RolledBack(Some(Failure::Refused(error)))
        }
        failure => Ending::Unknown(failure),
    }
}

/// Ends what is left of the transaction on the server.
fn leave_block(session: &mut Session) {
    if !session.is_over() && session.status() != TransactionStatus::Idle {
        // A ROLLBACK without a reply ends the session, and so the transaction.
        let _ = session.query("ROLLBACK");
    }
}
