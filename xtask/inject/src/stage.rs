//! One fault on the stage: a server, a load, the fault, its end, and what came of it.

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use super::catalogue::{Fault, How, Lasts};
use super::library::{self, Call, Controls, Spoil};
use super::load::{Load, Tally};
use super::row::Row;
use super::server::{End, Program, Server};
use super::service::Service;
use super::strace::{self, Attached};
use super::thread::{count, Role, Stopped};
use super::tools::Tools;
use super::{Depth, Trouble};
use xtask_common::run;

/// Fresh connections that must be served after a fault.
const FRESH: u64 = 8;

/// Connections of a crowd that does not fit; and how many more descriptors the server may open for it.
const CROWD: u64 = 40;
/// See [`CROWD`].
const ROOM: usize = 8;

/// Requests before a fault, which show that the server serves.
const WARM: u64 = 200;

/// Requests in which a call that fails at its n-th time must have come to it.
const PER_SITE: u64 = 3_000;

/// The largest n of a short run, and the most that a full one tries.
const SHORT_SITES: usize = 3;
/// See [`SHORT_SITES`].
const MOST_SITES: usize = 40;

/// How long a lasting fault lasts, at least.
const LASTING: Duration = Duration::from_millis(60);

/// How long a thread is stopped.
const STANDSTILL: Duration = Duration::from_millis(300);

/// How long one looks for a thread in a role.
const SEARCH: Duration = Duration::from_secs(3);

/// What every fault needs.
pub(super) struct Stage {
    /// The server.
    pub(super) program: Program,
    /// The one behind it, which no fault strikes.
    pub(super) back_end: Option<Program>,
    /// The one between it and its clients, which no fault strikes either.
    pub(super) front: Option<Program>,
    /// The C programs.
    pub(super) tools: Tools,
    /// Where strace writes.
    pub(super) strace_log: PathBuf,
    /// The file that controls the library.
    pub(super) controls: PathBuf,
    /// The depth of the run.
    pub(super) depth: Depth,
    /// How long a fault is there.
    pub(super) time: Duration,
}

/// What was done while a fault was there.
#[derive(Default)]
struct Done {
    /// How often it struck.
    injected: u64,
    /// Places that were made to fail once, and lastingly.
    sites: [u64; 2],
    /// The longest time after its end until fresh connections were served.
    recovery: Duration,
    /// What else was wrong.
    complaints: Vec<String>,
}

impl Stage {
    /// Plays one fault.
    pub(super) fn play(&self, fault: &Fault) -> Result<Row, Trouble> {
        let started = Instant::now();
        if let How::Not(reason) = fault.how {
            return Err(Trouble::Skipped(reason.to_owned()));
        }
        let controls = self.controls_for(fault.how)?;
        let back_end = self.start_back_end()?;
        let server = self.start(back_end.as_ref(), controls.as_ref())?;
        let front = self.start_front(&server)?;
        let speech = self.program.service.speech();
        let address = front.as_ref().map_or(server.address, |front| front.address);
        let load = Load::start(address, speech, fault.terms, fault.lives);
        load.work_until(started + SEARCH, |tally| tally.answered >= WARM);
        let threads = count(&server);
        let act = Act {
            stage: self,
            server: &server,
            load: &load,
            controls: controls.as_ref(),
            end: Instant::now() + self.time,
        };
        let mut done = act.play(fault.how)?;
        load.go_on();
        let before = load.tally().answered;
        let later = Instant::now() + SEARCH;
        load.work_until(later, |tally| tally.answered >= before + WARM);
        let tally = load.finish();
        let left = threads.saturating_sub(count(&server));
        if left > 0 {
            done.complaints
                .push(format!("{left} threads of {threads} are gone"));
        }
        let ended = front.and_then(|front| front.end(End::Clean).err());
        done.complaints.extend(ended);
        done.complaints.extend(server.end(fault.end).err());
        let ended = back_end.and_then(|back_end| back_end.end(End::Clean).err());
        done.complaints.extend(ended);
        let row = done.row(self.program.service, fault, tally, started.elapsed());
        if row.passed() {
            strace::forget(&self.strace_log);
        }
        Ok(row)
    }

    /// The file for the library, if the fault is made by it.
    fn controls_for(&self, how: How) -> Result<Option<Controls>, Trouble> {
        match how {
            How::Library { .. } | How::Site(..) => Controls::new(&self.controls).map(Some),
            How::Strace(..) | How::Stop(_) | How::Descriptors | How::Not(_) => Ok(None),
        }
    }

    /// Starts the server behind, if there is to be one.
    fn start_back_end(&self) -> Result<Option<Server>, Trouble> {
        let start = |program| Server::start(program, &[]);
        self.back_end.as_ref().map(start).transpose()
    }

    /// Starts the program between the server and its clients, if there is to be one.
    fn start_front(&self, server: &Server) -> Result<Option<Server>, Trouble> {
        let start = |program: &Program| Server::start(&program.before(server.address), &[]);
        self.front.as_ref().map(start).transpose()
    }

    /// Starts the server, before the one behind it, with the library before libc if a file controls it.
    fn start(
        &self,
        back_end: Option<&Server>,
        controls: Option<&Controls>,
    ) -> Result<Server, Trouble> {
        let program = match back_end {
            Some(back_end) => &self.program.before(back_end.address),
            None => &self.program,
        };
        let Some(controls) = controls else {
            return Server::start(program, &[]);
        };
        let library: &OsStr = self.tools.library()?.as_ref();
        let file: &OsStr = controls.path.as_ref();
        let variables = [("LD_PRELOAD", library), (library::VARIABLE, file)];
        Server::start(program, &variables)
    }
}

impl Done {
    /// The row of the table.
    fn row(self, service: Service, fault: &Fault, tally: Tally, time: Duration) -> Row {
        Row {
            service,
            name: fault.name,
            terms: fault.terms,
            injected: self.injected,
            sites: self.sites,
            recovery: self.recovery,
            tally,
            complaints: self.complaints,
            time,
        }
    }
}

/// A fault while it is there.
struct Act<'s> {
    /// What every fault needs.
    stage: &'s Stage,
    /// The server.
    server: &'s Server,
    /// Its clients, at work.
    load: &'s Load,
    /// The file for the library.
    controls: Option<&'s Controls>,
    /// When the fault is to be over.
    end: Instant,
}

impl Act<'_> {
    /// Makes the fault, and takes it away.
    fn play(&self, how: How) -> Result<Done, Trouble> {
        match how {
            How::Strace(calls, tamper) => self.strace(calls, tamper),
            How::Library {
                call,
                error,
                run,
                step,
            } => self.library(&Spoil {
                call,
                error,
                first: 1,
                last: u64::MAX,
                step,
                run,
            }),
            How::Site(call, error, lasts) => self.sites(call, error, lasts),
            How::Stop(role) => self.stop(role),
            How::Descriptors => self.descriptors(),
            How::Not(reason) => Err(Trouble::Skipped(reason.to_owned())),
        }
    }

    /// System calls are spoilt by strace.
    fn strace(&self, calls: &str, tamper: &str) -> Result<Done, Trouble> {
        let log = &self.stage.strace_log;
        let strace = Attached::to(self.server.id, calls, tamper, log)?;
        self.load.work_until(self.end, |_| false);
        self.load.rest();
        let injected = strace.detach()?;
        let recovery = self.load.recover(FRESH, Instant::now());
        Ok(Done {
            injected,
            recovery,
            ..Done::default()
        })
    }

    /// Calls are spoilt by the library, all the time.
    fn library(&self, spoil: &Spoil) -> Result<Done, Trouble> {
        let controls = self.controls()?;
        controls.arm(spoil)?;
        self.load.work_until(self.end, |_| false);
        self.load.rest();
        controls.disarm(spoil.call)?;
        let recovery = self.load.recover(FRESH, Instant::now());
        Ok(Done {
            injected: controls.injected(spoil.call),
            recovery,
            ..Done::default()
        })
    }

    /// The n-th call fails, for every n until a run sees none.
    fn sites(&self, call: Call, error: u64, lasts: Lasts) -> Result<Done, Trouble> {
        let controls = self.controls()?;
        let mut done = Done::default();
        for first in numbers(self.stage.depth) {
            let last = match lasts {
                Lasts::Once => first,
                Lasts::On => u64::MAX,
            };
            let spoil = Spoil {
                call,
                error,
                first,
                last,
                step: 1,
                run: 1,
            };
            let struck = self.one_site(controls, &spoil, &mut done)?;
            if struck == 0 || !self.load.tally().is_clean() {
                break;
            }
            done.sites[lasts as usize] += 1;
            done.injected += struck;
        }
        Ok(done)
    }

    /// One n; returns how often it struck.
    fn one_site(
        &self,
        controls: &Controls,
        spoil: &Spoil,
        done: &mut Done,
    ) -> Result<u64, Trouble> {
        let before = controls.injected(spoil.call);
        let requests = self.load.tally().requests;
        let struck = || controls.injected(spoil.call) - before;
        controls.arm(spoil)?;
        let end = Instant::now() + SEARCH;
        self.load.work_until(end, |tally| {
            struck() > 0 || tally.requests > requests + PER_SITE
        });
        if spoil.last > spoil.first && struck() > 0 {
            thread::sleep(LASTING);
        }
        controls.disarm(spoil.call)?;
        let recovery = self.load.recover(FRESH, Instant::now());
        done.recovery = done.recovery.max(recovery);
        Ok(struck())
    }

    /// Stops a thread, again and again.
    fn stop(&self, role: Role) -> Result<Done, Trouble> {
        let program = &self.stage.program;
        if role == Role::Standby && program.is_eager() {
            let why = "with `--wake eager` nobody stands by";
            return Err(Trouble::Skipped(why.to_owned()));
        }
        let is_missed = role == Role::Leader || program.is_strict();
        let mut done = Done::default();
        while done.injected == 0 || Instant::now() < self.end {
            let Some(stopped) = self.search(role)? else {
                let why = format!("no thread was found as {role:?} in {} s", SEARCH.as_secs());
                done.complaints.push(why);
                break;
            };
            done.injected += 1;
            let before = self.load.tally().answered;
            thread::sleep(STANDSTILL);
            let served = self.load.tally().answered - before;
            drop(stopped);
            if served == 0 && !is_missed {
                let why = "nobody was served while it stood still";
                done.complaints.push(why.to_owned());
                break;
            }
            done.recovery = done.recovery.max(self.load.recover(FRESH, Instant::now()));
        }
        Ok(done)
    }

    /// Finds and stops a thread in this role, in a bounded time.
    fn search(&self, role: Role) -> Result<Option<Stopped>, Trouble> {
        let tool = self.stage.tools.stop()?;
        let standby = !self.stage.program.is_eager();
        let end = Instant::now() + SEARCH;
        while Instant::now() < end {
            if let Some(stopped) = Stopped::find(self.server, role, standby, tool)? {
                return Ok(Some(stopped));
            }
        }
        Ok(None)
    }

    /// The server may open a few more descriptors only, and a crowd arrives, again and again.
    fn descriptors(&self) -> Result<Done, Trouble> {
        let unknown = |error| Trouble::Failed(format!("its descriptors can't be counted: {error}"));
        let open = self.server.descriptors().map_err(unknown)?;
        let before = self.limit_descriptors(None)?;
        self.limit_descriptors(Some(&(open + ROOM).to_string()))?;
        self.load.crowd(CROWD);
        while Instant::now() < self.end && self.load.tally().is_clean() {
            self.load.crowd(CROWD);
        }
        self.limit_descriptors(Some(&before))?;
        let recovery = self.load.recover(CROWD, Instant::now());
        Ok(Done {
            injected: self.load.tally().broken,
            recovery,
            ..Done::default()
        })
    }

    /// Sets how many descriptors the server may have, or returns how many.
    fn limit_descriptors(&self, limit: Option<&str>) -> Result<String, Trouble> {
        let mut prlimit = Command::new("prlimit");
        prlimit.args(["--pid", &self.server.id.to_string()]);
        match limit {
            Some(limit) => prlimit.arg(format!("--nofile={limit}:")),
            None => prlimit.args(["--nofile", "--raw", "--noheadings", "--output", "SOFT"]),
        };
        let told = run::output(&mut prlimit);
        told.map(|text| text.trim().to_owned())
            .map_err(|error| Trouble::of_tool("prlimit", &error.to_string()))
    }

    /// The file for the library.
    fn controls(&self) -> Result<&Controls, Trouble> {
        self.controls
            .ok_or_else(|| Trouble::Failed("the library is not there".to_owned()))
    }
}

/// The n at which a call fails: each of the first, then with growing steps.
fn numbers(depth: Depth) -> impl Iterator<Item = u64> {
    let most = match depth {
        Depth::Short => SHORT_SITES,
        Depth::Full => MOST_SITES,
    };
    std::iter::successors(Some(1), |n: &u64| Some(n + (n / 4).max(1))).take(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sites_are_all_tried_and_later_ones_with_growing_steps() {
        let short: Vec<_> = numbers(Depth::Short).collect();
        assert_eq!(short, [1, 2, 3]);
        let full: Vec<_> = numbers(Depth::Full).collect();
        assert_eq!(full[..9], [1, 2, 3, 4, 5, 6, 7, 8, 10]);
        assert_eq!(full.len(), MOST_SITES);
    }
}
