//! `inject`: the fault matrix. Real servers, each in a process of its own, are put under one fault after the other
//! while clients check every answer. Whatever the kernel or the machine does, nothing may be lost, doubled,
//! misrouted or left hanging, and when the fault is over the server serves as before.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::args::Usage;
use crate::table;
use crate::verb::{Verb, Verdict};
use crate::workspace::Workspace;

use catalogue::{Fault, Set};
use fate::Fate;
use server::Program;
use service::Service;
use stage::Stage;
use tools::Tools;

mod catalogue;
mod chat;
mod conversation;
mod echo;
mod fate;
mod library;
mod load;
mod row;
mod server;
mod service;
mod stage;
mod strace;
mod thread;
mod tools;
mod wire;

/// The verb.
pub(crate) const VERB: Verb = Verb {
    name: "inject",
    summary: "put a running server under one fault after the other and check every answer",
    help: "\
usage: cargo xtask inject [--service NAME] [--full] [--seconds N] [--server-args WORDS] [FAULT...] [--list]

Starts an example anew for each fault, sends it messages that carry their connection and their number
over 16 connections which are closed, reset and reopened, makes the fault (strace, a preloaded library,
ptrace, prlimit), takes it away, and asks on fresh connections. One row per fault:
  injected   how often it struck; zero is a failure
  requests   messages sent
  refused    of them, those whose connection the fault ended, visibly, where it may
  nudges     edges that clients made in place of one that the fault took away, where it does
  lost, doubled, misrouted, hung: none is allowed
  recovery   from the end of the fault until fresh connections were served, at most
Besides, no more connections may end than faults struck, no thread may be gone, and the server must end
gracefully.

`echo` and `relay`: a message is answered when it comes back. It is lost if it does not though its
connection lives or a later one comes back, or if it comes back changed; doubled if it comes back again;
misrouted if it comes back on another connection; hung after 10 s with neither answer nor end.
`relay` stands before an `echo` that no fault strikes, and that must end gracefully too. What ends either
socket of a session, or keeps the second one from being opened, ends the client's connection: that is
where it counts as refused.

`chat`: a message is answered when its speaker is given the receipt. It is lost if somebody who stayed
has not heard it then: who had read its welcome before it was said, and was still answered after the
receipt was read. Also lost: a gap in the numbers of a speaker, a changed line, whatever the server says
somebody has missed, receipts that tell of fewer or of more than have heard, news of who has come or
gone that did not reach somebody who stayed, and one's own name when one asks who is there. Doubled: a
number that is heard again, or behind a later one, and news that come again. Misrouted: one's own line,
a line that nobody has said or under another's name, a line whose receipt was read before the hearer
came, a receipt for nothing or for more than can have been there, and whoever is said to be gone and is
there, or the other way round. Hung: a line with neither receipt nor end after 10 s.

`chat_rooms` is the same on `paceline-server`. `tls_tunnel`, on `paceline-server` too, ends TLS before an
`echo`; a second one, which no fault strikes, begins TLS for the clients.

  FAULT                only these faults
  --service NAME       echo (default), relay, chat, chat_rooms, tls_tunnel, or all (default of --full
                       without --server or --server-args)
  --list               tell the faults, run nothing
  --full               longer, at least 100_000 faults with each service; and the n-th calls until a run
                       sees no fault
  --seconds N          limit for the run with one service (default 60, full 600), shared out to the
                       rows; a row that would begin later fails
  --server-args WORDS  further arguments of the server, such as `--wake eager`; with `--set poll` the
                       faults are those of `poll`, and epoll's own are skipped
  --server PROGRAM     this program instead of the example

strace counts the calls of each thread on their own, the library those of all. A fault that cannot be
made here is printed as skipped, with the reason, and counted. Logs are kept in target/xtask.",
    run: |mut args| {
        let depth = if args.flag("--full") {
Depth::Full
} else {
Depth::Short
};
        let list = args.flag("--list");
        let limit = args.seconds("--seconds", depth.limit())?;
        let server = args.value("--server")?.map(PathBuf::from);
        let arguments = args.value("--server-args")?.unwrap_or_default();
        let arguments: Vec<_> = arguments.split_whitespace().map(str::to_owned).collect();
        let is_like_no_other = server.is_some() || !arguments.is_empty();
        let service = args.value("--service")?;
        let service = service.or(is_like_no_other.then(|| Service::Echo.name().to_owned()));
        let services = services(service.as_deref(), depth)?;
        let options = Options {
            depth,
            server,
            arguments,
        };
        let names = args.names()?;
        let set = Set::of(&options.arguments);
        let parts = select(&services, &names, set, limit)?;
        Ok(if list {
tell(&parts)
} else {
options.run(&parts, names.is_empty())
})
    },
};

/// Faults that a full run must inject, with each service.
const FULL_FAULTS: u64 = 100_000;

/// How far it goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// For every change.
    Short,
    /// Before a release.
    Full,
}

impl Depth {
    /// Limit for the run with one service, if nothing else is said.
    fn limit(self) -> Duration {
        match self {
            Depth::Short => Duration::from_secs(60),
            Depth::Full => Duration::from_secs(600),
        }
    }
}

/// Why a fault has no figures.
#[derive(Clone, Debug)]
enum Trouble {
    /// It cannot be made here, which says nothing about the server.
    Skipped(String),
    /// Something went wrong.
    Failed(String),
}

impl Trouble {
    /// As the table tells it.
    fn told(&self) -> String {
        match self {
            Trouble::Skipped(why) => format!("skipped: {why}"),
            Trouble::Failed(why) => format!("FAILED: {why}"),
        }
    }

    /// What a tool complains of: that something is not permitted, or not there, says nothing about the server.
    fn of_tool(tool: &str, complaint: &str) -> Trouble {
        let why = format!("{tool}: {complaint}");
        if ["not permitted", "os error 2"]
            .iter()
            .any(|words| why.contains(words))
        {
            Trouble::Skipped(why)
        } else {
            Trouble::Failed(why)
        }
    }
}

/// What the command line asks for.
struct Options {
    /// How far to go.
    depth: Depth,
    /// A server other than the example.
    server: Option<PathBuf>,
    /// Further arguments of the server.
    arguments: Vec<String>,
}

/// One service, and what it is put under.
struct Part {
    /// The service.
    service: Service,
    /// Its faults.
    faults: Vec<Fault>,
    /// For all of them.
    limit: Duration,
    /// How long each of them is there.
    time: Duration,
}

impl Part {
    /// A service under these faults, which share the time.
    fn new(service: Service, faults: Vec<Fault>, limit: Duration) -> Part {
        let time = share(limit, faults.len());
        Part {
            service,
            faults,
            limit,
            time,
        }
    }
}

/// How long each of the few faults with a service other than `echo` is there, in a short run of `ci`.
const FEW_TIME: Duration = Duration::from_millis(500);

/// Puts the examples under faults, for `ci`: in a short run `echo` under every one, the others under a few.
pub(crate) fn check(depth: Depth) -> Verdict {
    let options = Options {
        depth,
        server: None,
        arguments: Vec::new(),
    };
    let part = |service: Service| match (depth, service) {
        (Depth::Full, _) | (_, Service::Echo) => {
            Part::new(service, service.faults(Set::Epoll), depth.limit())
        }
        (Depth::Short, _) => Part {
            time: FEW_TIME,
            ..Part::new(service, service.few(), depth.limit())
        },
    };
    options.run(&Service::ALL.map(part), true)
}

impl Options {
    /// Runs the faults one by one, prints the table and counts. `whole`: they are all there are.
    fn run(&self, parts: &[Part], whole: bool) -> Verdict {
        let mut fates = Vec::new();
        for part in parts {
            match self.stage(part) {
                Ok(stage) => fates.extend(part.play(&stage)),
                Err(why) => return Verdict::failed(format!("{}: {why}", part.service.name())),
            }
        }
        table::print(row::HEADING, fates.iter().map(Fate::cells));
        let must_inject = match self.depth {
            Depth::Full if whole => FULL_FAULTS,
            Depth::Full | Depth::Short => 0,
        };
        fate::count(&fates, must_inject)
    }

    /// Builds what every fault of a part needs.
    fn stage(&self, part: &Part) -> Result<Stage, String> {
        let workspace = Workspace::this();
        let path = match &self.server {
            Some(path) => path.clone(),
            None => server::build(&workspace, part.service)?,
        };
        let (own, of_front) = part
            .service
            .arguments(&workspace.logs.join("inject-cert.pem"));
        let front = of_front.map(|arguments| Program {
            service: part.service,
            path: path.clone(),
            arguments,
            log: workspace.log("inject-front"),
        });
        Ok(Stage {
            program: Program {
                service: part.service,
                path,
                arguments: self.arguments.iter().cloned().chain(own).collect(),
                log: workspace.log("inject-server"),
            },
            back_end: back_end(&workspace, part.service)?,
            front,
            tools: Tools::compile(&workspace),
            strace_log: workspace.log("inject-strace"),
            controls: workspace.logs.join("inject-controls"),
            depth: self.depth,
            time: part.time,
        })
    }
}

/// The program that stands behind a service, if one does.
fn back_end(workspace: &Workspace, service: Service) -> Result<Option<Program>, String> {
    let Some(service) = service.back_end() else {
        return Ok(None);
    };
    Ok(Some(Program {
        service,
        path: server::build(workspace, service)?,
        arguments: Vec::new(),
        log: workspace.log("inject-back-end"),
    }))
}

impl Part {
    /// Plays its faults one by one.
    fn play(&self, stage: &Stage) -> Vec<Fate> {
        let end = Instant::now() + self.limit;
        let faults = self.faults.iter();
        faults.map(|fault| fate(stage, fault, end)).collect()
    }
}

/// How long each of so many faults may be there: half of its share, for it comes and goes in the other half.
fn share(limit: Duration, faults: usize) -> Duration {
    let share = limit / 2 / u32::try_from(faults.max(1)).unwrap_or(u32::MAX);
    share.min(Duration::from_secs(30))
}

/// The services that are meant.
fn services(name: Option<&str>, depth: Depth) -> Result<Vec<Service>, Usage> {
    let all = Service::ALL.to_vec();
    match (name, depth) {
        (Some("all"), _) | (None, Depth::Full) => Ok(all),
        (None, Depth::Short) => Ok(vec![Service::Echo]),
        (Some(name), _) => {
            let named = all.into_iter().find(|service| service.name() == name);
            let names = Service::ALL.map(Service::name).join(", ");
            let unknown = || Usage(format!("`{name}` is none of {names}, all"));
            named.map(|service| vec![service]).ok_or_else(unknown)
        }
    }
}

/// The faults with these names, or all if none is named, for servers with this set.
fn select(
    services: &[Service],
    names: &[String],
    set: Set,
    limit: Duration,
) -> Result<Vec<Part>, Usage> {
    let is_named = |fault: &Fault| names.iter().any(|name| name == fault.name);
    let part = |service: &Service| {
        let mut faults = service.faults(set);
        faults.retain(|fault| names.is_empty() || is_named(fault));
        Part::new(*service, faults, limit)
    };
    let mut parts: Vec<_> = services.iter().map(part).collect();
    parts.retain(|part| !part.faults.is_empty());
    let found = || parts.iter().flat_map(|part| &part.faults);
    let is_unknown = |name: &&String| !found().any(|fault| fault.name == **name);
    match names.iter().find(is_unknown) {
        Some(unknown) => Err(Usage(format!(
            "there is no fault `{unknown}` (`--list` tells what there is)"
        ))),
        None => Ok(parts),
    }
}

/// Prints the faults.
fn tell(parts: &[Part]) -> Verdict {
    let of_part = |part: &Part| {
        let row = |fault: &Fault| [part.service.name(), fault.name, fault.story].map(str::to_owned);
        part.faults.iter().map(row).collect::<Vec<_>>()
    };
    let rows: Vec<_> = parts.iter().flat_map(of_part).collect();
    let summary = format!("{} faults", rows.len());
    table::print(["service", "fault", "what it is"], rows.into_iter());
    Verdict::passed(summary)
}

/// Runs one fault, and says how that went.
fn fate(stage: &Stage, fault: &Fault, end: Instant) -> Fate {
    let outcome = if Instant::now() < end {
        stage.play(fault)
    } else {
        Err(Trouble::Failed("no time was left for it".to_owned()))
    };
    let fate = Fate {
        service: stage.program.service,
        name: fault.name,
        outcome,
    };
    println!("{}", fate.told());
    fate
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a command line.
    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_unknown_fault_or_service_is_a_wrong_command_line() {
        let select = |services: &[Service], line: &str| {
            let parts = select(services, &words(line), Set::Epoll, Duration::ZERO);
            parts.map(|parts| parts.iter().map(|part| part.faults.len()).sum::<usize>())
        };
        assert!(select(&Service::ALL, "no-such-fault").is_err());
        assert_eq!(select(&[Service::Chat], "short-sends"), Ok(1));
        assert_eq!(select(&Service::ALL, "short-sends nth-connect"), Ok(7));
        assert!(select(&[Service::Echo], "nth-connect").is_err());
        assert!(services(Some("no-such-service"), Depth::Full).is_err());
    }

    #[test]
    fn echo_alone_is_the_default_and_all_of_a_full_run() {
        let chosen = |name, depth| services(name, depth).map(|services| services.len());
        assert_eq!(chosen(None, Depth::Short), Ok(1));
        assert_eq!(chosen(None, Depth::Full), Ok(5));
        assert_eq!(chosen(Some("relay"), Depth::Full), Ok(1));
        assert_eq!(chosen(Some("all"), Depth::Short), Ok(5));
    }

    #[test]
    fn the_faults_of_a_short_run_fit_into_its_time() {
        for service in Service::ALL {
            let faults = service.faults(Set::Epoll).len();
            let all = share(Depth::Short.limit(), faults) * u32::try_from(faults).unwrap();
            assert!(all <= Depth::Short.limit() / 2);
        }
    }
}
