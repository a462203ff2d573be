//! A thread that serves several sets, and waits in all of them at once while nothing is to be done
//! in any.
//!
//! ```text
//!   looks round: leads all sets      waits: in all            serves: one set, the
//!   without a leader                 at once                  others are set aside
//!
//!        0  1  2  ------------------> 0  1  2 --------------> 1 --.
//!        ^                              something is in 1         | so many dispatches,
//!        '--------------------------------------------------------' or nothing is left
//! ```
//!
//! A lead that is *set aside* is open, for any thread that checks it, and its thread is back soon.
//! So one thread is enough for all sets while handlers are short, and no more threads sleep and are
//! woken than with one set. If its handler blocks, or takes long, the watch of the idle list finds
//! the leads open, or a promotion sends for a thread (`promotion/roaming_idle.rs`).

use std::io;

use super::{Follower, Leader, ThreadState, Waited};
use crate::{
    dispatch::{Line, Registry},
    handle_set::{wait_for_any, Beside},
    hub::{Hub, MemberGuard, Visitor},
    observe::Role,
    promotion::{HeldLead, Others, RoamingIdle, Until},
    sync::Timestamp,
};

/// After so many dispatches in one set a thread looks at the others.
const DISPATCHES_BETWEEN_ROUNDS: u32 = 32;

/// The sets that one thread leads, in the order in which they are served.
#[derive(Default)]
pub(crate) struct LedSets<'p>(Vec<LedSet<'p>>);

/// One of several sets that this thread leads. It is in that pool only while it sleeps, or serves.
#[must_use = "dropping it gives the lead away"]
pub(crate) struct LedSet<'p> {
    set: usize,
    visitor: &'p Visitor<'p>,
    held: HeldLead<'p, Line>,
    /// It was served, looked into, or slept in, since this thread leads it.
    is_attended: bool,
}

/// Where a look round has led to.
#[must_use]
pub(crate) enum RoundOutcome<'p> {
    /// Something is to be done in this set. All others were set aside.
    To(LedSet<'p>),
    /// It must look round again.
    Round,
    /// Nothing is to be done, and this thread is not needed: others come by, or lead.
    Nowhere,
}

impl<'p> LedSets<'p> {
    /// Whether a set can be waited in beside those that it leads already.
    pub(crate) fn has_room_for(&self, visitor: &Visitor<'_>) -> bool {
        let mut others = self.0.iter();
        others.all(|other| other.beside().goes_with(&visitor.beside()))
    }

    /// One more set that it leads, if it does. It is set aside if there is no room for it.
    pub(crate) fn add(&mut self, led: Option<LedSet<'p>>) {
        match led {
            Some(led) if self.has_room_for(led.visitor) => self.0.push(led),
            led => led.into_iter().for_each(LedSet::set_aside),
        }
    }

    /// Waits until something is to be done in one of them; unless others see to it.
    ///
    /// # Errors
    /// What the wait said. The leads have passed on, and the set that has failed is the last of the
    /// next round.
    pub(crate) fn wait(&mut self, idle_list: &RoamingIdle<Line>) -> io::Result<RoundOutcome<'p>> {
        let outcome = self.find(idle_list);
        if outcome.is_err() {
            self.0.clear();
        }
        outcome
    }

    fn find(&mut self, idle_list: &RoamingIdle<Line>) -> io::Result<RoundOutcome<'p>> {
        let Some(first) = self.0.first() else {
            return Ok(RoundOutcome::Nowhere);
        };
        if first.waits_alone() {
            return Ok(self.go_to(0));
        }
        let hub = first.hub();
        let mut idle = hub.begin_idle(true, None);
        loop {
            if let Some(place) = self.look(idle_list)? {
                hub.note_found(&idle);
                return Ok(self.go_to(place));
            }
            hub.note_nothing(&mut idle);
            if !idle.may_sleep() {
                continue;
            }
            match idle_list.leave_to_others(|| self.set_aside()) {
                Others::ComeBy => return Ok(RoundOutcome::Nowhere),
                Others::AreDone => return Ok(RoundOutcome::Round),
                Others::AreNot => self.sleep()?,
            }
        }
    }

    /// The place of the first set in which something is to be done now.
    fn look(&mut self, idle_list: &RoamingIdle<Line>) -> io::Result<Option<usize>> {
        for (place, led) in self.0.iter_mut().enumerate() {
            let found = led.finds_something();
            if found.inspect_err(|_| idle_list.look_last_at(led.set))? {
                return Ok(Some(place));
            }
        }
        Ok(None)
    }

    /// Sleeps in all of them, until one has something.
    fn sleep(&mut self) -> io::Result<()> {
        // It is in all pools meanwhile: the end of one of them waits for it. (In one that has ended
        // it does not sleep.)
        let _inside: Vec<_> = self.0.iter().filter_map(LedSet::step_in).collect();
        // Each announces its sleep, and none may sleep longer than any of them.
        let announced = |until, led: &mut LedSet<'_>| led.may_sleep(until);
        let until = self.0.iter_mut().fold(None, announced);
        let sets: Vec<_> = self.0.iter().map(LedSet::beside).collect();
        let waited = wait_for_any(&sets, &self.0[0].hub().clock, until);
        // Each ends its sleep, whatever the wait said.
        self.0.iter_mut().for_each(LedSet::wake);
        waited
    }

    /// Goes on in one set.
    fn go_to(&mut self, place: usize) -> RoundOutcome<'p> {
        let led = self.0.remove(place);
        self.set_aside();
        RoundOutcome::To(led)
    }

    /// Opens all leads for any thread that checks them.
    fn set_aside(&mut self) {
        self.0.drain(..).for_each(LedSet::set_aside);
    }
}

impl<'p> LedSet<'p> {
    /// Leads this set, if no thread does.
    pub(crate) fn at_once(set: usize, visitor: &'p Visitor<'p>) -> Option<Self> {
        let Hub { lead, clock, .. } = visitor.hub();
        let held = lead.is_vacant().then(|| lead.take_open(clock))??;
        Some(Self {
            set,
            visitor,
            held,
            is_attended: false,
        })
    }

    /// Its number.
    pub(crate) fn set(&self) -> usize {
        self.set
    }

    /// Whether it can't be waited in beside others.
    pub(crate) fn waits_alone(&self) -> bool {
        self.visitor.waits_alone()
    }

    /// Serves the set until its line is empty, or for so many dispatches that others want their
    /// turn. Gives the lead back if this thread has it still.
    ///
    /// # Errors
    /// What the set said. The lead has passed on then.
    pub(crate) fn serve(self) -> io::Result<Option<Self>> {
        let (set, visitor) = (self.set, self.visitor);
        // It does not sleep in this set, unless it can't in several.
        let until = (!self.waits_alone()).then_some(Timestamp::PAST);
        let Some(mut leader) = self.into_leader() else {
            return Ok(None);
        };
        for _ in 0..DISPATCHES_BETWEEN_ROUNDS {
            leader.state.until = Until::at(until);
            let Waited::Claimed(mut claimed) = leader.wait(None)? else {
                return Ok(None);
            };
            // Its handler may wait for as long as it likes.
            claimed.state.until = Until::at(None);
            let Follower { state } = claimed.promote().run();
            if state.held.is_none() {
                return Ok(None);
            }
            leader = Leader { state };
            if leader.is_done() {
                break;
            }
        }
        let held = leader.state.held.take();
        Ok(held.map(|held| Self {
            set,
            visitor,
            held,
            is_attended: true,
        }))
    }

    /// Steps into the pool, to serve. `None`: it has ended.
    fn into_leader(self) -> Option<Leader<'p>> {
        let Self { visitor, held, .. } = self;
        let inside = visitor.step_in()?;
        let (hub, seat) = (visitor.hub(), visitor.seat().clone());
        let mut state = ThreadState::new(hub, seat, Until::at(None), None, Some(inside));
        state.held = Some(held);
        state.tell_arrival();
        Some(Leader { state })
    }

    /// Steps into the pool, to sleep. `None`: it has ended.
    fn step_in(&self) -> Option<Asleep<'p>> {
        let visitor = self.visitor;
        let inside = visitor.step_in()?;
        tell(visitor, Role::Leader);
        Some(Asleep {
            visitor,
            _inside: inside,
        })
    }

    fn hub(&self) -> &'p Hub {
        self.visitor.hub()
    }

    fn beside(&self) -> Beside<'p> {
        self.visitor.beside()
    }

    /// Whether a handle waits there now, or the pool ends.
    fn finds_something(&mut self) -> io::Result<bool> {
        self.is_attended = true;
        self.held.note_poll();
        // That poll may have used up the wake that announced the end.
        Ok(self.with_line(Line::finds_handle)? || self.hub().is_over())
    }

    /// Its sleep is over.
    fn wake(&mut self) {
        self.is_attended = true;
        self.with_line(Line::wake);
        self.held.note_sleep();
    }

    /// Announces its sleep, as one of several. Until when it may sleep that wants to until `until`.
    fn may_sleep(&mut self, until: Option<Timestamp>) -> Option<Timestamp> {
        let limit = self.with_line(|line, registry| line.may_sleep(registry, until));
        // After the announcement: the end of the pool wakes a leader that sleeps.
        if self.hub().is_over() {
            Some(Timestamp::PAST)
        } else {
            limit
        }
    }

    /// Opens the lead for any thread that checks it.
    fn set_aside(self) {
        let now = self.is_attended.then(|| self.held.now(&self.hub().clock));
        self.held.set_aside(now);
    }

    fn with_line<R>(&mut self, using: impl FnOnce(&mut Line, &Registry) -> R) -> R {
        let registry = &*self.visitor.hub().registry;
        self.held.with_owned(|line| using(line, registry))
    }
}

impl Leader<'_> {
    /// Whether no handle waits in the line.
    fn is_done(&mut self) -> bool {
        let held = self.state.held.as_mut();
        held.is_none_or(|held| held.with_owned(|line| line.is_empty()))
    }
}

/// A thread that sleeps in this pool, among others.
struct Asleep<'p> {
    visitor: &'p Visitor<'p>,
    _inside: MemberGuard<'p>,
}

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        tell(self.visitor, Role::Gone);
    }
}

/// Reports the role, if the pool is observed.
fn tell(visitor: &Visitor<'_>, role: Role) {
    let hub = visitor.hub();
    if hub.lead.is_observed() {
        hub.tell(visitor.seat(), role);
    }
}
