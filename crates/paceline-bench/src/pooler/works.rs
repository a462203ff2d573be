//! What the poolers are loaded with.

use std::io;

/// The server behind the pooler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BackEnd {
    /// A server that has one answer, and gives it at once: what remains is the pooler's own cost.
    Answering,
    /// PostgreSQL.
    Postgres,
}

/// How pgbench sends its queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Simple,
    Prepared,
}

impl Mode {
    /// pgbench's word for it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Simple => "simple",
            Self::Prepared => "prepared",
        }
    }
}

/// One load.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) back_end: BackEnd,
    pub(super) mode: Mode,
    pub(super) clients: u32,
    /// The size of the pool.
    pub(super) servers: u32,
    /// What ours may cost at most, as a share of a peer's CPU for a transaction.
    pub(super) cpu_goal: Option<f64>,
}

impl Work {
    /// In a line.
    pub(super) fn about(&self) -> String {
        let back_end = match self.back_end {
            BackEnd::Answering => "a back-end that answers at once",
            BackEnd::Postgres => "PostgreSQL",
        };
        format!(
            "{} clients on {} connections to {back_end}, one SELECT by its key, {} protocol",
            self.clients,
            self.servers,
            self.mode.word()
        )
    }
}

const fn work(
    name: &'static str,
    back_end: BackEnd,
    mode: Mode,
    clients: u32,
    servers: u32,
    cpu_goal: Option<f64>,
) -> Work {
    Work {
        name,
        back_end,
        mode,
        clients,
        servers,
        cpu_goal,
    }
}

/// All of them.
pub(super) const WORKS: [Work; 8] = [
    work(
        "simple-64-30",
        BackEnd::Postgres,
        Mode::Simple,
        64,
        30,
        Some(0.95),
    ),
    work(
        "simple-64-20",
        BackEnd::Postgres,
        Mode::Simple,
        64,
        20,
        Some(0.85),
    ),
    work(
        "simple-1000-30",
        BackEnd::Postgres,
        Mode::Simple,
        1000,
        30,
        Some(0.82),
    ),
    work(
        "prepared-64-30",
        BackEnd::Postgres,
        Mode::Prepared,
        64,
        30,
        Some(0.80),
    ),
    work(
        "prepared-1000-30",
        BackEnd::Postgres,
        Mode::Prepared,
        1000,
        30,
        Some(0.75),
    ),
    work(
        "answering-64-20",
        BackEnd::Answering,
        Mode::Simple,
        64,
        20,
        Some(0.85),
    ),
    work(
        "answering-1000-30",
        BackEnd::Answering,
        Mode::Simple,
        1000,
        30,
        Some(0.82),
    ),
    work(
        "answering-prepared-64-20",
        BackEnd::Answering,
        Mode::Prepared,
        64,
        20,
        Some(0.80),
    ),
];

/// Those with these names; all of them if there are none.
pub(super) fn chosen(names: &[String]) -> io::Result<Vec<&'static Work>> {
    if names.is_empty() {
        return Ok(WORKS.iter().collect());
    }
    names.iter().map(|name| named(name)).collect()
}

fn named(name: &str) -> io::Result<&'static Work> {
    WORKS.iter().find(|work| work.name == name).ok_or_else(|| {
        let all: Vec<_> = WORKS.iter().map(|work| work.name).collect();
        let text = format!("no work is called {name:?}; there are {}", all.join(", "));
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_work_is_named() {
        let error = chosen(&["none".to_owned()]).unwrap_err().to_string();
        assert!(
            error.contains("none") && error.contains("simple-64-30"),
            "{error}"
        );
        assert_eq!(chosen(&[]).unwrap().len(), WORKS.len());
    }
}
