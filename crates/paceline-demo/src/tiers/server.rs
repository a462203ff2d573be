//! The life of a server.
//!
//! ```text
//!   Starting --> Serving --> Stopped, Slow --> Serving    a fault disturbs it for a while
//!      ^            |
//!      +---- Down <-+                                     it has ended, by a fault or by itself
//! ```

use std::{
    io,
    process::Child,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use paceline_check::client::{Answer, Protocol, Session};
use rustix::process::Signal;

use super::{
    process::{Disturbance, Ended, Process},
    Fault, Plan, Role, TICK,
};
use crate::journal::Journal;

/// How long a server may take to serve at the start of the system.
pub(super) const FIRST_START: Duration = Duration::from_secs(30);

/// How long a probe waits for an answer.
pub(super) const PROBE: Duration = Duration::from_secs(1);

/// How long a server gets to end.
const TIME_TO_END: Duration = Duration::from_secs(5);

/// A server that ends again within this time is not started again at once.
const SHORT_LIFE: Duration = Duration::from_millis(500);

/// How often a serving back-end is asked for its role.
const ROLE: Duration = Duration::from_millis(250);

/// Where a server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Starting,
    Serving,
    Stopped,
    Slow,
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
    /// What the server has said at its last probe.
    role: Option<Role>,
    /// When its role was asked for.
    asked: Instant,
    /// When the process was started.
    started: Instant,
    /// When it ended, if it does not serve since.
    down_since: Option<Instant>,
    restarts: u32,
    /// Ends what disturbs the server.
    disturbed_by: Option<Child>,
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
    pub(crate) role: Option<Role>,
    pub(crate) restarts: u32,
    pub(crate) longest_recovery: Duration,
}

impl Server {
    /// Starts the server, and waits until it serves.
    pub(super) fn start(plan: Plan) -> io::Result<Self> {
        let process = plan.launch.start().map_err(|error| {
            let program = plan.launch.program.display();
            io::Error::new(error.kind(), format!("starting {program}: {error}"))
        })?;
        let now = Instant::now();
        let server = Self {
            plan,
            life: Mutex::new(Life {
                process: Some(process),
                state: State::Starting,
                role: None,
                asked: now,
                started: now,
                down_since: None,
                restarts: 0,
                disturbed_by: None,
                longest_recovery: Duration::ZERO,
            }),
        };
        server.wait_for_first_answer()?;
        Ok(server)
    }

    fn wait_for_first_answer(&self) -> io::Result<()> {
        let end = Instant::now() + FIRST_START;
        loop {
            if let Some(answer) = self.ask() {
                let mut life = self.life();
                life.state = State::Serving;
                life.role = role(&answer);
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

    /// The answer to a probe.
    fn ask(&self) -> Option<Answer> {
        let mut session = Session::open(&self.plan.probe, Protocol::Simple, PROBE).ok()?;
        let answer = session.query(self.plan.tier.question());
        session.close();
        answer.ok()
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the server has said at its last probe.
    pub(crate) fn role(&self) -> Option<Role> {
        self.life().role
    }

    /// Notices an end, starts the server again, and notices that it serves, or has another role.
    pub(super) fn look_after(&self, journal: &Journal) {
        let state = self.life().state;
        match state {
            State::Starting | State::Serving | State::Stopped | State::Slow => {
                self.notice_end(journal);
            }
            State::Down => self.start_again(journal),
        }
        self.probe(journal);
        self.continue_after_fault(journal);
    }

    fn notice_end(&self, journal: &Journal) {
        let mut life = self.life();
        let Some(ending) = life.process.as_mut().and_then(Process::ending) else {
            return;
        };
        life.process = None;
        life.role = None;
        life.state = State::Down;
        life.down_since.get_or_insert_with(Instant::now);
        drop(life);
        journal.add(format!("{} {ending}", self.plan.name));
    }

    fn start_again(&self, journal: &Journal) {
        let mut life = self.life();
        let down = life.down_since.map(|since| since.elapsed());
        if life.started.elapsed() < SHORT_LIFE || down.is_some_and(|down| down < self.plan.rest) {
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

    /// Asks a server that starts, and now and then one that serves.
    fn probe(&self, journal: &Journal) {
        let mut life = self.life();
        let is_due = match life.state {
            State::Starting => true,
            State::Serving => life.role.is_some() && life.asked.elapsed() >= ROLE,
            State::Stopped | State::Slow | State::Down => false,
        };
        if !is_due {
            return;
        }
        life.asked = Instant::now();
        drop(life);
        if let Some(answer) = self.ask() {
            self.notice_answer(role(&answer), journal);
        }
    }

    fn notice_answer(&self, role: Option<Role>, journal: &Journal) {
        let name = &self.plan.name;
        let mut life = self.life();
        let before = std::mem::replace(&mut life.role, role);
        if life.state == State::Starting {
            life.state = State::Serving;
            let pause = life.down_since.take().map(|since| since.elapsed());
            let pause = pause.unwrap_or_default();
            life.longest_recovery = life.longest_recovery.max(pause);
            drop(life);
            let millis = pause.as_millis();
            let what = match role {
                Some(Role::Standby) => ", as a standby",
                Some(Role::Writer) | None => "",
            };
            journal.add(format!("{name} serves again{what}, after {millis} ms"));
        } else if (before, role) == (Some(Role::Standby), Some(Role::Writer)) {
            drop(life);
            journal.add(format!("{name} has taken over: now it writes"));
        }
    }

    fn continue_after_fault(&self, journal: &Journal) {
        let mut life = self.life();
        let child = life.disturbed_by.as_mut();
        let has_ended = child.is_some_and(|child| !matches!(child.try_wait(), Ok(None)));
        if !has_ended {
            return;
        }
        life.disturbed_by = None;
        // It may have been killed meanwhile.
        if let State::Stopped | State::Slow = life.state {
            life.state = State::Serving;
            drop(life);
            journal.add(format!("{} continues", self.plan.name));
        }
    }

    /// Makes a fault. A server that does not serve is left alone.
    pub(crate) fn make(&self, fault: Fault, journal: &Journal) {
        let name = &self.plan.name;
        let mut life = self.life();
        let (Some(process), State::Serving) = (&life.process, life.state) else {
            drop(life);
            return journal.add(format!("{name} does not serve: no fault is made"));
        };
        // Before the fault: its effects follow it in the journal.
        let (disturbance, state) = match fault {
            Fault::Kill => {
                journal.add(format!("fault: kill -9 {name}"));
                return process.signal(Signal::KILL);
            }
            Fault::Stop => (Disturbance::Stop, State::Stopped),
            Fault::Slow => (Disturbance::Slow, State::Slow),
        };
        journal.add(format!("fault: {name} {disturbance}"));
        match process.disturb(disturbance) {
            Ok(child) => {
                life.disturbed_by = Some(child);
                life.state = state;
            }
            Err(error) => journal.add(format!("{name}: the fault was not made: {error}")),
        }
    }

    /// Asks the process to end in order, by this signal, and waits until it has ended. It is
    /// started again like one that was killed.
    pub(crate) fn end_process(&self, signal: Signal) -> io::Result<()> {
        let before = self.life().process.as_ref().map(Process::id);
        let Some(before) = before else {
            return Err(io::Error::other("it does not run"));
        };
        if let Some(process) = &self.life().process {
            process.signal(signal);
        }
        let end = Instant::now() + TIME_TO_END;
        while self.life().process.as_ref().map(Process::id) == Some(before) {
            if Instant::now() > end {
                let text = format!("it has not ended within {} s", TIME_TO_END.as_secs());
                return Err(io::Error::new(io::ErrorKind::TimedOut, text));
            }
            thread::sleep(TICK);
        }
        Ok(())
    }

    pub(crate) fn view(&self) -> View {
        let life = self.life();
        View {
            name: self.plan.name.clone(),
            tier: self.plan.tier.name(),
            address: self.plan.probe.address(),
            page: self.plan.page.clone(),
            process: life.process.as_ref().map(Process::id),
            state: life.state,
            role: life.role,
            restarts: life.restarts,
            longest_recovery: life.longest_recovery,
        }
    }

    pub(super) fn kill(&self) {
        let process = self.life().process.take();
        process
            .iter()
            .for_each(|process| process.signal(Signal::KILL));
    }

    pub(super) fn end(&self, journal: &Journal) {
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

/// What a back-end has answered to [`Tier::question`](super::Tier::question).
fn role(answer: &Answer) -> Option<Role> {
    match answer.text(0, 0) {
        Some("t") => Some(Role::Standby),
        Some("f") => Some(Role::Writer),
        _ => None,
    }
}

impl Drop for Server {
    /// A server that was not ended in order is killed.
    fn drop(&mut self) {
        self.kill();
    }
}
