//! Kinds that a layer above gives: the pool learns of each route how its calls are, though one type
//! serves them all. By exact counts of wakes, on the simulated set.

use std::{io, sync::Arc, time::Duration};

use crate::support::{
    bounded,
    by_hand::{self, serve_all, Scene},
    gate::Gate,
    stage::Stage,
};
use paceline::{
    simulated::{SimPeer, SimStream, Simulation},
    Builder, ConcurrentContext, ConcurrentHandler, Context, EventHandler, GroupHandler,
    HandlerKind, Interest, Members, Next, Pace, Panics, Pool, SetKind,
};

/// After so many long calls in a row a kind is known to be long.
const UNTIL_KNOWN: u64 = 32;
const REQUESTS: u64 = 20;

/// Four threads, and a tick that is longer than the test: no look has a part in it.
fn stage(set: impl FnOnce(Builder) -> Builder) -> Stage {
    Stage::new(4, |pool| set(pool.tick(Duration::from_secs(3600))))
}

/// A server: one type of handler, whose requests are of these kinds, by their first byte. Of each,
/// how long it takes.
struct Server {
    world: Simulation,
    routes: Vec<(u8, Option<HandlerKind>, Duration)>,
}

const LONG: Duration = Duration::from_millis(1);
const SHORT: Duration = Duration::ZERO;

impl EventHandler<SimStream> for Server {
    fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
        let mut request = [0];
        while cx.read(&mut request)? == 1 {
            let route = self.routes.iter().find(|(name, ..)| *name == request[0]);
            let (_, kind, takes) = route.expect("the peer asks for what there is");
            if let Some(kind) = kind {
                cx.begin_kind(kind);
            }
            self.world.clock().advance(*takes);
            cx.write_all(&request)?;
        }
        Ok(Next::Close)
    }
}

fn serve<const N: usize>(
    stage: &Stage,
    routes: [(u8, Option<&HandlerKind>, Duration); N],
) -> SimPeer {
    let routes = routes.map(|(name, kind, takes)| (name, kind.cloned(), takes));
    stage.serve(Server {
        world: stage.world.clone(),
        routes: routes.into(),
    })
}

/// How many wakes so many requests for this route cost.
fn wakes(stage: &Stage, peer: &SimPeer, route: u8, requests: u64) -> u64 {
    let before = stage.pool.snapshot();
    for _ in 0..requests {
        peer.send(&[route]);
        assert_eq!(peer.wait_for(1), [route]);
        stage.rest(0);
    }
    let counts = stage.counts_since(&before);
    assert_eq!((counts.promotions, counts.ticks), (requests, 0));
    counts.wakes
}

/// A server had one type for all its routes. One report in ten took long, so the type was short,
/// and while a report was made no thread led until a tick; when reports were more than half, each
/// page woke a thread for nothing. Now each route is learnt by itself, on one connection, and the
/// handler's type stays what its own part is: short.
#[test]
fn routes_of_one_handler_are_learnt_apart() {
    bounded(|| {
        let stage = stage(|pool| pool);
        let [report, page] = ["GET /report", "GET /page"].map(|name| stage.pool.handler_kind(name));
        let routes = [
            (b'r', Some(&report), LONG),
            (b'p', Some(&page), SHORT),
            (b'n', None, SHORT),
        ];
        let peer = serve(&stage, routes);
        assert_eq!(wakes(&stage, &peer, b'r', 16), 0);
        wakes(&stage, &peer, b'r', UNTIL_KNOWN - 16);
        assert_eq!((report.pace(), page.pace()), (Pace::Blocking, Pace::Short));
        for _ in 0..2 {
            assert_eq!(wakes(&stage, &peer, b'r', REQUESTS), REQUESTS);
            assert_eq!(wakes(&stage, &peer, b'p', REQUESTS), 0);
            assert_eq!(wakes(&stage, &peer, b'n', REQUESTS), 0);
        }
        let same = stage.pool.handler_kind("GET /report");
        assert_eq!(
            same.pace(),
            Pace::Blocking,
            "the same name is the same kind"
        );
    });
}

/// What is known from the start need not be learnt, and nothing is: neither from calls that are
/// short, nor from long ones.
#[test]
fn a_fixed_kind_stays_what_it_is() {
    bounded(|| {
        let stage = stage(|pool| pool.parallelism(1));
        let blocks = stage.pool.handler_kind("blocks").blocks();
        let computes = stage.pool.handler_kind("computes").fixed(Pace::Computing);
        let short = stage.pool.handler_kind("short").fixed(Pace::Short);
        let routes = [
            (b'b', Some(&blocks), SHORT),
            (b'c', Some(&computes), LONG),
            (b's', Some(&short), LONG),
        ];
        let peer = serve(&stage, routes);
        for _ in 0..5 {
            assert_eq!(wakes(&stage, &peer, b'b', REQUESTS), REQUESTS);
            assert_eq!(wakes(&stage, &peer, b'c', REQUESTS), 0, "no core for it");
            assert_eq!(wakes(&stage, &peer, b's', REQUESTS), 0);
        }
        let paces = [&blocks, &computes, &short].map(HandlerKind::pace);
        assert_eq!(paces, [Pace::Blocking, Pace::Computing, Pace::Short]);
    });
}

/// Behind a part that computes another thread is woken where there is a core. Threads in parts that
/// sleep use none, also though they do not say when they sleep; one that goes on in a part that is
/// short does.
#[test]
fn parts_that_sleep_take_no_core() {
    bounded(|| {
        for (goes_on, expected) in [(Pace::Blocking, REQUESTS), (Pace::Short, 0)] {
            let stage = stage(|pool| pool.parallelism(2));
            let sleeps = stage.pool.handler_kind("sleeps").blocks();
            let rest = stage.pool.handler_kind("rest").fixed(goes_on);
            let computes = stage.pool.handler_kind("computes").fixed(Pace::Computing);
            let gates = [(); 2].map(|()| {
                let (gate, sleeps, rest) = (Gate::shut(), sleeps.clone(), rest.clone());
                let inside = Arc::clone(&gate);
                let peer = stage.serve(move |cx: &mut Context<'_, SimStream>| {
                    cx.begin_kind(&sleeps);
                    cx.begin_kind(&rest);
                    inside.pass();
                    by_hand::echo(cx)
                });
                peer.send(b"x");
                gate.wait_for(1);
                (gate, peer)
            });
            stage.rest(2);
            let peer = serve(&stage, [(b'c', Some(&computes), LONG)]);
            let before = stage.pool.snapshot();
            for _ in 0..REQUESTS {
                peer.send(b"c");
                assert_eq!(peer.wait_for(1), b"c");
                stage.rest(2);
            }
            assert_eq!(stage.counts_since(&before).wakes, expected, "{goes_on:?}");
            gates.iter().for_each(|(gate, _)| gate.let_all_through());
        }
    });
}

/// The kind of a whole registration: asked of its handler once, and known when its event is
/// claimed. Handlers in boxes have one type, and each the kind of what is inside.
#[test]
fn a_handler_has_its_own_kind() {
    struct OfKind(HandlerKind, Server);
    impl EventHandler<SimStream> for OfKind {
        fn kind(&self) -> Option<HandlerKind> {
            Some(self.0.clone())
        }

        fn ready(&mut self, cx: &mut Context<'_, SimStream>) -> io::Result<Next> {
            self.1.ready(cx)
        }
    }
    bounded(|| {
        let stage = stage(|pool| pool);
        let [blocks, short] = ["blocks", "short"].map(|name| stage.pool.handler_kind(name));
        let blocks = blocks.blocks();
        let peers = [blocks, short].map(|kind| {
            let routes = vec![(b'x', None, SHORT)];
            let world = stage.world.clone();
            let handler = OfKind(kind, Server { world, routes });
            stage.serve(Box::new(handler) as Box<dyn EventHandler<SimStream>>)
        });
        assert_eq!(wakes(&stage, &peers[0], b'x', REQUESTS), REQUESTS);
        assert_eq!(wakes(&stage, &peers[1], b'x', REQUESTS), 0);
    });
}

/// So have handlers of groups, and those that several threads call at once.
#[test]
fn groups_and_concurrent_handles_have_kinds() {
    struct OfKind(HandlerKind);
    impl GroupHandler<SimStream> for OfKind {
        fn kind(&self) -> Option<HandlerKind> {
            Some(self.0.clone())
        }

        fn ready(
            &mut self,
            cx: &mut Context<'_, SimStream>,
            _: &mut Members<'_, SimStream>,
        ) -> io::Result<Next> {
            by_hand::echo(cx)
        }
    }
    impl ConcurrentHandler<SimStream> for OfKind {
        fn kind(&self) -> Option<HandlerKind> {
            Some(self.0.clone())
        }

        fn ready(&self, cx: &mut ConcurrentContext<'_, SimStream>) -> io::Result<Next> {
            use io::{Read, Write};
            let mut bytes = [0; 8];
            let count = cx.try_read(|mut source| source.read(&mut bytes))?;
            cx.try_write(|mut source| source.write(&bytes[..count]))?;
            Ok(Next::Continue)
        }
    }
    bounded(|| {
        let stage = stage(|pool| pool);
        let kind = stage.pool.handler_kind("blocks").blocks();
        let (stream, of_group) = stage.world.stream();
        let group = stage.pool.group(OfKind(kind.clone())).unwrap();
        group.register(stream, Interest::READ).unwrap();
        let (stream, concurrent) = stage.world.stream();
        let handler = OfKind(kind);
        let registered = stage
            .pool
            .register_concurrent(stream, Interest::READ, handler);
        registered.unwrap();
        for peer in [of_group, concurrent] {
            stage.rest(0);
            let before = stage.pool.snapshot();
            (0..REQUESTS).for_each(|_| stage.ask(&peer, 0));
            assert!(stage.counts_since(&before).wakes >= REQUESTS);
        }
    });
}

/// A call of several parts: each is learnt by itself, wherever the call ends.
#[test]
fn each_part_has_its_own_time() {
    bounded(|| {
        type End = fn(&mut Context<'_, SimStream>) -> io::Result<Next>;
        let ends: [End; 4] = [
            |_| Ok(Next::Continue),
            |_| Ok(Next::Again),
            |cx| Err(cx.read(&mut [0]).unwrap_err()),
            |_| panic!("in a part"),
        ];
        for end in ends {
            let world = Simulation::new(1);
            let pool = Pool::builder().threads(0).panics(Panics::Keep);
            let pool = pool.handle_set(SetKind::Simulated(world.clone()));
            let pool = pool.build().unwrap();
            let kinds = ["long", "short", "last"].map(|name| pool.handler_kind(name));
            let (stream, peer) = world.stream();
            let mut calls = 0;
            let [long, short, last] = kinds.clone();
            let handler = move |cx: &mut Context<'_, SimStream>| {
                while cx.read(&mut [0; 8]).is_ok() {}
                calls += 1;
                if calls > UNTIL_KNOWN {
                    return Ok(Next::Continue);
                }
                cx.begin_kind(&long);
                world.clock().advance(LONG);
                cx.begin_kind(&short);
                cx.begin_kind(&last);
                world.clock().advance(LONG);
                end(cx)
            };
            pool.register(stream, Interest::READ, handler).unwrap();
            for _ in 0..=UNTIL_KNOWN {
                peer.send(b"x");
                serve_all(&pool);
            }
            let paces = kinds.each_ref().map(HandlerKind::pace);
            assert_eq!(paces, [Pace::Blocking, Pace::Short, Pace::Blocking]);
        }
    });
}

/// A group's handler begins a part while it is called for one member, and another while it uses the
/// other.
#[test]
fn parts_of_members_are_learnt() {
    struct Parts {
        world: Simulation,
        kinds: [HandlerKind; 2],
    }
    impl GroupHandler<SimStream> for Parts {
        fn ready(
            &mut self,
            cx: &mut Context<'_, SimStream>,
            members: &mut Members<'_, SimStream>,
        ) -> io::Result<Next> {
            while cx.read(&mut [0; 8]).is_ok() {}
            cx.begin_kind(&self.kinds[0]);
            self.world.clock().advance(LONG);
            members.each(|_, cx| {
                cx.begin_kind(&self.kinds[1]);
                self.world.clock().advance(LONG);
            });
            Ok(Next::Continue)
        }
    }
    bounded(|| {
        let scene = Scene::unobserved();
        let kinds = ["own", "other"].map(|name| scene.pool.handler_kind(name));
        let group = scene.pool.group(Parts {
            world: scene.world.clone(),
            kinds: kinds.clone(),
        });
        let group = group.unwrap();
        let peers = [(); 2].map(|()| {
            let (stream, peer) = scene.world.stream();
            group.register(stream, Interest::READ).unwrap();
            peer
        });
        for _ in 0..UNTIL_KNOWN {
            peers[0].send(b"x");
            serve_all(&scene.pool);
        }
        let paces = kinds.each_ref().map(HandlerKind::pace);
        assert_eq!(paces, [Pace::Blocking; 2]);
    });
}
