//! The faults, and the system that they strike.

use std::{fmt, io, thread, time::Duration};

use paceline_check::Random;

use crate::{
    back::{Back, Kind},
    front::Front,
    link::Link,
};

/// How long a stopped or unreachable server stays that way at least, and how much longer at most.
const PAUSE: Duration = Duration::from_millis(50);
const MORE: u64 = 250;

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strike {
    /// All processes of the back-end are killed; then it is started again.
    Kill,
    /// They are stopped for a while.
    Stop,
    /// All connections between the front-end and the back-end are reset.
    Reset,
    /// The same, and new ones are refused for a while.
    Refuse,
    /// The processes of clients are killed.
    Client,
}

impl Strike {
    /// All of them.
    pub(super) const ALL: [Self; 5] = [
        Self::Kill,
        Self::Stop,
        Self::Reset,
        Self::Refuse,
        Self::Client,
    ];

    /// As an option names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
            Self::Reset => "reset",
            Self::Refuse => "refuse",
            Self::Client => "client",
        }
    }

    /// Breaks what it breaks.
    pub(super) fn begin(self, system: &mut System) -> io::Result<()> {
        match self {
            Self::Kill => system.back.kill(),
            Self::Stop => system.back.stop(),
            Self::Reset => system.link.reset(),
            Self::Refuse => system.link.refuse(),
            Self::Client => Ok(()),
        }
    }

    /// Repairs that, after a while of chance.
    pub(super) fn end(self, system: &mut System, random: &mut Random) -> io::Result<()> {
        let pause = PAUSE + Duration::from_millis(random.below(MORE));
        match self {
            Self::Kill => {
                system.back.run()?;
                system.link.lead_to(system.back.place())
            }
            Self::Stop => {
                thread::sleep(pause);
                system.back.go_on()
            }
            Self::Refuse => {
                thread::sleep(pause);
                system.link.accept()
            }
            Self::Reset | Self::Client => Ok(()),
        }
    }
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A front-end, a back-end, and the connection between them.
#[derive(Debug)]
pub(super) struct System {
    pub(super) front: Front,
    pub(super) link: Link,
    pub(super) back: Back,
}

/// Fewer server connections than clients, so that they change hands all the time. With `roles`,
/// clients wait while the server is away.
const SETTINGS: &str = "default_pool_size = 6\nserver_login_retry = 0.05\n\
                        host_check_period = 0.1\nhost_check_successes = 1\n";

impl System {
    /// Starts all of it. `None` if the back-end is not installed.
    pub(super) fn start(kind: Kind, mode: &str) -> io::Result<Option<Self>> {
        let Some(back) = Back::start(kind)? else {
            return Ok(None);
        };
        let link = Link::to(back.place())?;
        let (port, database) = (link.address().port(), kind.database());
        let entry = format!("host=127.0.0.1 port={port} dbname={database} roles=auto");
        let settings = match mode {
            // A session keeps its server: all clients need one.
            "session" => SETTINGS.replace("= 6", "= 40"),
            _ => SETTINGS.to_owned(),
        };
        let front = Front::start(&entry, &format!("pool_mode = {mode}\n{settings}"))?;
        Ok(Some(Self { front, link, back }))
    }
}
