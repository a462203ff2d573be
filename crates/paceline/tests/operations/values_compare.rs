//! Handles and interests as values: which are equal, what is in which, and how they are printed.

use std::{
    collections::{hash_map::DefaultHasher, HashMap, HashSet},
    hash::BuildHasherDefault,
    hash::{BuildHasher, Hash},
    sync::mpsc,
    time::Duration,
};

use crate::support::by_hand;
use paceline::{
    scratch,
    simulated::{SimPeer, SimStream, Simulation},
    Context, Handle, InHandler, Interest, Members, Next, Pool, SetKind, TaskContext,
};

/// A pool whose connections never get an event.
struct Scene {
    world: Simulation,
    pool: Pool,
    peers: Vec<SimPeer>,
}

impl Scene {
    fn new() -> Self {
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(0)
            .handle_set(SetKind::Simulated(world.clone()))
            .build()
            .unwrap();
        let peers = Vec::new();
        Self { world, pool, peers }
    }

    fn register(&mut self) -> Handle {
        let (stream, peer) = self.world.stream();
        self.peers.push(peer);
        let handler = |_: &mut Context<'_, _>| Ok(Next::Continue);
        self.pool.register(stream, Interest::READ, handler).unwrap()
    }
}

/// An application keeps its connections in a table by handle. A handle is equal to its clones and
/// to nothing else: not to another of its pool, not to the next one in its slot, and not to the one
/// in the same slot of another pool.
#[test]
fn a_handle_is_equal_to_its_clones_alone() {
    let (mut here, mut there) = (Scene::new(), Scene::new());
    let (first, second, abroad) = (here.register(), here.register(), there.register());
    assert_eq!(first, first.clone());
    assert_eq!(first.id(), abroad.id(), "the same slot of two pools");
    assert_ne!(first, abroad);
    assert_ne!(first, second);

    first.close().unwrap();
    let next = here.register();
    assert_ne!(first, next, "the slot is used again");

    let mut names = HashMap::from([(&second, "second"), (&next, "next"), (&abroad, "abroad")]);
    assert_eq!(names.remove(&next.clone()), Some("next"));
    assert_eq!(names.remove(&first), None);
    assert_eq!(names.len(), 2);
}

/// A table of many handles is no list: their hashes differ.
#[test]
fn handles_have_hashes_of_their_own() {
    let mut scene = Scene::new();
    let handles: Vec<_> = (0..200).map(|_| scene.register()).collect();
    let hashes: HashSet<_> = handles.iter().map(hash).collect();
    assert_eq!(hashes.len(), handles.len());
    assert_eq!(hash(&handles[0]), hash(handles[0].clone()));
}

/// By the same function in every run.
fn hash(value: impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

/// An interest is a set of directions: adding what is there changes nothing, and a set contains its
/// parts, all of them or not at all.
#[test]
fn interests_are_sets() {
    const ALL: [Interest; 3] = [Interest::NONE, Interest::READ, Interest::WRITE];
    let both = Interest::READ | Interest::WRITE;
    for one in ALL {
        assert_eq!(one | one, one);
        assert_eq!(one | both, both);
        assert!(both.contains(one) && one.contains(one) && one.contains(Interest::NONE));
        assert!(!one.contains(both));
    }
    assert!(!Interest::READ.contains(Interest::WRITE));
    assert!(!Interest::WRITE.contains(Interest::READ));
    assert!(!Interest::NONE.contains(Interest::READ));
}

/// What an application prints while it looks for a mistake says what it is about.
#[test]
fn what_is_printed_tells_what_it_is() {
    type Cx<'c> = Context<'c, SimStream>;
    let mut scene = Scene::new();
    let handle = scene.register();
    assert_eq!(format!("{:?} {handle:?}", handle.id()), "0.0 Handle(0.0)");
    assert_eq!(format!("{:?}", scratch()), "Scratch { len: 65536 }");

    let pool = &scene.pool;
    let (tell, told) = mpsc::channel();
    let recall = tell.clone();
    let members = move |_: &mut Cx<'_>, members: &mut Members<'_, SimStream>| {
        tell.send(format!("{members:?}")).unwrap();
        Ok(Next::Continue)
    };
    let group = pool.group(members).unwrap();
    assert_eq!(format!("{group:?}"), "Group(1.0)");
    let (stream, _peer) = scene.world.stream();
    let member = group.register(stream, Interest::NONE).unwrap();
    member.notify().unwrap();
    by_hand::serve_all(pool);
    let expected = "Members { group: Group(1.0), others: 0, .. }";
    assert_eq!(told.try_recv().unwrap(), expected);

    let print = move |cx: &mut TaskContext<'_>| {
        let printed = format!("{:?}", cx.recall().unwrap());
        recall.send(printed).unwrap();
    };
    pool.post(print).unwrap();
    by_hand::serve_all(pool);
    assert_eq!(told.try_recv().unwrap(), "Recall { .. }");

    let builder = format!("{:?}", Pool::builder().on_panic(|_, _| {}));
    let hooks = "Hooks { panics: Close, on_panic: true, on_closed: false }";
    assert!(builder.contains(hooks), "{builder}");

    let _ = pool.shutdown(Duration::ZERO);
    let refused = pool.post(|_| {}).unwrap_err();
    let text = format!("{refused:?}");
    assert!(text.starts_with("Rejected { error: "), "{text}");
    assert!(text.contains("the pool is shutting down"), "{text}");
}
