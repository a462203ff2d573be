//! A client, as everything that has to do with it sees it.
//!
//! Its session is the handler of its group, and only a thread that has that group uses it. Others
//! put a letter into its [`Mail`] and notify the group.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{
        atomic::{AtomicU64, AtomicUsize, Ordering},
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    },
    time::Duration,
};

use paceline::Group;

use super::{
    server::Server,
    sockets::{Address, Stream},
};
use crate::{
    config::Effective,
    pools::{ClientId, CloseReason, Refusal},
    protocol::ClientHalf,
};

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number for the console and the log: clients and servers count together.
    pub(crate) number: u64,
    pub(crate) address: Address,
    group: OnceLock<Group<Stream>>,
    mail: Mutex<Mail>,
    pub(crate) watch: Watch,
    /// How many prepared statements it has.
    pub(crate) statements: AtomicUsize,
    facts: Mutex<ClientFacts>,
}

/// What others have put before a session.
#[derive(Debug, Default)]
struct Mail {
    /// The session is over: it takes no server any more.
    is_closed: bool,
    /// It is to be closed: it counts as gone.
    is_dismissed: bool,
    given: Option<Given>,
    letters: Vec<Letter>,
    /// From the first request on a shared connection on: most clients have none.
    replies: Option<Box<Replies>>,
    request: RequestStage,
}

/// Where a client's request on a shared connection is. Its session and the trunk change it under
/// the lock of the mail, so a request that is refused is never sent.
///
/// ```text
///   Queued -> Begun        [begin_request]      the trunk sends it
///   Queued -> Withdrawn    [withdraw_request]   its session refuses it, or ends
///   Begun  -> Queued       [queue_request]      the next request
/// ```
#[must_use]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RequestStage {
    #[default]
    Queued,
    Begun,
    Withdrawn,
}

/// Replies of a shared connection, on their way to the client.
#[derive(Debug, Default)]
struct Replies {
    bytes: Vec<u8>,
    ended: Option<Ended>,
    /// How many bytes the client has not taken: these, and those that its session sends.
    pending: usize,
    /// The trunk that waits until there are fewer, and since when.
    waiting: Option<(Group<Stream>, Duration)>,
}

/// How a request on a shared connection has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The replies are complete.
    Answered(Box<ClientHalf>),
    /// It was not sent, because there is no server for it.
    Refused(Refusal),
    /// The client gets these last words, and is closed for this reason.
    Closed(Vec<u8>, Box<str>),
}

/// Whether a client takes its replies.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    Low,
    /// The server should not be read for the time being.
    High,
    /// The session is over.
    Gone,
}

/// A client that has not taken so many bytes stops its shared connection.
const MOST_PENDING: usize = 1 << 20;

/// A server that the book has given to the client.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) server: Arc<Server>,
    /// Its way to the client's group.
    pub(crate) way: Way,
}

/// How a server gets to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The handler that had it moves it.
    Sent,
    /// The client takes it from its home.
    Fetch,
}

/// What a session has to know.
#[derive(Clone, Debug)]
pub(crate) enum Letter {
    /// The pool has had a server: the login ends.
    Welcome,
    /// What it waits for is refused.
    Refuse(Refusal),
    /// It has waited long enough for a notice.
    WaitsLong,
    /// It is to be closed with this error.
    Dismiss(Refusal),
    /// A time is over: the name of the key, and the text for the log.
    Overdue(Overdue),
    /// Close its server if no transaction is open.
    Recall(CloseReason),
    /// The connection of this server has ended.
    Lost(u64),
    /// A cancel of the console ends its wait.
    CancelWait,
    /// The carrier of its cancel is done.
    CancelDone,
    /// The command of the console that it waits for is complete.
    Completed,
}

/// Which of a client's times is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overdue {
    Login,
    Idle,
    IdleInTransaction,
    Transaction,
    Query,
    /// A query waits for a server for longer than it may run.
    QueryWaits,
    /// A request waits for a shared connection for too long.
    Queued,
    /// It does not take its replies, and others share its connection.
    Behind,
}

/// What became of a server that was put before a session.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Done,
    /// The session is over.
    Closed,
}

/// Times that the maintenance compares, without a lock.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The phase, and since when in microseconds.
    phase: AtomicU64,
    /// The start of the transaction; zero: there is none.
    transaction: AtomicU64,
}

/// What a client does, for its time-outs and the console.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    Login = 0,
    /// It has no server and waits for none.
    Idle = 1,
    Waiting = 2,
    /// The server works for it.
    Busy = 3,
    /// The server waits for it, in a transaction or a session.
    Held = 4,
    HeldInTransaction = 5,
    Cancel = 6,
    /// It is at the console.
    Console = 7,
    /// Its request waits for a shared connection.
    Queued = 8,
}

const PHASE_BITS: u32 = 4;

/// What the console shows of it. Thousands of idle clients have this: what they have in common is shared.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientFacts {
    /// Its key in the book, when it has logged in that far.
    pub(crate) id: Option<ClientId>,
    pub(crate) database: Arc<str>,
    pub(crate) user: Arc<str>,
    pub(crate) application: Arc<str>,
    pub(crate) tls: Arc<str>,
    pub(crate) local: Option<Arc<Address>>,
    pub(crate) connected_at: Duration,
    /// Once it has logged in.
    pub(crate) limits: Option<Arc<Limits>>,
    pub(crate) is_console: bool,
    pub(crate) is_logged_in: bool,
}

/// The client's time-outs; zero is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    pub(crate) idle: Duration,
    pub(crate) idle_in_transaction: Duration,
    pub(crate) transaction: Duration,
    pub(crate) query: Duration,
    /// How long a request waits for a shared connection.
    pub(crate) wait: Duration,
}

impl Limits {
    /// What the configuration says for the client's database and user.
    pub(crate) fn of(effective: &Effective) -> Self {
        Self {
            idle: effective.client_idle_timeout,
            idle_in_transaction: effective.idle_transaction_timeout,
            transaction: effective.transaction_timeout,
            query: effective.query_timeout,
            wait: effective.query_wait_timeout,
        }
    }
}

impl Client {
    pub(crate) fn new(number: u64, address: Address, now: Duration) -> Self {
        let client = Self {
            number,
            address,
            group: OnceLock::new(),
            mail: Mutex::default(),
            watch: Watch::default(),
            statements: AtomicUsize::new(0),
            facts: Mutex::new(ClientFacts {
                connected_at: now,
                ..ClientFacts::default()
            }),
        };
        client.watch.enter(Phase::Login, now);
        client
    }

    /// Its group, once: when its connection is there.
    pub(crate) fn settle(&self, group: Group<Stream>) {
        // It is set once.
        let _ = self.group.set(group);
    }

    pub(crate) fn group(&self) -> Option<&Group<Stream>> {
        self.group.get()
    }

    /// Whether it is about to be closed.
    pub(crate) fn is_dismissed(&self) -> bool {
        let mail = self.mail();
        mail.is_closed || mail.is_dismissed
    }

    /// Puts a letter before its session.
    pub(crate) fn send(&self, letter: Letter) {
        let mut mail = self.mail();
        mail.is_dismissed |= matches!(letter, Letter::Dismiss(_));
        mail.letters.push(letter);
        drop(mail);
        self.notify();
    }

    /// Puts a server before its session. One that is sent arrives as a member of its group.
    pub(crate) fn give(&self, given: Given) -> Delivery {
        let way = given.way;
        let mut mail = self.mail();
        if mail.is_closed {
            return Delivery::Closed;
        }
        mail.given = Some(given);
        drop(mail);
        if way == Way::Fetch {
            self.notify();
        }
        Delivery::Done
    }

    /// The session takes the server that was put before it.
    pub(crate) fn take_given(&self) -> Option<Given> {
        self.mail().given.take()
    }

    /// The session takes a server that does not come by itself.
    pub(crate) fn take_to_fetch(&self) -> Option<Given> {
        let mut mail = self.mail();
        let is_to_fetch = matches!(&mail.given, Some(given) if given.way == Way::Fetch);
        if is_to_fetch {
            mail.given.take()
        } else {
            None
        }
    }

    /// The server that is on its way, if it is this one.
    pub(crate) fn take_given_server(&self, number: u64) -> Option<Given> {
        let mut mail = self.mail();
        let is_it = matches!(&mail.given, Some(given) if given.server.number == number);
        if is_it {
            mail.given.take()
        } else {
            None
        }
    }

    /// The session takes its letters.
    pub(crate) fn take_letters(&self) -> Vec<Letter> {
        std::mem::take(&mut self.mail().letters)
    }

    /// The session is over. What was given to it and has not arrived.
    pub(crate) fn close_mail(&self) -> Option<Given> {
        let mut mail = self.mail();
        mail.is_closed = true;
        let replies = mail.replies.take();
        let given = mail.given.take();
        drop(mail);
        if let Some((trunk, _)) = replies.and_then(|replies| replies.waiting) {
            // It has ended already, if that fails.
            let _ = trunk.notify();
        }
        given
    }

    /// Whether its session is over.
    pub(crate) fn is_gone(&self) -> bool {
        self.mail().is_closed
    }

    /// The session puts a request before the shared connections.
    pub(crate) fn queue_request(&self) {
        self.mail().request = RequestStage::Queued;
    }

    /// The trunk sends the request now, unless the outcome is `Withdrawn`.
    pub(crate) fn begin_request(&self) -> RequestStage {
        let mut mail = self.mail();
        mail.request = match mail.request {
            _ if mail.is_closed => RequestStage::Withdrawn,
            RequestStage::Queued => RequestStage::Begun,
            other => other,
        };
        mail.request
    }

    /// The session withdraws its request. With `Begun` it is too late.
    pub(crate) fn withdraw_request(&self) -> RequestStage {
        let mut mail = self.mail();
        if mail.request == RequestStage::Queued {
            mail.request = RequestStage::Withdrawn;
        }
        mail.request
    }

    /// Puts replies before the session. With `High` the trunk is notified when the client has taken
    /// them, or has left.
    pub(crate) fn add_replies(
        &self,
        bytes: &[u8],
        ended: Option<Ended>,
        trunk: &Group<Stream>,
        now: Duration,
    ) -> Pressure {
        let mut mail = self.mail();
        if mail.is_closed {
            return Pressure::Gone;
        }
        let replies = mail.replies.get_or_insert_default();
        replies.bytes.extend_from_slice(bytes);
        replies.pending += bytes.len();
        let is_high = ended.is_none() && replies.pending > MOST_PENDING;
        if is_high {
            replies.waiting.get_or_insert((trunk.clone(), now));
        } else if ended.is_some() {
            // The trunk reads on for the others: this client holds up none.
            replies.waiting = None;
        }
        replies.ended = replies.ended.take().or(ended);
        drop(mail);
        self.notify();
        if is_high {
            Pressure::High
        } else {
            Pressure::Low
        }
    }

    /// The session takes its replies; `None`: there are none.
    pub(crate) fn take_replies(&self) -> Option<(Vec<u8>, Option<Ended>)> {
        let mut mail = self.mail();
        let replies = mail.replies.as_mut()?;
        let has_some = !replies.bytes.is_empty() || replies.ended.is_some();
        has_some.then(|| (std::mem::take(&mut replies.bytes), replies.ended.take()))
    }

    /// The client has taken so many bytes of its replies.
    pub(crate) fn replies_taken(&self, count: usize) {
        let mut mail = self.mail();
        let Some(replies) = &mut mail.replies else {
            return;
        };
        replies.pending = replies.pending.saturating_sub(count);
        if replies.pending > MOST_PENDING {
            return;
        }
        let waiting = replies.waiting.take();
        drop(mail);
        if let Some((trunk, _)) = waiting {
            let _ = trunk.notify();
        }
    }

    /// Whether a trunk waits for it.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind_since().is_some()
    }

    /// Since when a trunk waits for it.
    pub(crate) fn behind_since(&self) -> Option<Duration> {
        let mail = self.mail();
        let (_, since) = mail.replies.as_ref()?.waiting.as_ref()?;
        Some(*since)
    }

    pub(crate) fn notify(&self) {
        if let Some(group) = self.group() {
            // A group that has ended needs no notification.
            let _ = group.notify();
        }
    }

    fn mail(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn facts(&self) -> MutexGuard<'_, ClientFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// The client does something else from now on.
    pub(crate) fn enter(&self, phase: Phase, now: Duration) {
        let micros = now.as_micros() as u64;
        let word = micros << PHASE_BITS | phase as u64;
        self.phase.store(word, Ordering::Relaxed);
    }

    pub(crate) fn phase(&self) -> (Phase, Duration) {
        let word = self.phase.load(Ordering::Relaxed);
        let phase = match word & ((1 << PHASE_BITS) - 1) {
            0 => Phase::Login,
            1 => Phase::Idle,
            2 => Phase::Waiting,
            3 => Phase::Busy,
            4 => Phase::Held,
            5 => Phase::HeldInTransaction,
            6 => Phase::Cancel,
            7 => Phase::Console,
            _ => Phase::Queued,
        };
        (phase, Duration::from_micros(word >> PHASE_BITS))
    }

    pub(crate) fn begin_transaction(&self, now: Duration) {
        let micros = (now.as_micros() as u64).max(1);
        self.transaction.store(micros, Ordering::Relaxed);
    }

    /// The start of the transaction that ends.
    pub(crate) fn end_transaction(&self) -> Option<Duration> {
        let since = self.transaction_since();
        self.transaction.store(0, Ordering::Relaxed);
        since
    }

    pub(crate) fn transaction_since(&self) -> Option<Duration> {
        match self.transaction.load(Ordering::Relaxed) {
            0 => None,
            micros => Some(Duration::from_micros(micros)),
        }
    }

    /// Which of the times is over.
    pub(crate) fn overdue(&self, limits: &Limits, now: Duration) -> Option<Overdue> {
        let over = |since: Duration, limit: Duration| {
            !limit.is_zero() && now.saturating_sub(since) > limit
        };
        let (phase, since) = self.phase();
        let transaction = self.transaction_since();
        if transaction.is_some_and(|since| over(since, limits.transaction)) {
            return Some(Overdue::Transaction);
        }
        match phase {
            Phase::Idle | Phase::Held if over(since, limits.idle) => Some(Overdue::Idle),
            Phase::Busy if over(since, limits.query) => Some(Overdue::Query),
            Phase::Waiting | Phase::Queued if over(since, limits.query) => {
                Some(Overdue::QueryWaits)
            }
            Phase::Queued if over(since, limits.wait) => Some(Overdue::Queued),
            Phase::HeldInTransaction if over(since, limits.idle_in_transaction) => {
                Some(Overdue::IdleInTransaction)
            }
            _ => None,
        }
    }
}

/// Every client, by its number and by its key in the book.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    by_number: HashMap<u64, Arc<Client>>,
    by_id: HashMap<ClientId, Arc<Client>>,
}

impl Clients {
    pub(crate) fn add(&mut self, client: Arc<Client>) {
        self.by_number.insert(client.number, client);
    }

    pub(crate) fn name(&mut self, id: ClientId, client: Arc<Client>) {
        self.by_id.insert(id, client);
    }

    pub(crate) fn remove(&mut self, number: u64, id: Option<ClientId>) {
        self.by_number.remove(&number);
        if let Some(id) = id {
            self.by_id.remove(&id);
        }
    }

    pub(crate) fn find(&self, id: ClientId) -> Option<&Arc<Client>> {
        self.by_id.get(&id)
    }

    pub(crate) fn with_number(&self, number: u64) -> Option<&Arc<Client>> {
        self.by_number.get(&number)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Client>> {
        self.by_number.values()
    }

    pub(crate) fn len(&self) -> usize {
        self.by_number.len()
    }
}
