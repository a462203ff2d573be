//! The errata E1 to E23 of the sources: ours does not fail there. The bound association has its own tests.

use std::{
    io,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{
        self, claim, find_nothing, lead, serve_all, take_lead, turn, wait_asleep, Scene, AT_ONCE,
    },
    wait_until, Witness, LONG,
};
use paceline::{
    observe::Role,
    simulated::{Faults, SimPeer, SimStream, Simulation},
    turn::Led,
    Closed, Context, EventHandler, Interest, Left, Next, Pool, SetKind, Wake,
};

/// E1: in the paper's `join`, a turn that ends without a promotion (nothing came, a signal) leaves the thread
/// registered as the leader; the next time round it waits for itself. Now a turn always gives the lead back:
/// the same thread leads again, and after it another.
#[test]
fn e1_turn_without_event_gives_the_lead_back() {
    bounded(|| {
        let scene = Scene::unobserved();
        let peer = scene.echo();
        let mut follower = scene.pool.enter().unwrap();
        for _ in 0..3 {
            follower = find_nothing(take_lead(follower));
        }
        // While that thread is still there, as a follower, another one comes.
        peer.send(b"1");
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(peer.received(), b"1");
        peer.send(b"2");
        drop(turn(follower));
        assert_eq!(peer.received(), b"2");
    });
}

/// E1, the other way to end early: waits that are interrupted, and events that turn out to be old. They end
/// neither the lead nor the thread's time in the pool: it waits on, and everything is served.
#[test]
fn e1_interrupted_waits_end_nothing() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        scene.world.set_faults(Faults {
            interrupted: true,
            stale: true,
            ..Faults::NONE
        });
        let joined = scene.joined();
        for round in 0..200_u8 {
            let peer = scene.echo();
            peer.send(&[round]);
            assert_eq!(peer.wait_for(1), [round]);
            peer.finish();
            peer.wait_closed();
        }
        witness.wait_for(Role::Leader, 1);
        assert!(!joined.is_finished());
        assert!(scene.world.faults_injected() > 0);
        assert!(scene.pool.snapshot().stale_events > 0);
    });
}

/// E2: in the paper's `join`, an error of the wait returns with the lead still held, and everyone else sleeps
/// for ever. Now the error reaches the caller of `join`, and the lead the follower.
#[test]
fn e2_error_of_the_wait_passes_the_lead_on() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let peer = scene.echo();
        let fails = scene.joined();
        wait_until(|| witness.role(0) == Some(Role::Leader));
        let _follower = scene.joined();
        scene.wait_asleep(1);

        scene.world.fail_next_wait(io::ErrorKind::OutOfMemory);
        let told = fails.join().unwrap().unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(witness.role(0), Some(Role::Gone));
        wait_until(|| witness.role(1) == Some(Role::Leader));
        peer.send(b"1");
        assert_eq!(peer.wait_for(1), b"1");
    });
}

/// E2 by hand: the error has used up the leader's role, the lead is vacant, and the event that was there
/// is still there.
#[test]
fn e2_error_of_the_wait_loses_no_event() {
    bounded(|| {
        let scene = Scene::unobserved();
        let peer = scene.echo();
        let leader = lead(&scene.pool);
        peer.send(b"1");
        scene.world.fail_next_wait(io::ErrorKind::OutOfMemory);
        assert!(leader.wait(AT_ONCE).is_err());
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(peer.received(), b"1");
    });
}

/// E2 on the pool's own threads: the hook is told (and may panic), another thread leads, the one that failed
/// comes back after a pause, and the shutdown report has the error.
#[test]
fn e2_own_threads_tell_and_come_back() {
    bounded(|| {
        let (tell, told) = mpsc::channel();
        let (scene, _witness) = own_threads(move |error| {
            tell.send(error.kind()).unwrap();
            panic!("the hook fails");
        });
        let peer = scene.echo();
        scene.world.fail_next_wait(io::ErrorKind::OutOfMemory);
        assert_eq!(told.recv_timeout(LONG), Ok(io::ErrorKind::OutOfMemory));
        wait_asleep(&scene.pool, 0);
        peer.send(b"1");
        assert_eq!(peer.wait_for(1), b"1");

        // The pause ends when the time says so; the thread may not have begun it yet.
        wait_until(|| {
            scene.advance(1);
            format!("{:?}", scene.pool).contains("followers: 1")
        });
        peer.send(b"2");
        assert_eq!(peer.wait_for(1), b"2");
        let report = scene.pool.shutdown(LONG);
        let kinds: Vec<_> = report.errors.iter().map(io::Error::kind).collect();
        assert_eq!(kinds, [io::ErrorKind::OutOfMemory]);
        assert!(report.stuck_threads.is_empty());
    });
}

/// E2 and S1: the hook that is told about the error takes long, and the pool is shut down meanwhile. The
/// shutdown may list that thread; it may not wait for it beyond its time.
#[test]
fn e2_shutdown_does_not_wait_for_the_hook() {
    bounded(|| {
        let (tell, told) = mpsc::channel();
        let (go_on, gate) = mpsc::channel::<()>();
        let gate = Mutex::new(gate);
        let (scene, _witness) = own_threads(move |_| {
            tell.send(()).unwrap();
            let _ = gate.lock().unwrap().recv();
        });
        scene.world.fail_next_wait(io::ErrorKind::OutOfMemory);
        told.recv_timeout(LONG).unwrap();
        let _ = scene.pool.shutdown(Duration::ZERO);
        drop(go_on);
    });
}

/// E2 and S1 once more: a thread that came back after an error is the same thread. When it is stuck in a handler
/// at the end, the shutdown lists it, as it would any other, and does not wait for it.
#[test]
fn e2_thread_that_came_back_is_known() {
    bounded(|| {
        let (tell, told) = mpsc::channel();
        let (scene, witness) = own_threads(move |_| tell.send(()).unwrap());
        for _ in 0..2 {
            scene.world.fail_next_wait(io::ErrorKind::OutOfMemory);
            told.recv_timeout(LONG).unwrap();
            wait_until(|| {
                scene.advance(1);
                format!("{:?}", scene.pool).contains("followers: 1")
            });
        }
        let gates: Vec<_> = (0..2)
            .map(|_| {
                let (go_on, gate) = mpsc::channel::<()>();
                let handler = move |_: &mut Context<'_, SimStream>| {
                    let _ = gate.recv();
                    Ok(Next::Close)
                };
                let peer = scene.serve(handler);
                peer.send(b"x");
                go_on
            })
            .collect();
        witness.wait_for(Role::Processing, 2);
        let report = scene.pool.shutdown(Duration::ZERO);
        let stuck = &report.stuck_threads;
        assert_eq!(stuck.len(), 2, "{report:?}");
        assert!(stuck.iter().all(|name| name.starts_with("paceline-")));
        assert_eq!(report.busy_handles, 2);
        drop(gates);
    });
}

/// A pool with two threads of its own, one of which leads, and this hook for errors of the wait.
fn own_threads(hook: impl Fn(&io::Error) + Send + Sync + 'static) -> (Scene, Witness) {
    let world = Simulation::new(1);
    let witness = Witness::default();
    let pool = Pool::builder()
        .threads(2)
        .wake(Wake::Eager)
        .handle_set(SetKind::Simulated(world.clone()))
        .observer(witness.clone())
        .on_error(hook)
        .build()
        .unwrap();
    wait_asleep(&pool, 1);
    witness.wait_for(Role::Leader, 1);
    (Scene { world, pool }, witness)
}

/// ACE (read from its source): an error branch of the wait returned with the token, and the waiter that had
/// just been elected was the last to lead. Here the elected follower's very first wait fails: it passes the
/// lead on, and the next one serves. When the last one fails too, the lead is vacant for whoever comes.
#[test]
fn wait_error_while_elected_passes_on() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let (first, second) = (scene.echo(), scene.echo());
        let leader = lead(&scene.pool);
        let last = scene.joined();
        scene.wait_asleep(1);
        let elected = scene.joined();
        scene.wait_asleep(2);
        first.send(b"1");
        let claimed = claim(leader);
        scene.world.fail_next_wait(io::ErrorKind::OutOfMemory);
        let processing = claimed.promote();

        let told = elected.join().unwrap().unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::OutOfMemory);
        wait_until(|| witness.role(1) == Some(Role::Leader));
        second.send(b"2");
        assert_eq!(second.wait_for(1), b"2");

        scene.world.fail_next_wait(io::ErrorKind::Other);
        let told = last.join().unwrap().unwrap_err();
        assert_eq!(told.kind(), io::ErrorKind::Other);
        drop(processing.run());
        assert_eq!(first.received(), b"1");
        second.send(b"3");
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(witness.most_leaders(), 1);
    });
}

/// E3: the paper's time-out bounds one wait as a follower and starts anew at every wake. Here a thread follows
/// for four seconds, leads for four more, and handles an event for two: then its ten seconds are over, though
/// another event waits.
#[test]
fn e3_one_deadline_for_all_roles() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let peer = takes_seconds(&scene, 2);
        let leader = lead(&scene.pool);
        let joined = scene.joined_for(10);
        scene.wait_asleep(1);
        scene.advance(4);
        drop(leader);
        wait_until(|| witness.role(1) == Some(Role::Leader));
        scene.advance(4);
        assert!(!joined.is_finished());
        peer.send(b"1");
        assert_eq!(joined.join().unwrap().unwrap(), Left::TimedOut);
        assert_eq!(scene.seconds(), 10);
        assert_eq!(scene.pool.snapshot().promotions, 1);
    });
}

/// E3: nor does it start anew at every wait as leader: three events of three seconds, and one more second.
#[test]
fn e3_deadline_is_not_renewed_by_events() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let peer = takes_seconds(&scene, 3);
        let joined = scene.joined_for(10);
        for seconds in [3, 6, 9] {
            peer.send(b"1");
            wait_until(|| scene.seconds() == seconds);
            let calls = seconds / 3;
            wait_until(|| scene.pool.snapshot().leads_taken_back == calls);
        }
        assert!(!joined.is_finished());
        scene.advance(1);
        assert_eq!(joined.join().unwrap().unwrap(), Left::TimedOut);
        assert_eq!(scene.seconds(), 10);
    });
}

/// A connection whose handler takes so many seconds, and never reads: there is always another event.
fn takes_seconds(scene: &Scene, seconds: u64) -> SimPeer {
    let world = scene.world.clone();
    let handler = move |cx: &mut Context<'_, SimStream>| {
        world.clock().advance(Duration::from_secs(seconds));
        by_hand::echo(cx)
    };
    scene.serve(handler)
}

/// E3: and it bounds the leader, which the paper's never does.
#[test]
fn e3_deadline_bounds_the_leader() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let joined = scene.joined_for(10);
        wait_until(|| witness.role(0) == Some(Role::Leader));
        scene.advance(9);
        assert!(!joined.is_finished());
        scene.advance(1);
        assert_eq!(joined.join().unwrap().unwrap(), Left::TimedOut);
        drop(lead(&scene.pool));
    });
}

/// E3: a thread that is past its deadline when it is done with an event has taken the lead back; it does not
/// lead another turn with it, and does not keep it.
#[test]
fn e3_late_after_processing_gives_the_lead_back() {
    bounded(|| {
        let scene = Scene::unobserved();
        let late = takes_seconds(&scene, 10);
        let peer = scene.echo();
        late.send(b"1");
        peer.send(b"1");
        let visit = scene.pool.entrance().timeout(Duration::from_secs(10));
        let follower = turn(visit.enter().unwrap());
        assert_eq!(scene.pool.snapshot().leads_taken_back, 1);
        assert!(matches!(follower.lead(), Led::TimedOut));
        assert!(peer.received().is_empty());
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(peer.received(), b"1");
    });
}

/// E5: the paper's decorator reactivates the handle that its handler has just closed, by number; by then the
/// number may belong to another connection. Here number and slot are reused at once, even before the old
/// thread is back from `closed`, and an event for the old owner is still on its way. The new owner sees
/// nothing of all that, and the old key is worth nothing.
#[test]
fn e5_reactivation_of_what_is_gone_does_nothing() {
    bounded(|| {
        let scene = Scene::unobserved();
        let calls = Arc::new(AtomicUsize::new(0));
        let (stream, old) = scene.world.stream();
        let heir = Arc::new(Mutex::new(None));
        let handler = Bequeaths {
            pool: scene.pool.downgrade(),
            world: scene.world.clone(),
            calls: Arc::clone(&calls),
            heir: Arc::clone(&heir),
        };
        let key = scene
            .pool
            .register(stream, Interest::READ, handler)
            .unwrap();
        old.send(b"1");
        let claimed = claim(lead(&scene.pool));
        old.send(b"for the old owner");
        let follower = claimed.promote().run();

        let (new, new_key) = heir.lock().unwrap().take().expect("registered by `closed`");
        assert_eq!(key.id().to_string(), "0.0");
        assert_eq!(new_key.id().to_string(), "0.1");
        for told in [key.set_interest(Interest::WRITE), key.close()] {
            assert_eq!(told.unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        let follower = find_nothing(take_lead(follower));
        assert_eq!(scene.pool.snapshot().stale_events, 1);
        assert_eq!(calls.load(Ordering::Relaxed), 0);

        new.send(b"2");
        drop(turn(follower));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        assert_eq!(new.received(), b"2");
        assert!(old.is_closed_by_pool());
    });
}

/// Closes at its first event, and registers its successor when it is told so.
struct Bequeaths {
    pool: paceline::WeakPool,
    world: Simulation,
    calls: Arc<AtomicUsize>,
    heir: Arc<Mutex<Option<(SimPeer, paceline::Handle)>>>,
}

impl EventHandler<SimStream> for Bequeaths {
    fn ready(&mut self, _: &mut Context<'_, SimStream>) -> io::Result<Next> {
        Ok(Next::Close)
    }

    fn closed(&mut self, _: Closed) {
        let pool = self.pool.upgrade().unwrap();
        let (stream, peer) = self.world.stream();
        let calls = Arc::clone(&self.calls);
        let handler = move |cx: &mut Context<'_, SimStream>| {
            calls.fetch_add(1, Ordering::Relaxed);
            by_hand::echo(cx)
        };
        let handle = pool.register(stream, Interest::READ, handler).unwrap();
        *self.heir.lock().unwrap() = Some((peer, handle));
    }
}

/// E5 for the number itself: the descriptor of a closed connection is given to the next one at once.
#[test]
fn e5_reused_number_is_a_new_handle() {
    bounded(|| {
        let scene = Scene::unobserved();
        for round in 0..100_u8 {
            let (stream, peer) = scene.world.stream();
            let handler = |cx: &mut Context<'_, SimStream>| by_hand::echo(cx).or(Ok(Next::Close));
            let handle = scene
                .pool
                .register(stream, Interest::READ, handler)
                .unwrap();
            assert_eq!(handle.id().to_string(), format!("0.{round}"));
            peer.send(&[round]);
            let claimed = claim(lead(&scene.pool));
            peer.send(b"late");
            drop(claimed.promote().run());
            assert!(peer.is_closed_by_pool());
            assert!(peer.received().starts_with(&[round]));
        }
        drop(find_nothing(lead(&scene.pool)));
        assert_eq!(scene.pool.snapshot().stale_events, 100);
        assert_eq!(scene.pool.snapshot().promotions, 100);
    });
}

/// E7: one handle per turn, and the scan for it begins at the lowest number: the others starve. Here the low
/// numbers never run dry, and the highest is served in its turn, whichever thread comes.
#[test]
fn e7_low_numbers_do_not_starve_the_others() {
    bounded(|| {
        let scene = Scene::unobserved();
        let low: Vec<_> = (0..5)
            .map(|_| {
                let handler = |_: &mut Context<'_, SimStream>| Ok(Next::Continue);
                let peer = scene.serve(handler);
                peer.send(b"x");
                peer
            })
            .collect();
        let high = scene.echo();
        high.send(b"1");
        for _ in 0..6 {
            // Each turn is another thread's: the place in the line does not belong to any of them.
            drop(turn(scene.pool.enter().unwrap()));
        }
        assert_eq!(high.received(), b"1");
        drop(low);
    });
}

/// E16: the tutorial takes the key out of the selected ones and leaves it armed: the next leader gets it again,
/// and two threads read from one stream. Here the first thread has claimed the event and not yet read; more
/// comes; the next leader finds nothing. What came is handled afterwards, in order.
#[test]
fn e16_claimed_handle_is_nobody_elses() {
    bounded(|| {
        let scene = Scene::unobserved();
        let peer = scene.echo();
        peer.send(b"1");
        let processing = claim(lead(&scene.pool)).promote();
        peer.send(b"2");
        let other = find_nothing(lead(&scene.pool));
        peer.send(b"3");
        let other = find_nothing(take_lead(other));
        assert!(peer.received().is_empty());
        drop(processing.run());
        assert_eq!(peer.received(), b"123");
        drop(other);
        serve_all(&scene.pool);
        assert!(peer.received().is_empty());
    });
}

/// E17: in the tutorial, a leader that dies in the wait stays the leader. Here a thread panics as leader, with
/// an event in its hands, after it has promoted, and after it has taken the lead back: each time the next
/// thread leads, and the event is served.
#[test]
fn e17_thread_that_dies_takes_nothing() {
    let deaths: [fn(&Pool); 4] = [
        |pool| die_with(lead(pool)),
        |pool| die_with(claim(lead(pool))),
        |pool| die_with(claim(lead(pool)).promote()),
        |pool| die_with(claim(lead(pool)).promote().run()),
    ];
    bounded(move || {
        for dies in deaths {
            let witness = Witness::default();
            let scene = Scene::new(witness.clone());
            let peer = scene.echo();
            peer.send(b"1");
            let pool = scene.pool.clone();
            assert!(thread::spawn(move || dies(&pool)).join().is_err());
            assert_eq!(witness.count(Role::Gone), 1);
            serve_all(&scene.pool);
            assert_eq!(peer.received(), b"1");
        }
    });
}

fn die_with<R>(_role: R) {
    panic!("with a role");
}

/// E17 with a follower asleep, which the death of the leader must wake.
#[test]
fn e17_follower_succeeds_a_dead_leader() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let peer = scene.echo();
        let (die, gate) = mpsc::channel::<()>();
        let pool = scene.pool.clone();
        let dies = thread::spawn(move || {
            let _leader = lead(&pool);
            let _ = gate.recv_timeout(LONG);
            panic!("as leader");
        });
        wait_until(|| witness.role(0) == Some(Role::Leader));
        let _follower = scene.joined();
        scene.wait_asleep(1);
        die.send(()).unwrap();
        assert!(dies.join().is_err());
        wait_until(|| witness.role(1) == Some(Role::Leader));
        peer.send(b"1");
        assert_eq!(peer.wait_for(1), b"1");
    });
}

/// E18: "exactly one leader at all times", says the tutorial. While all threads process, nobody leads, and
/// the events wait outside; the first thread that is done takes the lead, without having slept. How often
/// the lead was left vacant, and how often it was taken back, is counted.
#[test]
fn e18_at_most_one_leader_and_the_vacancy_ends() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let (first, second, third) = (scene.echo(), scene.echo(), scene.echo());
        first.send(b"1");
        second.send(b"2");
        let one = claim(lead(&scene.pool)).promote();
        let two = claim(lead(&scene.pool)).promote();
        assert_eq!(witness.count(Role::Leader), 0);
        assert_eq!(witness.count(Role::Processing), 2);
        third.send(b"3");
        let seen = scene.pool.snapshot();
        assert_eq!(
            (seen.promotions, seen.wakes, seen.leads_taken_back),
            (2, 0, 0)
        );

        let one = one.run();
        assert_eq!(scene.pool.snapshot().leads_taken_back, 1);
        drop(find_nothing(take_lead(turn(one))));
        assert_eq!(third.received(), b"3");
        assert!(second.received().is_empty());
        drop(two.run());
        assert_eq!(second.received(), b"2");
        assert_eq!(scene.pool.snapshot().leads_taken_back, 3);
        assert_eq!(witness.most_leaders(), 1);
    });
}

/// E22: the paper's pool never says who leads at first. Ours is built vacant: the first thread leads at once,
/// without having been promoted; and a pool that nobody has entered yet can be entered, used and shut down.
#[test]
fn e22_built_vacant() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        assert!(witness.log().is_empty());
        let leader = lead(&scene.pool);
        assert_eq!(witness.log(), [(0, Role::Follower), (0, Role::Leader)]);
        let seen = scene.pool.snapshot();
        assert_eq!(
            (seen.promotions, seen.wakes, seen.leads_taken_back),
            (0, 0, 0)
        );
        drop(leader);

        let never_entered = Scene::unobserved();
        let report = never_entered.pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
    });
}
