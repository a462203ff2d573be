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

mod before_sleep;
mod company;
mod handed;
mod open;
mod spin;
mod stay;

use std::{
    fmt, io,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    sync::Arc,
    time::Duration,
};

use before_sleep::BeforeSleep;
pub(crate) use company::{Company, LedSet, Sent};
pub(crate) use handed::open_tray;
pub(crate) use spin::{LeaderSpin, Spins};
use stay::OnDuty;

use crate::{
    dispatch::{abort_on_unwind, Afterwards, Claim, Dispatched, Duty, Line, Look, OwnTray, Pace},
    observe::Role,
    pool::{Membership, Shared},
    promotion::{Arrival, HeldLead, Marks, Promotion, Rejoined, Running, Seat, Until},
    sync::Timestamp,
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
    place: Place<'p>,
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
    /// `membership` is given up with the role; the pool's own threads keep theirs for life.
    pub(crate) fn new(
        shared: &'p Shared,
        seat: Arc<Seat>,
        deadline: Option<Timestamp>,
        tray: Option<Arc<OwnTray>>,
        membership: Option<Membership<'p>>,
    ) -> Self {
        let until = Until::at(deadline);
        let place = Place::new(shared, seat, until, tray, membership);
        place.tell(Role::Follower);
        Self { place }
    }

    /// Back from an event, and another thread leads.
    #[inline(never)]
    fn behind(place: Place<'p>) -> Self {
        place.tell(Role::Follower);
        Self { place }
    }

    /// Sleeps until this thread leads, its time is over, or the pool is shut down.
    ///
    /// If a handle belongs to this thread ([`Handle::pin_to`](crate::Handle::pin_to)), and another
    /// one finds its event, its handler is called meanwhile.
    pub fn lead(self) -> Led<'p> {
        let Self { place } = self;
        if place.held.is_some() && !place.is_late() {
            Led::Leader(Leader { place })
        } else {
            follow(place)
        }
    }
}

/// Gives back a lead that this thread may not use, and follows until it leads. (Apart from the
/// short way, which has less to save and restore then.)
#[inline(never)]
fn follow(mut place: Place<'_>) -> Led<'_> {
    loop {
        place.held = None;
        if place.shared.registry.is_open() {
            return open::lead(place);
        }
        match place.arrive() {
            Arrival::Leads(held) => {
                place.held = Some(held);
                place.tell_arrival();
                return Led::Leader(Leader { place });
            }
            Arrival::Handed => place = handed::serve(place).place,
            Arrival::TimedOut => return Led::TimedOut,
            Arrival::Closed => return Led::Closing,
        }
        if place.held.is_some() && !place.is_late() {
            return Led::Leader(Leader { place });
        }
    }
}

/// This thread holds the lead: it alone may wait in the handle set. (In a concurrent set everyone
/// may: see [`SetKind::Concurrent`](crate::SetKind::Concurrent).)
#[must_use = "dropping it gives the lead away and leaves the pool"]
#[derive(Debug)]
pub struct Leader<'p> {
    place: Place<'p>,
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
        let until = self.place.until(timeout);
        let place = &mut *self.place;
        let shared = place.shared;
        let Some(held) = &mut place.held else {
            return open::wait(self, until);
        };
        // Before it led; while it leads, only it hands anything to others.
        if place.seat.is_handed() {
            return Ok(Waited::Nothing(self.step_down()));
        }
        let nothing_waits = held.with_owned(|line| line.is_empty());
        let mut before_sleep = BeforeSleep::new(shared, nothing_waits, until);
        if shared.wants_attention() {
            if shared.lead.is_closed() {
                return Ok(Waited::Nothing(self.step_down()));
            }
            tell_leader(held, shared, &place.seat);
        }
        let registry = &*shared.registry;
        loop {
            if let Some(epoch) = held.overdue() {
                held.note_look();
                if held.with_owned(|line| line.has_no_backlog(registry))? {
                    held.nothing_waited(epoch);
                    // That look may have used up a wake.
                    if shared.is_over() || place.until.is_recalled() {
                        return Ok(Waited::Nothing(self.step_down()));
                    }
                    continue;
                }
            }
            let sleep = before_sleep.deadline(until);
            let claim = held.with_owned(|line| line.next(registry, sleep))?;
            match held.with_owned(|line| line.last_look()) {
                Look::None => {}
                Look::Glance => held.note_look(),
                Look::Sleep => held.note_sleep(),
            }
            if let Some(claim) = claim {
                before_sleep.note_found(shared);
                let Self { place } = self;
                return Ok(Waited::Claimed(Claimed { claim, place }));
            }
            if shared.clock.has_passed(until) || shared.is_over() || place.until.is_recalled() {
                return Ok(Waited::Nothing(self.step_down()));
            }
            before_sleep.note_nothing(shared);
        }
    }

    /// Gives the lead away without an event, and stays in the pool.
    fn step_down(self) -> Follower<'p> {
        let Self { mut place } = self;
        place.give_lead_up();
        Follower { place }
    }
}

/// This thread holds the lead and has claimed an event.
#[must_use = "dropping it puts the event back, gives the lead away and leaves the pool"]
#[derive(Debug)]
pub struct Claimed<'p> {
    claim: Claim<'p>,
    place: Place<'p>,
}

impl<'p> Claimed<'p> {
    /// Gives the lead away: from here on another thread may wait.
    pub fn promote(self) -> Processing<'p> {
        let Self {
            mut claim,
            mut place,
        } = self;
        let Some(mut held) = place.held.take() else {
            return open::promote(claim, place);
        };
        let shared = place.shared;
        let sight = held.sight();
        if sight.is_special() && sight.is_observed() {
            tell_event(&mut held, shared, &place.seat, &mut claim);
        }
        let pace = claim.pace();
        let marks = Marks {
            blocks: pace == Pace::Blocking,
            computes: pace == Pace::Computing,
            backlog: held.with_owned(|line| !line.is_empty()),
        };
        let start = held.now(&shared.clock);
        let (running, promotion) = held.promote(sight, marks, start);
        let mut processing = Processing {
            claim,
            running: Some(running),
            start,
            place,
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
    place: Place<'p>,
}

impl fmt::Debug for Processing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Processing")
            .field("claim", &self.claim)
            .field("place", &self.place)
            .finish_non_exhaustive()
    }
}

impl<'p> Processing<'p> {
    /// Neither a wake nor the call for another thread is the handler's time: its own begins now.
    #[cold]
    #[inline(never)]
    fn start_after(&mut self, promotion: Promotion) {
        let shared = self.place.shared;
        if promotion == Promotion::Alone && !shared.call_one_more(self.start) {
            return;
        }
        self.start = shared.clock.now();
        let row = self.place.seat.row();
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
            mut place,
        } = self
        else {
            return open::run(self);
        };
        let mut afterwards = claim.afterwards();
        let Dispatched { mut claim, mut end } = {
            let (clock, duty) = (&place.shared.clock, place.on_duty(&running));
            claim.dispatch(clock, start, &duty, &mut afterwards)
        };
        if afterwards.is_empty() {
            // It owns nothing then (see `Afterwards::is_empty`): no drop on the short way.
            std::mem::forget(afterwards)
        } else {
            drop(claim.take());
            end = place.run_afterwards(afterwards, &place.on_duty(&running), end);
        }
        match running.rejoin(&place.seat, end) {
            Rejoined::Leads(held) => place.held = put_back(held, claim),
            Rejoined::Follows => drop(claim),
            Rejoined::Surprised => {
                drop(claim);
                place.shared.note_surprise(end);
            }
        }
        match place.held {
            Some(_) => Follower { place },
            None => Follower::behind(place),
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
fn tell_leader(held: &HeldLead<'_, Line>, shared: &Shared, seat: &Seat) {
    if !held.knows_time() {
        return;
    }
    if shared.observers.are_many() {
        shared.tell_at(seat, Role::Leader, held.now(&shared.clock));
    }
    shared.observers.tell_first(seat.index(), Role::Leader);
}

/// The pool is observed: reports the event before the lead is given away.
#[inline(always)]
fn tell_event(held: &mut HeldLead<'_, Line>, shared: &Shared, seat: &Seat, claim: &mut Claim<'_>) {
    if shared.observers.are_many() {
        let now = held.keep_now(&shared.clock);
        shared.tell_event(seat, claim, now);
    }
    shared.observers.tell_first(seat.index(), Role::Processing);
}

/// A thread's place in the pool, whatever its role. It is handed on from role to role, several
/// times in a turn: so it is no larger than an address.
struct Place<'p>(Box<Seated<'p>>);

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.shared.fmt(f)
    }
}

impl<'p> Deref for Place<'p> {
    type Target = Seated<'p>;

    fn deref(&self) -> &Seated<'p> {
        &self.0
    }
}

impl<'p> DerefMut for Place<'p> {
    fn deref_mut(&mut self) -> &mut Seated<'p> {
        &mut self.0
    }
}

/// What a thread has in the pool.
struct Seated<'p> {
    /// The lead: of a leader, and of a follower for which it was vacant when it came back from an
    /// event. There is none where every thread may wait.
    held: Option<HeldLead<'p, Line>>,
    shared: &'p Shared,
    seat: Arc<Seat>,
    /// When its time in the pool is over.
    until: Until<'p>,
    /// What is handed to this thread waits there, if anything can be. A guest gives it up with its
    /// place.
    tray: Option<Arc<OwnTray>>,
    /// Of a guest. The pool's own threads keep theirs for life.
    membership: Option<Membership<'p>>,
    /// A role belongs to its thread.
    not_send: PhantomData<*const ()>,
}

impl<'p> Place<'p> {
    fn new(
        shared: &'p Shared,
        seat: Arc<Seat>,
        until: Until<'p>,
        tray: Option<Arc<OwnTray>>,
        membership: Option<Membership<'p>>,
    ) -> Self {
        Self(Box::new(Seated {
            held: None,
            shared,
            seat,
            until,
            tray,
            membership,
            not_send: PhantomData,
        }))
    }

    /// The same place, for a stay.
    fn again<'s>(&'s self, until: Until<'s>) -> Place<'s> {
        let (seat, tray) = (Arc::clone(&self.seat), self.tray.clone());
        Place::new(self.shared, seat, until, tray, None)
    }

    fn on_duty<'t>(&'t self, running: &'t Running<'p, Line>) -> OnDuty<'t, 'p> {
        let place = self;
        OnDuty { running, place }
    }
}

impl<'p> Seated<'p> {
    fn arrive(&self) -> Arrival<'p, Line> {
        let Self { shared, .. } = self;
        shared.lead.arrive(&self.seat, &shared.clock, self.until)
    }

    fn is_late(&self) -> bool {
        self.until.is_late(&self.shared.clock)
    }

    /// The earlier of this thread's deadline and `timeout` from now.
    fn until(&self, timeout: Option<Duration>) -> Option<Timestamp> {
        let timeout = timeout.map(|timeout| self.shared.clock.now().after(timeout));
        match (timeout, self.until.deadline()) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// This thread had to arrive at the lead: if the pool is observed, that is reported now. The
    /// time of it is old when it waits, which also says that it was reported.
    fn tell_arrival(&mut self) {
        if self.shared.lead.is_observed() {
            self.shared.tell(&self.seat, Role::Leader);
            self.held.iter_mut().for_each(HeldLead::note_look);
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
        if self.shared.lead.is_observed() {
            self.shared.tell(&self.seat, role);
        }
    }

    /// Does what a handler, which was done at `handled`, left to be done after its handle was given
    /// back. When that is done.
    #[cold]
    fn run_afterwards(&self, left: Afterwards, duty: &dyn Duty, handled: Timestamp) -> Timestamp {
        let (shared, has_the_call) = (self.shared, left.has_the_call());
        shared.registry.run_afterwards(left, duty);
        let end = shared.clock.now();
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

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        self.give_lead_up();
        // When a stay is over, its thread goes on in its handler.
        if self.until.wants_something() {
            return;
        }
        self.tell(Role::Gone);
        self.shared.registry.leave_open_line();
        // A guest may have been the last thread that could lead.
        if self.membership.is_some() {
            self.shared.call_one_more(self.shared.clock.now());
        }
    }
}
