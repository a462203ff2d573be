//! Groups: a member's events, its moves and its end, against the owner of its group.

use super::*;
use crate::dispatch::{Adoption, Group, GroupHandler, Members};

/// Reads from whichever member has something; may move it first.
pub(super) struct Session {
    pub(super) world: World,
    pub(super) goes_to: Option<Group<Descriptor>>,
    pub(super) ended: Arc<AtomicUsize>,
}

impl GroupHandler<Descriptor> for Session {
    fn ready(
        &mut self,
        cx: &mut Context<'_, Descriptor>,
        members: &mut Members<'_, Descriptor>,
    ) -> io::Result<Next> {
        match self.goes_to.take() {
            Some(group) => {
                members.move_to(&cx.handle(), &group).unwrap();
                Ok(Next::Continue)
            }
            None => self.world.owned(|world| world.read_from(cx)),
        }
    }

    fn notified(&mut self, members: &mut Members<'_, Descriptor>) {
        let goes_to = self.goes_to.take();
        for member in members.handles().collect::<Vec<_>>() {
            match &goes_to {
                Some(group) => members.move_to(&member, group).unwrap(),
                None => self.world.owned(|world| {
                    let _ = members.with(&member, |cx| world.read_from(cx));
                }),
            }
        }
    }

    fn closed(&mut self, _: &Handle, _: Closed, _: &mut Members<'_, Descriptor>) {
        self.world.0.closed.fetch_add(1, Ordering::Relaxed);
    }

    fn ended(&mut self, _: Closed) {
        self.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// A registry with groups over one world.
struct Groups {
    world: World,
    registry: Arc<Registry>,
    ended: Arc<AtomicUsize>,
}

impl Groups {
    fn new(reports: Reports) -> Self {
        let world = World::reporting(reports);
        let registry = world.registry();
        Self {
            world,
            registry,
            ended: Arc::new(AtomicUsize::new(0)),
        }
    }

    fn group(&self, goes_to: Option<Group<Descriptor>>) -> Group<Descriptor> {
        let session = Session {
            world: self.world.clone(),
            goes_to,
            ended: Arc::clone(&self.ended),
        };
        self.registry.group(session).unwrap()
    }

    /// A member, which has joined.
    fn member_of(&self, group: &Group<Descriptor>) -> Handle {
        let member = group.register(Descriptor, Interest::READ).unwrap();
        work(&self.registry, &lead(), true);
        member
    }

    /// Ends the groups, and takes turns until nothing is left.
    fn end(&self, groups: [&Group<Descriptor>; 2]) {
        for group in groups {
            let _ = group.close();
        }
        work(&self.registry, &lead(), true);
        self.assert_over();
        self.assert_rests();
    }

    /// No member circles through the lists for ever.
    fn assert_rests(&self) {
        let sleep = self.registry.may_sleep(None);
        assert_eq!(sleep, None, "the leader would never sleep");
    }

    /// Both groups and the member got their end, once.
    fn assert_over(&self) {
        assert_eq!(self.ended.load(Ordering::Relaxed), 2);
        assert_eq!((self.world.closed(), self.registry.live()), (1, 0));
    }
}

/// H1, H2: a member becomes ready while its group is with another thread, which may use that member
/// too.
fn member_against_owner(reports: Reports) {
    explore(move || {
        let all = Groups::new(reports);
        let group = all.group(None);
        all.member_of(&group);
        let lead = lead();
        all.world.send();
        let other = {
            let (registry, lead) = (Arc::clone(&all.registry), Arc::clone(&lead));
            thread::spawn(move || {
                group.notify().unwrap();
                work(&registry, &lead, false);
            })
        };
        work(&all.registry, &lead, true);
        all.world.send();
        other.join().unwrap();
        work(&all.registry, &lead, true);
        assert_eq!(all.world.read(), 2);
    });
}

#[test]
fn loom_member_against_owner() {
    member_against_owner(Reports::Edges);
}

#[test]
fn loom_member_against_owner_once() {
    member_against_owner(Reports::Once);
}

/// H2: a member is moved from outside while its peer sends: one of the two groups reads it, and the
/// one that it has left ends.
fn adoption_against_edge(reports: Reports) {
    explore(move || {
        let all = Groups::new(reports);
        let (old, new) = (all.group(None), all.group(None));
        let member = all.member_of(&old);
        let mover = {
            let new = new.clone();
            thread::spawn(move || new.adopt(&member).unwrap())
        };
        all.world.send();
        let lead = lead();
        work(&all.registry, &lead, true);
        let moved = mover.join().unwrap();
        work(&all.registry, &lead, true);
        assert_eq!(all.world.read(), 1);
        let ended = all.ended.load(Ordering::Relaxed);
        assert_eq!(ended, usize::from(moved == Adoption::Moved));
        all.end([&old, &new]);
    });
}

#[test]
fn loom_adoption_against_edge() {
    adoption_against_edge(Reports::Edges);
}

#[test]
fn loom_adoption_against_edge_once() {
    adoption_against_edge(Reports::Once);
}

/// H2: a handler gives its member away, with what is ready there, while more comes and another
/// thread takes turns.
fn gift_against_edge(reports: Reports) {
    explore(move || {
        let all = Groups::new(reports);
        let new = all.group(None);
        let old = all.group(Some(new.clone()));
        all.member_of(&old);
        let lead = lead();
        all.world.send();
        let other = {
            let (registry, lead) = (Arc::clone(&all.registry), Arc::clone(&lead));
            thread::spawn(move || work(&registry, &lead, false))
        };
        all.world.send();
        work(&all.registry, &lead, true);
        other.join().unwrap();
        work(&all.registry, &lead, true);
        assert_eq!(all.world.read(), 2);
        all.end([&old, &new]);
    });
}

#[test]
fn loom_gift_against_edge() {
    gift_against_edge(Reports::Edges);
}

#[test]
fn loom_gift_against_edge_once() {
    gift_against_edge(Reports::Once);
}

/// H2: a member is claimed, and routed to its group, while that gives it away and is deserted: the
/// thread that claims it queues it at the old group, at any point of that group's end.
#[test]
fn loom_member_queued_where_it_was() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let new = all.group(None);
        let old = all.group(Some(new.clone()));
        all.member_of(&old);
        let lead = lead();
        old.notify().unwrap();
        let giver = {
            let (registry, lead) = (Arc::clone(&all.registry), Arc::clone(&lead));
            thread::spawn(move || work(&registry, &lead, false))
        };
        all.world.send();
        work(&all.registry, &lead, true);
        giver.join().unwrap();
        work(&all.registry, &lead, true);
        assert_eq!(all.world.read(), 1);
        all.end([&old, &new]);
    });
}

/// H2: a member is claimed, and queued at its group, while another thread moves it away from there:
/// it is sent on.
#[test]
fn loom_adoption_against_claim() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let (old, new) = (all.group(None), all.group(None));
        let member = all.member_of(&old);
        let lead = lead();
        all.world.send();
        let mover = {
            let (new, registry, lead) = (new.clone(), Arc::clone(&all.registry), Arc::clone(&lead));
            thread::spawn(move || {
                let _ = new.adopt(&member).unwrap();
                work(&registry, &lead, false);
            })
        };
        work(&all.registry, &lead, true);
        mover.join().unwrap();
        work(&all.registry, &lead, true);
        assert_eq!(all.world.read(), 1);
        all.end([&old, &new]);
    });
}

/// S2: a move against the end of the group that it goes to: it stays, or it ends there. `closed` is
/// called once.
#[test]
fn loom_adoption_against_end() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let (old, new) = (all.group(None), all.group(None));
        let member = all.member_of(&old);
        let ender = {
            let (registry, new) = (Arc::clone(&all.registry), new.clone());
            thread::spawn(move || {
                new.close().unwrap();
                work(&registry, &lead(), false);
            })
        };
        // Refused, if that has ended.
        let _ = new.adopt(&member);
        ender.join().unwrap();
        all.end([&old, &new]);
    });
}

/// H3: a member is closed while it moves: one of the two threads calls `closed`, once.
#[test]
fn loom_adoption_against_close() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let (old, new) = (all.group(None), all.group(None));
        let member = all.member_of(&old);
        let closer = {
            let member = member.clone();
            thread::spawn(move || member.close().unwrap())
        };
        let _ = new.adopt(&member);
        closer.join().unwrap();
        work(&all.registry, &lead(), true);
        assert_eq!(all.world.closed(), 1);
        all.end([&old, &new]);
    });
}

/// S2: the end of the pool against a move from outside: every handler gets its end once.
#[test]
fn loom_adoption_against_sweep() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let (old, new) = (all.group(None), all.group(None));
        let member = all.member_of(&old);
        let mover = thread::spawn(move || drop(new.adopt(&member)));
        all.registry.shut();
        mover.join().unwrap();
        all.assert_over();
    });
}

/// S2: and against a move by a handler.
#[test]
fn loom_gift_against_sweep() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let new = all.group(None);
        let old = all.group(Some(new));
        all.member_of(&old);
        all.world.send();
        let owner = {
            let registry = Arc::clone(&all.registry);
            thread::spawn(move || work(&registry, &lead(), false))
        };
        all.registry.shut();
        owner.join().unwrap();
        all.assert_over();
    });
}

/// S2: a registration against the end of its group: it is refused, or closed with it.
#[test]
fn loom_member_against_end() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let group = all.group(None);
        let newcomer = {
            let group = group.clone();
            thread::spawn(move || group.register(Descriptor, Interest::READ).is_ok())
        };
        group.close().unwrap();
        let lead = lead();
        work(&all.registry, &lead, true);
        let accepted = newcomer.join().unwrap();
        work(&all.registry, &lead, true);
        assert_eq!(all.world.closed(), usize::from(accepted));
        assert_eq!(all.registry.live(), 0);
        all.assert_rests();
    });
}

/// S2: a registration against the end of its group for want of members: it is refused, or the group
/// lives on.
#[test]
fn loom_member_against_desertion() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let group = all.group(None);
        let first = all.member_of(&group);
        let newcomer = {
            let group = group.clone();
            thread::spawn(move || group.register(Descriptor, Interest::READ).is_ok())
        };
        first.close().unwrap();
        let lead = lead();
        work(&all.registry, &lead, true);
        let accepted = newcomer.join().unwrap();
        work(&all.registry, &lead, true);
        assert_eq!(all.registry.live(), 2 * usize::from(accepted));
        let _ = group.close();
        work(&all.registry, &lead, true);
        assert_eq!(all.world.closed(), 1 + usize::from(accepted));
        assert_eq!(all.registry.live(), 0);
        all.assert_rests();
    });
}

/// S2: a member with input waiting is registered, and the pool drained at once: that is read first,
/// then all end.
#[test]
fn loom_drain_of_a_group() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let group = all.group(None);
        all.world.send();
        let other = {
            let registry = Arc::clone(&all.registry);
            thread::spawn(move || {
                let accepted = group.register(Descriptor, Interest::READ).is_ok();
                registry.drain();
                assert!(accepted);
            })
        };
        let mut line = Line::new();
        while !all.registry.is_drained() {
            if let Some(claim) = line.next(&all.registry, None).unwrap() {
                drop(dispatch(claim));
            }
        }
        other.join().unwrap();
        assert_eq!((all.world.read(), all.world.closed()), (1, 1));
    });
}

/// H3: a member is routed to a group that it has left, which ends, and whose slot has the next
/// group.
#[test]
fn loom_route_against_reuse() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let (old, new) = (all.group(None), all.group(None));
        let member = all.member_of(&old);
        let lead = lead();
        let session = Session {
            world: all.world.clone(),
            goes_to: None,
            ended: Arc::clone(&all.ended),
        };
        let mover = {
            let (new, registry, lead) = (new.clone(), Arc::clone(&all.registry), Arc::clone(&lead));
            thread::spawn(move || {
                let moved = new.adopt(&member).unwrap();
                work(&registry, &lead, false);
                drop(registry.group(session).unwrap());
                moved
            })
        };
        all.world.send();
        work(&all.registry, &lead, true);
        let moved = mover.join().unwrap();
        work(&all.registry, &lead, true);
        assert_eq!(all.world.read(), 1);
        let ended = all.ended.load(Ordering::Relaxed);
        assert_eq!(ended, usize::from(moved == Adoption::Moved));
    });
}

/// S2: a registration into a group against the end of the pool.
#[test]
fn loom_member_against_sweep() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let group = all.group(None);
        let newcomer = {
            let group = group.clone();
            thread::spawn(move || group.register(Descriptor, Interest::READ).is_ok())
        };
        all.registry.shut();
        let accepted = newcomer.join().unwrap();
        assert_eq!(all.world.closed(), usize::from(accepted));
        assert_eq!(all.ended.load(Ordering::Relaxed), 1);
        assert_eq!(all.registry.live(), 0);
    });
}

/// S1: a drain against a move from outside.
#[test]
fn loom_drain_against_adoption() {
    explore(|| {
        let all = Groups::new(Reports::Edges);
        let (old, new) = (all.group(None), all.group(None));
        let member = all.member_of(&old);
        let mover = thread::spawn(move || drop(new.adopt(&member)));
        all.registry.drain();
        let mut line = Line::new();
        while !all.registry.is_drained() {
            if let Some(claim) = line.next(&all.registry, None).unwrap() {
                drop(dispatch(claim));
            }
        }
        mover.join().unwrap();
        all.assert_over();
    });
}
