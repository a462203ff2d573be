//! What members of a group are owed: greetings, notifications and further calls survive moves,
//! connections and ends.

use std::{
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::support::{
    self, bounded,
    groups::{
        asks, byte, echo, group, member, member_that_sends_little, next, pool, pools, Cx, Others,
        Told,
    },
    tcp_pair, wait_until, LONG,
};
use paceline::{Adoption, Closed, EventHandler, GroupHandler, Handle, Interest, Next};

/// Tells when a member is notified; waits, when the group is, for a word.
struct Quiet {
    heard: mpsc::Sender<&'static str>,
    name: &'static str,
    entered: mpsc::Sender<()>,
    leave: mpsc::Receiver<()>,
}

impl GroupHandler<TcpStream> for Quiet {
    fn ready(&mut self, cx: &mut Cx<'_>, _: &mut Others<'_>) -> io::Result<Next> {
        if cx.is_notified() {
            self.heard.send(self.name).unwrap();
        }
        Ok(Next::Continue)
    }

    fn notified(&mut self, _: &mut Others<'_>) {
        self.entered.send(()).unwrap();
        self.leave.recv_timeout(LONG).unwrap();
    }

    fn deserted(&mut self) -> Next {
        Next::Continue
    }
}

/// H2: a member is moved, and then notified, while its new group is with a thread: it is greeted
/// there, and then called for the notification.
#[test]
fn a_notification_after_a_move_is_heard() {
    bounded(|| {
        for pool in pools(3) {
            let (heard, all) = mpsc::channel();
            let (enter, entered) = mpsc::channel();
            let (_go, stay) = mpsc::channel();
            let (open, leave) = mpsc::channel();
            let quiet = |name, leave| Quiet {
                heard: heard.clone(),
                name,
                entered: enter.clone(),
                leave,
            };
            let old = pool.group(quiet("old", stay)).unwrap();
            let new = pool.group(quiet("new", leave)).unwrap();
            let (near, _far) = tcp_pair();
            let member = old.register(near, Interest::READ).unwrap();
            member.notify().unwrap();
            assert_eq!(all.recv_timeout(LONG), Ok("old"));
            new.notify().unwrap();
            entered.recv_timeout(LONG).unwrap();
            wait_until(|| new.adopt(&member).unwrap() == Adoption::Moved);
            member.notify().unwrap();
            open.send(()).unwrap();
            assert_eq!(all.recv_timeout(LONG), Ok("new"));
        }
    });
}

/// H2: a member answers in pieces (`Next::Again`); another one's call moves it away in between. The
/// rest follows.
#[test]
fn what_was_asked_again_survives_a_move() {
    const PIECES: usize = 300;
    bounded(|| {
        for pool in pools(2) {
            let (new, _told_new) = group(&pool, pieces);
            let goes_to = new.clone();
            let (old, told) = group(&pool, move |cx, members| {
                if cx.is_notified() {
                    return pieces(cx, members);
                }
                match byte(cx)? {
                    Some(9) => {
                        let other = members.handles().next().unwrap();
                        members.move_to(&other, &goes_to)?;
                        Ok(Next::Continue)
                    }
                    _ => Ok(Next::Again),
                }
            });
            let (_, mut far) = member(&old, &told, Interest::READ);
            let (_, mut peer) = member(&old, &told, Interest::READ);
            far.write_all(&[1]).unwrap();
            far.read_exact(&mut [0; 5]).unwrap();
            peer.write_all(&[9]).unwrap();
            far.read_exact(&mut [0; PIECES - 5]).unwrap();
        }
    });
}

/// Answers any question by bytes without end, one at a call.
fn pieces(cx: &mut Cx<'_>, _: &mut Others<'_>) -> io::Result<Next> {
    if !cx.is_notified() {
        byte(cx)?;
    }
    cx.write_all(&[7]).map(|()| Next::Again)
}

/// H2: a handle that speaks first is notified before: it is told both.
#[test]
fn a_notification_before_the_greeting_is_heard() {
    struct First(mpsc::Sender<&'static str>);
    impl EventHandler<TcpStream> for First {
        fn speaks_first(&self) -> bool {
            true
        }
        fn connected(&mut self, _: &mut Cx<'_>) -> io::Result<Next> {
            self.0.send("connected").unwrap();
            Ok(Next::Continue)
        }
        fn ready(&mut self, cx: &mut Cx<'_>) -> io::Result<Next> {
            if cx.is_notified() {
                self.0.send("notified").unwrap();
            }
            Ok(Next::Continue)
        }
    }
    bounded(|| {
        let pool = pool(1);
        let (open, gate) = mpsc::channel::<()>();
        let (enter, entered) = mpsc::channel();
        let post = pool.post(move |_| {
            enter.send(()).unwrap();
            gate.recv_timeout(LONG).unwrap();
        });
        post.unwrap();
        entered.recv_timeout(LONG).unwrap();
        let (tell, told) = mpsc::channel();
        let (near, _far) = tcp_pair();
        let handle = pool.register(near, Interest::READ, First(tell)).unwrap();
        handle.notify().unwrap();
        open.send(()).unwrap();
        assert_eq!(told.recv_timeout(LONG), Ok("connected"));
        assert_eq!(told.recv_timeout(LONG), Ok("notified"));
    });
}

/// H2: a member is notified before its connection stands: it joins, and is called for that.
#[test]
fn a_notification_before_the_connection_is_heard() {
    bounded(|| {
        for pool in pools(1) {
            let (tell, heard) = mpsc::channel();
            let (group, told) = group(&pool, move |cx, _| {
                tell.send(cx.is_notified()).unwrap();
                Ok(Next::Continue)
            });
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let member = group.connect(server.local_addr().unwrap(), LONG).unwrap();
            member.notify().unwrap();
            assert_eq!(next(&told), Told::Joined(member.id()));
            assert_eq!(heard.recv_timeout(LONG), Ok(true));
        }
    });
}

/// A connection that does not stand yet can't be used, and is not made late by that.
#[test]
fn connections_are_used_when_they_stand() {
    bounded(|| {
        let pool = pool(2);
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = server.local_addr().unwrap();
        let (tell, refused) = mpsc::channel();
        let (group, told) = group(&pool, move |cx, members| {
            byte(cx)?;
            let other = members.group().connect(address, LONG)?;
            let used = members.with(&other, |cx| cx.write_all(&[7]));
            tell.send(used.unwrap_err().kind()).unwrap();
            Ok(Next::Continue)
        });
        let (_, mut peer) = member(&group, &told, Interest::READ);
        peer.write_all(&[1]).unwrap();
        assert_eq!(refused.recv_timeout(LONG), Ok(io::ErrorKind::NotConnected));
        assert!(matches!(next(&told), Told::Joined(_)));
    });
}

/// A move into the group that it is in changes nothing, and greets nobody.
#[test]
fn moves_to_the_own_group_are_none() {
    bounded(|| {
        let pool = pool(2);
        let (group, told) = group(&pool, |cx, members| {
            let own = members.group();
            for other in members.handles().collect::<Vec<_>>() {
                members.move_to(&other, &own)?;
            }
            members.move_to(&cx.handle(), &own)?;
            echo(cx, members)
        });
        let (one, mut peer) = member(&group, &told, Interest::READ);
        let (_, mut far) = member(&group, &told, Interest::READ);
        asks(&mut peer, 1);
        asks(&mut far, 2);
        drop(peer);
        assert_eq!(next(&told), Told::Closed(one.id(), "finished".to_owned()));
    });
}

/// H2: the end of a member's input is read in another one's call; then its peer resets. That is
/// told, on every set.
#[test]
fn resets_after_an_end_that_others_read_are_told() {
    bounded(|| {
        for pool in pools(2) {
            let (tell, ends) = mpsc::channel();
            let (group, told) = group(&pool, move |cx, members| {
                if cx.is_notified() {
                    let other = members.handles().next().unwrap();
                    let read = members.with(&other, |cx| cx.read(&mut [0]));
                    tell.send(read.unwrap()).unwrap();
                    other.resume()?;
                    return Ok(Next::Continue);
                }
                // It may still want to send after its peer's end.
                let count = cx.read(&mut [0])?;
                tell.send(count).unwrap();
                Ok(Next::Continue)
            });
            let (one, _peer) = member(&group, &told, Interest::READ);
            let (other, far) = member(&group, &told, Interest::READ);
            other.suspend().unwrap();
            far.shutdown(Shutdown::Write).unwrap();
            // Until the end has arrived, a read by the way finds nothing.
            support::pause();
            one.notify().unwrap();
            assert_eq!(ends.recv_timeout(LONG), Ok(0), "by the way");
            assert_eq!(ends.recv_timeout(LONG), Ok(0), "and by itself");
            socket2::SockRef::from(&far)
                .set_linger(Some(Duration::ZERO))
                .unwrap();
            drop(far);
            assert_eq!(ends.recv_timeout(LONG), Ok(0), "there is news");
        }
    });
}

/// S1: at the end of the pool, nobody waits for itself either: not in `closed` for another member.
#[test]
fn waiting_in_closed_is_refused_at_the_end() {
    struct Waits(mpsc::Sender<io::ErrorKind>);
    impl GroupHandler<TcpStream> for Waits {
        fn ready(&mut self, _: &mut Cx<'_>, _: &mut Others<'_>) -> io::Result<Next> {
            Ok(Next::Continue)
        }
        fn closed(&mut self, _: &Handle, _: Closed, members: &mut Others<'_>) {
            for other in members.handles() {
                let told = other.close_and_wait().unwrap_err();
                self.0.send(told.kind()).unwrap();
            }
        }
    }
    bounded(|| {
        let pool = pool(0);
        let (tell, told) = mpsc::channel();
        let group = pool.group(Waits(tell)).unwrap();
        let _peers = [(); 2].map(|()| {
            let (near, far) = tcp_pair();
            group.register(near, Interest::READ).unwrap();
            far
        });
        let report = pool.shutdown(Duration::ZERO);
        assert_eq!(report.unfinished.len(), 2, "{report}");
        assert_eq!(told.iter().collect::<Vec<_>>(), [io::ErrorKind::Deadlock]);
    });
}

/// H4: a panic of `joined` or `notified` is like one of `ready`; one of `closed`, `deserted` or
/// `ended` is told, and the end goes on.
#[test]
fn panics_everywhere() {
    /// Panics in the call with this number.
    struct Touchy(u8);
    impl GroupHandler<TcpStream> for Touchy {
        fn ready(&mut self, cx: &mut Cx<'_>, members: &mut Others<'_>) -> io::Result<Next> {
            echo(cx, members)
        }
        fn joined(&mut self, _: &mut Cx<'_>, _: &mut Others<'_>) -> io::Result<Next> {
            assert_ne!(self.0, 0);
            Ok(Next::Continue)
        }
        fn notified(&mut self, _: &mut Others<'_>) {
            assert_ne!(self.0, 1);
        }
        fn closed(&mut self, _: &Handle, _: Closed, _: &mut Others<'_>) {
            assert_ne!(self.0, 2);
        }
        fn deserted(&mut self) -> Next {
            assert_ne!(self.0, 3);
            Next::Close
        }
        fn ended(&mut self, _: Closed) {
            assert_ne!(self.0, 4);
        }
    }
    bounded(|| {
        for call in 0..5 {
            let pool = pool(2);
            let group = pool.group(Touchy(call)).unwrap();
            let ends = [(); 2].map(|()| {
                let (near, far) = tcp_pair();
                // The panic that greets the first may have ended the group already; then the second
                // is refused.
                let joined = group.register(near, Interest::READ);
                assert!(joined.is_ok() || call == 0);
                far
            });
            if call > 1 {
                ends.iter()
                    .for_each(|end| end.shutdown(Shutdown::Write).unwrap());
            } else {
                // It may have ended already.
                let _ = group.notify();
            }
            for mut end in ends {
                assert!(!matches!(end.read(&mut [0]), Ok(1)));
            }
            wait_until(|| group.notify().is_err());
            let report = pool.shutdown(LONG);
            assert!(report.is_clean(), "{report}");
            let panics = if call == 2 { 2 } else { 1 };
            assert_eq!(pool.snapshot().panics, panics, "call {call}");
        }
    });
}

/// A handler ends another member: with nothing kept at once, else when that is sent. Both are told
/// as finished.
#[test]
fn others_are_finished() {
    const SIZE: usize = 250 << 10;
    bounded(|| {
        for (pool, size) in pools(2).flat_map(|pool| [(pool.clone(), 0), (pool, SIZE)]) {
            let (group, told) = group(&pool, move |cx, members| {
                let Some(byte) = byte(cx)? else {
                    return Ok(Next::Close);
                };
                let other = members.handles().next().unwrap();
                members.with(&other, |cx| {
                    cx.write_all(&vec![7; size])?;
                    assert_eq!(cx.unsent() > 0, size > 0);
                    Ok(())
                })?;
                members.finish(&other)?;
                cx.write_all(&[byte]).map(|()| Next::Continue)
            });
            let (_, mut peer) = member(&group, &told, Interest::READ);
            let (other, mut far) = member_that_sends_little(&group, &told);
            asks(&mut peer, 1);
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), size);
            let end = Told::Closed(other.id(), "finished".to_owned());
            assert_eq!(next(&told), end);
        }
    });
}

/// A handler knows how many others there are.
#[test]
fn others_are_counted() {
    bounded(|| {
        let pool = pool(2);
        let (tell, counts) = mpsc::channel();
        let (group, told) = group(&pool, move |cx, members| {
            let Some(byte) = byte(cx)? else {
                return Ok(Next::Close);
            };
            let (mut others, count) = (0, members.handles().count());
            members.each(|other, cx| others += usize::from(*other == cx.handle()));
            assert_eq!(others, count, "each is lent under its own name");
            tell.send((members.len(), members.is_empty(), others))
                .unwrap();
            cx.write_all(&[byte]).map(|()| Next::Continue)
        });
        let mut peers = Vec::new();
        for others in 0..3 {
            peers.push(member(&group, &told, Interest::READ).1);
            asks(&mut peers[others], 1);
            let expected = (others, others == 0, others);
            assert_eq!(counts.recv_timeout(LONG), Ok(expected));
        }
    });
}

/// S1: what has come to a member before the shutdown is answered, though the only thread is in a
/// handler and no set has told anybody of it yet.
#[test]
fn what_has_come_to_members_is_answered() {
    bounded(|| {
        for pool in pools(1) {
            let (group, told) = group(&pool, echo);
            let (_, mut peer) = member(&group, &told, Interest::READ);
            let (enter, entered) = mpsc::channel();
            let (open, gate) = mpsc::channel::<()>();
            let post = pool.post(move |_| {
                enter.send(()).unwrap();
                gate.recv_timeout(LONG).unwrap();
            });
            post.unwrap();
            entered.recv_timeout(LONG).unwrap();
            peer.write_all(&[5]).unwrap();
            let ending = pool.clone();
            let ends = thread::spawn(move || ending.shutdown(LONG));
            wait_until(|| pool.post(|_| {}).is_err());
            open.send(()).unwrap();
            let mut all = Vec::new();
            peer.read_to_end(&mut all).unwrap();
            assert_eq!(all, [5]);
            let report = ends.join().unwrap();
            assert!(report.is_clean(), "{report}");
        }
    });
}
