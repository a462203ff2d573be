//! Groups: several handles, one handler, one owner; how members come and end.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc, Arc,
    },
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    groups::{
        asks, byte, echo, group, member, member_that_sends_little, next, pool, pools, Cx, Others,
        Script, Told,
    },
    tcp_pair, wait_until, LONG,
};
use paceline::{Closed, GroupHandler, Handle, Interest, Next, Panics, Pool};

/// H1: the events of all members come to one thread at a time; and all come.
#[test]
fn one_thread_at_a_time() {
    const EACH: usize = 300;
    bounded(|| {
        for pool in pools(4) {
            let (inside, served) = (AtomicUsize::new(0), Arc::new(AtomicUsize::new(0)));
            let counted = Arc::clone(&served);
            let (group, told) = group(&pool, move |cx, _| {
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two owners");
                let byte = byte(cx);
                if matches!(byte, Ok(Some(_))) {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
                inside.fetch_sub(1, Ordering::SeqCst);
                byte.map(|byte| byte.map_or(Next::Close, |_| Next::Continue))
            });
            let peers: Vec<_> = (0..4)
                .map(|_| member(&group, &told, Interest::READ))
                .collect();
            let senders = peers.into_iter().map(|(_, mut peer)| {
                thread::spawn(move || (0..EACH).for_each(|_| peer.write_all(&[1]).unwrap()))
            });
            for sender in senders.collect::<Vec<_>>() {
                sender.join().unwrap();
            }
            // All are closed by their peers, and then the group ends.
            let end = told.iter().find(|told| matches!(told, Told::Ended(_)));
            assert_eq!(end, Some(Told::Ended("finished".to_owned())));
            assert_eq!(served.load(Ordering::SeqCst), 4 * EACH);
        }
    });
}

/// F1: a member whose peer never stops sending leaves the others their turn.
#[test]
fn members_take_turns() {
    bounded(|| {
        for pool in pools(2) {
            let (group, told) = group(&pool, |cx, _| match cx.read(&mut [0; 64])? {
                64 => Ok(Next::Continue),
                _ if cx.is_hung_up() => Ok(Next::Close),
                _ => cx.write_all(&[1]).map(|()| Next::Continue),
            });
            let (_, mut flood) = member(&group, &told, Interest::READ);
            let (_, mut other) = member(&group, &told, Interest::READ);
            let over = Arc::new(AtomicBool::new(false));
            let floods = {
                let over = Arc::clone(&over);
                thread::spawn(move || {
                    flood.set_nonblocking(true).unwrap();
                    while !over.load(Ordering::SeqCst) {
                        let _ = flood.write(&[0; 4096]);
                    }
                })
            };
            for _ in 0..50 {
                asks(&mut other, 1);
            }
            over.store(true, Ordering::SeqCst);
            floods.join().unwrap();
        }
    });
}

/// F1: a group that is notified all the time serves its members too.
#[test]
fn notifications_leave_members_their_turn() {
    struct Restless;
    impl GroupHandler<TcpStream> for Restless {
        fn ready(&mut self, cx: &mut Cx<'_>, members: &mut Others<'_>) -> io::Result<Next> {
            echo(cx, members)
        }
        fn notified(&mut self, members: &mut Others<'_>) {
            members.group().notify().unwrap();
        }
    }
    bounded(|| {
        for pool in pools(2) {
            let group = pool.group(Restless).unwrap();
            let (near, mut far) = tcp_pair();
            group.register(near, Interest::READ).unwrap();
            group.notify().unwrap();
            for byte in 0..20 {
                asks(&mut far, byte);
            }
            group.close().unwrap();
        }
    });
}

/// What one says is written to the other, whatever that can take; what it can't is kept and sent.
#[test]
fn members_use_each_other() {
    const SIZE: usize = 1 << 20;
    bounded(|| {
        for pool in pools(3) {
            let (group, told) = group(&pool, |cx, members| {
                let other = members.handles().next().unwrap();
                if cx.is_notified() {
                    other.set_interest(Interest::READ)?;
                    return Ok(Next::Continue);
                }
                let mut buffer = [0; 8192];
                let count = cx.read(&mut buffer)?;
                let kept = members.with(&other, |cx| {
                    cx.write_all(&buffer[..count])?;
                    Ok(cx.unsent())
                })?;
                // Back-pressure: nothing is read until that is sent, which a notification of the
                // other tells.
                if kept > 0 {
                    cx.handle().set_interest(Interest::NONE)?;
                    other.notify()?;
                }
                Ok(if count == 0 {
                    Next::Close
                } else {
                    Next::Continue
                })
            });
            let (_, mut from) = member(&group, &told, Interest::READ);
            let (_, mut to) = member(&group, &told, Interest::NONE);
            let sender = thread::spawn(move || {
                let bytes: Vec<u8> = (0..SIZE).map(|at| (at % 251) as u8).collect();
                from.write_all(&bytes).unwrap();
                from
            });
            let mut received = vec![0; SIZE];
            // The handler of the receiving side reads nothing: its peer sends nothing.
            to.read_exact(&mut received).unwrap();
            assert!(received
                .iter()
                .enumerate()
                .all(|(at, byte)| *byte == (at % 251) as u8));
            drop(sender.join().unwrap());
        }
    });
}

/// What another member does not take at once is sent when it can be, though nobody asks for that.
#[test]
fn what_others_keep_is_sent() {
    const SIZE: usize = 250 << 10;
    bounded(|| {
        for pool in pools(2) {
            let (group, told) = group(&pool, |cx, members| {
                byte(cx)?;
                let other = members.handles().next().unwrap();
                members.with(&other, |cx| cx.write_all(&[7; SIZE]))?;
                Ok(Next::Continue)
            });
            let (_, mut peer) = member(&group, &told, Interest::READ);
            let (_, mut far) = member_that_sends_little(&group, &told);
            peer.write_all(&[1]).unwrap();
            let mut all = vec![0; SIZE];
            far.read_exact(&mut all).unwrap();
            assert_eq!(all, vec![7; SIZE]);
        }
    });
}

/// Somebody outside has the handler called; several calls may be one.
#[test]
fn groups_are_notified() {
    bounded(|| {
        let pool = pool(2);
        let (group, told) = group(&pool, echo);
        // It has no member yet: it waits for one. (The second time it has done all that the first
        // was about.)
        for _ in 0..2 {
            group.notify().unwrap();
            assert_eq!(next(&told), Told::Notified);
        }
        let (member, _peer) = member(&group, &told, Interest::READ);
        group.notify().unwrap();
        assert_eq!(next(&told), Told::Notified);
        group.close().unwrap();
        assert_eq!(
            next(&told),
            Told::Closed(member.id(), "closed on request".to_owned())
        );
        assert_eq!(next(&told), Told::Ended("closed on request".to_owned()));
        assert_eq!(group.notify().unwrap_err().kind(), io::ErrorKind::NotFound);
        let refused = group.register(tcp_pair().0, Interest::READ).unwrap_err();
        assert_eq!(refused.error.kind(), io::ErrorKind::NotFound);
        assert!(
            refused.value.peer_addr().is_ok(),
            "the source is given back, open"
        );
    });
}

/// A group that wants to live without members does.
#[test]
fn deserted_groups_may_stay() {
    struct Hermit;
    impl GroupHandler<TcpStream> for Hermit {
        fn ready(&mut self, cx: &mut Cx<'_>, members: &mut Others<'_>) -> io::Result<Next> {
            echo(cx, members)
        }
        fn deserted(&mut self) -> Next {
            Next::Continue
        }
    }
    bounded(|| {
        let pool = pool(2);
        let group = pool.group(Hermit).unwrap();
        for byte in 0..3 {
            let (near, mut far) = tcp_pair();
            let member = group.register(near, Interest::READ).unwrap();
            asks(&mut far, byte);
            member.close_and_wait().unwrap();
        }
        // It holds up no drain: that ends long before its time, and before the test's.
        let report = pool.shutdown(20 * LONG);
        assert!(report.is_clean(), "{report}");
    });
}

/// An outgoing connection is a member when it stands; if it does not, that is told.
#[test]
fn connections_are_made_into_a_group() {
    bounded(|| {
        for pool in pools(2) {
            let (group, told) = group(&pool, echo);
            let server = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = server.local_addr().unwrap();
            let member = group.connect(address, LONG).unwrap();
            let (mut peer, _) = server.accept().unwrap();
            assert_eq!(next(&told), Told::Joined(member.id()));
            asks(&mut peer, 5);
            drop(server);
            if let Ok(refused) = group.connect(address, LONG) {
                let Told::Closed(id, why) = next(&told) else {
                    panic!("it joined");
                };
                assert_eq!(id, refused.id());
                let attempted = format!("failed: connect to {address}: Connection refused");
                assert!(why.starts_with(&attempted), "{why}");
            }
            asks(&mut peer, 6);
        }
    });
}

/// A connection that does not stand in time is told; its group lives on with the others.
#[test]
fn connections_have_a_deadline() {
    bounded(|| {
        let pool = pool(2);
        let (group, told) = group(&pool, echo);
        let (_, mut peer) = member(&group, &told, Interest::READ);
        // The queue of this listener is full: nobody accepts, so further connections do not stand.
        let full =
            socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        full.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        full.listen(0).unwrap();
        let address = full.local_addr().unwrap().as_socket().unwrap();
        let _first = TcpStream::connect(address).unwrap();
        let late = group.connect(address, Duration::from_millis(20)).unwrap();
        assert_eq!(
            next(&told),
            Told::Closed(late.id(), "its time was over".to_owned())
        );
        asks(&mut peer, 1);
    });
}

/// Each connection that is accepted begins a group; the group ends with it.
#[test]
fn listeners_make_groups() {
    bounded(|| {
        let pool = pool(3);
        let (tell, told) = mpsc::channel();
        let listener = pool.listener().bind_groups("127.0.0.1:0", move |_, _| {
            let tell = tell.clone();
            Some(Script { ready: echo, tell })
        });
        let address = listener.unwrap().local_addr();
        for byte in 0..3 {
            let mut peer = TcpStream::connect(address).unwrap();
            let Told::Joined(id) = next(&told) else {
                panic!("nobody joined");
            };
            asks(&mut peer, byte);
            drop(peer);
            assert_eq!(next(&told), Told::Closed(id, "finished".to_owned()));
            assert_eq!(next(&told), Told::Ended("finished".to_owned()));
        }
        let report = pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
    });
}

/// H4: a panic closes all members, or none, as the pool is told to.
#[test]
fn panics_by_policy() {
    fn touchy(cx: &mut Cx<'_>, members: &mut Others<'_>) -> io::Result<Next> {
        match byte(cx)? {
            Some(0) => panic!("zero"),
            Some(1) => {
                let other = members.handles().next().unwrap();
                members.with(&other, |_| panic!("one"))
            }
            Some(byte) => cx.write_all(&[byte]).map(|()| Next::Continue),
            None => Ok(Next::Close),
        }
    }
    bounded(|| {
        for first in [0, 1] {
            let pool = Pool::builder().threads(2).build().unwrap();
            let (group, told) = group(&pool, touchy);
            let (one, mut peer) = member(&group, &told, Interest::READ);
            let (other, mut far) = member(&group, &told, Interest::READ);
            peer.write_all(&[first]).unwrap();
            let why = format!(
                "the handler panicked: {}",
                ["zero", "one"][usize::from(first)]
            );
            let mut ends = [next(&told), next(&told)];
            ends.sort_by_key(|told| *told != Told::Closed(one.id(), why.clone()));
            let both = [one, other].map(|member| Told::Closed(member.id(), why.clone()));
            assert_eq!(ends, both);
            assert_eq!(next(&told), Told::Ended(why));
            assert_eq!(far.read_to_end(&mut Vec::new()).unwrap(), 0);
            assert_eq!(pool.snapshot().panics, 1);
        }
        let pool = Pool::builder()
            .threads(2)
            .panics(Panics::Keep)
            .build()
            .unwrap();
        let (group, told) = group(&pool, touchy);
        let (_, mut peer) = member(&group, &told, Interest::READ);
        let (_, mut far) = member(&group, &told, Interest::READ);
        peer.write_all(&[0]).unwrap();
        asks(&mut far, 2);
        asks(&mut peer, 3);
    });
}

/// What a handler wants to be done when its handles were given back is done, also if it asks for it
/// at the end of one.
#[test]
fn work_afterwards_is_done() {
    struct Last(mpsc::Sender<&'static str>);
    impl GroupHandler<TcpStream> for Last {
        fn ready(&mut self, cx: &mut Cx<'_>, members: &mut Others<'_>) -> io::Result<Next> {
            let tell = self.0.clone();
            members.each(|_, cx| {
                let tell = tell.clone();
                cx.after_release(move |_| tell.send("after a call").unwrap());
            });
            byte(cx).map(|byte| byte.map_or(Next::Close, |_| Next::Continue))
        }
        fn closed(&mut self, _: &Handle, _: Closed, members: &mut Others<'_>) {
            let tell = self.0.clone();
            members.each(|_, cx| {
                let tell = tell.clone();
                cx.after_release(move |_| tell.send("after an end").unwrap());
            });
        }
    }
    bounded(|| {
        let pool = pool(2);
        let (tell, told) = mpsc::channel();
        let group = pool.group(Last(tell)).unwrap();
        let [mut one, _other] = [(); 2].map(|()| {
            let (near, far) = tcp_pair();
            group.register(near, Interest::READ).unwrap();
            far
        });
        one.write_all(&[1]).unwrap();
        assert_eq!(told.recv_timeout(LONG).unwrap(), "after a call");
        drop(one);
        assert!(told.iter().any(|word| word == "after an end"));
    });
}

/// Of one member: suspended, resumed, notified, its interest changed, its time over; the others do
/// not notice.
#[test]
fn members_are_handles() {
    bounded(|| {
        for pool in pools(2) {
            let (group, told) = group(&pool, |cx, members| {
                if cx.is_notified() {
                    cx.write_all(b"!")?;
                }
                echo(cx, members)
            });
            let (one, mut peer) = member(&group, &told, Interest::NONE);
            let (_, mut far) = member(&group, &told, Interest::READ);
            peer.write_all(&[1]).unwrap();
            asks(&mut far, 2);
            one.set_interest(Interest::READ).unwrap();
            let mut back = [0];
            peer.read_exact(&mut back).unwrap();
            // The call that looks for more of its input comes before the other's.
            asks(&mut far, 9);
            one.suspend().unwrap();
            peer.write_all(&[3]).unwrap();
            one.notify().unwrap();
            asks(&mut far, 4);
            one.resume().unwrap();
            let mut both = [0; 2];
            peer.read_exact(&mut both).unwrap();
            assert_eq!((back, both), ([1], [b'!', 3]));
            one.set_timeout(Some(Duration::from_millis(5))).unwrap();
            assert_eq!(
                next(&told),
                Told::Closed(one.id(), "its time was over".to_owned())
            );
            asks(&mut far, 5);
        }
    });
}

/// Nobody waits for itself: not for the member at hand, and not for another one of the same group.
#[test]
fn waiting_for_ones_own_members_is_refused() {
    bounded(|| {
        let pool = pool(2);
        let (tell, refusals) = mpsc::channel();
        let (group, told) = group(&pool, move |cx, members| {
            let own = cx.handle().close_and_wait();
            let other = members.handles().next().unwrap().close_and_wait();
            tell.send([own, other].map(|told| told.unwrap_err().kind()))
                .unwrap();
            echo(cx, members)
        });
        let (_, mut peer) = member(&group, &told, Interest::READ);
        let (other, _far) = member(&group, &told, Interest::READ);
        asks(&mut peer, 1);
        assert_eq!(
            refusals.recv_timeout(LONG).unwrap(),
            [io::ErrorKind::Deadlock; 2]
        );
        other.close_and_wait().unwrap();
        assert_eq!(
            next(&told),
            Told::Closed(other.id(), "closed on request".to_owned())
        );
    });
}

/// S1, S2: a drain sends what members keep, and closes them; groups end with them.
#[test]
fn drains_send_what_is_kept() {
    const SIZE: usize = 250 << 10;
    bounded(|| {
        for pool in pools(3) {
            let (tell, kept) = mpsc::channel();
            let (group, told) = group(&pool, move |cx, members| {
                byte(cx)?;
                let other = members.handles().next().unwrap();
                let unsent = members.with(&other, |cx| {
                    cx.write_all(&[7; SIZE])?;
                    Ok(cx.unsent())
                })?;
                tell.send(unsent).unwrap();
                Ok(Next::Continue)
            });
            let (_, mut peer) = member(&group, &told, Interest::READ);
            let (other, mut far) = member_that_sends_little(&group, &told);
            peer.write_all(&[1]).unwrap();
            assert!(kept.recv_timeout(LONG).unwrap() > 0);
            let ending = pool.clone();
            let ends = thread::spawn(move || ending.shutdown(LONG));
            // The other one has nothing left to do: the drain has begun.
            assert!(matches!(next(&told), Told::Closed(..)));
            // While the peer does not read, the pool sleeps.
            wait_until(|| {
                let before = pool.snapshot().promotions;
                thread::sleep(Duration::from_millis(30));
                before == pool.snapshot().promotions
            });
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            assert_eq!(all, vec![7; SIZE]);
            let why = "the pool was shut down".to_owned();
            assert_eq!(next(&told), Told::Closed(other.id(), why));
            assert_eq!(next(&told), Told::Ended("finished".to_owned()));
            let report = ends.join().unwrap();
            assert!(report.is_clean(), "{report}");
        }
    });
}

/// S2: what is left at the deadline is closed and listed, each member by its name.
#[test]
fn members_left_are_listed() {
    bounded(|| {
        let pool = pool(2);
        let (group, told) = group(&pool, |cx, members| {
            byte(cx)?;
            let other = members.handles().next().unwrap();
            members.with(&other, |cx| cx.write_all(&[7; 250 << 10]))?;
            Ok(Next::Continue)
        });
        let (_, mut peer) = member(&group, &told, Interest::READ);
        let (other, far) = member_that_sends_little(&group, &told);
        peer.write_all(&[1, 1]).unwrap();
        // Its peer reads nothing. When the second write was refused, some of the first is kept, for
        // ever.
        wait_until(|| pool.snapshot().failed > 0);
        let report = pool.shutdown(Duration::from_secs(1));
        let listed: Vec<_> = report.unfinished.iter().map(|one| one.handle).collect();
        assert_eq!(listed, [other.id()], "{report}");
        assert!(report.unfinished[0].unsent > 0);
        let refused = other.notify().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotFound, "its key is stale");
        let why = "the pool was shut down".to_owned();
        let ends: Vec<_> = told.try_iter().collect();
        assert!(
            ends.contains(&Told::Closed(other.id(), why.clone())),
            "{ends:?}"
        );
        assert_eq!(ends.last(), Some(&Told::Ended(why)));
        drop(far);
    });
}

/// H3: the slot of a member that is closed gets a handle without a group: that has its own handler,
/// and is not looked for in the old group.
#[test]
fn slots_of_members_are_used_again() {
    bounded(|| {
        for pool in pools(2) {
            let (group, told) = group(&pool, echo);
            let (member, peer) = member(&group, &told, Interest::READ);
            drop(peer);
            assert!(matches!(next(&told), Told::Closed(..)));
            assert!(matches!(next(&told), Told::Ended(_)));
            let slot =
                |handle: &Handle| handle.id().to_string().split('.').next().map(str::to_owned);
            let mut peers = Vec::new();
            wait_until(|| {
                let (near, far) = tcp_pair();
                peers.push(far);
                let alone = |cx: &mut Cx<'_>| {
                    let byte = byte(cx)?.unwrap_or_default();
                    cx.write_all(&[byte]).map(|()| Next::Continue)
                };
                let handle = pool.register(near, Interest::READ, alone).unwrap();
                slot(&handle) == slot(&member)
            });
            peers.iter_mut().for_each(|peer| asks(peer, 3));
        }
    });
}

/// S1: a shutdown from a group's own handler does not wait for its members.
#[test]
fn shutdown_from_a_group() {
    bounded(|| {
        for pool in pools(2) {
            let (weak, (tell, report)) = (pool.downgrade(), mpsc::channel());
            let (group, told) = group(&pool, move |cx, _| {
                byte(cx)?;
                let pool = weak.upgrade().unwrap();
                tell.send(pool.shutdown(4 * LONG)).unwrap();
                Ok(Next::Continue)
            });
            let (_, mut peer) = member(&group, &told, Interest::READ);
            let (_, _far) = member(&group, &told, Interest::READ);
            peer.write_all(&[1]).unwrap();
            // It would come back only at its deadline, if it waited.
            let report = report.recv_timeout(LONG).unwrap();
            assert_eq!(report.busy_handles, 0, "{report}");
            let end = told.iter().find(|told| matches!(told, Told::Ended(_)));
            assert!(end.is_some());
        }
    });
}
