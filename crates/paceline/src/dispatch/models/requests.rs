//! What an application asks of a handle, against its owner at work.

use super::*;

/// Adds up what was put where it looks; has no input of its own.
struct Collector {
    posted: Arc<AtomicUsize>,
    seen: Arc<AtomicUsize>,
}

impl EventHandler<Descriptor> for Collector {
    fn ready(&mut self, cx: &mut Context<'_, Descriptor>) -> io::Result<Next> {
        assert!(cx.is_notified());
        self.seen
            .store(self.posted.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(Next::Continue)
    }
}

/// H2, `notify_enqueue_drain_order_loses_nothing` (ACE 2010): two notifications, one of them while
/// the handler may be running. A call sees what was written before the last one.
#[test]
fn loom_notify_against_release() {
    explore(|| {
        let registry = World::new().registry();
        let (posted, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let handler = Collector {
            posted: Arc::clone(&posted),
            seen: Arc::clone(&seen),
        };
        let handle = registry.register(Descriptor, Interest::NONE, handler);
        let handle = handle.unwrap();
        let notify = move || {
            posted.fetch_add(1, Ordering::Relaxed);
            handle.notify().unwrap();
        };
        notify();
        let notifier = thread::spawn(notify);
        let lead = lead();
        work(&registry, &lead, true);
        notifier.join().unwrap();
        work(&registry, &lead, true);
        assert_eq!(seen.load(Ordering::Relaxed), 2);
    });
}

/// H2: suspended and resumed from elsewhere while the peer sends: in the end the byte is read.
fn suspend_and_resume(reports: Reports) {
    explore(move || {
        let world = World::reporting(reports);
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        let other = thread::spawn(move || {
            handle.suspend().unwrap();
            handle.resume().unwrap();
        });
        world.send();
        let lead = lead();
        work(&registry, &lead, true);
        other.join().unwrap();
        work(&registry, &lead, true);
        assert_eq!(world.read(), 1);
    });
}

#[test]
fn loom_suspend_and_resume() {
    suspend_and_resume(Reports::Edges);
}

#[test]
fn loom_suspend_and_resume_once() {
    suspend_and_resume(Reports::Once);
}

/// A thread that waits for the end of a registration that its owner is ending, or that a third
/// thread ends, returns after `closed` was called.
#[test]
fn loom_close_and_wait() {
    explore(|| {
        let world = World::new();
        let registry = world.registry();
        let handle = world.register(&registry, Interest::READ);
        world.send();
        let waiter = {
            let (world, handle) = (world.clone(), handle.clone());
            thread::spawn(move || {
                // An error says that it was over before.
                let _ = handle.close_and_wait();
                assert_eq!(world.closed(), 1);
            })
        };
        let closer = thread::spawn(move || drop(handle.close()));
        let lead = lead();
        work(&registry, &lead, true);
        closer.join().unwrap();
        work(&registry, &lead, true);
        waiter.join().unwrap();
    });
}
