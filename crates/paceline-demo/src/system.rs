//! Starts everything, watches it, and ends it in order.

use std::{
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{
        mpsc::{self, Receiver, RecvTimeoutError},
        Arc, Mutex, MutexGuard, PoisonError,
    },
    thread,
    time::{Duration, Instant},
};

use paceline::{Pool, Signal, TaskContext};
use paceline_check::client::Target;

use crate::{
    folder::Folder,
    journal::Journal,
    load::{Load, Pace},
    options::Options,
    page::Page,
    ports::{self, Wish},
    tiers::{
        embedded,
        front::{self, Pooler, Pools},
        postgres, Fault, Tiers,
    },
    USER,
};

/// How often the status is printed, and the system is read.
const STATUS: Duration = Duration::from_secs(2);

/// How often the front-end's console is asked for its pools.
const POOLS: Duration = Duration::from_millis(500);

/// When the first back-end is killed, for a system that runs long enough.
const FAULT_AT: Duration = Duration::from_secs(6);

/// The status after a second signal, as a shell gives it for SIGINT.
const INTERRUPTED: i32 = 130;

const FRONT_PORT: u16 = 6432;
const PAGE_PORT: u16 = 8432;

/// All parts of the running system.
#[derive(Debug)]
pub(crate) struct System {
    pub(crate) tiers: Tiers,
    pub(crate) journal: Journal,
    /// `None` without clients.
    pub(crate) load: Option<Load>,
    pub(crate) front: Target,
    latest: Mutex<Latest>,
}

/// What the last status has shown.
#[derive(Clone, Debug, Default)]
pub(crate) struct Latest {
    pub(crate) pace: Pace,
    /// `None` if the console did not answer.
    pub(crate) pools: Option<Pools>,
}

/// Runs the demo until it is over, and says whether all checks agree.
pub(crate) fn run(options: &Options) -> io::Result<bool> {
    let end = Ends::watch()?;
    let folder = Folder::open(options.data.as_deref())?;
    say!("starting the back-ends and the front-end ...");
    let system = Arc::new(System::start(options, folder.path())?);
    let page = Page::start(&system, wish(options.page_port, PAGE_PORT))?;
    system.introduce(page.address(), &folder);
    let agrees = thread::scope(|scope| system.operate(scope, options, &end));
    drop(page);
    if folder.stays() {
        say!("the data are in {}", folder.path().display());
    }
    agrees
}

fn wish(named: Option<u16>, first: u16) -> Wish {
    named.map_or(Wish::From(first), Wish::Exactly)
}

/// When the system ends.
struct Ends {
    /// Keeps the thread that waits for signals.
    _pool: Pool,
    signals: Receiver<Signal>,
}

impl Ends {
    fn watch() -> io::Result<Self> {
        let pool = Pool::builder().name("signals").threads(1).build()?;
        let (tell, signals) = mpsc::channel();
        let mut is_ending = false;
        let tell = move |signal: Signal, _: &mut TaskContext<'_>| {
            if is_ending {
                // The servers end with this process.
                std::process::exit(INTERRUPTED);
            }
            is_ending = true;
            // The receiver lives as long as the pool.
            let _ = tell.send(signal);
        };
        pool.sources()
            .signals([Signal::INT, Signal::TERM, Signal::HUP], tell)?;
        Ok(Self {
            _pool: pool,
            signals,
        })
    }

    /// Whether a signal has arrived within this time.
    fn wait(&self, time: Duration) -> bool {
        !matches!(
            self.signals.recv_timeout(time),
            Err(RecvTimeoutError::Timeout)
        )
    }
}

impl System {
    fn start(options: &Options, folder: &Path) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let port = ports::find(wish(options.port, FRONT_PORT), "the front-end")?;
        let (mut plans, databases) = if options.is_postgres {
            postgres::plans(folder, &program)?
        } else {
            embedded::plans(folder, &program)?
        };
        let pooler = pooler(options, program)?;
        plans.push(front::plan(folder, port, &databases, pooler)?);
        let tiers = Tiers::start(plans)?;
        let front = Target {
            port,
            user: USER.to_owned(),
            database: "bank".to_owned(),
            ..Target::default()
        };
        let load = if options.has_load {
            Some(Load::prepare(&front).map_err(io::Error::other)?)
        } else {
            None
        };
        Ok(Self {
            tiers,
            journal: Journal::new(),
            load,
            front,
            latest: Mutex::default(),
        })
    }

    /// What to type, and where to look.
    fn introduce(&self, page: &str, folder: &Folder) {
        let port = self.front.port;
        say!("\n  psql -h 127.0.0.1 -p {port} -U {USER} bank");
        say!("  pgbench -h 127.0.0.1 -p {port} -U {USER} -i scratch");
        say!("  pgbench -h 127.0.0.1 -p {port} -U {USER} -S -c 32 -T 10 scratch");
        say!("  page  http://{page}/");
        say!("  data  {}\n", folder.path().display());
        for server in &self.tiers.servers {
            let view = server.view();
            let process = view.process.unwrap_or_default();
            say!(
                "  {:<9} {:<9} {} process {process}",
                view.tier,
                view.name,
                view.address
            );
        }
        say!("\nCtrl-C ends all of it.\n");
    }

    /// Lets everything work until the end, and says whether all checks agree.
    fn operate<'s>(
        &'s self,
        scope: &'s thread::Scope<'s, '_>,
        options: &Options,
        end: &Ends,
    ) -> io::Result<bool> {
        self.tiers.look_after(scope, &self.journal);
        let clients = thread::scope(|clients| {
            let (stop, stopped) = mpsc::channel();
            clients.spawn(move || self.watch_pools(&stopped));
            if let Some(load) = &self.load {
                load.start(clients, options.clients, options.rate)?;
                clients.spawn(|| load.read_until_end(STATUS));
            }
            self.show(options, end);
            self.load.iter().for_each(Load::end);
            drop(stop);
            io::Result::Ok(())
        });
        let agrees = clients.map(|()| self.conclude());
        self.tiers.stop_looking_after();
        self.tiers.end(&self.journal);
        agrees
    }

    /// Prints the status until the time is over, or a signal arrives.
    fn show(&self, options: &Options, end: &Ends) {
        let start = Instant::now();
        let over = options.duration.map(|duration| start + duration);
        let mut fault = (options.has_fault && self.load.is_some()).then_some(start + FAULT_AT);
        let mut status = start + STATUS;
        loop {
            let next = [Some(status), over, fault].into_iter().flatten().min();
            let pause = next
                .unwrap_or(status)
                .saturating_duration_since(Instant::now());
            if end.wait(pause) {
                say!("\nending in order; a second Ctrl-C ends at once");
                return;
            }
            let now = Instant::now();
            if over.is_some_and(|over| now >= over) {
                return;
            }
            if fault.is_some_and(|fault| now >= fault) {
                fault = None;
                self.tiers.servers[0].make(Fault::Kill, &self.journal);
            }
            if now >= status {
                status = now + STATUS;
                self.show_status();
            }
        }
    }

    /// Asks the console again and again, until the sender is gone.
    fn watch_pools(&self, stopped: &Receiver<()>) {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(POOLS) {
            let pools = Pools::read(&self.console());
            self.latest().pools = pools;
        }
    }

    fn show_status(&self) {
        let mut line = format!("{:>5.0} s", self.journal.age().as_secs_f64());
        if let Some(load) = &self.load {
            let pace = load.pace(STATUS);
            self.latest().pace = pace;
            let p99 = pace.p99.as_secs_f64() * 1_000.0;
            line += &format!(
                "  {:>4.0} tps  p99 {p99:>6.1} ms  {}",
                pace.per_second,
                verdict(load)
            );
        }
        let waiting = self.latest().pools.as_ref().map(Pools::waiting);
        line += &waiting.map_or("  console silent".to_owned(), |waiting| {
            format!("  parked {waiting}")
        });
        say!("{line}");
    }

    pub(crate) fn latest(&self) -> MutexGuard<'_, Latest> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn console(&self) -> Target {
        Target {
            database: "pgbouncer".to_owned(),
            ..self.front.clone()
        }
    }

    /// The last reading, and the report.
    fn conclude(&self) -> bool {
        let Some(load) = &self.load else {
            return true;
        };
        let last = load.read_all(&self.journal);
        let (measured, seen) = (load.totals(), load.seen());
        say!(
            "\n{} transactions committed, {} rolled back, {} unknown ({} of them done)",
            measured.committed,
            measured.undone,
            measured.unknown,
            seen.counts.unknown_done
        );
        for (kind, count) in &measured.of_kind {
            say!("  {kind:<15} {count:>8}");
        }
        let reasons: Vec<_> = measured
            .reasons
            .iter()
            .map(|(why, n)| format!("{why} ({n})"))
            .collect();
        if !reasons.is_empty() {
            say!("  not committed: {}", reasons.join(", "));
        }
        say!("  longest transaction {} ms", measured.longest.as_millis());
        for server in &self.tiers.servers {
            let view = server.view();
            if view.restarts > 0 {
                let longest = view.longest_recovery.as_millis();
                say!(
                    "  {} was started again {} times, {longest} ms at most",
                    view.name,
                    view.restarts
                );
            }
        }
        for wrong in &seen.wrong {
            say!("  WRONG: {wrong}");
        }
        let agrees = match last {
            Ok(()) => seen.agrees() && measured.committed > 0,
            Err(error) => {
                say!("  the last reading has failed: {error}");
                false
            }
        };
        let sum = seen.total;
        say!(
            "  {}; balances {sum}, seats sold {}",
            verdict(load),
            seen.seats_sold
        );
        say!(
            "{}",
            if agrees {
                "all checks agree"
            } else {
                "CHECKS DO NOT AGREE"
            }
        );
        agrees
    }
}

/// What the readings have shown, in a few words.
pub(crate) fn verdict(load: &Load) -> String {
    let seen = load.seen();
    let counts = &seen.counts;
    let totals = if seen.wrong.is_empty() {
        "totals agree"
    } else {
        "TOTALS DIFFER"
    };
    if let Some(failure) = &seen.unread {
        return format!("no reading: {failure}");
    }
    format!(
        "{totals}, {} lost, {} doubled, {} unknown ({} done)",
        counts.lost, counts.doubled, counts.unknown, counts.unknown_done
    )
}

/// The front-end: our own, or the one that was named.
fn pooler(options: &Options, program: PathBuf) -> io::Result<Pooler> {
    /// Ends PgBouncer at once: SIGTERM.
    const AT_ONCE: &str = "15";
    let mut arguments: Vec<OsString> = vec!["front".into()];
    if let Some(pooler) = &options.pooler {
        let user = postgres::user()?.to_string();
        arguments = ["guard", &user, AT_ONCE].map(Into::into).into();
        arguments.push(pooler.into());
    }
    Ok(Pooler {
        program,
        arguments,
        is_ours: options.pooler.is_none(),
    })
}
