//! One connection as other sessions and threads see it.

use std::{sync::mpsc, time::Duration};

use paceline_server::{codec::line, Limit, Limits, Next, Receipt, Remote, Server};

use crate::support::{
    actor::Actor,
    times_ended, times_met, wait_until,
    world::{assert_gets, finish, on_both_engines, World, MAIN},
};

fn serve(world: &World, limits: Limits) -> (Server, mpsc::Receiver<Remote>) {
    let (remotes, received) = mpsc::channel();
    let calls = world.calls.clone();
    let server = world.serve(limits, line(80), move || {
        let remotes = remotes.clone();
        Actor::new(&calls).on_start(move |cx| {
            remotes.send(cx.remote()).unwrap();
            Ok(Next::Continue)
        })
    });
    (server, received)
}

/// A paused connection gets no item, though its client sends; when it is resumed it gets all of
/// them. The silence of a client that is not read is not its own.
#[test]
fn pause_and_resume() {
    on_both_engines(|world| {
        let (server, remotes) = serve(&world, Limits::default());
        let peer = world.inlet.connect();
        let remote = remotes.recv().unwrap();
        remote.pause_input();
        world.settle();
        peer.send(b"a\nb\n");
        world.pass_seconds(30);
        assert_eq!(world.calls.count("handle"), 0);
        assert!(!peer.is_read_by_pool());
        remote.resume_input();
        assert_gets(&peer, "a\r\nb\r\n");
        assert_eq!(times_met(&server, MAIN, Limit::Silent), 0);
    });
}

/// A session that pauses itself gets no further item of the same buffer, and its half item is not
/// too slow meanwhile.
#[test]
fn a_session_pauses_itself() {
    on_both_engines(|world| {
        let calls = world.calls.clone();
        let limits = Limits::default().item_time(Duration::from_secs(6));
        let _server = world.serve(limits, line(80), move || {
            let calls = calls.clone();
            Actor::new(&calls.clone()).on_item(move |item, cx| {
                cx.remote().pause_input();
                cx.reply(item)?;
                Ok(Next::Continue)
            })
        });
        let peer = world.inlet.connect();
        peer.send(b"a\nb\nhal");
        assert_gets(&peer, "a\r\n");
        world.pass_seconds(60);
        assert_eq!(world.calls.count("handle"), 1);
        assert!(!peer.is_closed_by_pool());
    });
}

/// What is sent from elsewhere arrives in order, behind the answers, with a receipt each.
#[test]
fn send_from_elsewhere() {
    on_both_engines(|world| {
        let (_server, remotes) = serve(&world, Limits::default());
        let peer = world.inlet.connect();
        let remote = remotes.recv().unwrap();
        let (done, receipts) = mpsc::channel();
        for part in ["a", "b", "c"] {
            let done = done.clone();
            let text = part.repeat(100).into_bytes();
            assert!(remote.send_then(text, move |receipt| done.send(receipt).unwrap()));
        }
        let expected = ["a", "b", "c"].map(|part| part.repeat(100)).concat();
        assert_gets(&peer, expected);
        for _ in 0..3 {
            let Receipt {
                reached, missed, ..
            } = receipts.recv().unwrap();
            assert_eq!((reached, missed), (1, 0));
        }
        drop(done);
        assert_eq!(remote.waiting(), 0);
        assert!(receipts.recv().is_err());
    });
}

/// The output ends behind what was sent; the client may still send, and its items are handled. What
/// is sent later has no place, and the connection goes on.
#[test]
fn end_output() {
    on_both_engines(|world| {
        let (done, receipts) = mpsc::channel();
        let (remotes, received) = mpsc::channel();
        let calls = world.calls.clone();
        let server = world.serve(Limits::default(), line(80), move || {
            let remotes = remotes.clone();
            Actor::new(&calls)
                .on_start(move |cx| {
                    remotes.send(cx.remote()).unwrap();
                    Ok(Next::Continue)
                })
                .on_item(|_, _| Ok(Next::Continue))
        });
        let peer = world.inlet.connect();
        let remote = received.recv().unwrap();
        assert!(remote.send(vec![b'x'; 200]));
        remote.end_output();
        let _ = remote.send_then(vec![b'y'; 10], move |it| done.send(it).unwrap());
        assert_eq!(receipts.recv().unwrap().missed, 1);
        assert_gets(&peer, [b'x'; 200]);
        wait_until(|| peer.is_output_ended());
        assert!(!peer.is_closed_by_pool());
        peer.send(b"a\n");
        world.calls.wait_for("handle a");
        finish(&peer);
        assert_eq!(peer.received(), b"");
        wait_until(|| world.calls.count("closed") == 1);
        assert_eq!(times_ended(&server, MAIN, "failed"), 0);
    });
}

/// A gentle close sends what was sent before; a close at once drops it.
#[test]
fn close_gently_and_at_once() {
    on_both_engines(|world| {
        let (_server, remotes) = serve(&world, Limits::default());
        let gentle = world.inlet.connect();
        let remote = remotes.recv().unwrap();
        remote.send(vec![b'x'; 500]);
        remote.close_gently();
        assert_gets(&gentle, [b'x'; 500]);
        finish(&gentle);
        world.calls.wait_for("closed: finished");
        let sudden = world.inlet.connect();
        let remote = remotes.recv().unwrap();
        remote.send(vec![b'y'; 500]);
        assert_gets(&sudden, [b'y'; 10]);
        remote.close();
        sudden.wait_closed();
        assert!(sudden.received().len() < 490);
        world.calls.wait_for("closed: closed on request");
        assert_eq!(world.calls.count("closed"), 2);
    });
}

/// A connection is found by its number while it is open.
#[test]
fn found_by_number() {
    on_both_engines(|world| {
        let (server, remotes) = serve(&world, Limits::default());
        let peer = world.inlet.connect();
        let remote = remotes.recv().unwrap();
        let found = server.connection(remote.id()).unwrap();
        assert!(found.send(*b"hello"));
        assert_gets(&peer, "hello");
        finish(&peer);
        wait_until(|| server.connection(remote.id()).is_none());
        let (done, receipts) = mpsc::channel();
        assert!(!remote.send_then(*b"late", move |receipt| done.send(receipt).unwrap()));
        let receipt = Receipt {
            reached: 0,
            missed: 1,
        };
        assert_eq!(receipts.recv().unwrap(), receipt);
    });
}
