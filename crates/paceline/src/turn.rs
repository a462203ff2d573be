//! **Start here.** The turn of a thread: the roles as types, and the loop that leads through them.
//!
//! ```text
//!               lead()                    wait()                  promote()
//!  Follower ---------------> Leader ---------------> Claimed ---------------> Processing
//!     ^  sleeps until it leads  | sleeps until an event |   gives the lead away    |
//!     |                         | comes, and claims it  |                          |
//!     |<------------------------+  nothing came         |                  run()   |
//!     +-------------------------------------------------+--------------------------+
//!                                                           calls the handler
//! ```
//!
//! Only a [`Leader`] can wait, only a [`Processing`] can run a handler, and the only way from the
//! one to the other gives the lead away first: "process, then promote" does not compile. A role can
//! be neither copied nor sent to another thread. Dropping one gives back what it held, wherever it
//! is dropped: the lead passes on, the event stays, the thread leaves the pool. *Forgetting* one
//! ([`std::mem::forget`]) keeps what it held for ever: of a `Leader`, the lead.
//!
//! An event of a handle that belongs to another thread is handed to that one, which handles it
//! inside of `lead()`, before it leads (`turn/handed.rs`).
//!
//! `promotion/` has how a thread becomes leader, `dispatch/` how an event reaches a handler. In a
//! concurrent set every thread waits, and none leads: that turn is in `turn/open.rs`.

mod handed;
mod led_sets;
mod open;
mod stay;

use std::{fmt, io, marker::PhantomData, sync::Arc, time::Duration};

pub(crate) use led_sets::{LedSet, LedSets, RoundOutcome};
use stay::OnDuty;

use crate::{
    dispatch::{Afterwards, Claim, Dispatched, Duty, Line, OwnMailbox, Pace, Poll},
    hub::{Hub, MemberGuard},
    observe::Role,
    promotion::{Arrival, HeldLead, Marks, Promotion, Rejoined, Running, Seat, Until},
    sync::Timestamp,
    unwind::abort_on_unwind,
};

/// The loop of a thread in the pool: lead, wait, promote, process, rejoin.
///
/// # Errors
/// What the wait itself said. The lead has passed on, and this thread has left the pool.
pub(crate) fn join(mut follower: Follower<'_>) -> io::Result<Left> {
    abort_on_unwind(|| loop {
        follower = match follower.lead() {
            Led::Leader(leader) => match leader.wait(None)? {
                Waited::Claimed(claimed) => claimed.promote().run(),
                Waited::Nothing(follower) => follower,
            },
            Led::TimedOut => return Ok(Left::TimedOut),
            Led::Closing => return Ok(Left::Closing),
        };
    })
}

/// Why a thread came back from [`Pool::join_timeout`](crate::Pool::join_timeout).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Left {
    /// Its time was over.
    TimedOut,
    /// The pool is shut down.
    Closing,
}

/// This thread belongs to the pool and may become its leader.
///
/// Fresh from an event it may hold the lead already, if that was vacant: go on with
/// [`lead`](Self::lead) or drop it, and do not sit on it.
#[must_use = "dropping it leaves the pool"]
#[derive(Debug)]
pub struct Follower<'p> {
    state: Box<ThreadState<'p>>,
}

/// How an attempt to lead ended.
#[must_use]
#[derive(Debug)]
pub enum Led<'p> {
    /// This thread leads.
    Leader(Leader<'p>),
    /// Its time in the pool is over; it has left.
    TimedOut,
    /// The pool is shut down; the thread has left.
    Closing,
}

impl<'p> Follower<'p> {
    /// `member_guard` is given up with the role; the pool's own threads keep theirs for life.
    pub(crate) fn new(
        hub: &'p Hub,
        seat: Arc<Seat>,
        deadline: Option<Timestamp>,
        mailbox: Option<Arc<OwnMailbox>>,
        member_guard: Option<MemberGuard<'p>>,
    ) -> Self {
        let until = Until::at(deadline);
        let state = ThreadState::new(hub, seat, until, mailbox, member_guard);
        state.tell(Role::Follower);
        Self { state }
    }

    /// Back from an event, and another thread leads.
    #[inline(never)]
    fn behind(state: Box<ThreadState<'p>>) -> Self {
        state.tell(Role::Follower);
        Self { state }
    }

    /// Sleeps until this thread leads, its time is over, or the pool is shut down.
    ///
    /// If a handle belongs to this thread ([`Handle::pin_to`](crate::Handle::pin_to)), and another
    /// one finds its event, its handler is called meanwhile.
    pub fn lead(self) -> Led<'p> {
        let Self { state } = self;
        if state.held.is_some() && !state.is_late() {
            Led::Leader(Leader { state })
        } else {
            follow(state)
        }
    }
}

/// Gives back a lead that this thread may not use, and follows until it leads. (Apart from the
/// short way, which has less to save and restore then.)
#[inline(never)]
fn follow(mut state: Box<ThreadState<'_>>) -> Led<'_> {
    loop {
        state.held = None;
        if state.hub.registry.is_open() {
            return open::lead(state);
        }
        match state.arrive() {
            Arrival::Leads(held) => {
                state.held = Some(held);
                state.tell_arrival();
                return Led::Leader(Leader { state });
            }
            Arrival::Handed => state = handed::serve(state).state,
            Arrival::TimedOut => return Led::TimedOut,
            Arrival::Closed => return Led::Closing,
        }
        if state.held.is_some() && !state.is_late() {
            return Led::Leader(Leader { state });
        }
    }
}

/// This thread holds the lead: it alone may wait in the handle set. (In a concurrent set everyone
/// may: see [`SetKind::Concurrent`](crate::SetKind::Concurrent).)
#[must_use = "dropping it gives the lead away and leaves the pool"]
#[derive(Debug)]
pub struct Leader<'p> {
    state: Box<ThreadState<'p>>,
}

/// How a wait ended.
#[must_use]
#[derive(Debug)]
pub enum Waited<'p> {
    /// An event came. Its handle is claimed: no one else can get it.
    Claimed(Claimed<'p>),
    /// No event came in time, or the pool is shut down. The lead has passed on.
    Nothing(Follower<'p>),
}

impl<'p> Leader<'p> {
    /// Waits for one event, for at most `timeout` and within this thread's time in the pool.
    ///
    /// # Errors
    /// What the handle set said. The lead has passed on then, and the thread has left the pool.
    pub fn wait(mut self, timeout: Option<Duration>) -> io::Result<Waited<'p>> {
        let until = self.state.until(timeout);
        let state = &mut *self.state;
        let (hub, stay) = (state.hub, state.until);
        let Some(held) = &mut state.held else {
            return open::wait(self, until);
        };
        if begin_wait(held, hub, &state.seat) == Begun::MustLeave {
            return Ok(Waited::Nothing(self.step_down()));
        }
        let mut idle = hub.begin_idle(held.with_owned(|line| line.is_empty()), until);
        loop {
            match find(held, hub, idle.deadline(until))? {
                Found::Event(claim) => {
                    hub.note_found(&idle);
                    let Self { state } = self;
                    return Ok(Waited::Claimed(Claimed { claim, state }));
                }
                Found::Nothing if hub.clock.has_passed(until) => break,
                Found::Nothing | Found::NoBacklog if hub.is_over() || stay.is_recalled() => break,
                Found::Nothing => hub.note_nothing(&mut idle),
                Found::NoBacklog => {}
            }
        }
        Ok(Waited::Nothing(self.step_down()))
    }

    /// Gives the lead away without an event, and stays in the pool.
    fn step_down(self) -> Follower<'p> {
        let Self { mut state } = self;
        state.give_lead_up();
        Follower { state }
    }
}

/// Whether a leader may wait.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    Waits,
    /// The pool is closed, or something was handed to this thread.
    MustLeave,
}

/// What a leader found.
#[must_use]
enum Found<'p> {
    /// An event, which it has claimed.
    Event(Claim<'p>),
    /// No event in time. The poll may have used up a wake: for the end of the pool, or for this
    /// thread.
    Nothing,
    /// No backlog, as the standby had asked (W1). Likewise; an event may still be in the line.
    NoBacklog,
}

/// This thread begins to wait, and the pool may be observed.
#[inline(always)]
fn begin_wait(held: &HeldLead<'_, Line>, hub: &Hub, seat: &Seat) -> Begun {
    // Before it led; while it leads, only it hands anything to others.
    if seat.is_handed() {
        return Begun::MustLeave;
    }
    if hub.wants_attention() {
        if hub.lead.is_closed() {
            return Begun::MustLeave;
        }
        tell_leader(held, hub, seat);
    }
    Begun::Waits
}

/// Asks the line, and the set if a poll is due; sleeps there until `until` if nothing is there.
///
/// # Errors
/// What the handle set said.
#[inline(always)]
fn find<'p>(
    held: &mut HeldLead<'p, Line>,
    hub: &'p Hub,
    until: Option<Timestamp>,
) -> io::Result<Found<'p>> {
    let registry = &*hub.registry;
    if let Some(epoch) = held.overdue() {
        held.note_poll();
        if held.with_owned(|line| line.has_no_backlog(registry))? {
            held.nothing_waited(epoch);
            return Ok(Found::NoBacklog);
        }
    }
    let claim = held.with_owned(|line| line.next(registry, until))?;
    match held.with_owned(|line| line.last_poll()) {
        Poll::None => {}
        Poll::WithoutSleep => held.note_poll(),
        Poll::Slept => held.note_sleep(),
    }
    Ok(claim.map_or(Found::Nothing, Found::Event))
}

/// This thread holds the lead and has claimed an event.
#[must_use = "dropping it puts the event back, gives the lead away and leaves the pool"]
#[derive(Debug)]
pub struct Claimed<'p> {
    claim: Claim<'p>,
    state: Box<ThreadState<'p>>,
}

impl<'p> Claimed<'p> {
    /// Gives the lead away: from here on another thread may wait.
    pub fn promote(self) -> Processing<'p> {
        let Self {
            mut claim,
            mut state,
        } = self;
        let Some(mut held) = state.held.take() else {
            return open::promote(claim, state);
        };
        let hub = state.hub;
        let sight = held.sight();
        if sight.is_special() && sight.is_observed() {
            tell_event(&mut held, hub, &state.seat, &mut claim);
        }
        let pace = claim.pace();
        let marks = Marks {
            blocks: pace == Pace::Blocking,
            computes: pace == Pace::Computing,
            backlog: held.with_owned(|line| !line.is_empty()),
        };
        let start = held.now(&hub.clock);
        let (running, promotion) = held.promote(sight, marks, start);
        let mut processing = Processing {
            claim,
            running: Some(running),
            start,
            state,
        };
        match promotion {
            Promotion::LeftOpen | Promotion::Closing => {}
            Promotion::Alone | Promotion::Elected(_) | Promotion::Watched => {
                processing.start_after(promotion);
            }
        }
        processing
    }
}

/// This thread has an event to handle, and does not hold the lead.
#[must_use = "dropping it puts the event back and leaves the pool"]
pub struct Processing<'p> {
    claim: Claim<'p>,
    /// How the lead counts it; `None` in a set without a lead.
    running: Option<Running<'p, Line>>,
    start: Timestamp,
    state: Box<ThreadState<'p>>,
}

impl fmt::Debug for Processing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processing")
            .field("claim", &self.claim)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl<'p> Processing<'p> {
    /// Neither a wake nor the call for another thread is the handler's time: its own begins now.
    #[cold]
    #[inline(never)]
    fn start_after(&mut self, promotion: Promotion) {
        let hub = self.state.hub;
        if promotion == Promotion::Alone && !hub.call_one_more(self.start) {
            return;
        }
        self.start = hub.clock.now();
        let row = self.state.seat.row();
        row.iter().for_each(|row| row.note_start(self.start));
    }

    /// Calls the handler, puts the handle back, and rejoins.
    ///
    /// The lead is taken back first if it is vacant: then the handle goes to the end of this
    /// thread's own line, without a word to anyone. If the handler left work for afterwards, the
    /// handle is given back and that work done before.
    pub fn run(self) -> Follower<'p> {
        let Self {
            claim,
            running: Some(running),
            start,
            mut state,
        } = self
        else {
            return open::run(self);
        };
        let mut afterwards = claim.afterwards();
        let Dispatched { mut claim, mut end } = {
            let (clock, duty) = (&state.hub.clock, state.on_duty(&running));
            claim.dispatch(clock, start, &duty, &mut afterwards)
        };
        if afterwards.is_empty() {
            // It owns nothing then (see `Afterwards::is_empty`): no drop on the short way.
            std::mem::forget(afterwards)
        } else {
            drop(claim.take());
            end = state.run_afterwards(afterwards, &state.on_duty(&running), end);
        }
        match running.rejoin(&state.seat, end) {
            Rejoined::Leads(held) => state.held = put_back(held, claim),
            Rejoined::Follows => drop(claim),
            Rejoined::Surprised => {
                drop(claim);
                state.hub.note_surprise(end);
            }
        }
        match state.held {
            Some(_) => Follower { state },
            None => Follower::behind(state),
        }
    }
}

/// Gives a handle back into the line of a lead that was taken back. After the end of the pool it is
/// ended, without the lead.
fn put_back<'p>(
    mut held: HeldLead<'p, Line>,
    claim: Option<Claim<'p>>,
) -> Option<HeldLead<'p, Line>> {
    let remains = claim.and_then(|claim| held.with_owned(|line| claim.release_into(line)));
    match remains {
        None => Some(held),
        Some(remains) => {
            drop(held);
            drop(remains);
            None
        }
    }
}

/// The pool is observed: reports that this thread leads.
#[inline(always)]
fn tell_leader(held: &HeldLead<'_, Line>, hub: &Hub, seat: &Seat) {
    if !held.knows_time() {
        return;
    }
    if hub.observers.are_many() {
        hub.tell_at(seat, Role::Leader, held.now(&hub.clock));
    }
    hub.observers.tell_first(seat.index(), Role::Leader);
}

/// The pool is observed: reports the event before the lead is given away.
#[inline(always)]
fn tell_event(held: &mut HeldLead<'_, Line>, hub: &Hub, seat: &Seat, claim: &mut Claim<'_>) {
    if hub.observers.are_many() {
        let now = held.keep_now(&hub.clock);
        hub.tell_event(seat, claim, now);
    }
    hub.observers.tell_first(seat.index(), Role::Processing);
}

/// What a thread has in the pool, whatever its role. It is handed on from role to role, several
/// times in a turn: so the roles hold it in a box, which is no larger than an address.
struct ThreadState<'p> {
    /// The lead: of a leader, and of a follower for which it was vacant when it came back from an
    /// event. There is none where every thread may wait.
    held: Option<HeldLead<'p, Line>>,
    hub: &'p Hub,
    seat: Arc<Seat>,
    /// When its time in the pool is over.
    until: Until<'p>,
    /// What is handed to this thread waits there, if anything can be. A guest gives it up with its
    /// state.
    mailbox: Option<Arc<OwnMailbox>>,
    /// Of a guest. The pool's own threads keep theirs for life.
    member_guard: Option<MemberGuard<'p>>,
    /// A role belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl fmt::Debug for ThreadState<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hub.fmt(f)
    }
}

impl<'p> ThreadState<'p> {
    fn new(
        hub: &'p Hub,
        seat: Arc<Seat>,
        until: Until<'p>,
        mailbox: Option<Arc<OwnMailbox>>,
        member_guard: Option<MemberGuard<'p>>,
    ) -> Box<Self> {
        Box::new(Self {
            held: None,
            hub,
            seat,
            until,
            mailbox,
            member_guard,
            not_send: PhantomData,
        })
    }

    /// The same thread, for a stay.
    fn again<'s>(&'s self, until: Until<'s>) -> Box<ThreadState<'s>> {
        let (seat, mailbox) = (Arc::clone(&self.seat), self.mailbox.clone());
        ThreadState::new(self.hub, seat, until, mailbox, None)
    }

    fn on_duty<'t>(&'t self, running: &'t Running<'p, Line>) -> OnDuty<'t, 'p> {
        OnDuty {
            running,
            state: self,
        }
    }

    fn arrive(&self) -> Arrival<'p, Line> {
        let Self { hub, .. } = self;
        hub.lead.arrive(&self.seat, &hub.clock, self.until)
    }

    fn is_late(&self) -> bool {
        self.until.is_late(&self.hub.clock)
    }

    /// The earlier of this thread's deadline and `timeout` from now.
    fn until(&self, timeout: Option<Duration>) -> Option<Timestamp> {
        let timeout = timeout.map(|timeout| self.hub.clock.now().after(timeout));
        match (timeout, self.until.deadline()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// This thread had to arrive at the lead: if the pool is observed, that is reported now. The
    /// time of it is old when it waits, which also says that it was reported.
    fn tell_arrival(&mut self) {
        if self.hub.lead.is_observed() {
            self.hub.tell(&self.seat, Role::Leader);
            self.held.iter_mut().for_each(HeldLead::note_poll);
        }
    }

    /// Gives the lead away without an event. Observers hear that this thread leads no more before
    /// another one can.
    fn give_lead_up(&mut self) {
        if let Some(held) = self.held.take() {
            self.tell(Role::Follower);
            drop(held);
        }
    }

    /// Reports the role, if the pool is observed.
    fn tell(&self, role: Role) {
        if self.hub.lead.is_observed() {
            self.hub.tell(&self.seat, role);
        }
    }

    /// Does what a handler, which was done at `handled`, left to be done after its handle was given
    /// back. When that is done.
    #[cold]
    fn run_afterwards(&self, left: Afterwards, duty: &dyn Duty, handled: Timestamp) -> Timestamp {
        let (hub, has_the_call) = (self.hub, left.has_the_call());
        hub.registry.run_afterwards(left, duty);
        let end = hub.clock.now();
        if let Some(row) = self.seat.row() {
            if has_the_call {
                row.note_handler_since(handled, end)
            } else {
                row.note_handler(handled)
            }
        }
        end
    }
}

impl Drop for ThreadState<'_> {
    fn drop(&mut self) {
        self.give_lead_up();
        // When a stay is over, its thread goes on in its handler.
        if self.until.wants_something() {
            return;
        }
        self.tell(Role::Gone);
        self.hub.registry.leave_open_line();
        // A guest may have been the last thread that could lead.
        if self.member_guard.is_some() {
            self.hub.call_one_more(self.hub.clock.now());
        }
    }
}
