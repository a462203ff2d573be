//! A handle that belongs to another thread than the one that leads: its event gets there, or to
//! anyone when that one is gone (H2); once, and to one thread at a time (H1).

use super::*;
use crate::dispatch::{Asleep, Kept, Mailbox, OwnMailbox, Reach};

/// Where a thread sleeps until something was handed to it.
#[derive(Clone)]
struct Bell(Arc<(AtomicBool, Parker)>);

impl Bell {
    fn new() -> Self {
        Self(Arc::new((AtomicBool::new(false), Parker::new())))
    }

    fn is_handed(&self) -> bool {
        self.0 .0.load(Ordering::Acquire)
    }

    /// As a thread that asks before it sleeps.
    fn sleep_until_handed(&self) {
        loop {
            self.0 .1.take();
            if self.is_handed() {
                return;
            }
            self.0 .1.sleep(None);
        }
    }
}

impl Reach for Bell {
    fn set_handed(&self, handed: bool) {
        self.0 .0.store(handed, Ordering::Release);
    }

    fn recall(&self) {
        self.0 .1.post(1);
        self.0 .1.wake();
    }

    /// It is always awake.
    fn if_asleep(&self, _: Asleep, _: &mut dyn FnMut()) -> bool {
        false
    }

    fn keep(&self) -> Kept {
        Kept::Begun
    }

    fn keep_no_more(&self) {}
}

/// A thread that has a mailbox: whose bell that is.
fn mailbox(registry: &Arc<Registry>) -> (Bell, OwnMailbox) {
    let bell = Bell::new();
    let mailbox = registry.open_mailbox(Mailbox::new(Box::new(bell.clone())));
    (bell, mailbox)
}

/// The handle, which was registered without interest, belongs to these threads from its first event
/// on.
fn settle(handle: &Handle, threads: &[thread::ThreadId]) {
    handle.pin_to(threads).unwrap();
    handle.set_interest(Interest::READ).unwrap();
}

/// Takes what was handed to this thread, and puts it back when that is done.
fn serve(registry: &Registry, mailbox: &OwnMailbox) {
    while let Some(claim) = registry.take_handed(mailbox) {
        release(dispatch(claim), &lead(), false);
    }
}

/// The handle is for another thread, which sleeps or is about to: it is woken, and reads
/// everything.
#[test]
fn loom_hand_to_its_thread() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::NONE);
        let (bell, mailbox) = mailbox(&registry);
        let affinity = {
            let (registry, world) = (Arc::clone(&registry), world.clone());
            let mailbox = Arc::new(mailbox);
            let its = Arc::clone(&mailbox);
            let affinity = thread::spawn(move || {
                for read in 1..=2 {
                    while world.read() < read {
                        bell.sleep_until_handed();
                        serve(&registry, &its);
                    }
                    if read == 1 {
                        world.send();
                    }
                }
                registry.wake_set();
            });
            mailbox.name(affinity.thread().id());
            affinity
        };
        settle(&handle, &[affinity.thread().id()]);
        let lead = lead();
        world.send();
        while world.read() < 2 {
            let claim = lock(&lead).next(&registry, None).unwrap();
            assert!(claim.is_none(), "it is not for this thread");
        }
        affinity.join().unwrap();
        assert_eq!(world.read(), 2);
    });
}

/// The thread leaves while the event is handed to it: it reads that, or the leader does.
#[test]
fn loom_hand_against_leaving() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::NONE);
        let (_, mailbox) = mailbox(&registry);
        let mailbox = Arc::new(mailbox);
        let affinity = {
            let (registry, its) = (Arc::clone(&registry), Arc::clone(&mailbox));
            thread::spawn(move || {
                serve(&registry, &its);
                drop(its);
            })
        };
        mailbox.name(affinity.thread().id());
        settle(&handle, &[affinity.thread().id()]);
        drop(mailbox);
        let lead = lead();
        world.send();
        work(&registry, &lead, true);
        affinity.join().unwrap();
        work(&registry, &lead, true);
        assert_eq!(world.read(), 1);
    });
}

/// It is for one of two threads, both awake. One leaves, the other looks: it is read once.
#[test]
fn loom_hand_to_one_of_two() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::NONE);
        let ((_, leaves), (_, looks)) = (mailbox(&registry), mailbox(&registry));
        let (leaves, looks) = (Arc::new(leaves), Arc::new(looks));
        let leaver = {
            let its = Arc::clone(&leaves);
            thread::spawn(move || drop(its))
        };
        let other = {
            let (registry, its) = (Arc::clone(&registry), Arc::clone(&looks));
            thread::spawn(move || serve(&registry, &its))
        };
        let ids = [leaver.thread().id(), other.thread().id()];
        leaves.name(ids[0]);
        looks.name(ids[1]);
        settle(&handle, &ids);
        drop(leaves);
        let lead = lead();
        world.send();
        work(&registry, &lead, true);
        leaver.join().unwrap();
        other.join().unwrap();
        drop(looks);
        work(&registry, &lead, true);
        assert_eq!(world.read(), 1);
    });
}

/// S1: the pool ends while the event is on its way to its thread. It ends once, and nothing is
/// left.
#[test]
fn loom_hand_against_the_end() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::NONE);
        let (_, mailbox) = mailbox(&registry);
        let mailbox = Arc::new(mailbox);
        let affinity = {
            let (registry, its) = (Arc::clone(&registry), Arc::clone(&mailbox));
            thread::spawn(move || serve(&registry, &its))
        };
        mailbox.name(affinity.thread().id());
        settle(&handle, &[affinity.thread().id()]);
        world.send();
        let ender = {
            let registry = Arc::clone(&registry);
            thread::spawn(move || registry.shut())
        };
        work(&registry, &lead(), false);
        ender.join().unwrap();
        affinity.join().unwrap();
        drop(mailbox);
        assert_eq!((world.closed(), registry.live()), (1, 0));
    });
}
