//! Sections, one after the other on one thread: a seat may be enlisted and called without a thread
//! that sleeps.

use std::time::Duration;

use super::{
    super::{
        held::{promoted, Rejoined},
        policy::Order,
        policy::Wake,
        word::Marks,
    },
    *,
};
use crate::sync::atomic::Ordering;

fn lead(order: Order) -> Lead<()> {
    woken(Wake::Adaptive, order)
}

fn woken(wake: Wake, order: Order) -> Lead<()> {
    let policy = Policy {
        wake,
        order,
        cores: 2,
        tick: Duration::from_secs(1),
    };
    Lead::vacant((), policy, Arc::default())
}

fn take<'a>(lead: &'a Lead<()>, seat: &Arc<Seat>) -> HeldLead<'a, ()> {
    match lead.arrive(seat, &Clock::monotonic(), Until::at(None)) {
        Arrival::Leads(held) => held,
        _ => panic!("the lead is vacant"),
    }
}

/// A thread that finds the lead vacant, and gets the lock when another has it, or was elected, or
/// the pool is closed, takes nothing, however high its rank.
#[test]
fn only_a_vacant_lead_is_taken() {
    let (lead, highest) = (lead(Order::Priority), Seat::new(1, 9));
    let held = take(&lead, &Seat::new(0, 0));
    assert!(!lead.elect_or_take(&highest), "held");
    drop(held);
    lead.word.update(|word| (word.with_elect(true), ()));
    assert!(!lead.elect_or_take(&highest), "offered");
    lead.word.update(|word| (word.with_elect(false), ()));
    lead.close();
    assert!(!lead.elect_or_take(&highest), "closed");
}

/// An offer that the end of the pool overtakes is not taken.
#[test]
fn closed_offer_is_not_taken() {
    let lead = lead(Order::Newest);
    lead.word.update(|word| (word.with_elect(true), ()));
    lead.close();
    assert!(matches!(lead.take_offer(), Attempt::Closed));
}

/// Something waits for a thread whose time is over, or whose pool is closed (S1): it goes, and
/// begins with nothing.
#[test]
fn handed_too_late() {
    let (lead, seat, clock) = (lead(Order::Newest), Seat::new(0, 0), Clock::monotonic());
    let arrive = |deadline| lead.arrive(&seat, &clock, Until::at(deadline));
    seat.set_handed(true);
    assert!(matches!(arrive(None), Arrival::Handed));
    assert!(matches!(arrive(Some(clock.now())), Arrival::TimedOut));
    lead.close();
    assert!(matches!(arrive(None), Arrival::Closed));
}

/// L4: a thread is elected and on its way, and the opener was faster. While that is so its
/// promotions wake no other: not to lead, nor to watch, though the standby is in deep sleep.
#[test]
fn one_wake_is_on_its_way() {
    let (lead, seats) = (lead(Order::Newest), [0, 1, 2, 3].map(|at| Seat::new(at, 0)));
    let held = take(&lead, &seats[0]);
    assert!(matches!(lead.enlist(&seats[1]), Attempt::StandsBy));
    assert!(matches!(lead.enlist(&seats[2]), Attempt::Parked));
    assert!(matches!(lead.enlist(&seats[3]), Attempt::Parked));
    let now = Clock::monotonic().now();
    let marks = |blocks| Marks {
        blocks,
        ..Marks::default()
    };
    let (running, promotion) = promoted(held, marks(true), now);
    assert_eq!(promotion, Promotion::Elected(Some(3)));
    lead.word
        .update(|word| (word.with_standby(Standby::Deep), ()));
    let Rejoined::Leads(held) = running.rejoin(&seats[0], now) else {
        panic!("its own opening");
    };
    let (running, promotion) = promoted(held, marks(false), now);
    assert_eq!(promotion, Promotion::LeftOpen);
    assert_eq!(lead.counters.snapshot().wakes, 1);
    drop(running);
}

/// Where the system picks, no thread can be named to watch, so one is woken to lead; but not if one
/// watches.
#[test]
fn who_watches_is_enough() {
    let (lead, seats) = (lead(Order::System), [0, 1, 2].map(|at| Seat::new(at, 0)));
    let held = take(&lead, &seats[0]);
    assert!(matches!(lead.enlist(&seats[1]), Attempt::StandsBy));
    assert!(matches!(lead.enlist(&seats[2]), Attempt::Parked));
    let (sight, now) = (held.sight(), Clock::monotonic().now());
    let (running, promotion) = held.promote(sight, Marks::default(), now);
    assert_eq!(promotion, Promotion::LeftOpen);
    drop(running);
}

/// A thread came and stands by, between the promotion that found none and its section: it stays,
/// and no other is woken to watch.
#[test]
fn one_stands_by() {
    let (lead, seats) = (lead(Order::Newest), [0, 1, 2].map(|at| Seat::new(at, 0)));
    let held = take(&lead, &seats[0]);
    assert!(matches!(lead.enlist(&seats[1]), Attempt::StandsBy));
    assert!(matches!(lead.enlist(&seats[2]), Attempt::Parked));
    assert_eq!(lead.appoint_standby(), Promotion::LeftOpen);
    assert_eq!(lead.counters.snapshot().wakes, 0);
    drop(held);
}

/// The textbook: the best follower is elected for every event. Otherwise it only watches.
#[test]
fn eager_is_who_elects_every_time() {
    for (wake, told) in [
        (Wake::Eager, Promotion::Elected(Some(2))),
        (Wake::Adaptive, Promotion::LeftOpen),
    ] {
        let (lead, seats) = (
            woken(wake, Order::Newest),
            [0, 1, 2].map(|at| Seat::new(at, 0)),
        );
        let held = take(&lead, &seats[0]);
        let _ = (lead.enlist(&seats[1]), lead.enlist(&seats[2]));
        let (running, promotion) = promoted(held, Marks::default(), Clock::monotonic().now());
        assert_eq!(promotion, told, "{wake:?}");
        drop(running);
    }
}

/// A thread that gives away a closed lead gets `Closing`: no thread is to be called, or sent for.
#[test]
fn nobody_comes_for_a_closed_lead() {
    for wake in [Wake::Eager, Wake::Adaptive] {
        let lead = woken(wake, Order::Newest);
        let held = take(&lead, &Seat::new(0, 0));
        lead.close();
        let (running, promotion) = promoted(held, Marks::default(), Clock::monotonic().now());
        assert_eq!(promotion, Promotion::Closing, "{wake:?}");
        drop(running);
    }
}

/// Two were idle for long. The second one would leave no thread behind, and a promotion may rely on
/// it.
#[test]
fn the_last_one_is_needed() {
    let lead = woken(Wake::Eager, Order::Newest);
    let (clock, seats) = (Clock::monotonic(), [0, 1, 2].map(|at| Seat::new(at, 0)));
    let held = take(&lead, &seats[0]);
    let follows = |seat| lead.follow(seat, &clock, Until::at(None), Some(Timestamp::PAST));
    assert!(matches!(lead.enlist(&seats[1]), Attempt::Parked));
    assert!(matches!(lead.enlist(&seats[2]), Attempt::Parked));
    assert!(matches!(follows(&seats[1]), Attempt::Idle));
    assert!(matches!(follows(&seats[2]), Attempt::Needed));
    drop(held);
}

/// An election offers a lead that is open and not offered yet, and no other.
#[test]
fn one_offer_of_an_open_lead() {
    let lead = woken(Wake::Eager, Order::Newest);
    let seats = [0, 1, 2].map(|at| Seat::new(at, 0));
    let held = take(&lead, &seats[0]);
    assert!(matches!(lead.enlist(&seats[1]), Attempt::Parked));
    assert!(matches!(lead.enlist(&seats[2]), Attempt::Parked));
    let elect = || lead.elect(|_| true, |word| word);
    assert_eq!(elect(), Promotion::LeftOpen, "held");
    // TAO's bug 173: another thread was faster.
    lead.word.update(|word| (word.with_elect(true), ()));
    assert!(matches!(lead.take_offer(), Attempt::Overtaken));
    drop(held);
    assert_eq!(seats[2].take_message(), Some(Message::Lead));
    assert_eq!(elect(), Promotion::LeftOpen, "offered");
    assert!(matches!(lead.take_offer(), Attempt::Took));
}

/// On two cores a promotion wakes a thread behind a computation until two run, and if more waits,
/// until three do; behind a mere backlog that the standby has seen until two do, and behind one
/// that it has not seen never.
#[test]
fn behind_a_computation_one_more_is_woken() {
    let wakes_beside = |others: usize, marks: Marks, looks: u64| {
        let (lead, seats) = (lead(Order::Newest), [0, 1, 2].map(|at| Seat::new(at, 0)));
        let held = take(&lead, &seats[0]);
        assert!(matches!(lead.enlist(&seats[1]), Attempt::StandsBy));
        assert!(matches!(lead.enlist(&seats[2]), Attempt::Parked));
        lead.word.run_more(others);
        lead.epoch.fetch_add(looks, Ordering::Relaxed);
        let (running, promotion) = promoted(held, marks, Clock::monotonic().now());
        drop(running);
        matches!(promotion, Promotion::Elected(_))
    };
    let marks = |computes, backlog| Marks {
        computes,
        backlog,
        ..Marks::default()
    };
    let (computes, backlog, both) = (marks(true, false), marks(false, true), marks(true, true));
    let wakes = |marks, looks| [0, 1, 2].map(|others| wakes_beside(others, marks, looks));
    assert_eq!(wakes(both, 0), [true, true, false]);
    assert_eq!(wakes(computes, 0), [true, false, false]);
    assert_eq!(wakes(backlog, 1), [true, false, false]);
    assert_eq!(wakes(backlog, 0), [false; 3]);
}
