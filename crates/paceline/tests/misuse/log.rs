//! What happens in a round, for the report of one that fails.

use std::{
    fmt::{self, Write},
    io,
    sync::{Mutex, Weak},
    time::{Duration, Instant},
};

use paceline::WeakPool;

use crate::misuse::ledger::Ledger;

/// A part of a round that takes longer is printed.
pub(crate) const SLOW: Duration = Duration::from_secs(2);

/// What the actors of a round do, for the report of a hang.
#[derive(Debug)]
pub(crate) struct Log {
    started: Instant,
    lines: Mutex<Vec<(Duration, usize, String)>>,
    doing: Mutex<Vec<Option<String>>>,
    /// What the round itself waits for.
    stage: Mutex<(String, Instant)>,
    pub(crate) ledger: Mutex<Weak<Ledger>>,
    pub(crate) pools: Mutex<Vec<WeakPool>>,
}

impl Default for Log {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            lines: Mutex::default(),
            doing: Mutex::default(),
            stage: Mutex::new((String::new(), Instant::now())),
            ledger: Mutex::default(),
            pools: Mutex::default(),
        }
    }
}

impl Log {
    pub(crate) fn begin(&self, actor: usize, op: &impl fmt::Debug) {
        self.do_now(actor, Some(format!("{op:?}")));
    }

    pub(crate) fn end(&self, actor: usize, outcome: io::Result<()>) {
        let what = self.do_now(actor, None).unwrap_or_default();
        let outcome = outcome.map_or_else(|error| format!(": {error}"), |()| String::new());
        let line = (self.started.elapsed(), actor, format!("{what}{outcome}"));
        self.lines.lock().unwrap().push(line);
    }

    pub(crate) fn leave(&self, actor: usize) {
        self.do_now(actor, None);
    }

    fn do_now(&self, actor: usize, what: Option<String>) -> Option<String> {
        let mut doing = self.doing.lock().unwrap();
        if doing.len() <= actor {
            doing.resize(actor + 1, None);
        }
        std::mem::replace(&mut doing[actor], what)
    }

    /// The round goes on to this. What took long is printed, and fails nothing: the machine may be
    /// busy.
    pub(crate) fn stage(&self, stage: impl Into<String>) {
        let mut now = self.stage.lock().unwrap();
        if now.1.elapsed() > SLOW {
            eprintln!("misuse: slow, {:?}: {}", now.1.elapsed(), now.0);
        }
        *now = (stage.into(), Instant::now());
    }

    /// Everything that is known of a round that hangs or failed.
    pub(crate) fn report(&self) -> String {
        let mut text = String::new();
        for (time, actor, line) in self.lines.lock().unwrap().iter() {
            let _ = writeln!(text, "{:>8} us, actor {actor}: {line}", time.as_micros());
        }
        for (actor, what) in self.doing.lock().unwrap().iter().enumerate() {
            if let Some(what) = what {
                let _ = writeln!(text, "actor {actor} is in {what}");
            }
        }
        let _ = writeln!(text, "the round is at: {}", self.stage.lock().unwrap().0);
        if let Some(ledger) = self.ledger.lock().unwrap().upgrade() {
            let _ = writeln!(text, "complaints: {:?}", ledger.complaints());
            let _ = writeln!(text, "values that are left:\n{}", ledger.summary());
        }
        for pool in self.pools.lock().unwrap().iter() {
            if let Some(pool) = pool.upgrade() {
                let _ = writeln!(text, "{:?}\n{:?}", pool, pool.inspect().threads());
            }
        }
        text
    }
}
