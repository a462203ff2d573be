//! A model of the server: its state after all messages so far.
//!
//! One queue has an entry for each message that the server will answer, and for each answer of the
//! front-end itself. Replies consume the entries in order.
//!
//! ```text
//!   sent:  Parse Bind Execute Sync         an error drops all entries before the next Sync;
//!            |    |      |     |           without a Sync in the queue: skips up to the next one
//!   reply:   1    2   D..C     Z
//! ```
//!
//! The server is at a boundary iff its last `Z` said idle, the queue is empty, no extended message
//! is without its Sync, nothing is skipped, and no copy runs.

mod received;

use std::collections::VecDeque;

use paceline_pg_wire::TransactionStatus;

use super::{
    super::{keyword::Class, prepared::Held},
    tally::Tally,
    Loss,
};

/// A message that was sent, or an answer of the front-end.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A simple query, and its class.
    Query(Whose, Class),
    /// A function call.
    Function,
    /// A Parse. With a statement of the shared table, the server has it from here on.
    Parse {
        /// Whether the client has sent it: then it gets the reply.
        whose: Whose,
        /// The statement, if it is one of the shared table.
        statement: Option<Held>,
        /// Whether a name of the client waits for the reply.
        is_named: bool,
    },
    /// A Bind, of the statement with this number (zero: of none of ours).
    Bind(u64),
    /// A Describe, of the statement with this number (zero: of none of ours).
    Describe(u64),
    /// A Bind that can only fail; the client gets this refusal instead of the server's error.
    Refused(Refusal),
    /// A Close of the client's.
    Close,
    /// The front-end closes a statement on the server.
    Evict(Held),
    /// An Execute, and the class of its statement.
    Execute(Class),
    /// A Sync.
    Sync(Whose),
    /// A CopyDone or CopyFail. It has no reply.
    CopyEnd,
    /// An answer of the front-end.
    Answer(Answer),
}

impl Entry {
    /// Whether it is a query or a Sync of the front-end.
    pub(crate) fn is_own_query(&self) -> bool {
        matches!(self, Self::Query(Whose::Own, _) | Self::Sync(Whose::Own))
    }
}

/// The origin of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Whose {
    /// The client's: it gets the replies.
    Client,
    /// The front-end's: the replies are swallowed.
    Own,
}

/// Why the front-end refuses a message.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// No statement has the name.
    Unknown,
    /// A statement has this name already.
    Taken(Box<[u8]>),
}

/// An answer of the front-end, which waits for its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// ParseComplete.
    Parsed,
    /// CloseComplete of a statement.
    Closed {
        /// Whether a name of the client waits for it.
        is_named: bool,
    },
    /// The answer to a simple `DEALLOCATE name`.
    Deallocated,
}

/// A copy that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    /// None.
    None,
    /// To the server; the client may send more data.
    In {
        /// How many Syncs the copy has swallowed.
        syncs: u32,
    },
    /// To the server; the client has sent the end.
    InEnded {
        /// How many Syncs the copy has swallowed.
        syncs: u32,
    },
    /// From the server.
    Out,
}

/// Whether the model knows the server's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sureness {
    /// The model is right.
    Sure,
    /// The server's state is unknown for good.
    Lost,
}

/// The treatment of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// The client gets it.
    Deliver,
    /// It answers a message of the front-end.
    Swallow,
}

/// The model of one server connection.
#[derive(Debug)]
pub(crate) struct Model {
    queue: VecDeque<Entry>,
    /// The number of the first entry in the queue. Entries are numbered from one.
    first: u64,
    /// The entries that decide which prepared statements exist.
    names: Doubt,
    /// The entries that decide which the unnamed statement is.
    unnamed: Doubt,
    status: TransactionStatus,
    copy: Copy,
    /// Whether extended messages were sent behind the last sync point.
    is_open: bool,
    /// Whether the server skips everything up to a Sync that was not sent yet.
    is_skipping: bool,
    /// The number of the last query that was sent behind extended messages without a Sync.
    behind_open: u64,
    sureness: Sureness,
    /// The answered statements since the last `Z`.
    tally: Tally,
}

/// Entries that may fail, and that decide the meaning of later messages.
///
/// Within a batch the prediction is safe: if the entry fails, the later message is skipped. Behind
/// a sync point the later message has to wait for the outcome.
#[derive(Clone, Copy, Debug, Default)]
struct Doubt {
    /// The number of the last such entry.
    last: u64,
    /// The number of the last one that is before a sync point.
    sealed: u64,
}

/// Entries that an idle model keeps room for.
const KEPT: usize = 64;

impl Model {
    /// A server that has just said that it is ready.
    pub(crate) fn new() -> Self {
        Self {
            queue: VecDeque::new(),
            first: 1,
            names: Doubt::default(),
            unnamed: Doubt::default(),
            status: TransactionStatus::Idle,
            copy: Copy::None,
            is_open: false,
            is_skipping: false,
            behind_open: 0,
            sureness: Sureness::Sure,
            tally: Tally::new(false),
        }
    }

    pub(crate) fn status(&self) -> TransactionStatus {
        self.status
    }

    /// Whether everything that was sent is answered, in no transaction block.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.status == TransactionStatus::Idle && self.is_settled() && !self.is_pinned()
    }

    /// Whether the server owes nothing, and its last word was `Z`.
    pub(crate) fn is_settled(&self) -> bool {
        self.queue.is_empty() && !self.is_open && !self.is_skipping && self.copy == Copy::None
    }

    /// Whether the server stays with its client until that leaves.
    pub(crate) fn is_pinned(&self) -> bool {
        self.sureness == Sureness::Lost
    }

    pub(crate) fn pin(&mut self) {
        self.sureness = Sureness::Lost;
        self.first += self.queue.len() as u64;
        self.queue.clear();
    }

    pub(crate) fn is_skipping(&self) -> bool {
        self.is_skipping
    }

    /// Whether extended messages were sent behind the last sync point.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.queue.len()
    }

    /// The loss if the connection ended now.
    pub(crate) fn loss(&self) -> Loss {
        let mut tally = self.tally;
        self.queue.iter().for_each(|entry| tally.add(entry));
        if self.is_open || self.is_skipping {
            tally.sent();
        }
        tally.loss()
    }

    /// The loss if the connection ended now, and the messages in flight began in a failed block.
    pub(crate) fn loss_of_failed_block(&self) -> Loss {
        let mut tally = Tally::new(true);
        self.queue.iter().for_each(|entry| tally.add(entry));
        tally.loss()
    }

    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.queue.iter()
    }

    pub(crate) fn head(&self) -> Option<&Entry> {
        self.queue.front()
    }

    /// Whether the oldest outstanding message can only fail.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.queue.front(), Some(Entry::Refused(_)))
    }

    /// Whether the oldest outstanding message is a query of the front-end.
    pub(crate) fn is_own_query(&self) -> bool {
        self.queue.front().is_some_and(Entry::is_own_query)
    }
}

/// Messages to the server.
impl Model {
    /// A message of the extended protocol, or an own answer among them.
    pub(crate) fn sent_extended(&mut self, entry: Entry) {
        if self.is_copying_in() {
            // The server takes it for data out of turn, and ends.
            return self.pin();
        }
        self.is_open = true;
        self.push(entry);
    }

    /// An answer of the front-end: nothing is sent.
    pub(crate) fn answers(&mut self, answer: Answer) {
        self.push(Entry::Answer(answer));
    }

    /// A query or a function call, which is a sync point of its own.
    pub(crate) fn sent_query(&mut self, entry: Entry) {
        if self.is_copying_in() {
            return self.pin();
        }
        if self.is_open {
            self.behind_open = self.first + self.queue.len() as u64;
        }
        self.is_open = false;
        self.push(entry);
    }

    pub(crate) fn sent_sync(&mut self, whose: Whose) {
        if let Copy::In { syncs } = &mut self.copy {
            *syncs = syncs.saturating_add(1);
            return;
        }
        self.is_open = false;
        self.is_skipping = false;
        self.push(Entry::Sync(whose));
    }

    pub(crate) fn sent_copy_end(&mut self) {
        match self.copy {
            Copy::In { syncs } => self.copy = Copy::InEnded { syncs },
            // Nothing is outstanding that could ask for data: the server ignores it.
            _ if self.queue.is_empty() => {}
            _ => self.push(Entry::CopyEnd),
        }
    }

    /// Adds an entry. A pinned model keeps none.
    fn push(&mut self, entry: Entry) {
        if self.is_pinned() {
            return;
        }
        let number = self.first + self.queue.len() as u64;
        match &entry {
            Entry::Parse {
                statement: None,
                is_named,
                ..
            } => {
                self.unnamed.last = number;
                if *is_named {
                    self.names.last = number;
                }
            }
            Entry::Parse { .. } | Entry::Evict(_) | Entry::Answer(_) => self.names.last = number,
            Entry::Query(..) | Entry::Function | Entry::Sync(_) => {
                self.names.sealed = self.names.last;
                self.unnamed.sealed = self.unnamed.last;
            }
            _ => {}
        }
        self.queue.push_back(entry);
    }

    /// The last entry may make the server forget prepared statements.
    pub(crate) fn may_forget(&mut self) {
        self.names.last = self.first + self.queue.len() as u64 - 1;
        if matches!(self.queue.back(), Some(Entry::Query(..))) {
            self.names.sealed = self.names.last;
        }
    }

    /// Whether it is unknown which named statements there will be: a batch before the present one
    /// is not answered.
    pub(crate) fn are_names_in_doubt(&self) -> bool {
        self.names.sealed >= self.first
    }

    /// Whether it is unknown of which Parse the unnamed statement will be.
    pub(crate) fn is_unnamed_in_doubt(&self) -> bool {
        let Doubt { last, sealed } = self.unnamed;
        last == sealed && sealed >= self.first
    }

    /// Takes the oldest entry.
    fn pop(&mut self) -> Option<Entry> {
        let entry = self.queue.pop_front()?;
        self.first += 1;
        Some(entry)
    }

    /// Takes the entry behind the oldest one. The numbers of the later ones stay.
    fn remove_second(&mut self) {
        self.queue.remove(1);
        self.first += 1;
    }

    /// Whether the server takes messages for data.
    pub(crate) fn is_copying_in(&self) -> bool {
        matches!(self.copy, Copy::In { .. })
    }
}
