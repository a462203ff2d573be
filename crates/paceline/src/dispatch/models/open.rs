//! A concurrent set: a thread about to sleep misses nothing, and a report to one thread is lost to
//! none.

use std::{sync::PoisonError, time::Duration};

use super::{concurrent::Taker, groups::Session, *};
use crate::{
    dispatch::{
        open_line::{Call, First, OpenLine},
        Found, TaskContext,
    },
    handle_set::{ConcurrentSet, Told},
    sync::Condvar,
};

const SOON: Duration = Duration::from_millis(1);
/// No model waits as long as that.
const LATE: Duration = Duration::from_secs(3600);

/// The world of one descriptor, in which many may wait.
#[derive(Clone)]
struct Hall {
    world: World,
    kernel: Arc<Kernel>,
}

/// Where they sleep, and what ends a sleep besides an event.
#[derive(Default)]
struct Kernel {
    bells: Mutex<Bells>,
    rung: Condvar,
}

#[derive(Default)]
struct Bells {
    /// Wakes that no thread has taken are one.
    woken: bool,
    alarm: Option<Timestamp>,
}

impl Kernel {
    /// There may be something to report: one of the sleeping threads checks.
    fn ring(&self, change: impl FnOnce(&mut Bells)) {
        change(&mut lock(&self.bells));
        self.rung.notify_one();
    }

    fn wake(&self) {
        self.ring(|bells| bells.woken = true);
    }

    /// Sleeps until `look` finds something. What is left is the next one's.
    fn sleep<R>(&self, look: impl Fn(&mut Bells) -> Option<R>) -> R {
        let mut bells = lock(&self.bells);
        loop {
            if let Some(found) = look(&mut bells) {
                drop(bells);
                self.rung.notify_one();
                return found;
            }
            let woken = self.rung.wait(bells);
            bells = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Hall {
    fn new() -> Self {
        Self {
            world: World::reporting(Reports::Once),
            kernel: Arc::default(),
        }
    }

    fn registry(&self) -> Arc<Registry> {
        self.world.registry_over(Box::new(self.clone()))
    }

    fn send(&self) {
        self.world.send();
        self.kernel.ring(|_| {});
    }

    /// One thing to report. A time that is near has come.
    fn look(&self, bells: &mut Bells) -> Option<Told> {
        let clock = &self.world.0.clock;
        let now = Clock::Virtual(Arc::clone(clock)).now();
        if std::mem::take(&mut bells.woken) {
            return Some(Told::Woken);
        }
        let mut watched = lock(&self.world.0.watched);
        if !watched.untold.is_empty() {
            return Some(Told::Handle(watched.untold.remove(0)));
        }
        let left = bells.alarm?.since(now);
        (left < Duration::from_secs(1)).then(|| {
            bells.alarm = None;
            clock.advance(left);
            Told::Alarm
        })
    }
}

impl HandleSet for Hall {
    fn reports(&self) -> Reports {
        Reports::Once
    }

    fn add(&self, descriptor: RawFd, key: u64) -> io::Result<()> {
        self.world.add(descriptor, key)
    }

    fn arm(&self, descriptor: RawFd, key: u64, directions: Ready) -> io::Result<()> {
        self.world.arm(descriptor, key, directions)?;
        self.kernel.ring(|_| {});
        Ok(())
    }

    fn remove(&self, descriptor: RawFd) -> io::Result<()> {
        self.world.remove(descriptor)
    }

    fn wait(&self, _: &mut Vec<Event>, _: Option<Timestamp>) -> io::Result<Answer> {
        unreachable!("nobody leads")
    }

    fn wake(&self) {
        self.kernel.wake();
    }

    fn concurrent(&self) -> Option<&dyn ConcurrentSet> {
        Some(self)
    }
}

impl ConcurrentSet for Hall {
    fn wait_among_others(
        &self,
        _: usize,
        until: Option<Timestamp>,
        tell: &mut dyn FnMut(Told),
    ) -> io::Result<()> {
        let told = if until == Some(Timestamp::PAST) {
            self.look(&mut lock(&self.kernel.bells))
        } else {
            Some(self.kernel.sleep(|bells| self.look(bells)))
        };
        told.into_iter().for_each(tell);
        Ok(())
    }

    fn set_alarm(&self, at: Option<Timestamp>) {
        self.kernel.ring(|bells| bells.alarm = at);
    }

    fn glance(&self, _: RawFd, directions: Ready) -> Ready {
        if *lock(&self.world.0.unread) > 0 {
            Ready::READABLE & directions
        } else {
            Ready::NONE
        }
    }
}

/// The line, and the place where threads sleep that find nothing there.
#[derive(Clone)]
struct Stand(Arc<(OpenLine, Kernel)>);

impl Stand {
    fn new() -> Self {
        Self(Arc::new((OpenLine::new(), Kernel::default())))
    }

    fn obey(&self, call: Call) {
        if let Call::WakeOne = call {
            self.0 .1.wake();
        }
    }

    /// Sleeps until there is one; `None`: it is over.
    fn take(&self) -> Option<u32> {
        let (line, kernel) = &*self.0;
        loop {
            let (index, call) = match line.first(true) {
                First::Handle(index, call) => (Some(index), call),
                First::Over => {
                    self.obey(line.end());
                    return None;
                }
                _ => {
                    kernel.sleep(|bells| std::mem::take(&mut bells.woken).then_some(()));
                    line.back(true, true, true)
                }
            };
            self.obey(call);
            if index.is_some() {
                return index;
            }
        }
    }

    fn push(&self, index: u32) {
        self.obey(self.0 .0.push(index));
    }

    fn taker(&self) -> thread::JoinHandle<Option<u32>> {
        let stand = self.clone();
        thread::spawn(move || stand.take())
    }
}

/// H2: put in while a thread is about to sleep: it does not sleep over it.
#[test]
fn loom_open_push_against_sleep() {
    explore(|| {
        let stand = Stand::new();
        let taker = stand.taker();
        stand.push(7);
        assert_eq!(taker.join().unwrap(), Some(7));
    });
}

/// H2: two are put in while two sleep, or are about to. The two wakes may be one, and each thread
/// that takes a handle is gone for long. Each handle is taken all the same.
#[test]
fn loom_open_two_pushes_wake_two() {
    explore(|| {
        let stand = Stand::new();
        let takers = [stand.taker(), stand.taker()];
        stand.push(1);
        stand.push(2);
        let mut taken = takers.map(|taker| taker.join().unwrap());
        taken.sort_unstable();
        assert_eq!(taken, [Some(1), Some(2)]);
    });
}

/// S1: the end reaches every thread that sleeps, or is about to.
#[test]
fn loom_open_end_reaches_all() {
    explore(|| {
        let stand = Stand::new();
        let takers = [stand.taker(), stand.taker()];
        stand.obey(stand.0 .0.end());
        for taker in takers {
            assert_eq!(taker.join().unwrap(), None);
        }
    });
}

/// H2: put in quietly by a thread that then leaves: another thread takes it.
#[test]
fn loom_open_leaver_passes_on() {
    explore(|| {
        let stand = Stand::new();
        let taker = stand.taker();
        stand.0 .0.push_quietly(7);
        stand.obey(stand.0 .0.pass_on());
        assert_eq!(taker.join().unwrap(), Some(7));
    });
}

/// One turn of a thread that waits among others. Returns whether there may be more.
fn turn(registry: &Registry, until: Option<Timestamp>) -> bool {
    let claim = match registry.next_for_anyone(until).unwrap() {
        Found::Handle(claim) => claim,
        Found::LookAgain => return true,
        Found::Nothing => return false,
    };
    let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
    let mut afterwards = claim.afterwards();
    let done = claim.dispatch(&clock, clock.now(), &OffDuty, &mut afterwards);
    if let Some(claim) = done.claim {
        claim.release_for_anyone(&afterwards);
    }
    registry.run_afterwards(afterwards, &OffDuty);
    true
}

/// Takes turns until nothing is ready.
fn work_open(registry: &Registry) {
    while turn(registry, Some(Timestamp::PAST)) {}
}

/// Takes turns until everything is drained.
fn work_until_drained(registry: &Registry) {
    while !registry.is_drained() {
        turn(registry, None);
    }
    registry.end_waits();
}

/// Two threads take turns until nothing is ready, while a second byte comes. Both bytes are taken.
fn two_bytes(register: impl Fn(&Hall, &Registry) + Send + Sync + 'static) {
    explore(move || {
        let hall = Hall::new();
        let registry = hall.registry();
        register(&hall, &registry);
        hall.send();
        let other = {
            let (hall, registry) = (hall.clone(), Arc::clone(&registry));
            thread::spawn(move || {
                hall.send();
                work_open(&registry);
            })
        };
        work_open(&registry);
        other.join().unwrap();
        work_open(&registry);
        assert_eq!(hall.world.read(), 2);
    });
}

/// H1, H2: of a byte stream, by one thread at a time.
#[test]
fn loom_open_report_against_release() {
    two_bytes(|hall, registry| drop(hall.world.register(registry, Interest::READ)));
}

/// H2: of a concurrent handle, by several; what was owed to the set is paid.
#[test]
fn loom_open_two_at_once() {
    two_bytes(|hall, registry| {
        let taker = Taker(hall.world.clone());
        drop(registry.register_concurrent(Descriptor, Interest::READ, taker));
    });
}

/// H3: a registration ends while a thread that uses it pays what it owes to the set, and the next
/// one has the same descriptor: that is reported under its own key.
#[test]
fn loom_open_payment_against_the_next_owner() {
    explore(|| {
        let hall = Hall::new();
        let registry = hall.registry();
        let register = || {
            let taker = Taker(hall.world.clone());
            registry.register_concurrent(Descriptor, Interest::READ, taker)
        };
        let old = register().unwrap();
        hall.send();
        let user = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || work_open(&registry))
        };
        let _ = old.close();
        // Its key is stale: it is out of the set, whichever thread still uses it. (Else its user
        // ends it.)
        let next = old.suspend().is_err().then(register);
        user.join().unwrap();
        work_open(&registry);
        if next.is_some() {
            let before = hall.world.read();
            hall.send();
            work_open(&registry);
            assert_eq!(hall.world.read(), before + 1);
        }
    });
}

/// H2: interest comes from a thread that has nothing to do with the pool, and arms.
#[test]
fn loom_open_report_against_interest() {
    explore(|| {
        let hall = Hall::new();
        let registry = hall.registry();
        let handle = hall.world.register(&registry, Interest::NONE);
        let peer = {
            let hall = hall.clone();
            thread::spawn(move || hall.send())
        };
        let worker = {
            let (hall, registry) = (hall.clone(), Arc::clone(&registry));
            thread::spawn(move || {
                while hall.world.read() == 0 {
                    turn(&registry, None);
                }
            })
        };
        handle.set_interest(Interest::READ).unwrap();
        peer.join().unwrap();
        worker.join().unwrap();
    });
}

/// S1: a byte has arrived, and the set may have reported it to another thread, which has not noted
/// it. It is read before the drain ends its handle; and both threads learn that all is drained.
#[test]
fn loom_open_drain_reads_what_has_arrived() {
    explore(|| {
        let hall = Hall::new();
        let registry = hall.registry();
        hall.world.register(&registry, Interest::READ);
        hall.send();
        let other = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || work_until_drained(&registry))
        };
        registry.drain();
        work_until_drained(&registry);
        other.join().unwrap();
        assert_eq!((hall.world.read(), hall.world.closed()), (1, 1));
    });
}

/// A byte has arrived when the time of its handle is over, and the set may have reported it to
/// another thread, which has not noted it: the handle is not idle. Later it is.
fn input_is_not_idle(register: impl Fn(&Hall, &Registry) -> Handle + Send + Sync + 'static) {
    explore(move || {
        let hall = Hall::new();
        let registry = hall.registry();
        let handle = register(&hall, &registry);
        handle.set_timeout(Some(SOON)).unwrap();
        hall.send();
        let other = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || turn(&registry, Some(Timestamp::PAST)))
        };
        turn(&registry, Some(Timestamp::PAST));
        other.join().unwrap();
        while hall.world.closed() == 0 {
            turn(&registry, None);
        }
        assert_eq!(hall.world.read(), 1);
    });
}

/// H2: of a handle of its own.
#[test]
fn loom_open_input_is_not_idle() {
    input_is_not_idle(|hall, registry| hall.world.register(registry, Interest::READ));
}

/// H2: of a group's member, whose descriptor only the group has.
#[test]
fn loom_open_members_input_is_not_idle() {
    input_is_not_idle(|hall, registry| {
        let session = Session {
            world: hall.world.clone(),
            goes_to: None,
            ended: Arc::default(),
        };
        let group = registry.group(session).unwrap();
        let member = group.register(Descriptor, Interest::READ).unwrap();
        work_open(registry);
        member
    });
}

/// Two times are set at once, the one far away: the alarm is set for the near one, in either order.
#[test]
fn loom_open_the_earliest_alarm_counts() {
    explore(|| {
        let hall = Hall::new();
        let registry = hall.registry();
        let called = Arc::new(AtomicUsize::new(0));
        let setter = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || {
                let late = registry.after(LATE, |_| unreachable!("nobody waits so long"));
                drop(late.unwrap());
            })
        };
        let counted = Arc::clone(&called);
        let near = move |_: &mut TaskContext<'_>| {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        drop(registry.after(SOON, near).unwrap());
        setter.join().unwrap();
        while called.load(Ordering::Relaxed) == 0 {
            turn(&registry, None);
        }
    });
}
