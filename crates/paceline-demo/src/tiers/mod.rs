//! The servers of the system: each is a child process that is started again when it ends.
//!
//! ```text
//!   Starting --> Serving      it answers its probe
//!      ^            |
//!      |            +--> Stopped --> Serving     a fault stops it for a while
//!      +---- Down <-+                            it has ended, by a fault or by itself
//! ```

pub(crate) mod embedded;
pub(crate) mod front;
pub(crate) mod postgres;
mod process;

use std::{
    io,
    process::Child,
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc, Mutex, MutexGuard, PoisonError,
    },
    thread,
    time::{Duration, Instant},
};

use paceline_check::client::{Protocol, Session, Target};
use rustix::process::Signal;

use crate::journal::Journal;
use process::{Ended, Process};

pub(crate) use process::Launch;

/// How long a server may take to serve at the start of the system.
const FIRST_START: Duration = Duration::from_secs(30);

/// How often a server is looked at.
const TICK: Duration = Duration::from_millis(5);

/// How long a probe waits for an answer.
const PROBE: Duration = Duration::from_secs(1);

/// How long a server gets to end.
const TIME_TO_END: Duration = Duration::from_secs(5);

/// How long a stopped server stays so.
pub(crate) const STOP: Duration = Duration::from_secs(3);

/// A server that ends again within this time is not started again at once.
const SHORT_LIFE: Duration = Duration::from_millis(500);

/// What a server is, and how it is reached.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Its name, such as `bank`.
    pub(crate) name: String,
    /// What it is: `front-end`, `back-end`.
    pub(crate) tier: &'static str,
    /// How it is started.
    pub(crate) launch: Launch,
    /// Answers when it serves.
    pub(crate) probe: Target,
    /// The request of the probe.
    pub(crate) question: &'static str,
    /// Where it shows its threads itself.
    pub(crate) page: Option<String>,
}

/// Where a server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Starting,
    Serving,
    Stopped,
    Down,
}

/// A server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) plan: Plan,
    life: Mutex<Life>,
}

#[derive(Debug)]
struct Life {
    process: Option<Process>,
    state: State,
    /// When the process was started.
    started: Instant,
    /// When it ended, if it does not serve since.
    down_since: Option<Instant>,
    restarts: u32,
    /// Lets a stopped server continue.
    stopped_by: Option<Child>,
    /// The longest time from the end of a process to an answer of the next one.
    longest_recovery: Duration,
}

/// What is known of a server, for people.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) tier: &'static str,
    pub(crate) address: String,
    pub(crate) page: Option<String>,
    pub(crate) process: Option<u32>,
    pub(crate) state: State,
    pub(crate) restarts: u32,
    pub(crate) longest_recovery: Duration,
}

/// A fault of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its processes are killed.
    Kill,
    /// Its processes are stopped for a while.
    Stop,
}

impl Server {
    /// Starts the server, and waits until it serves.
    fn start(plan: Plan) -> io::Result<Self> {
        let process = plan.launch.start().map_err(|error| {
            let program = plan.launch.program.display();
            io::Error::new(error.kind(), format!("starting {program}: {error}"))
        })?;
        let server = Self {
            plan,
            life: Mutex::new(Life {
                process: Some(process),
                state: State::Starting,
                started: Instant::now(),
                down_since: None,
                restarts: 0,
                stopped_by: None,
                longest_recovery: Duration::ZERO,
            }),
        };
        server.wait_for_first_answer()?;
        Ok(server)
    }

    fn wait_for_first_answer(&self) -> io::Result<()> {
        let end = Instant::now() + FIRST_START;
        loop {
            if self.answers() {
                self.life().state = State::Serving;
                return Ok(());
            }
            let mut life = self.life();
            let process = life.process.as_mut();
            let ending =
                process.and_then(|process| Some((process.ending()?, process.last_words())));
            if let Some((ending, words)) = ending {
                let text = format!("the server {} {ending}:\n{words}", self.plan.name);
                return Err(io::Error::other(text));
            }
            drop(life);
            if Instant::now() > end {
                let text = format!("the server {} does not answer", self.plan.name);
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            thread::sleep(TICK);
        }
    }

    fn answers(&self) -> bool {
        let session = Session::open(&self.plan.probe, Protocol::Simple, PROBE);
        session.is_ok_and(|mut session| {
            let answer = session.query(self.plan.question);
            session.close();
            answer.is_ok()
        })
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notices an end, starts the server again, and notices that it serves.
    fn look_after(&self, journal: &Journal) {
        let state = self.life().state;
        match state {
            State::Starting | State::Serving | State::Stopped => self.notice_end(journal),
            State::Down => self.start_again(journal),
        }
        if self.life().state == State::Starting && self.answers() {
            self.notice_service(journal);
        }
        self.go_on_after_stop(journal);
    }

    fn notice_end(&self, journal: &Journal) {
        let mut life = self.life();
        let Some(ending) = life.process.as_mut().and_then(Process::ending) else {
            return;
        };
        life.process = None;
        life.state = State::Down;
        life.down_since.get_or_insert_with(Instant::now);
        drop(life);
        journal.add(format!("{} {ending}", self.plan.name));
    }

    fn start_again(&self, journal: &Journal) {
        let mut life = self.life();
        if life.started.elapsed() < SHORT_LIFE {
            return;
        }
        life.started = Instant::now();
        life.restarts += 1;
        match self.plan.launch.start() {
            Ok(process) => {
                life.process = Some(process);
                life.state = State::Starting;
            }
            Err(error) => {
                drop(life);
                journal.add(format!("{} does not start: {error}", self.plan.name));
            }
        }
    }

    fn notice_service(&self, journal: &Journal) {
        let mut life = self.life();
        if life.state != State::Starting {
            return;
        }
        life.state = State::Serving;
        let pause = life.down_since.take().map(|since| since.elapsed());
        let pause = pause.unwrap_or_default();
        life.longest_recovery = life.longest_recovery.max(pause);
        drop(life);
        let millis = pause.as_millis();
        journal.add(format!(
            "{} serves again, after {millis} ms",
            self.plan.name
        ));
    }

    fn go_on_after_stop(&self, journal: &Journal) {
        let mut life = self.life();
        let shell = life.stopped_by.as_mut();
        let has_ended = shell.is_some_and(|shell| !matches!(shell.try_wait(), Ok(None)));
        if !has_ended {
            return;
        }
        life.stopped_by = None;
        // It may have been killed meanwhile.
        if life.state == State::Stopped {
            life.state = State::Serving;
            drop(life);
            journal.add(format!("{} continues", self.plan.name));
        }
    }

    /// Makes a fault. A server that does not serve is left alone.
    pub(crate) fn make(&self, fault: Fault, journal: &Journal) {
        let name = &self.plan.name;
        // Before the fault: its effects follow it in the journal.
        match fault {
            Fault::Kill => journal.add(format!("kill -9 {name}")),
            Fault::Stop => journal.add(format!("kill -STOP {name} for {} s", STOP.as_secs())),
        }
        let mut life = self.life();
        let (Some(process), State::Serving) = (&life.process, life.state) else {
            return;
        };
        match fault {
            Fault::Kill => process.signal(Signal::KILL),
            Fault::Stop => match process.stop_for(STOP) {
                Ok(shell) => {
                    life.stopped_by = Some(shell);
                    life.state = State::Stopped;
                }
                Err(error) => {
                    drop(life);
                    journal.add(format!("{name} was not stopped: {error}"));
                }
            },
        }
    }

    pub(crate) fn view(&self) -> View {
        let life = self.life();
        View {
            name: self.plan.name.clone(),
            tier: self.plan.tier,
            address: self.plan.probe.address(),
            page: self.plan.page.clone(),
            process: life.process.as_ref().map(Process::id),
            state: life.state,
            restarts: life.restarts,
            longest_recovery: life.longest_recovery,
        }
    }

    fn end(&self, journal: &Journal) {
        let process = self.life().process.take();
        let Some(mut process) = process else {
            return;
        };
        if process.end(TIME_TO_END) == Ended::Killed {
            let seconds = TIME_TO_END.as_secs();
            journal.add(format!(
                "{} has not ended in {seconds} s and was killed",
                self.plan.name
            ));
        }
    }
}

impl Drop for Server {
    /// A server that was not ended in order is killed.
    fn drop(&mut self) {
        let process = self.life().process.take();
        process
            .iter()
            .for_each(|process| process.signal(Signal::KILL));
    }
}

/// All servers, the back-ends first.
#[derive(Debug)]
pub(crate) struct Tiers {
    pub(crate) servers: Vec<Arc<Server>>,
    is_over: AtomicBool,
}

impl Tiers {
    /// Starts one server after the other.
    pub(crate) fn start(plans: Vec<Plan>) -> io::Result<Self> {
        let servers = plans
            .into_iter()
            .map(|plan| Server::start(plan).map(Arc::new));
        Ok(Self {
            servers: servers.collect::<io::Result<_>>()?,
            is_over: AtomicBool::new(false),
        })
    }

    /// Looks after all servers until they are [ended](Self::end), each in a thread of its own: a
    /// probe of one of them may wait.
    pub(crate) fn look_after<'s>(&'s self, scope: &'s thread::Scope<'s, '_>, journal: &'s Journal) {
        for server in &self.servers {
            scope.spawn(move || {
                while !self.is_over.load(Ordering::Relaxed) {
                    server.look_after(journal);
                    thread::sleep(TICK);
                }
            });
        }
    }

    /// Does not start servers again any more.
    pub(crate) fn stop_looking_after(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// Ends all servers, the front-end first.
    pub(crate) fn end(&self, journal: &Journal) {
        self.servers
            .iter()
            .rev()
            .for_each(|server| server.end(journal));
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.plan.name == name)
    }
}
