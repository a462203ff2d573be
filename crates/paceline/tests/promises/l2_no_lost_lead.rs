//! L2: the lead is never lost. The follower that is woken for it leads; and whoever leaves, in
//! whatever role, passes it on.

use std::{
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{self, claim, find_nothing, lead, serve_all, take_lead, turn, wait_asleep, Scene},
    wait_until, Witness, LONG,
};
use paceline::{
    observe::{Observer, Role},
    simulated::SimPeer,
    turn::{Leader, Led},
    Context, Interest, Left, Next,
};

/// The heart of the pattern, in its eager form: a promotion wakes the follower, and that follower
/// leads and serves, while the thread that promoted it has not even begun to process.
#[test]
fn promoted_follower_leads() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let (first, second) = (scene.echo(), scene.echo());
        let leader = lead(&scene.pool);
        let follower = scene.joined();
        scene.wait_asleep(1);
        first.send(b"1");

        let processing = claim(leader).promote();
        assert_eq!(scene.pool.snapshot().wakes, 1);
        wait_until(|| witness.role(1) == Some(Role::Leader));
        second.send(b"2");
        assert_eq!(second.wait_for(1), b"2");

        assert!(first.received().is_empty());
        drop(processing.run());
        assert_eq!(first.received(), b"1");
        drop(scene);
        follower.join().unwrap().unwrap();
        assert_eq!(witness.most_leaders(), 1);
    });
}

/// A leader may leave without ever having waited. Every implementation that keeps "who leads" apart
/// from the thread's own stack has a path on which this is forgotten (E1, E17).
#[test]
fn dropped_leader_passes_on() {
    passes_on(b"", |leader| drop(leader));
}

/// A leader that found nothing has given the lead away; leaving after that takes nothing with it.
#[test]
fn leader_that_found_nothing_passes_on() {
    passes_on(b"", |leader| drop(find_nothing(leader)));
}

/// A leader that leaves with an event in its hands: the lead passes on, and the event with it.
#[test]
fn dropped_claim_passes_on() {
    passes_on(b"claimed", |leader| drop(claim(leader)));
}

/// A thread that has promoted and leaves instead of processing: the event finds another thread.
#[test]
fn dropped_processing_passes_on() {
    passes_on(b"promoted", |leader| drop(claim(leader).promote()));
}

/// A thread leaves as a follower right after it has processed.
#[test]
fn leaving_after_processing_passes_on() {
    passes_on(b"processed", |leader| drop(claim(leader).promote().run()));
}

/// Something was sent, and a leader gives up its role by `leave`. Once while another thread sleeps
/// as a follower, and once while nobody is there: whoever follows or comes leads, and everything is
/// served.
fn passes_on(sent: &'static [u8], leave: fn(Leader<'_>)) {
    bounded(move || {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let peer = scene.echo();
        let leader = lead(&scene.pool);
        let follower = scene.joined();
        scene.wait_asleep(1);
        send_unless_empty(&peer, sent);
        leave(leader);
        wait_until(|| witness.role(1) == Some(Role::Leader));
        assert_eq!(peer.wait_for(sent.len()), sent);
        peer.send(b"more");
        assert_eq!(peer.wait_for(4), b"more");
        drop(scene);
        follower.join().unwrap().unwrap();

        let scene = Scene::new(witness.clone());
        let peer = scene.echo();
        send_unless_empty(&peer, sent);
        leave(lead(&scene.pool));
        serve_all(&scene.pool);
        assert_eq!(peer.received(), sent);
        peer.send(b"more");
        assert_eq!(serve_all(&scene.pool), 1);
        assert_eq!(peer.received(), b"more");
        assert_eq!(witness.most_leaders(), 1);
    });
}

/// To send nothing would be an event too.
fn send_unless_empty(peer: &SimPeer, bytes: &[u8]) {
    if !bytes.is_empty() {
        peer.send(bytes);
    }
}

/// A thread that took the lead back after an event has not told anyone yet that it leads. It
/// leaves: the lead that it holds silently passes on to the thread that fell asleep meanwhile.
#[test]
fn dropped_follower_that_holds_the_lead_passes_on() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let peer = scene.echo();
        peer.send(b"1");
        let holder = turn(scene.pool.enter().unwrap());
        assert_eq!(scene.pool.snapshot().leads_taken_back, 1);
        let follower = scene.joined();
        scene.wait_asleep(1);

        drop(holder);
        wait_until(|| witness.role(1) == Some(Role::Leader));
        peer.send(b"2");
        assert_eq!(peer.wait_for(2), b"12");
        drop(scene);
        follower.join().unwrap().unwrap();
    });
}

/// The leader's own time is over while it waits and nothing comes.
#[test]
fn leader_whose_time_is_over_passes_on() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let peer = scene.echo();
        let hurried = scene.joined_for(10);
        wait_until(|| witness.role(0) == Some(Role::Leader));
        let _patient = scene.joined();
        scene.wait_asleep(1);

        scene.advance(10);
        assert_eq!(hurried.join().unwrap().unwrap(), Left::TimedOut);
        wait_until(|| witness.role(1) == Some(Role::Leader));
        peer.send(b"1");
        assert_eq!(peer.wait_for(1), b"1");
    });
}

/// TAO 842 and ACE's token 416: a follower that was elected in the moment in which its time ran out
/// went home with the lead, and nobody ever led again. Now it passes the offer on. The clock moves
/// right after the election: nearly always the woken thread finds itself elected and late at once,
/// and where it is quicker it leads for a moment; in every order the patient thread must lead in
/// the end.
#[test]
fn elected_then_timed_out_passes_on() {
    bounded(|| {
        for _ in 0..100 {
            elect_and_time_out(|scene, promote| {
                promote();
                scene.advance(10);
            });
        }
    });
}

/// The same the other way round: the time runs out first, and the election meets the follower on
/// its way out. Either it has left the list, or it is told "you are too late to leave" and passes
/// the offer on.
#[test]
fn timed_out_then_elected_passes_on() {
    bounded(|| {
        for _ in 0..100 {
            elect_and_time_out(|scene, promote| {
                scene.advance(10);
                promote();
            });
        }
    });
}

/// Of two followers, the newer one has ten seconds. `race` moves the clock and promotes.
fn elect_and_time_out(race: impl FnOnce(&Scene, &mut dyn FnMut())) {
    let witness = Witness::default();
    let scene = Scene::new(witness.clone());
    let (first, second) = (scene.echo(), scene.echo());
    let leader = lead(&scene.pool);
    let _patient = scene.joined();
    scene.wait_asleep(1);
    let hurried = scene.joined_for(10);
    scene.wait_asleep(2);
    first.send(b"1");
    let mut claimed = Some(claim(leader));
    let mut processing = None;

    race(&scene, &mut || {
        processing = claimed.take().map(|claimed| claimed.promote());
    });

    assert_eq!(hurried.join().unwrap().unwrap(), Left::TimedOut);
    wait_until(|| witness.role(1) == Some(Role::Leader));
    second.send(b"2");
    assert_eq!(second.wait_for(1), b"2");
    drop(processing);
    assert_eq!(first.wait_for(1), b"1");
    assert_eq!(witness.most_leaders(), 1);
}

/// TAO in 2000: threads that ran the event loop for a limited time were told all together that it
/// was over; the lead was then offered to one of those that had just gone, and nobody led. Now who
/// has left is on no list: the promotion finds the one that stayed, though it is the oldest.
#[test]
fn loop_threads_time_out_after_broadcast() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let (first, second) = (scene.echo(), scene.echo());
        let leader = lead(&scene.pool);
        let _patient = scene.joined();
        scene.wait_asleep(1);
        let hurried: Vec<_> = (0..4).map(|_| scene.joined_for(10)).collect();
        scene.wait_asleep(5);

        scene.advance(10);
        for thread in hurried {
            assert_eq!(thread.join().unwrap().unwrap(), Left::TimedOut);
        }
        scene.wait_asleep(1);
        first.send(b"1");
        let processing = claim(leader).promote();
        assert_eq!(scene.pool.snapshot().wakes, 1);
        wait_until(|| witness.role(1) == Some(Role::Leader));
        second.send(b"2");
        assert_eq!(second.wait_for(1), b"2");
        drop(processing.run());
    });
}

/// All the followers have gone by their deadlines: the promotion leaves the lead vacant, wakes
/// nobody, and the thread that promoted takes it back.
#[test]
fn when_all_followers_timed_out_the_lead_is_vacant() {
    bounded(|| {
        let scene = Scene::unobserved();
        let peer = scene.echo();
        let leader = lead(&scene.pool);
        let hurried: Vec<_> = (0..3).map(|_| scene.joined_for(10)).collect();
        scene.wait_asleep(3);
        scene.advance(10);
        for thread in hurried {
            assert_eq!(thread.join().unwrap().unwrap(), Left::TimedOut);
        }
        peer.send(b"1");
        let follower = claim(leader).promote().run();
        let seen = scene.pool.snapshot();
        assert_eq!((seen.wakes, seen.leads_taken_back), (0, 1));
        drop(find_nothing(take_lead(follower)));
    });
}

/// ACE in 2000: between the signal to the next leader and its awakening the old leader came back,
/// took the free token again, and so on: the woken thread starved. Now an offered lead is for the
/// elected thread alone. The old leader comes back within a microsecond, and finds that it must
/// follow.
#[test]
fn no_barging_between_signal_and_wake() {
    bounded(|| {
        for _ in 0..50 {
            let witness = Witness::default();
            let scene = Arc::new(Scene::new(witness.clone()));
            let peer = scene.echo();
            let leader = lead(&scene.pool);
            let _elected = scene.joined();
            scene.wait_asleep(1);
            let clock = thread::spawn({
                let (scene, witness) = (Arc::clone(&scene), witness.clone());
                move || {
                    wait_until(|| witness.role(1) == Some(Role::Leader));
                    scene.wait_asleep(1);
                    scene.advance(10);
                }
            });
            peer.send(b"1");
            let claimed = claim(leader);
            let barging = scene.pool.entrance().timeout(Duration::from_secs(10));
            let barging = barging.enter().unwrap();
            let processing = claimed.promote();
            assert!(matches!(barging.lead(), Led::TimedOut), "it barged in");

            clock.join().unwrap();
            drop(processing.run());
            let led = witness.log().into_iter();
            let led: Vec<_> = led.filter(|(_, role)| *role == Role::Leader).collect();
            assert_eq!(led, [(0, Role::Leader), (1, Role::Leader)]);
        }
    });
}

/// The same at the end of an event: the thread that promoted is done before the woken one has
/// opened its eyes. It may not take back what it has offered.
#[test]
fn offered_lead_is_not_taken_back() {
    bounded(|| {
        for _ in 0..50 {
            let witness = Witness::default();
            let scene = Scene::new(witness.clone());
            let peer = scene.echo();
            let leader = lead(&scene.pool);
            let _elected = scene.joined();
            scene.wait_asleep(1);
            peer.send(b"1");
            let follower = claim(leader).promote().run();
            assert_eq!(scene.pool.snapshot().leads_taken_back, 0);
            wait_until(|| witness.role(1) == Some(Role::Leader));
            drop(follower);
        }
    });
}

/// Grizzly 1131: when no follower was free to take over, no thread selected any more, for ever.
/// Jetty 6496: a count of hand-overs under way leaked on that path, until it said that nobody was
/// free. Now the lead lies open, the next thread that is done takes it, and a hundred rounds later
/// everything is as it was.
#[test]
fn follower_unavailable_keeps_leader() {
    bounded(|| {
        const ROUNDS: u64 = 100;
        let witness = Witness::default();
        let scene = Scene::with_threads(2, witness.clone());
        let third = scene.echo();
        let (first, open_first) = gated(&scene);
        let (second, open_second) = gated(&scene);
        for round in 1..=ROUNDS {
            first.send(b"1");
            second.send(b"2");
            witness.wait_for(Role::Processing, 2);
            assert_eq!(witness.count(Role::Leader), 0);
            third.send(b"3");
            open_first.send(()).unwrap();
            assert_eq!(third.wait_for(1), b"3");
            assert_eq!(first.wait_for(1), b"1");
            open_second.send(()).unwrap();
            assert_eq!(second.wait_for(1), b"2");
            wait_asleep(&scene.pool, 1);
            witness.wait_for(Role::Leader, 1);
            assert_eq!(scene.pool.snapshot().promotions, 3 * round);
        }
        assert_eq!(witness.most_leaders(), 1);
    });
}

/// A connection whose handler waits for permission before it sends back what came, once per event.
fn gated(scene: &Scene) -> (SimPeer, mpsc::Sender<()>) {
    let (permission, gate) = mpsc::channel();
    let handler = move |cx: &mut Context<'_, _>| {
        gate.recv_timeout(LONG).expect("permission comes");
        by_hand::echo(cx)
    };
    let peer = scene.serve(handler);
    (peer, permission)
}

/// gRPC 12413: a poller that was kicked for a reason other than an event went away and kept its
/// role, so nobody polled. Now the clock kicks the leader, and its successor leads; a change of
/// interest kicks that one, and it finds the event that nobody was interested in until then.
#[test]
fn kicked_poller_passes_role() {
    bounded(|| {
        let witness = Witness::default();
        let scene = Scene::new(witness.clone());
        let (stream, peer) = scene.world.stream();
        let quiet = scene
            .pool
            .register(stream, Interest::NONE, by_hand::echo)
            .unwrap();
        let hurried = scene.joined_for(10);
        wait_until(|| witness.role(0) == Some(Role::Leader));
        let _patient = scene.joined();
        scene.wait_asleep(1);
        // A kick with nothing to do: an event that nobody wants.
        peer.send(b"1");

        scene.advance(10);
        assert_eq!(hurried.join().unwrap().unwrap(), Left::TimedOut);
        wait_until(|| witness.role(1) == Some(Role::Leader));
        quiet.set_interest(Interest::READ).unwrap();
        assert_eq!(peer.wait_for(1), b"1");
        assert_eq!(scene.pool.snapshot().promotions, 1);
    });
}

/// Jetty 6495: the hand-over waited for the thread that it handed to. Now it waits for nobody:
/// neither for a follower, if there is none, nor for the one that was woken, which is held up here
/// before it can do anything with the lead.
#[test]
fn handoff_never_blocks() {
    bounded(|| {
        let (tell, held_up) = mpsc::channel();
        let (go_on, gate) = mpsc::channel();
        let scene = Scene::new(HoldsUp {
            thread: 1,
            tell,
            gate: Mutex::new(gate),
        });
        let peer = scene.echo();
        peer.send(b"1");
        let alone = turn(scene.pool.enter().unwrap());
        assert_eq!(peer.received(), b"1");

        let leader = take_lead(alone);
        let _elected = scene.joined();
        scene.wait_asleep(1);
        peer.send(b"2");
        let processing = claim(leader).promote();
        held_up.recv_timeout(LONG).expect("the woken thread leads");
        drop(processing.run());
        assert_eq!(peer.received(), b"2");
        go_on.send(()).unwrap();
        peer.send(b"3");
        assert_eq!(peer.wait_for(1), b"3");
    });
}

/// Holds a thread up in the moment in which it has become leader.
struct HoldsUp {
    thread: usize,
    tell: mpsc::Sender<()>,
    gate: Mutex<mpsc::Receiver<()>>,
}

impl Observer for HoldsUp {
    fn role_changed(&self, thread: usize, role: Role) {
        if thread == self.thread && role == Role::Leader {
            // After the first time both ends of the channels may be gone.
            let _ = self.tell.send(());
            let _ = self.gate.lock().unwrap().recv_timeout(LONG);
        }
    }
}

/// Jetty 13371 and 13372: each hand-over was a call inside the one before, until the stack was
/// full. Now a thread with a very small stack goes through a hundred thousand turns: half of them
/// because a handler stops before its source ran dry, half because each handler causes the next
/// event.
#[test]
fn handoff_does_not_recurse() {
    bounded(|| {
        const TURNS: usize = 50_000;
        let scene = Scene::unobserved();
        let (done, wait) = mpsc::channel();
        let calls = Arc::new(AtomicUsize::new(0));

        let (again, done_too) = (Arc::clone(&calls), done.clone());
        let retry = move |_: &mut Context<'_, _>| match again.fetch_add(1, Ordering::Relaxed) {
            TURNS => {
                done_too.send(()).unwrap();
                Ok(Next::Close)
            }
            _ => Ok(Next::Continue),
        };
        let restless = scene.serve(retry);

        let (near, far): (Vec<_>, Vec<_>) = (0..3).map(|_| scene.world.stream()).unzip();
        let far = Arc::new(far);
        let hops = Arc::new(AtomicUsize::new(0));
        for (index, stream) in near.into_iter().enumerate() {
            let (far, hops, done) = (Arc::clone(&far), Arc::clone(&hops), done.clone());
            let pass = move |cx: &mut Context<'_, _>| {
                cx.read(&mut [0; 8])?;
                match hops.fetch_add(1, Ordering::Relaxed) {
                    TURNS => done.send(()).unwrap(),
                    _ => far[(index + 1) % far.len()].send(b"x"),
                }
                Ok(Next::Continue)
            };
            scene.pool.register(stream, Interest::READ, pass).unwrap();
        }

        restless.send(b"x");
        far[0].send(b"x");
        let pool = scene.pool.clone();
        let small = thread::Builder::new().stack_size(96 * 1024);
        let thread = small.spawn(move || pool.join()).unwrap();
        wait.recv_timeout(LONG).unwrap();
        wait.recv_timeout(LONG).unwrap();
        drop(scene);
        thread.join().unwrap().unwrap();
    });
}
