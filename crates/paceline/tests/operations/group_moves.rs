//! Members change groups, by their handlers and from outside, and nothing is lost on the way.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::unix::net::UnixStream,
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc, Arc, Barrier, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{
    self, bounded,
    groups::{
        self, asks, byte, echo, group, member, member_that_sends_little, next, pool, pools, Cx,
        Others, Told,
    },
    tcp_pair, wait_until, LONG,
};
use paceline::{Adoption, Closed, Context, Group, GroupHandler, Handle, Interest, Members, Next};

/// A handler gives away the member that it was called for, with unread input.
#[test]
fn the_member_at_hand_moves() {
    bounded(|| {
        for pool in pools(3) {
            let (new, told_new) = group(&pool, echo);
            let goes_to = new.clone();
            let (old, told_old) = group(&pool, move |cx, members| {
                let first = byte(cx)?;
                cx.write_all(&[first.unwrap()])?;
                members.move_to(&cx.handle(), &goes_to)?;
                Ok(Next::Continue)
            });
            let (member, mut peer) = member(&old, &told_old, Interest::READ);
            peer.write_all(&[1, 2, 3]).unwrap();
            let mut back = [0; 3];
            peer.read_exact(&mut back).unwrap();
            assert_eq!(back, [1, 2, 3]);
            assert_eq!(next(&told_new), Told::Joined(member.id()));
            assert_eq!(next(&told_old), Told::Ended("finished".to_owned()));
            drop(peer);
            assert_eq!(
                next(&told_new),
                Told::Closed(member.id(), "finished".to_owned())
            );
            assert_eq!(next(&told_new), Told::Ended("finished".to_owned()));
        }
    });
}

/// What is kept for a member, its interest and its time-out go with it.
#[test]
fn what_a_member_has_goes_with_it() {
    const SIZE: usize = 250 << 10;
    bounded(|| {
        for pool in pools(3) {
            let (new, told_new) = group(&pool, echo);
            let goes_to = new.clone();
            let (old, told_old) = group(&pool, move |cx, members| {
                cx.write_all(&[7; SIZE])?;
                assert!(cx.unsent() > 0);
                members.move_to(&cx.handle(), &goes_to)?;
                Ok(Next::Continue)
            });
            let (member, mut peer) = member_that_sends_little(&old, &told_old);
            member.notify().unwrap();
            assert_eq!(next(&told_old), Told::Ended("finished".to_owned()));
            let mut all = vec![0; SIZE];
            peer.read_exact(&mut all).unwrap();
            assert_eq!(all, vec![7; SIZE]);
            assert_eq!(next(&told_new), Told::Joined(member.id()));
            // It has no interest there either, until it is given one.
            peer.write_all(&[1]).unwrap();
            member.set_timeout(Some(LONG)).unwrap();
            member.set_interest(Interest::READ).unwrap();
            peer.read_exact(&mut [0]).unwrap();
            let (third, told_third) = group(&pool, echo);
            member.set_timeout(Some(Duration::from_millis(50))).unwrap();
            wait_until(|| !matches!(third.adopt(&member), Ok(Adoption::Busy)));
            assert_eq!(next(&told_third), Told::Joined(member.id()));
            let why = "its time was over".to_owned();
            assert_eq!(next(&told_third), Told::Closed(member.id(), why));
        }
    });
}

/// A group that is ending takes nobody, though it still has members.
#[test]
fn ending_groups_take_nobody() {
    struct Leaving(mpsc::Sender<io::ErrorKind>);
    impl GroupHandler<TcpStream> for Leaving {
        fn ready(&mut self, cx: &mut Cx<'_>, members: &mut Others<'_>) -> io::Result<Next> {
            echo(cx, members)
        }
        fn closed(&mut self, _: &Handle, _: Closed, members: &mut Others<'_>) {
            let late = members.group().register(tcp_pair().0, Interest::READ);
            let told = late.map_or_else(|refused| refused.error.kind(), |_| io::ErrorKind::Other);
            self.0.send(told).unwrap();
        }
    }
    bounded(|| {
        let pool = pool(2);
        let (tell, told) = mpsc::channel();
        let group = pool.group(Leaving(tell)).unwrap();
        let _peers = [(); 2].map(|()| {
            let (near, far) = tcp_pair();
            group.register(near, Interest::READ).unwrap();
            far
        });
        group.close().unwrap();
        let refusals: Vec<_> = told.iter().collect();
        assert_eq!(refusals, [io::ErrorKind::NotFound; 2]);
    });
}

/// A group that has ended takes nobody: the member stays where it is, also the one at hand.
#[test]
fn ended_groups_take_nobody() {
    bounded(|| {
        let pool = pool(2);
        let (ended, told_ended) = group(&pool, echo);
        ended.close().unwrap();
        assert_eq!(
            next(&told_ended),
            Told::Ended("closed on request".to_owned())
        );
        let (old, told_old) = group(&pool, move |cx, members| {
            let refused = members.move_to(&cx.handle(), &ended).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::NotFound);
            for other in members.handles().collect::<Vec<_>>() {
                let refused = members.move_to(&other, &ended).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::NotFound);
            }
            echo(cx, members)
        });
        let (_, mut peer) = member(&old, &told_old, Interest::READ);
        let (_, mut other) = member(&old, &told_old, Interest::READ);
        asks(&mut peer, 1);
        asks(&mut other, 2);
    });
}

/// A handler gives away another member.
#[test]
fn another_member_moves() {
    bounded(|| {
        for pool in pools(3) {
            let (new, told_new) = group(&pool, echo);
            let goes_to = new.clone();
            let (old, told_old) = group(&pool, move |cx, members| {
                let told = echo(cx, members);
                for other in members.handles().collect::<Vec<_>>() {
                    members.move_to(&other, &goes_to)?;
                }
                told
            });
            let (_one, mut peer) = member(&old, &told_old, Interest::READ);
            let (other, mut far) = member(&old, &told_old, Interest::READ);
            asks(&mut peer, 1);
            assert_eq!(next(&told_new), Told::Joined(other.id()));
            asks(&mut far, 2);
            asks(&mut peer, 3);
            assert_eq!(
                new.adopt(&other).unwrap(),
                Adoption::Moved,
                "it is there already"
            );
        }
    });
}

/// From outside a member moves if nobody has its group; else that is told, and it stays.
#[test]
fn outsiders_do_not_wait() {
    bounded(|| {
        for pool in pools(2) {
            let (enter, leave) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
            let inside = (Arc::clone(&enter), Arc::clone(&leave));
            let (old, told_old) = group(&pool, move |cx, members| {
                if byte(cx)? == Some(9) {
                    inside.0.wait();
                    inside.1.wait();
                    return Ok(Next::Continue);
                }
                echo(cx, members)
            });
            let (new, told_new) = group(&pool, echo);
            let (member, mut peer) = member(&old, &told_old, Interest::READ);
            peer.write_all(&[9]).unwrap();
            enter.wait();
            assert_eq!(new.adopt(&member).unwrap(), Adoption::Busy);
            leave.wait();
            wait_until(|| new.adopt(&member).unwrap() == Adoption::Moved);
            assert_eq!(next(&told_new), Told::Joined(member.id()));
            assert_eq!(next(&told_old), Told::Ended("finished".to_owned()));
            asks(&mut peer, 7);
        }
    });
}

/// H2: two members wait for a visit of their group. The first visit moves the other one away and
/// closes its own, so the group ends: who still waits there is sent on, and served in its new
/// group.
#[test]
fn who_waits_at_the_end_is_sent_on() {
    struct Old {
        entered: mpsc::Sender<()>,
        leave: mpsc::Receiver<()>,
        new: Group<TcpStream>,
    }
    impl GroupHandler<TcpStream> for Old {
        fn ready(&mut self, _: &mut Cx<'_>, members: &mut Others<'_>) -> io::Result<Next> {
            for other in members.handles().collect::<Vec<_>>() {
                members.move_to(&other, &self.new)?;
            }
            Ok(Next::Close)
        }
        fn notified(&mut self, _: &mut Others<'_>) {
            self.entered.send(()).unwrap();
            self.leave.recv_timeout(LONG).unwrap();
        }
    }
    bounded(|| {
        for pool in pools(2) {
            let (new, _told) = group(&pool, echo);
            let (enter, entered) = mpsc::channel();
            let (open, leave) = mpsc::channel();
            let old = pool.group(Old {
                entered: enter,
                leave,
                new,
            });
            let old = old.unwrap();
            let (near, mut witness) = tcp_pair();
            let alone = |cx: &mut Cx<'_>| {
                let byte = byte(cx)?.unwrap_or_default();
                cx.write_all(&[byte]).map(|()| Next::Continue)
            };
            pool.register(near, Interest::READ, alone).unwrap();
            let mut peers = [(); 2].map(|()| {
                let (near, far) = tcp_pair();
                old.register(near, Interest::READ).unwrap();
                far
            });
            old.notify().unwrap();
            entered.recv_timeout(LONG).unwrap();
            peers
                .iter_mut()
                .for_each(|peer| peer.write_all(&[1]).unwrap());
            // When the other thread has answered this, it has found the members' input, and their
            // group busy.
            (0..3).for_each(|byte| asks(&mut witness, byte));
            open.send(()).unwrap();
            let mut read = peers.map(|mut peer| peer.read_exact(&mut [0]).is_ok());
            read.sort_unstable();
            assert_eq!(read, [false, true], "one is closed, the other one answered");
        }
    });
}

/// A member that is to be closed when its output is sent does not move: it ends where it is.
#[test]
fn who_is_about_to_end_stays() {
    const SIZE: usize = 250 << 10;
    bounded(|| {
        for pool in pools(2) {
            let (new, told_new) = group(&pool, echo);
            let goes_to = new.clone();
            let (tell, kept) = mpsc::channel();
            let (old, told) = group(&pool, move |cx, members| {
                cx.write_all(&[7; SIZE])?;
                tell.send(cx.unsent()).unwrap();
                members.move_to(&cx.handle(), &goes_to)?;
                Ok(Next::Close)
            });
            let (member, mut far) = member_that_sends_little(&old, &told);
            member.notify().unwrap();
            assert!(kept.recv_timeout(LONG).unwrap() > 0);
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            assert_eq!(all.len(), SIZE);
            let end = Told::Closed(member.id(), "finished".to_owned());
            assert_eq!(next(&told), end);
            assert!(told_new.try_recv().is_err());
        }
    });
}

/// What can't be moved is told, and stays.
#[test]
fn impossible_moves_are_told() {
    bounded(|| {
        let (pool, other_pool) = (pool(2), pool(1));
        let (group, told) = group(&pool, echo);
        let (member, mut peer) = member(&group, &told, Interest::READ);
        let kind = |moved: io::Result<Adoption>| moved.unwrap_err().kind();

        let (foreign, _told) = groups::group(&other_pool, echo);
        assert_eq!(kind(foreign.adopt(&member)), io::ErrorKind::InvalidInput);

        let alone = |cx: &mut Cx<'_>| cx.read(&mut [0]).map(|_| Next::Close);
        let (near, _far) = tcp_pair();
        let solitary = pool.register(near, Interest::READ, alone).unwrap();
        assert_eq!(kind(group.adopt(&solitary)), io::ErrorKind::InvalidInput);

        let (ended, told_ended) = groups::group(&pool, echo);
        ended.close().unwrap();
        assert_eq!(
            next(&told_ended),
            Told::Ended("closed on request".to_owned())
        );
        wait_until(|| match ended.adopt(&member) {
            Ok(Adoption::Busy) => false,
            told => kind(told) == io::ErrorKind::NotFound,
        });

        struct OfUnix;
        impl GroupHandler<UnixStream> for OfUnix {
            fn ready(
                &mut self,
                _: &mut Context<'_, UnixStream>,
                _: &mut Members<'_, UnixStream>,
            ) -> io::Result<Next> {
                Ok(Next::Close)
            }
        }
        let unix = pool.group(OfUnix).unwrap();
        wait_until(|| match unix.adopt(&member) {
            Ok(Adoption::Busy) => false,
            told => kind(told) == io::ErrorKind::InvalidInput,
        });

        let (tell, refusals) = mpsc::channel();
        let abroad = foreign.clone();
        let (mover, told_mover) = groups::group(&pool, move |cx, members| {
            let refused = members.move_to(&cx.handle(), &abroad).unwrap_err();
            tell.send(refused.kind()).unwrap();
            echo(cx, members)
        });
        let (_, mut mover_peer) = groups::member(&mover, &told_mover, Interest::READ);
        asks(&mut mover_peer, 1);
        let refusal = refusals.recv_timeout(LONG);
        assert_eq!(refusal, Ok(io::ErrorKind::InvalidInput));

        asks(&mut peer, 1);
        drop(peer);
        assert_eq!(
            next(&told),
            Told::Closed(member.id(), "finished".to_owned())
        );
        assert_eq!(kind(foreign.adopt(&member)), io::ErrorKind::InvalidInput);
        let (next_one, _told) = groups::group(&pool, echo);
        assert_eq!(kind(next_one.adopt(&member)), io::ErrorKind::NotFound);
    });
}

/// H2: members change groups all the time, from outside and by their handlers, while their peers
/// send. Every byte comes back, in order.
#[test]
fn nothing_is_lost_on_the_way() {
    const MEMBERS: usize = 6;
    const BYTES: usize = 400;
    bounded(|| {
        for pool in pools(4) {
            let groups: Arc<Mutex<Vec<Group<TcpStream>>>> = Arc::default();
            let moves = Arc::new(AtomicUsize::new(0));
            let made: Vec<_> = (0..3)
                .map(|own: usize| {
                    let (groups, mut turn) = (Arc::clone(&groups), 0);
                    let counted = Arc::clone(&moves);
                    let (group, told) = group(&pool, move |cx, members| {
                        let told = echo(cx, members)?;
                        turn += 1;
                        let to = groups.lock().unwrap()[(own + turn) % 3].clone();
                        if turn % 3 == 0 {
                            let others = members.handles().next();
                            let other = others.unwrap_or_else(|| cx.handle());
                            // It may have ended meanwhile.
                            let moved = members.move_to(&other, &to).is_ok();
                            counted.fetch_add(usize::from(moved), Ordering::SeqCst);
                        }
                        Ok(told)
                    });
                    // One more, so that it does not end at once.
                    let (near, stays) = tcp_pair();
                    let _ = group.register(near, Interest::READ).unwrap();
                    (group, told, stays)
                })
                .collect();
            *groups.lock().unwrap() = made.iter().map(|(group, ..)| group.clone()).collect();
            let mut handles = Vec::new();
            let peers: Vec<_> = (0..MEMBERS)
                .map(|at| {
                    let (near, mut far) = tcp_pair();
                    let handle = made[at % 3].0.register(near, Interest::READ);
                    handles.push(handle.unwrap());
                    thread::spawn(move || {
                        for sent in 0..BYTES {
                            asks(&mut far, sent as u8);
                        }
                    })
                })
                .collect();
            let mut at = 0;
            while peers.iter().any(|peer| !peer.is_finished()) {
                at += 1;
                let _ = made[at % 3].0.adopt(&handles[at % MEMBERS]);
                support::pause();
            }
            for peer in peers {
                peer.join().unwrap();
            }
            assert!(moves.load(Ordering::SeqCst) > 0);
        }
    });
}
