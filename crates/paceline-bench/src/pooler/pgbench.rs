//! PostgreSQL's own load generator.

use std::{io, process::Command};

use super::{cluster::Scratch, works::Work};

/// What pgbench is to do.
pub(super) struct Bench<'w> {
    work: &'w Work,
    port: u16,
    seconds: u32,
}

/// What it did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Loaded {
    pub(super) transactions: u64,
    pub(super) per_second: f64,
    /// The mean, in seconds.
    pub(super) latency: f64,
}

impl<'w> Bench<'w> {
    pub(super) fn of(work: &'w Work, port: u16, seconds: u32) -> Self {
        Self {
            work,
            port,
            seconds,
        }
    }

    /// Loads, with one thread.
    ///
    /// # Errors
    /// pgbench is not installed, or a client of it failed.
    pub(super) fn run(&self) -> io::Result<Loaded> {
        let scratch = Scratch::new(&format!("script-{}", self.port))?;
        let script = scratch.path().join("select.sql");
        let text = "\\set aid random(1, 1000000)\n\
            SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n";
        std::fs::write(&script, text)?;
        let output = Command::new("pgbench")
            .args([
                "-h",
                "127.0.0.1",
                "-U",
                "bench",
                "-n",
                "-M",
                self.work.mode.word(),
            ])
            .args([
                "-p",
                &self.port.to_string(),
                "-c",
                &self.work.clients.to_string(),
            ])
            .args(["-T", &self.seconds.to_string(), "-f"])
            .arg(&script)
            .arg("bench")
            .output();
        let output = output.map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("run pgbench (apt-get install postgresql): {error}"),
            )
        })?;
        let said = String::from_utf8_lossy(&output.stdout);
        let failed = || {
            let error = String::from_utf8_lossy(&output.stderr);
            io::Error::other(format!("pgbench at port {}: {said}{error}", self.port))
        };
        if !output.status.success() {
            return Err(failed());
        }
        read(&said).ok_or_else(failed)
    }
}

/// What pgbench says at its end.
fn read(said: &str) -> Option<Loaded> {
    let after = |name: &str| said.lines().find_map(|line| line.strip_prefix(name));
    let number = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    let failed = after("number of failed transactions: ").and_then(number);
    if failed.is_some_and(|count| count > 0.0) {
        return None;
    }
    let transactions = number(after("number of transactions actually processed: ")?)?;
    Some(Loaded {
        transactions: transactions as u64,
        per_second: number(after("tps = ")?)?,
        latency: number(after("latency average = ")?)? / 1e3,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "number of clients: 64\nnumber of transactions actually processed: 1200\n\
        number of failed transactions: 0 (0.000%)\nlatency average = 2.500 ms\n\
        tps = 400.500000 (without initial connection time)\n";

    #[test]
    fn what_pgbench_says_is_read() {
        let expected = Loaded {
            transactions: 1200,
            per_second: 400.5,
            latency: 0.0025,
        };
        assert_eq!(read(SAID), Some(expected));
    }

    /// A load in which a transaction failed is none.
    #[test]
    fn a_failed_transaction_is_no_load() {
        assert_eq!(
            read(&SAID.replace("failed transactions: 0", "failed transactions: 3")),
            None
        );
        assert_eq!(read("tps = 3"), None);
    }
}
