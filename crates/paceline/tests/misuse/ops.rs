//! The words of a plan: what actors and handlers do, and how they fail. Every word carries all of
//! its parameters, so that a printed plan says everything.

use std::time::Duration;

use paceline::{Interest, Serve};

/// What an actor does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Registers a connection of its own at the pool with this number, and keeps the far end in the
    /// slot.
    Register {
        slot: usize,
        at: usize,
        near: Near,
        interest: u8,
        script: Script,
    },
    /// A datagram socket with a concurrent handler.
    Datagrams {
        slot: usize,
        at: usize,
    },
    /// Connects to a listener as a client.
    Dial {
        slot: usize,
        at: usize,
    },
    /// The pool connects: to a listener that accepts, or to a port where none is.
    Connect {
        slot: usize,
        at: usize,
        answers: bool,
        script: Script,
    },
    /// The client in the slot sends what its socket takes of so many bytes.
    Send {
        slot: usize,
        bytes: usize,
    },
    /// The client reads what has come.
    Receive {
        slot: usize,
    },
    /// The client ends its connection.
    HangUp {
        slot: usize,
        how: HangUp,
    },
    /// Asks something of a handle.
    Ask {
        slot: usize,
        ask: Ask,
    },
    CloseAndWait {
        slot: usize,
    },
    /// Registers a member of a group.
    Member {
        slot: usize,
        group: usize,
        near: Near,
    },
    Group {
        group: usize,
        script: Script,
    },
    NotifyGroup {
        group: usize,
    },
    CloseGroup {
        group: usize,
    },
    Post {
        at: usize,
        work: Work,
    },
    After {
        timer: usize,
        at: usize,
        span: Duration,
        work: Work,
    },
    Every {
        timer: usize,
        at: usize,
        period: Duration,
        panics_at: Option<u32>,
    },
    Cancel {
        timer: usize,
        waits: bool,
    },
    Enqueue {
        items: u32,
        bombs: bool,
    },
    Release {
        units: u32,
    },
    CloseQueue,
    CloseSemaphore,
    Signal {
        number: i32,
    },
    /// Several signals at once, from another process.
    Signals {
        times: u32,
    },
    /// A connection that is full, and waits for its peer when it is closed.
    Linger {
        slot: usize,
        at: usize,
    },
    BadRing,
    /// Handlers each of which closes the next one at its end.
    Chain {
        at: usize,
        links: usize,
    },
    /// Registers the reading end of a ring.
    Ring {
        slot: usize,
        at: usize,
    },
    /// Sends records into the ring of the slot.
    Record {
        slot: usize,
        records: u32,
    },
    Observe {
        observer: usize,
        at: usize,
    },
    EndObservation {
        observer: usize,
    },
    Look {
        at: usize,
    },
    Join {
        at: usize,
        span: Duration,
    },
    /// Goes through the roles by hand, and drops the role at a stage.
    ByHand {
        at: usize,
        stage: Stage,
        slot: usize,
        ask: Ask,
    },
    ShutDown {
        at: usize,
        within: Duration,
    },
    DropPool {
        at: usize,
    },
    Pause(Duration),
}

/// Where a role is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Follower,
    Leader,
    Claimed,
    Processing,
    Done,
}

/// A request of a handle that does not block.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Ask {
    Close,
    Interest(u8),
    Suspend,
    Resume,
    Notify,
    TimeOut(Option<Duration>),
    Deadline(Option<Duration>),
    Priority(u8),
    Pin(usize),
    Sticky(Duration),
    Unpin,
    MoveTo(usize),
    Adopt(usize),
}

/// The end of a connection that the pool gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Near {
    pub(crate) tcp: bool,
    /// A socket that waits for its peer when it is closed.
    pub(crate) lingers: bool,
    /// Its buffers are small.
    pub(crate) narrow: bool,
    /// The read with this number panics, or fails.
    pub(crate) panics_at: Option<u32>,
    pub(crate) fails_at: Option<u32>,
    pub(crate) drop_panics: bool,
}

/// How a client ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum HangUp {
    Close,
    Reset,
    HalfClose,
}

/// What a handler does beside its echo: at its first call the first act, and so on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Script {
    pub(crate) acts: Vec<Option<Act>>,
    /// It reads until its source runs dry.
    pub(crate) thorough: bool,
    pub(crate) speaks_first: bool,
    /// It serves what has waited for too long.
    pub(crate) patient: bool,
    /// What it does when a time of its handle is over.
    pub(crate) when_overdue: WhenOverdue,
    /// Its calls are of this kind, one of [`KINDS`].
    pub(crate) kind: Option<usize>,
    pub(crate) at_closed: Option<AtClosed>,
    pub(crate) drop_panics: bool,
}

/// Kinds that the layer above gives: one that is learnt, and two that are known.
pub(crate) const KINDS: usize = 3;

/// What a handler does when a time of its handle is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum WhenOverdue {
    #[default]
    Fail,
    GoOn,
    /// It writes something, and ends gently.
    LastWord,
    Panic,
}

/// What a handler does in one call.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Panic,
    Fail,
    Close,
    CloseGently,
    Again,
    /// It returns, and has read nothing.
    LeaveUnread,
    Deadline(Option<Duration>),
    /// The rest of the call is of this kind.
    BeginKind(usize),
    Ask(usize, Ask),
    CloseItselfAndWait,
    CloseOther(usize),
    ReleaseThen {
        ask: Option<(usize, Ask)>,
        panics: bool,
    },
    Block(Duration),
    Compute(Duration),
    WakeFollower,
    Serve {
        within: Duration,
        serve: ServeWord,
    },
    Post(Work),
    ShutDown(Duration),
    DropPool,
    Join,
    Flood(usize),
    /// A flood of several slices, or of pieces that are kept without a copy.
    FloodInParts {
        bytes: usize,
        owned: bool,
    },
    MoveTo(usize),
    ReadWhileSending,
}

/// [`Serve`], for scripts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ServeWord {
    Chain,
    Nothing,
    Any,
}

impl ServeWord {
    pub(crate) fn get(self) -> Serve {
        match self {
            Self::Chain => Serve::Chain,
            Self::Nothing => Serve::Nothing,
            Self::Any => Serve::Any,
        }
    }
}

/// What a handler does in `closed`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AtClosed {
    Panic,
    Ask(usize, Ask),
    Post,
}

/// The work of a post or a timer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    pub(crate) panics: bool,
    pub(crate) drop_panics: bool,
    pub(crate) blocks: Option<Duration>,
    pub(crate) serves: Option<(Duration, ServeWord)>,
    pub(crate) ask: Option<(usize, Ask)>,
}

/// An interest by its bits.
pub(crate) fn interest(bits: u8) -> Interest {
    match bits {
        0 => Interest::NONE,
        1 => Interest::READ,
        2 => Interest::WRITE,
        _ => Interest::READ | Interest::WRITE,
    }
}
