//! Misuse by chance: settings, operations of several threads and of handlers, and faults, in
//! combinations that no script has. Scripted tests passed, and an attack of two hours found six
//! defects in combinations of correct calls. Now such combinations are generated, and after each
//! round every promise is checked.
//!
//! Each test is a supervisor: a process of its own runs the rounds, so that a round which crashes
//! or hangs is reported with its seed, and rounds of other tests do not count its descriptors.
//!
//! - `PACELINE_MISUSE_SEED=n` runs the round of that seed alone, several times
//!   (`PACELINE_MISUSE_TIMES`); `PACELINE_MISUSE_WITHOUT=3,7` leaves operations out.
//! - `PACELINE_MISUSE_SHRINK=1` looks for the shortest plan that still fails.
//! - `PACELINE_MISUSE_SECONDS=n` or `PACELINE_MISUSE_ROUNDS=n` is the length of each test, and
//!   `PACELINE_MISUSE_FIRST=n` its first seed.
//! - `PACELINE_MISUSE_PRINT=1` prints every plan.

mod actor;
mod attacks;
mod calls;
mod chance;
mod deeds;
mod ledger;
mod log;
mod ops;
mod plan;
mod process;
mod rest;
mod round;
mod server;
mod service;
mod settings;
mod sources;
mod supervisor;
mod wire;
mod world;

use paceline::{simulated::Simulation, SetKind};

use crate::support::Random;
use calls::Calls;
use plan::Plan;
use round::Round;
use settings::{Set, Shape};
use sources::Sources;

/// Known defects that the generator leaves out: none of them may stay here.
const KNOWN: &[&str] = &[];

/// Whether the generator leaves it out.
fn is_known(defect: &str) -> bool {
    KNOWN.contains(&defect)
}

/// What a test generates.
struct World {
    name: &'static str,
    plan: fn(u64) -> Box<dyn Round>,
}

fn one(_: &mut Random) -> Shape {
    Shape::One
}

fn levels(random: &mut Random) -> Shape {
    Shape::Levels(2 + random.below(2) as usize)
}

fn sets(random: &mut Random) -> Shape {
    Shape::Sets {
        sets: 2 + random.below(2) as usize,
        roaming: random.once_in(2),
        fewest: random.once_in(2),
    }
}

const WORLDS: [World; 11] = [
    World {
        name: "epoll",
        plan: |seed| pools(seed, SetKind::Epoll, one),
    },
    World {
        name: "one_shot",
        plan: |seed| pools(seed, SetKind::OneShot, one),
    },
    World {
        name: "poll",
        plan: |seed| pools(seed, SetKind::Poll, one),
    },
    World {
        name: "concurrent",
        plan: |seed| pools(seed, SetKind::Concurrent, one),
    },
    World {
        name: "completion",
        plan: |seed| pools(seed, SetKind::Completion, one),
    },
    World {
        name: "levels",
        plan: |seed| pools(seed, SetKind::Epoll, levels),
    },
    World {
        name: "sets",
        plan: |seed| pools(seed, SetKind::Epoll, sets),
    },
    World {
        name: "sets_of_poll",
        plan: |seed| pools(seed, SetKind::Poll, sets),
    },
    World {
        name: "simulated",
        plan: |seed| pools(seed, simulated(seed), one),
    },
    World {
        name: "calls",
        plan: |seed| Box::new(Calls::new(seed)),
    },
    World {
        name: "sources",
        plan: |seed| Box::new(Sources::new(seed)),
    },
];

/// A world of its own, in which interrupted, doubled and stale events are frequent.
fn simulated(seed: u64) -> Set {
    let world = match seed % 3 {
        0 => Simulation::one_shot(seed),
        1 => Simulation::concurrent(seed),
        _ => Simulation::new(seed),
    };
    Set {
        kind: SetKind::Simulated(world),
        is_for_many: seed % 3 == 1,
    }
}

fn pools(seed: u64, set: impl Into<Set>, shape: fn(&mut Random) -> Shape) -> Box<dyn Round> {
    Box::new(Plan::new(seed, set.into(), shape))
}

/// The process that runs the rounds; without its environment it does nothing.
#[test]
fn rounds() {
    supervisor::child();
}

#[test]
fn epoll() {
    supervisor::run("epoll");
}

#[test]
fn one_shot() {
    supervisor::run("one_shot");
}

#[test]
fn poll() {
    supervisor::run("poll");
}

#[test]
fn concurrent() {
    supervisor::run("concurrent");
}

#[test]
fn completion() {
    if crate::support::is_to_be_had(&SetKind::Completion) {
        supervisor::run("completion");
    }
}

#[test]
fn levels_of_service() {
    supervisor::run("levels");
}

#[test]
fn several_sets() {
    supervisor::run("sets");
}

#[test]
fn several_sets_of_poll() {
    supervisor::run("sets_of_poll");
}

#[test]
fn simulated_world() {
    supervisor::run("simulated");
}

#[test]
fn calls_of_a_connection() {
    supervisor::run("calls");
}

#[test]
fn a_leader_for_each_source() {
    supervisor::run("sources");
}
