//! What the server does with what was sent to it.
//!
//! Each message that will be answered has an entry in one queue, and so has each answer that the
//! front-end gives itself. Replies consume the entries in order.
//!
//! ```text
//!   sent:  Parse Bind Execute Sync         an error drops all entries before the next Sync;
//!            |    |      |     |           without a Sync in the queue: skipping, until one is sent
//!   reply:   1    2   D..C     Z
//! ```
//!
//! The server is at a boundary iff its last `Z` said idle, the queue is empty, no extended message
//! is without its Sync, nothing is skipped, and no copy runs.

use std::collections::VecDeque;

use paceline_pg_wire::TransactionStatus;

use super::{
    super::{keyword::Class, prepared::Held, Broken},
    tally::Tally,
    Loss,
};

/// A message that was sent, or an answer of the front-end.
#[derive(Debug)]
pub(crate) enum Entry {
    /// A simple query, and what it can do.
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
    /// An Execute of what can do this.
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

/// On whose behalf a message was sent.
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
    /// CloseComplete of a statement; `is_named`: a name of the client goes.
    Closed {
        /// Whether a name of the client waits for it.
        is_named: bool,
    },
    /// What a simple `DEALLOCATE name` is answered.
    Deallocated,
}

/// A copy that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Copy {
    /// None.
    None,
    /// To the server, whose client may send more.
    In {
        /// How many Syncs the copy has swallowed.
        syncs: u32,
    },
    /// To the server, and its end was sent.
    InEnded {
        /// How many Syncs the copy has swallowed.
        syncs: u32,
    },
    /// From the server.
    Out,
}

/// Where a relay is with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sureness {
    /// The model is right.
    Sure,
    /// What the server does can't be known any more.
    Lost,
}

/// What to do with a reply.
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
    /// What the front-end's knowledge of prepared statements rests on.
    names: Doubt,
    /// What the front-end's knowledge of the unnamed statement rests on.
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
    /// What was answered since the last `Z`.
    tally: Tally,
}

/// Entries that may fail, and on which depends what a later message means.
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

    /// What is lost if the connection is lost now.
    pub(crate) fn loss(&self) -> Loss {
        let mut tally = self.tally;
        self.queue.iter().for_each(|entry| tally.add(entry));
        if self.is_open || self.is_skipping {
            tally.sent();
        }
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

/// What is sent.
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

    /// Beyond the model nothing is expected.
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

    /// What was sent last may make the server forget prepared statements.
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

/// What is received.
impl Model {
    /// What to do with a reply of this type; that it can't be due is an error. Not for `E`, `N`,
    /// `A` and `S`.
    pub(crate) fn fate(&self, tag: u8) -> Result<Fate, Broken> {
        let fits = match (self.queue.front(), tag) {
            (Some(Entry::Query(..) | Entry::Execute(_)), b'W') => true,
            (Some(Entry::Query(..)), b'T' | b'D' | b'C' | b'I' | b'G' | b'H' | b'Z') => true,
            (Some(Entry::Execute(_)), b'D' | b'C' | b'I' | b's' | b'G' | b'H') => true,
            (Some(Entry::Query(..) | Entry::Execute(_)), b'd' | b'c') => self.copy == Copy::Out,
            (Some(Entry::Function), b'V' | b'Z') => true,
            (Some(Entry::Parse { .. }), b'1') => true,
            (Some(Entry::Bind(_)), b'2') => true,
            (Some(Entry::Describe(_)), b't' | b'T' | b'n') => true,
            (Some(Entry::Close | Entry::Evict(_)), b'3') => true,
            (Some(Entry::Sync(_)), b'Z') => true,
            _ => false,
        };
        if fits {
            Ok(self.fate_of_head())
        } else {
            Err(Broken::Unexpected(tag))
        }
    }

    /// What to do with the replies to the oldest outstanding message.
    pub(crate) fn fate_of_head(&self) -> Fate {
        match self.queue.front() {
            Some(
                Entry::Query(Whose::Own, _)
                | Entry::Sync(Whose::Own)
                | Entry::Evict(_)
                | Entry::Parse {
                    whose: Whose::Own, ..
                },
            ) => Fate::Swallow,
            _ => Fate::Deliver,
        }
    }

    /// A reply of this type is complete. The entry that it has answered, if that is done.
    pub(crate) fn settle(&mut self, tag: u8) -> Option<Entry> {
        match (self.queue.front()?, tag) {
            (_, b'G') => self.begin_copy_in(),
            (_, b'H') => self.copy = Copy::Out,
            // Data go both ways, and where they end only the two sides know.
            (_, b'W') => self.pin(),
            (Entry::Execute(_), b'C' | b'I' | b's') => {
                self.copy = Copy::None;
                let done = self.pop();
                done.iter().for_each(|entry| self.tally.add(entry));
                return done;
            }
            (Entry::Query(..), b'C') => self.copy = Copy::None,
            (Entry::Describe(_), b'T' | b'n') | (_, b'1' | b'2' | b'3') => {
                return self.pop();
            }
            _ => {}
        }
        None
    }

    /// A `Z` is complete. The entry that it ends.
    pub(crate) fn ready(&mut self, status: TransactionStatus) -> Option<Entry> {
        self.status = status;
        self.tally = Tally::new(status != TransactionStatus::Idle);
        self.copy = Copy::None;
        let done = self.pop();
        if self.queue.is_empty() {
            self.queue.shrink_to(KEPT);
        }
        done
    }

    /// An answer of the front-end that is due now.
    pub(crate) fn answer_due(&mut self) -> Option<Answer> {
        loop {
            match self.queue.front()? {
                Entry::CopyEnd => drop(self.pop()),
                Entry::Answer(answer) => {
                    let answer = *answer;
                    self.pop();
                    return Some(answer);
                }
                _ => return None,
            }
        }
    }

    /// The server waits for data: what was sent already is data up to its end.
    fn begin_copy_in(&mut self) {
        let mut syncs = 0;
        loop {
            match self.queue.get(1) {
                Some(Entry::Sync(_)) => syncs += 1,
                Some(Entry::CopyEnd) => {
                    self.remove_second();
                    self.copy = Copy::InEnded { syncs };
                    return;
                }
                None => {
                    self.copy = Copy::In { syncs };
                    self.is_open = matches!(self.queue.front(), Some(Entry::Execute(_)));
                    return;
                }
                // An own answer has nothing to do with the server.
                Some(_) => return self.pin(),
            }
            self.remove_second();
        }
    }

    /// An error is complete. Calls `drop_entry` with each entry that the server skips, the
    /// youngest first.
    pub(crate) fn failed(&mut self, is_interrupt: bool, mut drop_entry: impl FnMut(Entry)) {
        let copy = std::mem::replace(&mut self.copy, Copy::None);
        if let Copy::In { syncs: 1.. } | Copy::InEnded { syncs: 1.. } = copy {
            // How many of them the server read before the failure can't be known.
            return self.pin();
        }
        match self.queue.front() {
            // `Z` follows: directly, or after the Sync, which an interrupt may have preceded.
            Some(Entry::Sync(_)) => {}
            Some(Entry::Query(..) | Entry::Function)
                // The server may have skipped the query, which then has no `Z`.
                if is_interrupt && copy == Copy::None && self.behind_open >= self.first =>
            {
                self.pin();
            }
            Some(Entry::Query(..) | Entry::Function) => {}
            Some(_) => self.skip(&mut drop_entry),
            // A time-out between two messages of a batch.
            None if self.is_open => self.is_skipping = true,
            None => self.pin(),
        }
    }

    /// Drops everything up to the next Sync.
    fn skip(&mut self, drop_entry: &mut impl FnMut(Entry)) {
        let is_sync = |entry: &Entry| matches!(entry, Entry::Sync(_));
        let sync = self.queue.iter().position(is_sync);
        self.is_skipping = sync.is_none();
        let count = sync.unwrap_or(self.queue.len());
        self.first += count as u64;
        self.queue.drain(..count).rev().for_each(drop_entry);
    }
}
