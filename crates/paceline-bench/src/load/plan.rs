//! What the client is to do, as words on the command line.

use std::{io, net::SocketAddr};

use clap::{Args, ValueEnum};

use super::mix::{task_named, Mix};
use crate::service::Task;

/// Asks a server of the service, from one thread, and says what came of it in one line of JSON.
///
/// A request is 64 bytes, of which the first names the task; the reply has to be the same 64 bytes, in the order of
/// the requests of its connection. First every connection asks once, then the load runs for the warm-up, then for the
/// measured time; then it waits at most 10 s for what is still due.
///
/// The latency in focus is that of requests for nothing, or of all if there are none; of pairs that of
/// the second, of a burst that of the first reply.
#[derive(Args, Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// Where the server listens, such as 127.0.0.1:7000
    pub(crate) address: SocketAddr,

    /// How many connections there are
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub(crate) connections: usize,

    /// How many of them ask; the others stay idle [default: all]
    #[arg(long, value_name = "M")]
    pub(crate) active: Option<usize>,

    /// How many requests are on the way on each connection
    #[arg(long, value_name = "P", default_value_t = 1)]
    pub(crate) pipeline: usize,

    /// What is asked, by weight, such as nothing=99,sleep-long=1; tasks are nothing, compute (20 us), sleep-long
    /// (5 ms) and sleep-short (200 us). Drawn for each request, the same in every run.
    /// Of `pairs` see --first
    #[arg(long, value_name = "TASK=WEIGHT,...", default_value_t = Mix::only(Task::Nothing))]
    pub(crate) mix: Mix,

    /// When it is asked
    #[arg(long, value_enum, default_value_t = Pattern::Closed)]
    pub(crate) pattern: Pattern,

    /// Of `open`: requests a second, over all connections
    #[arg(long, value_name = "R")]
    pub(crate) rate: Option<f64>,

    /// Of `pairs`: what the first of two asks for [default: nothing]
    #[arg(long, value_name = "TASK", value_parser = task_named)]
    pub(crate) first: Option<Task>,

    /// Of `bursts`: the silence before each, in milliseconds
    #[arg(long, value_name = "MS")]
    pub(crate) idle: Option<u64>,

    /// Of `bursts`: how many requests each has
    #[arg(long, value_name = "K")]
    pub(crate) size: Option<usize>,

    /// Of `slow-reader`: how many ask much and read one reply every 10 ms; of `slow-client`: how many send and read one
    /// byte a second; beside the connections that are measured
    #[arg(long, value_name = "K")]
    pub(crate) slow: Option<usize>,

    /// Requests are lines of 64 bytes, and replies the same lines, which may end with LF alone
    #[arg(long)]
    pub(crate) lines: bool,

    /// The connections have TLS, and each handshake is a full one
    #[arg(long)]
    pub(crate) tls: bool,

    /// How long it measures
    #[arg(long, value_name = "S", default_value_t = 3.0)]
    pub(crate) seconds: f64,

    /// How long the load runs before it is measured, in seconds
    #[arg(long, value_name = "S", default_value_t = 0.5)]
    pub(crate) warm_up: f64,

    /// The server's process, of which processor time, switches and memory are read; without it they are 0, and the
    /// server's time counts as foreign
    #[arg(long)]
    pub(crate) pid: Option<u32>,

    /// Measures slice by slice, on orders from standard input (`slice WARM_UP SECONDS`, `forget`), and says what each was
    #[arg(long, conflicts_with_all = ["seconds", "warm_up"])]
    pub(crate) in_slices: bool,
}

/// When requests are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Pattern {
    /// Every connection asks again as soon as it has its reply
    Closed,
    /// Requests arrive at a rate, at random (Poisson); latencies run from when they were meant to be asked
    Open,
    /// Two requests at once on two connections, then, after both replies, a gap of 200 us
    Pairs,
    /// Silence, then many requests at once
    Bursts,
    /// Connect, ask once, close, and again, on each of the connections
    Churn,
    /// Closed, beside connections that ask much and hardly read
    SlowReader,
    /// Closed, beside connections that send and read one byte a second, in lines
    SlowClient,
}

impl Plan {
    /// The plan of a command line with nothing but the address.
    #[cfg(test)]
    pub(crate) fn new(address: SocketAddr) -> Self {
        Self {
            address,
            connections: 64,
            active: None,
            pipeline: 1,
            mix: Mix::only(Task::Nothing),
            pattern: Pattern::Closed,
            rate: None,
            first: None,
            idle: None,
            size: None,
            slow: None,
            lines: false,
            tls: false,
            seconds: 3.0,
            warm_up: 0.5,
            pid: None,
            in_slices: false,
        }
    }

    /// The numbers of the connections that ask, spread evenly over all.
    pub(super) fn asking(&self) -> Vec<usize> {
        let active = self.active();
        (0..active)
            .map(|place| place * self.connections / active)
            .collect()
    }

    /// How many connections ask.
    fn active(&self) -> usize {
        self.active.unwrap_or(self.connections)
    }

    /// Whether it can be done.
    ///
    /// # Errors
    /// `InvalidInput` with the first thing that does not fit.
    pub(super) fn check(&self) -> io::Result<()> {
        self.check_numbers()?;
        self.check_options()?;
        match self.pattern {
            Pattern::Pairs => demand(self.active() >= 2, "pairs need two connections that ask"),
            Pattern::Bursts => {
                let fits = self
                    .size
                    .is_some_and(|size| (1..=self.active()).contains(&size));
                demand(
                    fits,
                    "--size is from 1 to the number of connections that ask",
                )
            }
            _ => Ok(()),
        }
    }

    /// Numbers that have a range of their own.
    fn check_numbers(&self) -> io::Result<()> {
        demand(
            (1..=1_000_000).contains(&self.connections),
            "--connections is from 1 to 1000000",
        )?;
        let some_ask = (1..=self.connections).contains(&self.active());
        demand(some_ask, "--active is from 1 to the number of connections")?;
        demand(
            (1..=1024).contains(&self.pipeline),
            "--pipeline is from 1 to 1024",
        )?;
        demand(
            (0.001..=3600.0).contains(&self.seconds),
            "--seconds is from 0.001 to 3600",
        )?;
        demand(
            (0.0..=3600.0).contains(&self.warm_up),
            "--warm-up is from 0 to 3600",
        )?;
        let rate = self.rate.unwrap_or(1.0);
        demand(
            (0.1..=1e8).contains(&rate),
            "--rate is from 0.1 to 100000000",
        )?;
        let idle = self.idle.unwrap_or(0);
        demand(idle <= 3_600_000, "--idle is at most 3600000")
    }

    /// Options that belong to one pattern are given with it, unless they have a default, and only with it.
    fn check_options(&self) -> io::Result<()> {
        const SLOW: &[Pattern] = &[Pattern::SlowReader, Pattern::SlowClient];
        let options: [(_, _, &[Pattern]); 5] = [
            ("--rate", self.rate.is_some(), &[Pattern::Open]),
            ("--first", self.first.is_some(), &[Pattern::Pairs]),
            ("--idle", self.idle.is_some(), &[Pattern::Bursts]),
            ("--size", self.size.is_some(), &[Pattern::Bursts]),
            ("--slow", self.slow.is_some(), SLOW),
        ];
        for (option, given, patterns) in options {
            let wanted = patterns.contains(&self.pattern);
            let names: Vec<_> = patterns.iter().map(|pattern| pattern.name()).collect();
            let name = names.join(" or ");
            let optional = option == "--first";
            demand(
                given || !wanted || optional,
                &format!("--pattern {name} needs {option}"),
            )?;
            demand(
                wanted || !given,
                &format!("{option} is of --pattern {name} only"),
            )?;
        }
        let one_each = matches!(
            self.pattern,
            Pattern::Pairs | Pattern::Bursts | Pattern::Churn
        );
        demand(
            self.pipeline == 1 || !one_each,
            "--pipeline is of the patterns closed, open, slow-reader and slow-client",
        )?;
        let frames = !self.lines && !self.tls;
        demand(
            frames || self.pattern != Pattern::SlowReader,
            "--pattern slow-reader asks in frames of 64 bytes, without TLS",
        )?;
        demand(
            (self.lines && !self.tls) || self.pattern != Pattern::SlowClient,
            "--pattern slow-client needs --lines, without --tls",
        )
    }
}

impl Pattern {
    /// Its word on the command line.
    fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// `InvalidInput` with these words, unless `holds`.
fn demand(holds: bool, words: &str) -> io::Result<()> {
    if holds {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::InvalidInput, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    /// A program that does nothing but load.
    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        plan: Plan,
    }

    /// The plan of these words.
    fn parsed(words: &[&str]) -> Result<Plan, clap::Error> {
        let words = ["load", "127.0.0.1:7000"].iter().chain(words);
        Program::try_parse_from(words).map(|program| program.plan)
    }

    /// The plan of these words, separated by spaces.
    fn plan(words: &str) -> Plan {
        parsed(&words.split_whitespace().collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn an_address_alone_is_a_plan() {
        assert_eq!(plan(""), Plan::new("127.0.0.1:7000".parse().unwrap()));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_a_reason() {
        let wrong = [
            ("--connections 0", "--connections"),
            ("--connections 5 --active 6", "--active"),
            ("--active 0", "--active"),
            ("--pipeline 0", "--pipeline"),
            ("--seconds nan", "--seconds"),
            ("--warm-up inf", "--warm-up"),
            ("--pattern open", "needs --rate"),
            ("--pattern open --rate 0", "--rate"),
            ("--rate 5", "--rate is of --pattern open"),
            ("--first compute", "--first is of --pattern pairs"),
            (
                "--pattern pairs --first nothing --connections 1",
                "two connections",
            ),
            ("--pattern bursts --size 4", "needs --idle"),
            ("--pattern bursts --idle 4 --size 65", "--size"),
            ("--pattern churn --pipeline 2", "--pipeline"),
            ("--pattern slow-client --lines", "needs --slow"),
            ("--pattern slow-client --slow 5", "needs --lines"),
            ("--pattern slow-reader --slow 5 --tls", "without TLS"),
        ];
        for (line, reason) in wrong {
            let error = plan(line).check().unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(reason), "{line}: {error}");
        }
    }

    #[test]
    fn those_that_ask_are_spread_over_all() {
        assert_eq!(plan("--connections 9 --active 3").asking(), [0, 3, 6]);
        assert_eq!(plan("--connections 3").asking(), [0, 1, 2]);
    }
}
