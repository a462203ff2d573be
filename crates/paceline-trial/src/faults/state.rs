//! The states of a session in which a fault strikes, and how a client gets into each and out of it.
//!
//! ```text
//!            reach                                  finish
//!   idle     (nothing)                              INSERT
//!   query    INSERT .. that takes a while           read the answer
//!   parsed   Parse, Bind, Execute, Flush; executed  Sync
//!   copy in  COPY .. FROM STDIN, the first row      the second row, CopyDone
//!   copy out COPY .. TO STDOUT, the first row       read the rest
//!   open     BEGIN, INSERT                          INSERT, COMMIT, every other time in one piece
//!   commit   BEGIN, two INSERTs, COMMIT is sent     read the answer
//! ```

use std::fmt;

use paceline_pg_wire::frontend;

use super::client::{Answer, Client, Trouble};
use crate::back::Kind;

/// The table of the entries that the clients write.
pub(super) const TABLE: &str = "paceline_trial";

/// How many rows a client copies out, and how long each is. They do not fit into the buffers of the
/// connections on the way, so that the server is still sending when the fault strikes.
const ROWS_OUT: u64 = 8_000;
const BYTES_OF_A_ROW: u32 = 1_000;

/// A state of a session in which a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Idle,
    Query,
    Parsed,
    CopyIn,
    CopyOut,
    Open,
    Commit,
}

/// What a client writes: the rows `(client, number, part)`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) client: u32,
    pub(super) number: u64,
    pub(super) kind: Kind,
}

/// Whether the client has asked for the commit of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    No,
    Yes,
}

impl State {
    /// All of them, as a session passes through them.
    pub(super) const ALL: [Self; 7] = [
        Self::Idle,
        Self::Query,
        Self::Parsed,
        Self::CopyIn,
        Self::CopyOut,
        Self::Open,
        Self::Commit,
    ];

    /// As an option names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Query => "query",
            Self::Parsed => "parsed",
            Self::CopyIn => "copy-in",
            Self::CopyOut => "copy-out",
            Self::Open => "open",
            Self::Commit => "commit",
        }
    }

    /// How many rows an entry has that is written in this state.
    pub(super) fn parts(self) -> u32 {
        match self {
            Self::CopyOut => 0,
            Self::Idle | Self::Query | Self::Parsed => 1,
            Self::CopyIn | Self::Open | Self::Commit => 2,
        }
    }

    /// Whether a client that vanishes here may have committed: its commit was sent.
    pub(super) fn asked(self) -> Asked {
        match self {
            Self::Query | Self::Commit => Asked::Yes,
            Self::Idle | Self::Parsed | Self::CopyIn | Self::CopyOut | Self::Open => Asked::No,
        }
    }

    /// Brings a session into this state.
    pub(super) fn reach(self, client: &mut Client, entry: &Entry) -> Result<(), Trouble> {
        match self {
            Self::Idle => Ok(()),
            Self::Query => client.say(|out| frontend::query(out, entry.slow_insert().as_bytes())),
            Self::Parsed => {
                client.say(|out| {
                    frontend::parse(out, b"", entry.insert(0).as_bytes(), &[]);
                    frontend::bind(out, b"", b"", &[]);
                    frontend::execute(out, b"", 0);
                    frontend::flush(out);
                })?;
                client.wait_for(b'C')
            }
            Self::CopyIn => {
                let copy = format!("COPY {TABLE} FROM STDIN");
                client.say(|out| frontend::query(out, copy.as_bytes()))?;
                client.wait_for(b'G')?;
                client.say(|out| frontend::copy_data(out, entry.line(0).as_bytes()))
            }
            Self::CopyOut => {
                client.say(|out| frontend::query(out, entry.copy_out().as_bytes()))?;
                client.wait_for(b'd')
            }
            Self::Open => {
                client.query("BEGIN")?;
                client.query(&entry.insert(0)).map(drop)
            }
            Self::Commit => {
                client.query("BEGIN")?;
                client.query(&entry.insert(0))?;
                client.query(&entry.insert(1))?;
                client.say(|out| frontend::query(out, b"COMMIT"))
            }
        }
    }

    /// Does what remains, and reads the answer. `asked` says how far it has got.
    pub(super) fn finish(
        self,
        client: &mut Client,
        entry: &Entry,
        asked: &mut Asked,
    ) -> Result<Answer, Trouble> {
        if self != Self::Open {
            *asked = Asked::Yes;
        }
        match self {
            Self::Idle => client.query(&entry.insert(0)),
            Self::Query | Self::Commit => client.answer(),
            Self::Parsed => {
                client.say(frontend::sync)?;
                client.answer()
            }
            Self::CopyIn => {
                client.say(|out| {
                    frontend::copy_data(out, entry.line(1).as_bytes());
                    frontend::copy_done(out);
                })?;
                client.answer()
            }
            Self::CopyOut => {
                let mut answer = client.answer()?;
                // One row was read when the state was reached.
                answer.pieces += 1;
                Ok(answer)
            }
            Self::Open if entry.is_pipelined() => {
                *asked = Asked::Yes;
                client.say(|out| {
                    frontend::query(out, entry.insert(1).as_bytes());
                    frontend::query(out, b"COMMIT");
                })?;
                // The COMMIT of a failed transaction says ROLLBACK: its answer decides.
                match client.answer() {
                    Err(trouble @ (Trouble::Ended(_) | Trouble::Hung)) => Err(trouble),
                    Ok(_) | Err(Trouble::Refused(_)) => client.answer(),
                }
            }
            Self::Open => {
                client.query(&entry.insert(1))?;
                *asked = Asked::Yes;
                client.query("COMMIT")
            }
        }
    }

    /// What is wrong with an answer that is no error.
    pub(super) fn flaw(self, answer: &Answer) -> Option<String> {
        let is_short = self == Self::CopyOut && answer.pieces != ROWS_OUT;
        is_short.then(|| format!("{} rows of {ROWS_OUT} were copied out", answer.pieces))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Entry {
    fn insert(&self, part: u32) -> String {
        let Self { client, number, .. } = self;
        format!("INSERT INTO {TABLE} VALUES ({client}, {number}, {part})")
    }

    /// A row in the form of COPY.
    fn line(&self, part: u32) -> String {
        let Self { client, number, .. } = self;
        format!("{client}\t{number}\t{part}\n")
    }

    /// Whether the end of the transaction is sent without a wait for the statement before.
    fn is_pipelined(&self) -> bool {
        self.number % 2 == 1
    }

    /// An insert that takes long enough for a fault to strike.
    fn slow_insert(&self) -> String {
        let Self { client, number, .. } = self;
        let values = format!("INSERT INTO {TABLE} SELECT {client}, {number}, 0");
        match self.kind {
            Kind::Postgres => format!("{values} FROM pg_sleep(0.1)"),
            Kind::Embedded => format!(
                "{values} WHERE (WITH RECURSIVE c(n) AS \
                 (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 200000) \
                 SELECT count(*) FROM c) > 0"
            ),
        }
    }

    fn copy_out(&self) -> String {
        let wide = match self.kind {
            Kind::Postgres => format!("repeat('x', {BYTES_OF_A_ROW})"),
            Kind::Embedded => format!("hex(zeroblob({}))", BYTES_OF_A_ROW / 2),
        };
        format!("COPY (SELECT {wide} FROM generate_series(1, {ROWS_OUT})) TO STDOUT")
    }
}
