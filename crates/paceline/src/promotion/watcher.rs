//! The watcher: a thread that finds a blind pool as soon as a core is idle.
//!
//! Behind a handler that blocks by surprise the standby takes over at its next check. Where
//! handlers do that often, most of the time would be lost there. The watcher is a thread of the
//! lowest scheduling class, which the system runs only when a core has nothing else to do: where
//! the cores are busy, that is just when the opener of the lead has fallen asleep. So it does not
//! sleep between its checks, which would cost more than it saves, as long as the lead moves and up
//! to a quarter of a core. An open lead that it sees unchanged twice within microseconds makes it
//! **ring** for the standby, which then does what it would have done at its next check. (Where a
//! core is idle anyway it may also ring behind a handler that computes: then a thread leads on that
//! core.)
//!
//! ```text
//!  asleep   --> watching   [Watcher::note_surprise]  the second surprise in a short time
//!  watching --> asleep     [Watcher::rest]           no surprise for a while
//! ```
//!
//! All that it does is give hints, and the promises rest on the standby, which checks less often
//! while this thread does, but does check. It may be without a core for long, so no thread ever
//! waits for it: it never takes the followers' lock, and the one lock that it takes others only
//! try.

use std::{
    hint,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use super::lead::Lead;
use crate::sync::{
    atomic::{AtomicU64, Ordering},
    lock, Clock, Moment, Mutex, Parker, Timestamp,
};

/// A handler that took longer than this, and whose lead is gone when it is back, has blocked by
/// surprise.
pub(super) const LATE: Duration = Duration::from_micros(500);
/// Two surprises within this time have the watcher watch.
const SHORT_TIME: Duration = Duration::from_millis(20);
/// It watches so long after the last surprise.
const WHILE: Duration = Duration::from_millis(50);
/// The time between two looks.
const PERIOD: Duration = Duration::from_nanos(500);
/// The same once the lead was seen open: most handlers are done by then.
const SECOND_LOOK: Duration = Duration::from_micros(5);
/// So many looks at the same held lead make an idle pool: it naps.
const LOOKS_UNTIL_NAP: u32 = 40;
const NAP: Duration = Duration::from_micros(50);
/// Between its looks it is awake for no more than this ..
const ALLOWANCE: Duration = Duration::from_micros(2_500);
/// .. in this time: then it naps between all looks.
const ALLOWANCE_FOR: Duration = Duration::from_millis(10);

/// A watcher whose last check is no older is watching.
const LATELY: Duration = Duration::from_millis(20);

/// There is no sequence like this: an open lead's is odd.
const NO_HINT: u64 = 0;
/// There was no surprise yet.
const NEVER: u64 = 0;
/// It does not watch.
const ASLEEP: u64 = 0;
/// The message that ends its sleep.
const GET_UP: u32 = 1;

/// What the pool and its watcher have in common.
#[derive(Debug)]
pub(super) struct Watcher {
    /// When a handler last blocked by surprise.
    last_surprise: AtomicU64,
    /// Until when it watches, or [`ASLEEP`].
    until: AtomicU64,
    /// Where it sleeps.
    parker: Arc<Parker>,
    /// Where the standby sleeps. The standby only tries to lock it: see above.
    bell: Mutex<Option<Arc<Parker>>>,
    /// The sequence of an open lead that was seen unchanged, or [`NO_HINT`].
    hint: AtomicU64,
    /// When it last looked.
    looked: Moment,
}

impl Watcher {
    pub(super) fn new() -> Self {
        Self {
            last_surprise: AtomicU64::new(NEVER),
            until: AtomicU64::new(ASLEEP),
            parker: Arc::new(Parker::new()),
            bell: Mutex::new(None),
            hint: AtomicU64::new(NO_HINT),
            looked: Moment::default(),
        }
    }

    /// A handler has blocked by surprise. The second one in a short time has the watcher watch.
    fn note_surprise(&self, now: Timestamp) -> Surprise {
        let last = self.last_surprise.swap(now.to_nanos(), Ordering::AcqRel);
        if last == NEVER || now.to_nanos().saturating_sub(last) > SHORT_TIME.as_nanos() as u64 {
            return Surprise::Rare;
        }
        let until = now.after(WHILE).to_nanos();
        if self.until.swap(until, Ordering::AcqRel) == ASLEEP {
            self.get_up();
        }
        Surprise::Frequent
    }

    /// Whether it watches: it has looked lately. It may have no core, or there may be no such
    /// thread.
    pub(super) fn is_watching(&self, now: Timestamp) -> bool {
        let looked = Duration::from_nanos(self.looked.nanos_before(now));
        self.until.load(Ordering::Relaxed) != ASLEEP && looked <= LATELY
    }

    /// Ends its sleep: to watch, or to go.
    pub(super) fn get_up(&self) {
        self.parker.post(GET_UP);
        self.parker.wake();
    }

    /// Sleeps until there is a reason to watch, if the last one is old.
    fn rest(&self, now: Timestamp) {
        let until = self.until.load(Ordering::Acquire);
        if now.to_nanos() < until {
            return;
        }
        // A surprise that comes after this step leaves a message.
        let asleep =
            self.until
                .compare_exchange(until, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        if asleep.is_ok() {
            while self.parker.take() != GET_UP {
                self.parker.sleep(None);
            }
        }
    }

    /// Says where the standby sleeps. If the watcher is just ringing, it learns it later.
    pub(super) fn rings_at(&self, standby: &Arc<Parker>) {
        if let Ok(mut bell) = self.bell.try_lock() {
            *bell = Some(Arc::clone(standby));
        }
    }

    /// The hint, for the standby.
    pub(super) fn take_hint(&self) -> Option<u64> {
        if self.hint.load(Ordering::Relaxed) == NO_HINT {
            return None;
        }
        let hint = self.hint.swap(NO_HINT, Ordering::AcqRel);
        (hint != NO_HINT).then_some(hint)
    }

    /// Leaves a hint, and wakes the standby.
    fn ring(&self, sequence: u64) {
        self.hint.swap(sequence, Ordering::AcqRel);
        let standby = lock(&self.bell).clone();
        if let Some(standby) = standby {
            standby.nudge();
        }
    }
}

/// How often handlers block by surprise.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Surprise {
    /// Too rarely to have a watcher.
    Rare,
    /// The watcher shall watch, or is to be hired.
    Frequent,
}

impl<T> Lead<T> {
    /// See [`Watcher::note_surprise`].
    #[cold]
    pub(crate) fn note_surprise(&self, now: Timestamp) -> Surprise {
        let watcher = self.watcher.as_ref();
        watcher.map_or(Surprise::Rare, |watcher| watcher.note_surprise(now))
    }

    /// The life of the watcher, until the pool is closed. Its thread is of the lowest scheduling
    /// class.
    pub(crate) fn watch(&self, clock: &Clock) {
        let Some(watcher) = &self.watcher else {
            return;
        };
        let (mut sight, mut purse) = (Sight::default(), Purse::filled(clock.now()));
        while !self.is_closed() {
            watcher.rest(clock.now());
            watcher.looked.set(clock.now());
            self.look_again(watcher, &mut sight);
            match sight.pause() {
                Pause::Awake(span) if purse.pays(span, clock.now()) => stay_awake(span),
                _ => thread::sleep(NAP),
            }
        }
    }

    /// One look: rings if the lead is as open as it was at the last one.
    fn look_again(&self, watcher: &Watcher, sight: &mut Sight) {
        let word = self.word.look();
        sight.note(word.sequence());
        sight.blind = word.is_vacant() && !word.has_nobody() && !word.is_closed();
        if sight.blind && sight.looks > 1 {
            watcher.ring(word.sequence());
            sight.looks = 0;
        }
    }
}

/// What the watcher has seen of the lead.
#[derive(Debug, Default)]
struct Sight {
    sequence: u64,
    /// How often in a row it was seen with this sequence.
    looks: u32,
    /// It is open, a thread sleeps, and none is on the way.
    blind: bool,
}

/// How the watcher passes the time until its next look.
enum Pause {
    /// It stays on its core: were it to sleep, the system would need longer than this to wake it.
    Awake(Duration),
    Asleep,
}

impl Sight {
    fn note(&mut self, sequence: u64) {
        let same = sequence == self.sequence;
        self.looks = if same {
            self.looks.saturating_add(1)
        } else {
            1
        };
        self.sequence = sequence;
    }

    fn pause(&self) -> Pause {
        if self.blind {
            Pause::Awake(SECOND_LOOK)
        } else if self.looks > LOOKS_UNTIL_NAP {
            Pause::Asleep
        } else {
            Pause::Awake(PERIOD)
        }
    }
}

/// What the watcher may still spend on staying awake: its core time stays bounded.
#[derive(Debug)]
struct Purse {
    /// When this allowance began.
    since: Timestamp,
    /// What is gone of it.
    spent: Duration,
}

impl Purse {
    fn filled(now: Timestamp) -> Self {
        Self {
            since: now,
            spent: Duration::ZERO,
        }
    }

    /// Spends `span`, and returns whether that much was left.
    fn pays(&mut self, span: Duration, now: Timestamp) -> bool {
        if now.since(self.since) >= ALLOWANCE_FOR {
            *self = Self::filled(now);
        }
        self.spent += span;
        self.spent <= ALLOWANCE
    }
}

/// Keeps the core for so long, or until something else wants it.
fn stay_awake(span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        hint::spin_loop();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{super::held::promoted, *};
    use crate::{
        observe::Counters,
        promotion::{
            Arrival, HeldLead, Marks, Order, Policy, Rejoined, Running, Seat, Until, Wake,
        },
        sync::VirtualClock,
    };

    const TICK: Duration = Duration::from_millis(1);

    /// A lead, and a clock that moves by hand.
    struct Stage {
        lead: Lead<()>,
        clock: Clock,
        time: Arc<VirtualClock>,
        counters: Arc<Counters>,
    }

    impl Stage {
        fn new() -> Self {
            Self::with_tick(TICK)
        }

        fn with_tick(tick: Duration) -> Self {
            let counters = Arc::new(Counters::default());
            let policy = Policy {
                wake: Wake::Adaptive,
                order: Order::Newest,
                cores: 1,
                tick,
            };
            let time = Arc::new(VirtualClock::new());
            Self {
                lead: Lead::vacant((), policy, Arc::clone(&counters)).watched(true),
                clock: Clock::Virtual(Arc::clone(&time)),
                time,
                counters,
            }
        }

        fn lead(&self, index: usize) -> HeldLead<'_, ()> {
            match self
                .lead
                .arrive(&Seat::new(index, 0), &self.clock, Until::at(None))
            {
                Arrival::Leads(held) => held,
                _ => panic!("it can be led"),
            }
        }

        /// Runs `work` on a thread that leads, while another one stands by, asleep; then the
        /// standby is sent home or leads, and its lead is given back.
        fn beside_a_standby(&self, work: impl FnOnce(HeldLead<'_, ()>)) {
            let held = self.lead(0);
            thread::scope(|scope| {
                scope.spawn(|| {
                    drop(
                        self.lead
                            .arrive(&Seat::new(1, 0), &self.clock, Until::at(None)),
                    )
                });
                self.until_asleep();
                work(held);
                self.lead.close();
            });
        }

        fn until_asleep(&self) {
            while self.time.asleep() < 1 {
                thread::yield_now();
            }
        }

        fn rejoined<'s>(&'s self, running: Running<'s, ()>) -> Rejoined<'s, ()> {
            running.rejoin(&Seat::new(0, 0), self.clock.now())
        }
    }

    /// What it is for: behind a handler that blocks, the standby takes over at once, without a
    /// tick.
    #[test]
    fn a_ring_has_the_standby_take_over() {
        let stage = Stage::new();
        stage.beside_a_standby(|held| {
            let (running, _) = promoted(held, Marks::default(), stage.clock.now());
            let watcher = stage.lead.watcher.as_ref().expect("a watcher");
            let mut sight = Sight::default();
            stage.lead.look_again(watcher, &mut sight);
            assert!(sight.blind && watcher.hint.load(Ordering::Acquire) == NO_HINT);
            assert_eq!(sight.looks, 1, "who has rung begins anew");
            stage.lead.look_again(watcher, &mut sight);
            while stage.counters.snapshot().rings == 0 {
                thread::yield_now();
            }
            assert_eq!(stage.counters.snapshot().ticks, 0);
            drop(running);
        });
    }

    /// It stays awake where the lead is on the move, and naps where nothing happens. A held lead is
    /// never rung for.
    #[test]
    fn it_naps_where_nothing_happens() {
        let stage = Stage::new();
        let held = stage.lead(0);
        let watcher = stage.lead.watcher.as_ref().expect("a watcher");
        let mut sight = Sight::default();
        let mut looks = 0;
        while let Pause::Awake(span) = sight.pause() {
            assert_eq!(span, PERIOD);
            stage.lead.look_again(watcher, &mut sight);
            looks += 1;
        }
        assert_eq!(looks, LOOKS_UNTIL_NAP + 1);
        assert_eq!(watcher.hint.load(Ordering::Acquire), NO_HINT);
        drop(held);
        stage.lead.look_again(watcher, &mut sight);
        assert!(matches!(sight.pause(), Pause::Awake(_)), "it has moved");
    }

    /// A thread leads, and another stands by: there is nothing to ring for.
    #[test]
    fn it_does_not_ring_behind_a_leader() {
        let stage = Stage::new();
        stage.beside_a_standby(|held| {
            let watcher = stage.lead.watcher.as_ref().expect("a watcher");
            let mut sight = Sight::default();
            for _ in 0..3 {
                stage.lead.look_again(watcher, &mut sight);
                assert!(!sight.blind);
            }
            drop(held);
        });
    }

    /// Two surprises are not enough for the standby to rely on it: it must have looked, and lately.
    #[test]
    fn it_is_relied_on_while_it_looks() {
        let stage = Stage::new();
        let watcher = stage.lead.watcher.as_ref().expect("a watcher");
        stage.time.advance(LATELY * 2);
        for _ in 0..2 {
            let _ = stage.lead.note_surprise(stage.clock.now());
        }
        assert!(!watcher.is_watching(stage.clock.now()), "no such thread");
        watcher.looked.set(stage.clock.now());
        assert!(watcher.is_watching(stage.clock.now()));
        assert_eq!(stage.lead.time_until_look(&stage.clock), TICK * 4);
        stage.time.advance(LATELY + TICK);
        assert!(!watcher.is_watching(stage.clock.now()), "it has no core");
        assert_eq!(stage.lead.time_until_look(&stage.clock), TICK);
    }

    /// A standby that checks seldom, and has the longest tick there is, checks at the end of time.
    #[test]
    fn the_longest_tick_is_not_too_long() {
        let stage = Stage::with_tick(Duration::MAX);
        stage.time.advance(TICK);
        for _ in 0..2 {
            let _ = stage.lead.note_surprise(stage.clock.now());
        }
        let watcher = stage.lead.watcher.as_ref().expect("a watcher");
        watcher.looked.set(stage.clock.now());
        assert!(watcher.is_watching(stage.clock.now()));
        let far = Duration::from_secs(1 << 30);
        assert!(stage.lead.time_until_look(&stage.clock) > far);
    }

    /// A quarter of a core, and no more.
    #[test]
    fn what_it_spends_is_bounded() {
        let (start, mut spent) = (Clock::monotonic().now(), Duration::ZERO);
        let mut purse = Purse::filled(start);
        while purse.pays(SECOND_LOOK, start) {
            spent += SECOND_LOOK;
        }
        assert_eq!(spent, ALLOWANCE);
        let soon = start.after(ALLOWANCE_FOR - PERIOD);
        assert!(!purse.pays(PERIOD, soon));
        assert!(purse.pays(PERIOD, start.after(ALLOWANCE_FOR)));
    }

    /// Hints that come too late, one after the other, would keep a standby from ever looking by
    /// itself if each began a new tick.
    #[test]
    fn hints_do_not_put_a_look_off() {
        let stage = Stage::new();
        stage.beside_a_standby(|held| {
            let watcher = stage.lead.watcher.as_ref().expect("a watcher");
            for _ in 0..4 {
                watcher.ring(u64::MAX);
                while watcher.hint.load(Ordering::Acquire) != NO_HINT {
                    thread::yield_now();
                }
                stage.until_asleep();
                stage.time.advance(TICK / 2);
                stage.until_asleep();
            }
            assert_eq!(stage.counters.snapshot().ticks, 2);
            assert_eq!(stage.counters.snapshot().rings, 0);
            drop(held);
        });
    }

    /// Only a thread that loses its lead in a handler not known to be long is surprised; and only
    /// the second surprise in a short time counts.
    #[test]
    fn surprises_are_untold_and_frequent() {
        let stage = Stage::new();
        let lost = |marks: Marks, tell: fn(&Running<'_, ()>), took: Duration| {
            let (running, _) = promoted(stage.lead(0), marks, stage.clock.now());
            tell(&running);
            stage.time.advance(took);
            // Another thread takes the lead meanwhile.
            let other = stage.lead(1);
            let rejoined = stage.rejoined(running);
            drop(other);
            matches!(rejoined, Rejoined::Surprised)
        };
        let (short, long) = (
            Marks::default(),
            Marks {
                blocks: true,
                ..Marks::default()
            },
        );
        assert!(lost(short, |_| {}, LATE * 2));
        assert!(!lost(short, |_| {}, LATE));
        assert!(!lost(long, |_| {}, LATE * 2));
        assert!(!lost(short, |running| running.call_for_help(), LATE * 2));
        assert!(!lost(
            short,
            |running| {
                running.go_away();
                let _ = running.come_back();
            },
            LATE * 2
        ));

        assert_eq!(stage.lead.note_surprise(stage.clock.now()), Surprise::Rare);
        stage.time.advance(SHORT_TIME + TICK);
        assert_eq!(stage.lead.note_surprise(stage.clock.now()), Surprise::Rare);
        stage.time.advance(SHORT_TIME);
        assert_eq!(
            stage.lead.note_surprise(stage.clock.now()),
            Surprise::Frequent
        );
    }

    /// The second surprise in a short time gets it up, and the third finds it awake. When the last
    /// one is old it goes to sleep, and it takes two to get it up again.
    #[test]
    fn it_gets_up_and_rests() {
        let stage = Stage::new();
        let watcher = stage.lead.watcher.as_ref().expect("a watcher");
        let gets_up = || {
            stage.time.advance(TICK);
            let _ = stage.lead.note_surprise(stage.clock.now());
            watcher.parker.take() == GET_UP
        };
        assert_eq!([(); 3].map(|()| gets_up()), [false, true, false]);
        // With a message it can't sleep here. While it shall watch it does not even look for one.
        watcher.get_up();
        watcher.rest(stage.clock.now());
        assert_eq!(watcher.parker.take(), GET_UP);
        stage.time.advance(WHILE);
        watcher.get_up();
        watcher.rest(stage.clock.now());
        assert_eq!([(); 3].map(|()| gets_up()), [false, true, false]);
    }

    /// A hint that comes when a standby's time is over is too late: it leads no more (I4).
    #[test]
    fn who_is_late_does_not_take_over() {
        let stage = Stage::new();
        let held = stage.lead(0);
        thread::scope(|scope| {
            let standby = scope.spawn(|| {
                let deadline = Some(stage.clock.now().after(TICK / 2));
                let arrival =
                    stage
                        .lead
                        .arrive(&Seat::new(1, 0), &stage.clock, Until::at(deadline));
                matches!(arrival, Arrival::TimedOut)
            });
            stage.until_asleep();
            let (running, _) = promoted(held, Marks::default(), stage.clock.now());
            let watcher = stage.lead.watcher.as_ref().expect("a watcher");
            // The hint is left, and before the ring the deadline passes.
            let sequence = stage.lead.word.look().sequence();
            watcher.hint.swap(sequence, Ordering::AcqRel);
            stage.time.advance(TICK);
            assert!(standby.join().expect("no panic"), "its time is over");
            drop(running);
        });
    }
}
