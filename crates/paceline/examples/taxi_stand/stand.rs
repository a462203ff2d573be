//! The stand: what an observer makes of the roles of the pool's threads, and what it prints about them.

use std::{
    cell::Cell,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use paceline::{
    observe::{Observer, Role},
    Order, Wake,
};

use super::{Options, Passenger, Wish, TICK};

/// A follower that was woken leads after much less than this.
const A_WAKE: Duration = Duration::from_millis(50);

/// The stand as everyone sees it: the cabs change it, the main thread draws it.
#[derive(Clone)]
pub(super) struct SharedStand(Arc<Mutex<Stand>>);

thread_local! {
    /// The cab that this thread is.
    static CAB: Cell<usize> = const { Cell::new(0) };
}

impl SharedStand {
    pub(super) fn new(options: Options) -> Self {
        Self(Arc::new(Mutex::new(Stand::new(options))))
    }

    pub(super) fn look(&self) -> MutexGuard<'_, Stand> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Called by a handler: this cab has its passenger on board.
    pub(super) fn pick_up(&self, passenger: Passenger) {
        self.look().pick_up(CAB.get(), passenger);
    }
}

impl Observer for SharedStand {
    /// Called on the thread that changes, so its handlers know later in which cab they sit.
    fn role_changed(&self, cab: usize, role: Role) {
        CAB.set(cab);
        self.look().change_role(cab, role);
    }
}

pub(super) struct Stand {
    pub(super) options: Options,
    start: Instant,
    pub(super) cabs: Vec<Cab>,
    pub(super) waiting: Vec<Passenger>,
    /// The last time that the front was given away.
    opening: Option<Opening>,
    changes: usize,
    news: Vec<String>,
}

#[derive(Clone, Copy, Default)]
pub(super) struct Cab {
    pub(super) role: Option<Role>,
    /// The number of its last change of role: smaller is older.
    change: usize,
    /// The passenger on board, and until when.
    pub(super) fare: Option<(Passenger, Duration)>,
    pub(super) rides: usize,
}

/// A leader gave the front away to handle an event.
#[derive(Clone, Copy)]
struct Opening {
    by: usize,
    at: Duration,
    fare: Option<Passenger>,
    /// The next leader, and how long there was none.
    taken: Option<(usize, Duration)>,
    /// Whether it has printed that the front is open.
    told: bool,
}

impl Stand {
    fn new(options: Options) -> Self {
        Self {
            options,
            start: Instant::now(),
            cabs: vec![Cab::default(); options.cabs],
            waiting: Vec::new(),
            opening: None,
            changes: 0,
            news: Vec::new(),
        }
    }

    /// Since the stand was opened.
    pub(super) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    pub(super) fn leader(&self) -> Option<usize> {
        self.with_role(Role::Leader).first().copied()
    }

    /// The cabs behind the leader; the next one to lead is first, if the order defines it.
    pub(super) fn followers(&self) -> Vec<usize> {
        let mut followers = self.with_role(Role::Follower);
        followers.sort_by_key(|cab| self.cabs[*cab].change);
        match self.options.order {
            Order::Newest => followers.reverse(),
            Order::Priority => followers.sort_by(|one, other| other.cmp(one)),
            _ => {}
        }
        followers
    }

    /// For how long the front has been open.
    pub(super) fn vacant(&self) -> Duration {
        let opened = self.opening.map_or(self.now(), |opening| opening.at);
        self.now().saturating_sub(opened)
    }

    /// No cab waits and none drives.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting.is_empty() && self.with_role(Role::Processing).is_empty()
    }

    /// What is to be printed since the last time.
    pub(super) fn take_news(&mut self) -> Vec<String> {
        self.tell_vacancy();
        mem::take(&mut self.news)
    }

    pub(super) fn wait_for_cab(&mut self, passenger: Passenger) {
        self.waiting.push(passenger);
    }

    fn with_role(&self, role: Role) -> Vec<usize> {
        let has_it = |cab: &usize| self.cabs[*cab].role == Some(role);
        (0..self.cabs.len()).filter(has_it).collect()
    }

    fn pick_up(&mut self, cab: usize, passenger: Passenger) {
        self.waiting.retain(|other| other.comes != passenger.comes);
        self.cabs[cab].fare = Some((passenger, self.now() + passenger.ride));
        self.cabs[cab].rides += usize::from(passenger.wish != Wish::Ask);
        if let Some(opening) = self.opening.as_mut().filter(|opening| opening.by == cab) {
            opening.fare = Some(passenger);
            self.tell_departure();
        }
    }

    fn change_role(&mut self, cab: usize, role: Role) {
        let was = self.cabs[cab].role.replace(role);
        self.changes += 1;
        self.cabs[cab].change = self.changes;
        match (was, role) {
            (_, Role::Processing) => self.give_away(cab),
            (Some(Role::Processing), _) => self.come_back(cab, role),
            (_, Role::Leader) => self.come_forward(cab),
            _ => {}
        }
    }

    /// The leader has an event and leads no more.
    fn give_away(&mut self, cab: usize) {
        self.opening = Some(Opening {
            by: cab,
            at: self.now(),
            fare: None,
            taken: None,
            told: false,
        });
    }

    /// A follower leads.
    fn come_forward(&mut self, cab: usize) {
        match self.opening {
            None => self.tell(format!("cab {cab} was here first and leads")),
            Some(_) => {
                self.close_opening(cab);
                self.tell_departure();
            }
        }
    }

    fn close_opening(&mut self, leader: usize) {
        let vacant = self.vacant();
        if let Some(opening) = &mut self.opening {
            opening.taken = Some((leader, vacant));
        }
    }

    /// Prints how a cab drove off, once the next leader is known.
    fn tell_departure(&mut self) {
        let Some(opening) = self.opening else { return };
        match (opening.fare, opening.taken) {
            (Some(fare), Some((leader, vacant))) if fare.wish != Wish::Ask => {
                self.tell_promotion(opening.by, fare, leader, vacant);
            }
            _ => {}
        }
    }

    fn tell_promotion(&mut self, by: usize, fare: Passenger, leader: usize, vacant: Duration) {
        let name = fare.name;
        let ms = vacant.as_millis();
        self.tell(match (self.options.wake, fare.wish) {
            (Wake::Eager, _) => {
                format!("cab {by} waved cab {leader} to the front (promoted it), then drove off with {name}")
            }
            (_, Wish::ToldRide) => {
                format!(
                    "cab {by} told that it is away with {name}, so cab {leader} was woken to lead"
                )
            }
            _ if vacant < TICK / 4 => {
                format!(
                    "it pays (such rides are long, others wait): cab {by} woke cab {leader}, drove off with {name}"
                )
            }
            _ => {
                format!("nobody led for {ms} ms; the standby looked, and cab {leader} leads")
            }
        });
    }

    /// Prints, once, that no cab leads: not before a wake-up would have arrived.
    fn tell_vacancy(&mut self) {
        let Some(opening) = self.opening.filter(|opening| !opening.told) else {
            return;
        };
        let (by, Some(fare), None) = (opening.by, opening.fare, opening.taken) else {
            return;
        };
        let untold = fare.wish == Wish::UntoldRide && self.options.wake == Wake::Adaptive;
        let text = if self.followers().is_empty() {
            "no cab is left to lead"
        } else if untold {
            "untold: the front is open, nobody was woken"
        } else {
            return;
        };
        if self.vacant() > A_WAKE {
            self.tell(format!("cab {by} drove off with {}, {text}", fare.name));
            self.opening = Some(Opening {
                told: true,
                ..opening
            });
        }
    }

    /// A cab is done with its passenger and rejoins.
    fn come_back(&mut self, cab: usize, role: Role) {
        if role == Role::Leader {
            self.close_opening(cab);
        }
        let Some((Passenger { name, wish, .. }, _)) = self.cabs[cab].fare.take() else {
            return;
        };
        self.tell(match (wish, role, self.leader()) {
            (Wish::Ask, Role::Leader, _) => {
                format!("cab {cab} told {name} the way and took the lead back: nobody was woken")
            }
            (Wish::Ask, ..) => {
                format!("cab {cab} told {name} the way: a wake for a moment's work, another leads")
            }
            (_, Role::Leader, _) => {
                format!("cab {cab} is back from {name}'s ride, finds nobody leading, and leads")
            }
            (.., Some(leader)) => {
                format!("cab {cab} is back from {name}'s ride; cab {leader} leads, so it follows")
            }
            (.., None) => {
                format!("cab {cab} is back from {name}'s ride and follows: another is to lead")
            }
        });
    }

    fn tell(&mut self, news: String) {
        let time = self.now().as_secs_f64();
        self.news.push(format!("{time:5.1}  {news}"));
    }
}
