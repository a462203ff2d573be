//! Starts everything, watches it, and ends it gracefully.

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

use paceline_check::client::Target;

use crate::{
    ending::{Ends, Limit},
    folder::Folder,
    journal::Journal,
    load::{Load, Pace},
    options::Options,
    page::Page,
    ports::{self, Wish},
    report::verdict,
    tiers::{
        embedded::{self, Redundancy},
        front::{self, Pooler, Pools},
        postgres, Fault, Role, Tiers,
    },
    USER,
};

/// How often the status is printed, and the system is read.
const STATUS: Duration = Duration::from_secs(2);

/// How often the front-end's console is asked for its pools and counters.
const ASKED: Duration = Duration::from_millis(500);

/// When the first back-end is killed, for a system that runs long enough.
const FAULT_AT: Duration = Duration::from_secs(6);

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
    /// Transactions that the front-end has passed on.
    served: i64,
    /// As many of them as the last status has counted.
    shown: i64,
}

impl Latest {
    /// A front-end that was started again counts from zero, and one that is down does not answer.
    fn note_served(&mut self, counts: &[(String, i64)]) {
        let served = counts.iter().map(|(_, count)| count).sum();
        if served < self.served {
            self.shown = 0;
        }
        self.served = served;
    }

    /// Transactions per second since the last call, which was so long ago.
    fn pace_of_front(&mut self, since: Duration) -> f64 {
        let count = u32::try_from(self.served - self.shown).unwrap_or(0);
        self.shown = self.served;
        self.pace.per_second = f64::from(count) / since.as_secs_f64();
        self.pace.per_second
    }
}

/// Runs the demo until it is over, and says whether all checks agree.
pub(crate) fn run(options: &Options) -> io::Result<bool> {
    let mut folder = Folder::open(options.data.as_deref())?;
    let end = Ends::watch(folder.path())?;
    let agrees = run_in(&folder, options, &end);
    if !matches!(agrees, Ok(true)) {
        folder.keep();
    }
    if folder.stays() {
        say!("the data and the logs are in {}", folder.path().display());
    }
    agrees
}

fn run_in(folder: &Folder, options: &Options, end: &Ends) -> io::Result<bool> {
    say!("starting the back-ends and the front-end ...");
    // Before any server has left something in the folder.
    let page_port = ports::find(wish(options.page_port, PAGE_PORT), "the page")?;
    let system = Arc::new(System::start(options, folder.path())?);
    let page = Page::start(&system, page_port)?;
    system.introduce(page.address(), folder, options);
    thread::scope(|scope| system.operate(scope, folder, options, end))
}

fn wish(named: Option<u16>, first: u16) -> Wish {
    named.map_or(Wish::From(first), Wish::Exactly)
}

impl System {
    fn start(options: &Options, folder: &Path) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let port = ports::find(wish(options.port, FRONT_PORT), "the front-end")?;
        let redundancy = match options.pooler {
            None => Redundancy::Pair,
            Some(_) => Redundancy::Single,
        };
        let (mut plans, databases) = if options.is_postgres {
            postgres::plans(folder, &program, redundancy)?
        } else {
            embedded::plans(folder, &program, redundancy)?
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
    fn introduce(&self, page: &str, folder: &Folder, options: &Options) {
        let at = format!("-h 127.0.0.1 -p {} -U {USER}", self.front.port);
        say!("\nIn another terminal:");
        say!("  psql {at} bank");
        say!("  pgbench {at} -i scratch");
        say!("  pgbench {at} -S -c 32 -T 10 scratch");
        say!("In a browser:\n  http://{page}/");
        let fate = if folder.stays() {
            "which stays"
        } else {
            "which is removed at the end"
        };
        say!("Data and logs:\n  {}, {fate}\n", folder.path().display());
        for server in &self.tiers.servers {
            let view = server.view();
            let process = view.process.unwrap_or_default();
            let (tier, name, address) = (view.tier, view.name, view.address);
            let role = match view.role {
                Some(Role::Writer) => "writes",
                Some(Role::Standby) => "standby",
                None => "",
            };
            say!("  {tier:<9} {name:<9} {address:<16} {role:<8} process {process}");
        }
        self.explain(options);
        say!("Ctrl-C ends all of it.\n");
    }

    /// What the next lines mean, and what happens by itself.
    fn explain(&self, options: &Options) {
        say!("\nA line every {} seconds:", STATUS.as_secs());
        say!("  tps      transactions per second");
        if self.load.is_some() {
            say!("  p99      99 of 100 transactions took at most this time");
            say!("  lost     entries that were acknowledged to a client, and are not in the database");
            say!("  doubled  entries that are there twice");
            say!("  unknown  commits without a reply; so many of them were done");
        }
        say!("  waiting  clients that wait at the front-end for a database session");
        if self.has_planned_fault(options) {
            let second = FAULT_AT.as_secs();
            say!("\nAt second {second} the demo kills the server that writes `bank` (kill -9).");
            if !options.is_postgres {
                say!("The database `scratch` is on another server: your pgbench goes on.");
            }
        }
        say!("");
    }

    fn has_planned_fault(&self, options: &Options) -> bool {
        options.has_fault && self.load.is_some()
    }

    /// Lets everything work until the end, and says whether all checks agree.
    fn operate<'s>(
        self: &'s Arc<Self>,
        scope: &'s thread::Scope<'s, '_>,
        folder: &Folder,
        options: &Options,
        end: &Ends,
    ) -> io::Result<bool> {
        self.tiers.look_after(scope, &self.journal);
        let mut limit = None;
        let clients = thread::scope(|clients| {
            let (stop, stopped) = mpsc::channel();
            clients.spawn(move || self.watch_front(&stopped));
            if let Some(load) = &self.load {
                load.start(clients, options.clients, options.rate)?;
                clients.spawn(|| load.read_until_end(STATUS));
            }
            self.show(options, end);
            let system = Arc::clone(self);
            let give_up = move || system.tiers.kill();
            limit = Some(Limit::begin(options.end_within, folder.path(), give_up));
            self.load.iter().for_each(Load::end);
            drop(stop);
            io::Result::Ok(())
        });
        let agrees = clients.map(|()| self.conclude());
        self.tiers.stop_looking_after();
        self.tiers.end(&self.journal);
        drop(limit);
        agrees
    }

    /// Prints the status until the time is over, or a signal arrives.
    fn show(&self, options: &Options, end: &Ends) {
        let start = Instant::now();
        let over = options.duration.map(|duration| start + duration);
        let mut fault = self.has_planned_fault(options).then_some(start + FAULT_AT);
        let mut status = start + STATUS;
        loop {
            let next = [Some(status), over, fault].into_iter().flatten().min();
            let pause = next
                .unwrap_or(status)
                .saturating_duration_since(Instant::now());
            if end.wait(pause) {
                say!("\nending gracefully; a second Ctrl-C ends at once");
                return;
            }
            let now = Instant::now();
            if over.is_some_and(|over| now >= over) {
                return;
            }
            if fault.is_some_and(|fault| now >= fault) {
                fault = None;
                self.kill_writer();
            }
            if now >= status {
                status = now + STATUS;
                self.show_status();
            }
        }
    }

    /// Kills the first server that writes: the one of the bank.
    fn kill_writer(&self) {
        let writer = self.tiers.first(Role::Writer);
        let writer = writer.unwrap_or(&self.tiers.servers[0]);
        writer.make(Fault::Kill, &self.journal);
    }

    /// Asks the console again and again, until the sender is gone.
    fn watch_front(&self, stopped: &Receiver<()>) {
        while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(ASKED) {
            let pools = Pools::read(&self.console());
            let served = front::transactions(&self.console());
            let mut latest = self.latest();
            latest.pools = pools;
            latest.note_served(served.as_deref().unwrap_or_default());
        }
    }

    fn show_status(&self) {
        let mut line = format!("{:>5.0} s", self.journal.age().as_secs_f64());
        if let Some(load) = &self.load {
            let pace = load.pace(STATUS);
            self.latest().pace = pace;
            let p99 = pace.p99.as_secs_f64() * 1_000.0;
            let (tps, verdict) = (pace.per_second, verdict(load));
            line += &format!("  {tps:>4.0} tps  p99 {p99:>6.1} ms  {verdict}");
        } else {
            let tps = self.latest().pace_of_front(STATUS);
            line += &format!("  {tps:>4.0} tps");
        }
        let waiting = self.latest().pools.as_ref().map(Pools::waiting);
        line += &waiting.map_or(
            "  the front-end's console does not answer".to_owned(),
            |waiting| format!("  {waiting} waiting"),
        );
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
