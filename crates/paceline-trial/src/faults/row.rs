//! One row of the table: one fault in one state, again and again, while other clients are at work.

use std::{
    io,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use paceline_check::{client::Target, ledger, run_until, Kind as Work, Options, Random};

use super::{
    client::{Client, Trouble},
    state::{State, TABLE},
    strike::{Strike, System},
    tally::Tally,
    victim::{self, Victim, PATIENCE},
    Plan,
};
use crate::{back::Kind, front, postgres::USER};

/// How many clients the fault meets in its state.
const VICTIMS: u32 = 4;

/// The database of the console.
const CONSOLE: &str = "pgbouncer";

/// The longest time after a row until no client is left in the front-end.
const SETTLING: Duration = Duration::from_secs(20);

/// One fault in one state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) strike: Strike,
    pub(super) state: State,
}

impl Row {
    /// Runs the row on this system.
    pub(super) fn run(self, system: &mut System, plan: &Plan, seed: u64) -> io::Result<Tally> {
        let kind = system.back.kind();
        let front = system.front.address();
        make_table(kind, front)?;
        let mut victims: Vec<_> = (0..self.victims(kind))
            .map(|number| Victim::new(number, kind, front))
            .collect();
        let mut tally = self.act(system, &mut victims, plan, seed)?;
        let attempted = victims.iter().flat_map(Victim::book);
        let attempted = attempted.map(|(key, entry)| (*key, *entry)).collect();
        for victim in victims {
            // Its session ends here.
            tally.add(victim.tally);
        }
        match retried(|| victim::present(front)) {
            Ok(present) => tally.add_audit(&ledger::audit(&attempted, &present)),
            Err(trouble) => tally.fail_if(Some(format!("no final read: {}", trouble.label()))),
        }
        if let Err(left) = wait_until_settled(system) {
            tally.hung += 1;
            tally.note(format!("connections that no client has: {left}"));
            tally.note(shown(system));
        }
        Ok(tally)
    }

    /// Only one client at a time is in a write transaction of the embedded back-end.
    fn victims(self, kind: Kind) -> u32 {
        let writes = !matches!(self.state, State::Idle | State::CopyOut);
        if kind == Kind::Embedded && writes {
            1
        } else {
            VICTIMS
        }
    }

    /// Strikes until the other clients have done their work.
    fn act(
        self,
        system: &mut System,
        victims: &mut [Victim],
        plan: &Plan,
        seed: u64,
    ) -> io::Result<Tally> {
        let work = Background {
            plan,
            seed,
            target: Target {
                port: system.front.address().port(),
                user: USER.to_owned(),
                database: front::DATABASE.to_owned(),
                ..Target::default()
            },
            strikes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        };
        let mut random = Random::new(seed);
        let end = Instant::now() + plan.limit;
        thread::scope(|scope| {
            let at_work = scope.spawn(|| work.run());
            let mut tally = Tally::default();
            let mut struck = Ok(());
            while struck.is_ok() && !at_work.is_finished() {
                let begun = Instant::now();
                struck = self.round(system, victims, &mut random, &mut tally);
                work.strikes.fetch_add(1, Ordering::Release);
                if Instant::now() > end {
                    work.stop.store(true, Ordering::Release);
                }
                // The other clients get some work done before the next strike.
                let pause = begun.elapsed() * plan.pause;
                thread::sleep(pause + Duration::from_millis(random.below(40)));
            }
            work.stop.store(true, Ordering::Release);
            tally.add(joined(at_work));
            struck.map(|()| tally)
        })
    }

    /// Brings the clients into the state, strikes, and asks all of them for an answer.
    fn round(
        self,
        system: &mut System,
        victims: &mut [Victim],
        random: &mut Random,
        tally: &mut Tally,
    ) -> io::Result<()> {
        let struck;
        if self.strike == Strike::Client {
            struck = Instant::now();
            for victim in victims.iter_mut() {
                victim.die(self.state, self.delay(random));
            }
        } else {
            struck = self.meet(system, victims, random)?;
        }
        tally.strikes += 1;
        let answers = on_threads(victims.iter_mut(), Victim::ask);
        if answers.iter().all(Option::is_some) {
            tally.recovery = tally.recovery.max(struck.elapsed());
        }
        Ok(())
    }

    /// The fault strikes clients that are in the state. When it struck.
    fn meet(
        self,
        system: &mut System,
        victims: &mut [Victim],
        random: &mut Random,
    ) -> io::Result<Instant> {
        let ready = on_threads(victims.iter_mut(), |victim| victim.reach(self.state));
        thread::sleep(self.delay(random));
        let struck = Instant::now();
        thread::scope(|scope| {
            self.strike.begin(system)?;
            for ready in ready.into_iter().flatten() {
                scope.spawn(move || ready.finish());
            }
            self.strike.end(system, random)
        })?;
        Ok(struck)
    }

    /// How long a request is on its way when the fault strikes.
    fn delay(self, random: &mut Random) -> Duration {
        match self.state {
            State::Query => Duration::from_millis(random.below(120)),
            State::Commit => Duration::from_micros(random.below(20_000)),
            _ => Duration::ZERO,
        }
    }
}

/// The clients that are at work meanwhile.
struct Background<'p> {
    plan: &'p Plan,
    seed: u64,
    target: Target,
    /// How often the fault has struck.
    strikes: AtomicU64,
    /// The clients are to end early.
    stop: AtomicBool,
}

impl Background<'_> {
    /// Works until there were enough transactions and enough strikes.
    fn run(&self) -> Tally {
        let mut tally = Tally::default();
        for turn in 0.. {
            let enough = tally.acknowledged >= self.plan.transactions
                && self.strikes.load(Ordering::Acquire) >= self.plan.strikes;
            if enough || self.stop.load(Ordering::Acquire) {
                tally.fail_if((!enough).then(|| "the limit of a row has passed".to_owned()));
                break;
            }
            match run_until(&self.options(turn), &self.stop) {
                Ok(report) => {
                    let verdicts = report.verdicts.iter();
                    verdicts.for_each(|verdict| tally.add_verdict(verdict));
                }
                // A fault struck while the tables were made.
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        tally
    }

    fn options(&self, turn: u64) -> Options {
        use paceline_check::client::Protocol;
        let protocols = [Protocol::Prepared, Protocol::Extended, Protocol::Simple];
        let protocol = protocols[usize::try_from((self.seed + turn) % 3).unwrap_or(0)];
        Options {
            target: self.target.clone(),
            workloads: vec![Work::Bank, Work::Append],
            clients: self.plan.clients,
            duration: self.plan.limit,
            transactions: Some((self.plan.transactions / 2).max(1)),
            protocol,
            seed: self.seed + turn,
            timeout: PATIENCE,
            ..Options::default()
        }
    }
}

/// Does this with each of them in a thread of its own, and waits for all.
fn on_threads<T: Send, R: Send>(
    all: impl Iterator<Item = T>,
    act: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let act = &act;
    thread::scope(|scope| {
        let threads: Vec<_> = all.map(|one| scope.spawn(move || act(one))).collect();
        threads.into_iter().map(joined).collect()
    })
}

/// The result of a thread. Its panic is a defect of this crate, and must not look like a pass.
fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    let result = thread.join();
    result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Repeats an attempt while the system recovers.
fn retried<T>(mut attempt: impl FnMut() -> Result<T, Trouble>) -> Result<T, Trouble> {
    let end = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(_) if Instant::now() < end => thread::sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

/// Makes the table of the entries. The commits of every second client take a while on PostgreSQL,
/// so that faults strike in the middle of them.
fn make_table(kind: Kind, front: std::net::SocketAddr) -> io::Result<()> {
    let table = format!(
        "DROP TABLE IF EXISTS {TABLE}; \
         CREATE TABLE {TABLE} (client int NOT NULL, entry bigint NOT NULL, part int NOT NULL)"
    );
    let wait = format!(
        "CREATE OR REPLACE FUNCTION paceline_trial_wait() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM pg_sleep(0.03); RETURN NULL; END $$; \
         CREATE CONSTRAINT TRIGGER slow_commit AFTER INSERT ON {TABLE} \
         DEFERRABLE INITIALLY DEFERRED FOR EACH ROW \
         WHEN (NEW.client % 2 = 1 AND NEW.part = 0) EXECUTE FUNCTION paceline_trial_wait()"
    );
    let made = retried(|| {
        let mut client = Client::open(front, USER, front::DATABASE, PATIENCE)?;
        client.query(&table)?;
        if kind == Kind::Postgres {
            client.query(&wait)?;
        }
        Ok(())
    });
    made.map_err(|trouble| io::Error::other(format!("making a table: {}", trouble.label())))
}

/// Waits until the front-end has no client of the database any more, and no server that is in use.
fn wait_until_settled(system: &System) -> Result<(), String> {
    let end = Instant::now() + SETTLING;
    loop {
        match left(system) {
            Ok(left) if left.is_empty() => return Ok(()),
            Ok(left) if Instant::now() > end => return Err(left.join(", ")),
            Err(trouble) if Instant::now() > end => return Err(trouble.label()),
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The clients and servers that the front-end has, for the search of a defect.
fn shown(system: &System) -> String {
    let ask = |what: &str| {
        let console = Client::open(system.front.address(), USER, CONSOLE, PATIENCE);
        console.and_then(|mut console| console.query(what))
    };
    let shown = ["SHOW CLIENTS", "SHOW SERVERS"].map(|what| {
        let rows = ask(what).map_or_else(|_| Vec::new(), |answer| answer.rows);
        let rows: Vec<_> = rows.iter().map(|row| row.join(" ")).collect();
        format!("{what}:\n    {}", rows.join("\n    "))
    });
    shown.join("\n    ")
}

/// What `SHOW POOLS` has that belongs to a client.
fn left(system: &System) -> Result<Vec<String>, Trouble> {
    let columns = [(2, "cl_active"), (3, "cl_waiting"), (6, "sv_active")];
    let mut console = Client::open(system.front.address(), USER, CONSOLE, PATIENCE)?;
    let pools = console.query("SHOW POOLS")?.rows;
    let of_database = |row: &&Vec<String>| row.first().is_some_and(|name| name == front::DATABASE);
    let Some(pool) = pools.iter().find(of_database) else {
        return Ok(Vec::new());
    };
    let busy = columns.into_iter().filter(|(at, _)| pool[*at] != "0");
    Ok(busy
        .map(|(at, name)| format!("{name} {}", pool[at]))
        .collect())
}
