//! The end of a registration: who waits for it, from where, and what its key is worth afterwards.

use std::{
    io::{self, ErrorKind},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{claim, lead, own_task, serve_all, sleeps, Scene},
    told, wait_until, Witness, LONG,
};
use paceline::{
    simulated::{SimPeer, SimStream},
    Closed, Context, Handle, Interest, Next,
};

type Cx<'c> = Context<'c, SimStream>;

fn register(
    scene: &Scene,
    handler: impl FnMut(&mut Cx<'_>) -> io::Result<Next> + Send + 'static,
) -> (Handle, SimPeer) {
    let (stream, peer) = scene.world.stream();
    let handle = scene.pool.register(stream, Interest::READ, handler);
    (handle.unwrap(), peer)
}

/// Two threads wait, each for the end of a handle whose handler is at work. The handlers return one
/// after the other, and so do the waits: the one that is over does not disturb the other.
#[test]
fn two_who_wait_are_both_told() {
    bounded(|| {
        let scene = Scene::with_threads(3, Witness::default());
        let waits = [(); 2].map(|()| {
            let (tell, inside) = mpsc::channel();
            let (gate, open) = mpsc::channel::<()>();
            let (handle, peer) = register(&scene, move |_: &mut Cx<'_>| {
                tell.send(()).unwrap();
                // A gate that is gone is open.
                let _ = open.recv_timeout(LONG);
                Ok(Next::Continue)
            });
            peer.send(b"x");
            inside.recv_timeout(LONG).unwrap();
            let (tell, told) = mpsc::channel();
            let waits = thread::spawn(move || {
                tell.send(own_task()).unwrap();
                handle.close_and_wait()
            });
            let task = told.recv_timeout(LONG).unwrap();
            (gate, waits, task)
        });
        wait_until(|| waits.iter().all(|(_, _, task)| sleeps(*task)));
        for (gate, wait, _) in waits {
            drop(gate);
            wait.join().unwrap().unwrap();
        }
    });
}

/// A handle can't be waited for by its own handler, and a pool can't be entered from one of its
/// own. Another pool's can, also if its handle has the same number.
#[test]
fn handler_of_another_pool_may_wait() {
    bounded(|| {
        let (here, there) = (Scene::unobserved(), Scene::unobserved());
        let (abroad, _peer) = register(&there, |_: &mut Cx<'_>| Ok(Next::Continue));
        let (tell, told) = mpsc::channel();
        let (id, pool) = (abroad.id(), there.pool.clone());
        let (handle, peer) = register(&here, move |cx: &mut Cx<'_>| {
            let own = cx.handle().close_and_wait().map_err(|error| error.kind());
            let others = abroad.close_and_wait().map_err(|error| error.kind());
            tell.send((own, others, pool.enter().is_ok())).unwrap();
            Ok(Next::Close)
        });
        assert_eq!(handle.id(), id, "the same slot of two pools");
        peer.send(b"x");
        assert_eq!(serve_all(&here.pool), 1);
        let expected = (Err(ErrorKind::Deadlock), Ok(()), true);
        assert_eq!(told.try_recv(), Ok(expected));
    });
}

/// A handle that the end of the pool closed by force is as stale as any other: whatever is asked of
/// it is refused, and nobody waits for an end that was.
#[test]
fn key_is_stale_after_the_end_of_the_pool() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (handle, peer) = register(&scene, |_: &mut Cx<'_>| Ok(Next::Continue));
        peer.send(b"x");
        let report = scene.pool.shutdown(Duration::ZERO);
        assert_eq!(report.unfinished.len(), 1);
        assert_eq!(report.unfinished[0].handle, handle.id());
        type Request = fn(&Handle) -> io::Result<()>;
        let requests: [Request; 5] = [
            Handle::notify,
            Handle::suspend,
            Handle::resume,
            Handle::close,
            Handle::close_and_wait,
        ];
        for request in requests {
            assert_eq!(request(&handle).unwrap_err().kind(), ErrorKind::NotFound);
        }
    });
}

/// The end of the pool comes between a claim and its handler's call. There is no call any more, and
/// the handler is told that it was the pool's end: nobody has asked for its own.
#[test]
fn claimed_before_the_end_is_told_the_end() {
    bounded(|| {
        let scene = Scene::unobserved();
        let (handler, end) = told(|_: &mut Cx<'_>| panic!("it is called"));
        let peer = scene.serve(handler);
        peer.send(b"x");
        let claimed = claim(lead(&scene.pool));
        assert_eq!(scene.pool.shutdown(Duration::ZERO).busy_handles, 1);
        drop(claimed.promote().run());
        assert!(matches!(end.try_recv(), Ok(Closed::Shutdown)));
    });
}
