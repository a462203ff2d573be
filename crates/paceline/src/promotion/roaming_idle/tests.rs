//! The idle list on one thread: parkers get occupants and messages without a sleeping thread.

use super::{
    super::{
        followers::{Message, Seat},
        held::{promoted, Rejoined},
        policy::{Order, Policy, Wake},
        standby::{CALM, LOOKS_UNTIL_CALM},
        word::Marks,
    },
    watch::{Glance, Seen},
    *,
};
#[cfg(target_os = "linux")]
use crate::sync::beside;
use crate::sync::{Timestamp, VirtualClock};

const TICK: Duration = Duration::from_secs(1);

/// Some sets, and their idle list.
struct Sets {
    leads: Vec<Arc<Lead<()>>>,
    time: Arc<VirtualClock>,
    idle_list: Arc<RoamingIdle<()>>,
}

impl Sets {
    fn new(count: usize, wake: Wake) -> Self {
        Self::on_cores(1, count, wake)
    }

    fn on_cores(cores: usize, count: usize, wake: Wake) -> Self {
        Self::of(cores, count, wake, false)
    }

    /// The system is asked what an opener is up to that is late.
    #[cfg(target_os = "linux")]
    fn asking(count: usize, wake: Wake) -> Self {
        Self::of(1, count, wake, true)
    }

    fn of(cores: usize, count: usize, wake: Wake, asks: bool) -> Self {
        let policy = Policy {
            wake,
            order: Order::Newest,
            cores,
            tick: TICK,
        };
        let time = Arc::new(VirtualClock::new());
        let lead = |_| {
            let lead = Lead::vacant((), policy, Arc::default());
            Arc::new(lead.roaming(true).asking(asks))
        };
        let leads: Vec<_> = (0..count).map(lead).collect();
        let clock = |lead: &Arc<_>| (Arc::clone(lead), Clock::Virtual(Arc::clone(&time)));
        let idle_list = RoamingIdle::new(leads.iter().map(clock).collect(), TICK, 3, cores);
        Self {
            leads,
            time,
            idle_list,
        }
    }

    fn clock(&self) -> Clock {
        Clock::Virtual(Arc::clone(&self.time))
    }

    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    fn take(&self, set: usize) -> Option<HeldLead<'_, ()>> {
        self.leads[set].take_open(&self.clock())
    }

    /// A parker in the idle list. The first is that of the watch.
    fn parker(&self) -> Arc<Parker> {
        let parker = Arc::new(Parker::new());
        let seated = self.idle_list.sit_down(&parker);
        assert!(!matches!(seated, Seated::Closed), "it is open");
        parker
    }

    /// What so many looks at the first set see, none of which takes any time.
    fn glances<const N: usize>(&self) -> [Glance; N] {
        let mut seen = Seen::default();
        [(); N].map(|()| self.leads[0].glance(&mut seen, self.now()))
    }

    /// A thread sleeps in the first set.
    fn park(&self, seat: &Arc<Seat>) {
        let lead = &self.leads[0];
        lock(&lead.followers).push(seat);
        lead.word.update(|word| (word.with_parked(true), ()));
    }
}

/// One is sent at a time, the watch last; and to the set that needs it.
#[test]
fn one_is_on_its_way() {
    for (set, other) in [(0, 1), (1, 0)] {
        let sets = Sets::new(2, Wake::Adaptive);
        let (watch, idle) = (sets.parker(), sets.parker());
        let lead = &sets.leads[set];
        assert_eq!(lead.send_for_somebody(false), Promotion::LeftOpen);
        assert_eq!(sets.idle_list.len(), 2);
        assert_eq!(lead.send_for_somebody(true), Promotion::Watched);
        assert_eq!(lead.send_for_somebody(true), Promotion::LeftOpen);
        assert_eq!(sets.idle_list.len(), 1);
        assert_eq!(Told::take_from(&idle), Told::Go(set));
        sets.idle_list.set_off(set);
        assert_eq!(lead.send_for_somebody(true), Promotion::Watched);
        assert_eq!(Told::take_from(&watch), Told::Go(set));
        sets.idle_list.set_off(set);
        assert_eq!(lead.send_for_somebody(true), Promotion::LeftOpen);
        assert_eq!(lead.counters.snapshot().roamed, 2);
        assert_eq!(sets.leads[other].counters.snapshot().roamed, 0);
    }
}

/// The watch goes, and gets `Look` at this very moment: that is for the thread that watches now. It
/// is not taken for the watch when it sits down again.
#[test]
fn who_has_gone_is_not_told_to_look() {
    let sets = Sets::new(2, Wake::Adaptive);
    let (first, second) = (sets.parker(), sets.parker());
    sets.idle_list.rouse();
    assert!(sets.idle_list.leave_for(&first, 0));
    assert_eq!(Told::take_from(&second), Told::Watch);
    assert!(matches!(sets.idle_list.sit_down(&first), Seated::Idle));
    assert_eq!(Told::take_from(&first), Told::Nothing);
}

/// All threads get the message to go, and none sits down any more.
#[test]
fn who_is_in_a_closed_idle_list_goes() {
    let sets = Sets::new(1, Wake::Adaptive);
    let parkers = [sets.parker(), sets.parker()];
    assert!(sets.leads[0].may_be_visited());
    sets.idle_list.close();
    assert!(!sets.leads[0].may_be_visited(), "nobody comes any more");
    assert_eq!(
        parkers.map(|parker| Told::take_from(&parker)),
        [Told::Close; 2]
    );
    let late = sets.idle_list.sit_down(&Arc::new(Parker::new()));
    assert!(matches!(late, Seated::Closed));
    assert_eq!(sets.idle_list.len(), 0);
}

/// A thread that was sent takes a lead that is open, and for anyone.
#[test]
fn who_is_sent_takes_what_is_vacant() {
    let sets = Sets::new(1, Wake::Adaptive);
    let held = sets.take(0).expect("it is vacant");
    assert!(sets.take(0).is_none(), "held");
    drop(held);
    let word = &sets.leads[0].word;
    word.update(|word| (word.with_elect(true), ()));
    assert!(sets.take(0).is_none(), "offered");
    word.update(|word| (word.with_elect(false), ()));
    sets.leads[0].close();
    assert!(sets.take(0).is_none(), "closed");
}

/// A lead that is held and unchanged gets the mark at the third check, and its promotion rouses the
/// watch, which checks again. (An eager one sends for a thread; while one is on its way already, it
/// rouses the watch too.)
#[test]
fn the_watch_rests_beside_a_lead_that_is_held() {
    for wake in [Wake::Adaptive, Wake::Eager] {
        let sets = Sets::new(1, wake);
        let (watch, idle) = (sets.parker(), sets.parker());
        let held = sets.take(0).expect("it is vacant");
        assert_eq!(
            sets.glances(),
            [Glance::Moves, Glance::Moves, Glance::Rests]
        );
        assert_eq!(sets.leads[0].word.look().standby(), Standby::Marked);
        if wake == Wake::Eager {
            // Else it would send for a thread.
            assert!(sets.idle_list.send(0));
            assert_eq!(Told::take_from(&idle), Told::Go(0));
        }
        let (running, promotion) = promoted(held, Marks::default(), sets.now());
        assert_eq!(promotion, Promotion::Watched);
        assert_eq!(Told::take_from(&watch), Told::Look);
        assert_eq!(Told::take_from(&idle), Told::Nothing, "{wake:?}");
        assert_eq!(sets.leads[0].word.look().standby(), Standby::None);
        drop(running);
    }
}

/// The system says of an opener that it lacks only the core of the watch: that one looks again
/// soon, also in a calm time, and goes then.
#[cfg(target_os = "linux")]
#[test]
fn an_excused_opener_is_looked_at_soon() {
    let looks = beside::computing(|opener| {
        let sets = Sets::asking(1, Wake::Adaptive);
        let watch = sets.parker();
        sets.leads[0].opener.note_thread(opener);
        let mut outlook = sets.idle_list.outlook(sets.now());
        outlook.calm = LOOKS_UNTIL_CALM;
        sets.time.advance(TICK);
        let first = sets.idle_list.look(&watch, &mut outlook);
        let soon = outlook.due == Some(sets.now().after(TICK / 4));
        (first, soon, sets.idle_list.look(&watch, &mut outlook))
    });
    assert_eq!(looks, (None, true, Some(0)));
}

/// There is no mark where a thread sleeps, which may be the one that leads next; nor where one
/// stands by.
#[test]
fn there_is_no_mark_beside_a_follower() {
    let sets = Sets::new(1, Wake::Adaptive);
    let (lead, seat) = (&sets.leads[0], Seat::new(0, 0));
    let held = sets.take(0).expect("it is vacant");
    sets.park(&seat);
    assert_eq!(lead.mark(lead.word.look()), Glance::Moves);
    let _ = lock(&lead.followers).withdraw(&seat);
    lead.word.update(|word| (word.with_parked(false), ()));
    lead.word
        .update(|word| (word.with_standby(Standby::Deep), ()));
    assert_eq!(lead.mark(lead.word.look()), Glance::Moves);
    assert_eq!(lead.word.look().standby(), Standby::Deep);
    drop(held);
}

/// A lead that is open and the same at two looks, or open for a quarter of a tick, is blind; unless
/// it is closed.
#[test]
fn the_watch_sees_a_blind_set() {
    let sets = Sets::new(1, Wake::Adaptive);
    assert_eq!(sets.glances(), [Glance::Moves, Glance::Blind]);
    sets.time.advance(TICK / 4);
    assert_eq!(sets.glances(), [Glance::Blind; 2]);
    sets.leads[0].close();
    assert_eq!(sets.glances(), [Glance::Rests; 2]);
}

/// A thread in the set takes care of it: one that was elected, one that stands by, or one that
/// sleeps and is elected now.
#[test]
fn the_watch_leaves_it_to_who_is_there() {
    let sets = Sets::new(1, Wake::Eager);
    let word = &sets.leads[0].word;
    word.update(|word| (word.with_elect(true), ()));
    assert_eq!(sets.glances(), [Glance::Moves; 2]);
    word.update(|word| (word.with_elect(false).with_standby(Standby::Ticking), ()));
    assert_eq!(sets.glances(), [Glance::Moves; 2]);
    word.update(|word| (word.with_standby(Standby::None), ()));
    let seat = Seat::new(0, 0);
    sets.park(&seat);
    assert_eq!(sets.glances(), [Glance::Moves; 2]);
    assert_eq!(seat.take_message(), Some(Message::Lead));
}

/// An election that finds no follower sends for one: if the lead is vacant, and if it is the
/// intended opening. One that finds a follower does not.
#[test]
fn an_election_sends_for_somebody() {
    let sets = Sets::new(1, Wake::Adaptive);
    let (lead, watch) = (&sets.leads[0], sets.parker());
    let held = sets.take(0).expect("it is vacant");
    assert_eq!(lead.elect(|_| true, |word| word), Promotion::LeftOpen);
    sets.park(&Seat::new(7, 0));
    let (running, _) = promoted(held, Marks::default(), sets.now());
    let elected = lead.elect(|_| true, |word| word);
    assert_eq!(elected, Promotion::Elected(Some(7)));
    lead.word.update(|word| (word.with_elect(false), ()));
    assert_eq!(lead.elect(|_| false, |word| word), Promotion::LeftOpen);
    assert_eq!(Told::take_from(&watch), Told::Nothing);
    assert_eq!(lead.elect(|_| true, |word| word), Promotion::Watched);
    assert_eq!(Told::take_from(&watch), Told::Go(0));
    drop(running);
}

/// All sets share the cores, and the room for one computation more: a thread that serves any of
/// them takes a part, unless it is stuck. A backlog needs a core that is idle in all sets; a
/// handler that blocks needs none.
#[test]
fn all_sets_share_the_cores() {
    let (sets, seat) = (Sets::on_cores(2, 2, Wake::Adaptive), Seat::new(0, 0));
    let [watch, idle, other, last] = [(); 4].map(|()| sets.parker());
    let promotion = |marks| {
        let held = sets.take(0).expect("it is vacant");
        let (running, promotion) = promoted(held, marks, sets.now());
        match running.rejoin(&seat, sets.now()) {
            Rejoined::Leads(held) => held.set_aside(None),
            _ => panic!("nobody else leads"),
        }
        promotion
    };
    let marks = |computes, backlog| Marks {
        computes,
        backlog,
        ..Marks::default()
    };
    let (computes, backlog, both) = (marks(true, false), marks(false, true), marks(true, true));
    let blocks = Marks {
        blocks: true,
        ..Marks::default()
    };
    let somebody_is_sent = |marks, parker: &Arc<_>| {
        assert_eq!(promotion(marks), Promotion::Watched);
        assert_eq!(Told::take_from(parker), Told::Go(0));
        sets.idle_list.set_off(0);
    };
    // A look: the backlog has lasted.
    sets.leads[0].epoch.fetch_add(1, Ordering::Relaxed);
    sets.idle_list.serves(0, 0);
    somebody_is_sent(backlog, &last);
    sets.idle_list.serves(1, 1);
    assert_eq!(promotion(backlog), Promotion::LeftOpen, "no core is idle");
    assert_eq!(promotion(computes), Promotion::LeftOpen, "no core is idle");
    somebody_is_sent(both, &other);
    sets.idle_list.serves(2, 0);
    sets.time.advance(TICK * (TICKS_UNTIL_STUCK - 1));
    assert_eq!(promotion(both), Promotion::LeftOpen, "there is no room");
    somebody_is_sent(blocks, &idle);
    sets.time.advance(TICK);
    assert_eq!(promotion(Marks::default()), Promotion::LeftOpen);
    somebody_is_sent(computes, &watch);
}

/// Whether a core is idle in all sets is asked once for each check, and not by every promotion
/// until the next. A thread on its way will use one, unless it has none within a tick.
#[test]
fn an_idle_core_is_asked_for_once_a_look() {
    let (sets, seat) = (Sets::on_cores(2, 2, Wake::Adaptive), Seat::new(0, 0));
    let _parkers = [(); 3].map(|()| sets.parker());
    let backlog = Marks {
        backlog: true,
        ..Marks::default()
    };
    // The outcome of a promotion, and whether the next one asks again.
    let promotion = || {
        let held = sets.take(0).expect("it is vacant");
        let (running, promotion) = promoted(held, backlog, sets.now());
        let Rejoined::Leads(mut held) = running.rejoin(&seat, sets.now()) else {
            panic!("nobody else leads");
        };
        let asks_again = held.overdue().is_some();
        held.set_aside(None);
        (promotion, asks_again)
    };
    let look = || sets.leads[0].epoch.fetch_add(1, Ordering::Relaxed);
    sets.idle_list.serves(0, 0);
    look();
    assert_eq!(promotion(), (Promotion::Watched, true));
    assert_eq!(promotion(), (Promotion::LeftOpen, false), "one is coming");
    sets.time.advance(TICK);
    look();
    assert_eq!(promotion(), (Promotion::LeftOpen, true), "it has no core");
    sets.idle_list.set_off(0);
    sets.idle_list.serves(1, 1);
    look();
    assert_eq!(promotion(), (Promotion::LeftOpen, false), "both are used");
    sets.idle_list.has_served(1);
    assert_eq!(promotion(), (Promotion::LeftOpen, false), "no look since");
    look();
    assert_eq!(promotion(), (Promotion::Watched, true));
}

/// Sets share the cores of the process, and may be given fewer each.
#[test]
fn cores_are_counted_once() {
    let cores = |count, each| {
        let sets = Sets::on_cores(each, count, Wake::Adaptive);
        let clock = |lead: &Arc<_>| (Arc::clone(lead), sets.clock());
        cores_for(&sets.leads.iter().map(clock).collect::<Vec<_>>(), 8)
    };
    assert_eq!([cores(3, 8), cores(1, 2), cores(3, 2)], [8, 2, 6]);
    // The setting says so.
    assert_eq!(cores(2, 16), 16);
}

/// A lead that was set aside is open, and the watch is roused if it has left its mark; but it has a
/// tick of grace. A sleeping thread of the set's own leads at once.
#[test]
fn what_is_set_aside_has_a_tick_of_grace() {
    let sets = Sets::new(1, Wake::Adaptive);
    let (lead, watch) = (&sets.leads[0], sets.parker());
    let held = sets.take(0).expect("it is vacant");
    let _: [Glance; 3] = sets.glances();
    held.set_aside(Some(sets.now()));
    assert_eq!(Told::take_from(&watch), Told::Look);
    assert!(lead.is_vacant());
    assert_eq!(lead.word.look().standby(), Standby::None);
    sets.time.advance(TICK);
    assert_eq!(sets.glances(), [Glance::Moves]);
    // A thread that led it meanwhile, and has not checked the sets, does not put that off.
    sets.take(0).expect("it is vacant").set_aside(None);
    sets.time.advance(TICK / 4);
    assert_eq!(sets.glances(), [Glance::Blind]);

    let held = sets.take(0).expect("it is vacant");
    let seat = Seat::new(0, 0);
    sets.park(&seat);
    held.set_aside(Some(sets.now()));
    assert_eq!(seat.take_message(), Some(Message::Lead));
    assert_eq!(Told::take_from(&watch), Told::Nothing);
}

/// A thread that finds nothing leaves its leads to one that serves: not if that one blocks, or is
/// stuck, or is done.
#[test]
fn leads_are_left_to_who_is_awake() {
    let sets = Sets::new(2, Wake::Adaptive);
    let (idle_list, blocks) = (&sets.idle_list, |blocks| Marks {
        blocks,
        ..Marks::default()
    });
    let never = || panic!("nobody is awake");
    assert_eq!(idle_list.leave_to_others(never), Others::AreNot);
    idle_list.serves(0, 0);
    let held = sets.take(0).expect("it is vacant");
    assert_eq!(idle_list.leave_to_others(never), Others::AreNot);
    let (blocked, _) = promoted(held, blocks(true), sets.now());
    assert_eq!(idle_list.leave_to_others(never), Others::AreNot);
    drop(blocked);
    let held = sets.take(0).expect("it is vacant");
    let (running, _) = promoted(held, blocks(false), sets.now());
    let mut set_aside = false;
    let left = idle_list.leave_to_others(|| set_aside = true);
    assert_eq!((left, set_aside), (Others::ComeBy, true));
    let done = idle_list.leave_to_others(|| idle_list.has_served(0));
    assert_eq!(done, Others::AreDone);
    idle_list.serves(0, 0);
    sets.time.advance(TICK);
    // The asking thread has just served too: that does not count.
    idle_list.serves(1, 1);
    idle_list.has_served(1);
    assert_eq!(idle_list.leave_to_others(never), Others::AreNot);
    drop(running);
}

/// A thread that checks all sets begins with the set after the one that was served last.
#[test]
fn every_set_has_its_turn() {
    let sets = Sets::new(3, Wake::Adaptive);
    let round = || sets.idle_list.round().collect::<Vec<_>>();
    assert_eq!(round(), [0, 1, 2]);
    sets.idle_list.serves(0, 1);
    assert_eq!(round(), [2, 0, 1]);
    sets.idle_list.serves(0, 2);
    assert_eq!(round(), [0, 1, 2]);
}

/// It looks when it is time, not when it wakes early, and not while it rests; and where nothing is
/// to be done, seldom.
#[test]
fn looks_have_their_time() {
    let sets = Sets::new(1, Wake::Adaptive);
    let (clock, mut outlook) = (sets.clock(), sets.idle_list.outlook(sets.now()));
    assert!(outlook.is_due(&clock));
    outlook.due = Some(sets.now().after(TICK));
    assert!(!outlook.is_due(&clock), "too early");
    sets.time.advance(TICK);
    assert!(outlook.is_due(&clock));
    outlook.due = None;
    assert!(!outlook.is_due(&clock), "it rests");
    outlook.calm = LOOKS_UNTIL_CALM - 1;
    assert_eq!(outlook.pause(sets.idle_list.tick), TICK);
    outlook.calm += 1;
    assert_eq!(outlook.pause(sets.idle_list.tick), TICK * CALM);
}
