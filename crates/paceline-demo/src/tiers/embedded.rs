//! The embedded back-ends: pairs of processes of our own on the same files. One of a pair writes; the
//! other one serves reads, and takes over when the first one ends.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use paceline_check::client::Target;

use super::{front::Database, Launch, Plan, Tier};
use crate::{
    ports::{self, Wish},
    USER,
};

/// The databases of each pair; the first one names it. The demo kills a process of the first pair,
/// so the database for the user's own work is in the other one.
const PAIRS: [&[&str]; 2] = [&["bank"], &["travel", "scratch"]];

/// How many servers have a database, as the front-end sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redundancy {
    /// One: a front-end that knows no roles would send writes to a standby.
    Single,
    /// One that writes, and a standby or several.
    Pair,
}

impl Redundancy {
    fn suffixes(self) -> &'static [&'static str] {
        match self {
            Self::Single => &[""],
            Self::Pair => &["-a", "-b"],
        }
    }

    /// How long after its end a process is started again. A new process could take the lock of the
    /// files before the standby tries to.
    fn rest(self) -> Duration {
        match self {
            Self::Single => Duration::ZERO,
            Self::Pair => Duration::from_secs(1),
        }
    }
}

/// The back-ends with their data below this folder, and the databases that the front-end knows.
pub(crate) fn plans(
    folder: &Path,
    program: &Path,
    redundancy: Redundancy,
) -> io::Result<(Vec<Plan>, Vec<Database>)> {
    let mut plans = Vec::new();
    let mut databases = Vec::new();
    for names in PAIRS {
        let mut pair = pair(folder, program, names, redundancy)?;
        let mut entries: Vec<_> = names
            .iter()
            .map(|name| Database::writer(name, name, &pair))
            .collect();
        if redundancy == Redundancy::Pair {
            entries.push(Database::reader(names[0], &pair));
        }
        for plan in &mut pair {
            plan.databases = entries.iter().map(|entry| entry.name.clone()).collect();
        }
        databases.extend(entries);
        plans.extend(pair);
    }
    Ok((plans, databases))
}

/// The processes on the files of these databases. The first one that starts writes.
pub(crate) fn pair(
    folder: &Path,
    program: &Path,
    names: &[&str],
    redundancy: Redundancy,
) -> io::Result<Vec<Plan>> {
    let data = folder.join(names[0]);
    fs::create_dir_all(&data)?;
    let suffixes = redundancy.suffixes().iter();
    let plan = |suffix: &&str| {
        let port = ports::find(Wish::Any, "a back-end")?;
        let name = format!("{}{suffix}", names[0]);
        let log = folder.join(format!("{name}.log"));
        Ok(Plan {
            name,
            tier: Tier::BackEnd,
            launch: Launch {
                program: PathBuf::from(program),
                arguments: arguments(port, &data, names),
                variables: Vec::new(),
                log,
            },
            probe: Target {
                port,
                user: USER.to_owned(),
                database: names[0].to_owned(),
                ..Target::default()
            },
            databases: names.iter().map(ToString::to_string).collect(),
            page: None,
            rest: redundancy.rest(),
        })
    };
    suffixes.map(plan).collect()
}

fn arguments(port: u16, data: &Path, names: &[&str]) -> Vec<OsString> {
    let listen = format!("127.0.0.1:{port}");
    let words = ["back", "--listen", &listen, "--data"];
    let mut arguments: Vec<OsString> = words.iter().map(Into::into).collect();
    arguments.push(data.into());
    let databases = names.iter().flat_map(|name| ["--database", name]);
    arguments.extend(databases.map(Into::into));
    arguments
}
