//! `inject`: the fault matrix. Real servers, each in a process of its own, are put under one fault after the other
//! while clients check every answer. Whatever the kernel or the machine does, nothing may be lost, doubled,
//! misrouted or left hanging, and when the fault is over the server serves as before.
//!
//! `cargo xtask inject` builds and runs this program.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use xtask_common::args::Usage;
use xtask_common::table;
use xtask_common::verb::{Verb, Verdict};
use xtask_common::workspace::Workspace;

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
const VERB: Verb = Verb {
    name: "inject",
    summary: "put a running server under one fault after the other and check every answer",
    help: include_str!("../help.txt"),
    run: |mut args| {
        let depth = if args.flag("--full") {
            Depth::Full
        } else {
            Depth::Short
        };
        if args.flag("--few") {
            args.nothing()?;
            return Ok(few());
        }
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
            print_faults(&parts)
        } else {
            options.run(&parts, names.is_empty())
        })
    },
};

/// Explains itself, or runs.
fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.iter().any(|word| word == "--help" || word == "-h") {
        println!("{}", VERB.page());
        return ExitCode::SUCCESS;
    }
    VERB.conclude(words).unwrap_or_else(|Usage(message)| {
        eprintln!("xtask: {message}");
        ExitCode::from(2)
    })
}

/// Faults that a full run must inject, with each service.
const FULL_FAULTS: u64 = 100_000;

/// The depth of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// By default.
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
    /// As the table shows it.
    fn told(&self) -> String {
        match self {
            Trouble::Skipped(why) => format!("skipped: {why}"),
            Trouble::Failed(why) => format!("FAILED: {why}"),
        }
    }

    /// What a tool complains of: that something is not permitted, or not there, says nothing about the server.
    fn of_tool(tool: &str, complaint: &str) -> Trouble {
        let why = format!("{tool}: {complaint}");
        let of_machine = ["not permitted", "os error 2"];
        if of_machine.iter().any(|words| why.contains(words)) {
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

/// How long each of the few faults with a service other than `echo` lasts.
const FEW_TIME: Duration = Duration::from_millis(500);

/// Puts the examples under faults, for `ci`: `echo` under every one, the others under a few.
fn few() -> Verdict {
    let options = Options {
        depth: Depth::Short,
        server: None,
        arguments: Vec::new(),
    };
    let limit = Depth::Short.limit();
    let part = |service: Service| match service {
        Service::Echo => Part::new(service, service.faults(Set::Epoll), limit),
        _ => Part {
            time: FEW_TIME,
            ..Part::new(service, service.few(), limit)
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

/// The program behind a service, if there is one.
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

/// How long each of so many faults may be there: half of its share, because it is made and removed in the other half.
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
            "there is no fault `{unknown}` (`--list` prints all)"
        ))),
        None => Ok(parts),
    }
}

/// Prints the faults.
fn print_faults(parts: &[Part]) -> Verdict {
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
