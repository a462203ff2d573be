//! The plan of a round: everything that chance decides, made from the seed before anything runs.

use std::{fmt, time::Duration};

use paceline::QueueOrder;

use crate::misuse::{
    chance::Chance,
    ops::{Op, Script},
    settings::{pick, Set, Settings, Shape},
};
use crate::support::Random;

/// How a round ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    ShutDown,
    /// Two threads shut down at once.
    Twice,
    FromPost,
    Drop,
}

/// The settings of the listeners.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Door {
    /// So many connections may be open. Those beyond get so long a refusal: without one a client
    /// would wait for a place until the end of the round.
    pub(crate) bound: Option<(usize, usize)>,
    pub(crate) idle_timeout: Option<Duration>,
}

impl Door {
    fn random(random: &mut Random) -> Self {
        let bound = (pick(random, &[1, 2, 5]), pick(random, &[0, 20, 300_000]));
        Self {
            bound: random.once_in(2).then_some(bound),
            idle_timeout: random.once_in(4).then_some(Duration::from_millis(3)),
        }
    }
}

/// Everything that is going to happen.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) settings: Settings,
    /// Threads that join again and again, where the pool has none of its own.
    pub(crate) joiners: usize,
    pub(crate) queue: Option<usize>,
    pub(crate) queue_is_concurrent: bool,
    pub(crate) hears_signals: bool,
    pub(crate) door: Door,
    /// What the handlers of accepted connections do, one after the other.
    pub(crate) accepted: Vec<Option<Script>>,
    pub(crate) actors: Vec<Vec<Op>>,
    pub(crate) looks_whether_idle: bool,
    pub(crate) end: End,
}

impl Plan {
    /// The plan of a seed.
    pub(crate) fn new(seed: u64, set: Set, shape: fn(&mut Random) -> Shape) -> Self {
        let mut random = Random::new(seed);
        let shape = shape(&mut random);
        let settings = Settings::random(&mut random, shape, set);
        let joins = settings.threads.1 == 0 && shape == Shape::One;
        let mut chance = Chance {
            pools: match shape {
                Shape::One => 1,
                Shape::Sets { sets, .. } => sets,
                Shape::Levels(levels) => levels,
            },
            ends_early: random.once_in(4),
            starves: settings.queue_order != QueueOrder::Oldest,
            random,
        };
        let count = 2 + chance.below(3);
        let length = pick(&mut chance.random, &[4, 12, 12, 40]);
        let actors = (0..count).map(|_| (0..length).map(|_| chance.op()).collect());
        let actors = actors.collect();
        let accepted = (0..6).map(|_| (!chance.one_in(10)).then(|| chance.script()));
        let accepted = accepted.collect();
        let random = &mut chance.random;
        Self {
            seed,
            joiners: if joins {
                1 + random.below(2) as usize
            } else {
                0
            },
            queue: random.once_in(2).then(|| pick(random, &[1, 4, 64])),
            queue_is_concurrent: random.once_in(2),
            hears_signals: random.once_in(3),
            door: Door::random(random),
            accepted,
            actors,
            looks_whether_idle: random.once_in(6) && !joins,
            end: pick(
                random,
                &[
                    End::ShutDown,
                    End::Twice,
                    End::FromPost,
                    End::Drop,
                    End::Drop,
                ],
            ),
            settings,
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seed,
            settings,
            joiners,
            queue,
            door,
            end,
            ..
        } = self;
        writeln!(
            f,
            "seed {seed}, ends by {end:?}, {joiners} joiners, queue {queue:?}"
        )?;
        writeln!(f, "{settings:?}")?;
        writeln!(f, "{door:?}")?;
        for (number, script) in self.accepted.iter().enumerate() {
            writeln!(f, "accepted {number}: {script:?}")?;
        }
        let mut number = 0;
        for (actor, ops) in self.actors.iter().enumerate() {
            for op in ops {
                writeln!(f, "actor {actor}, {number}: {op:?}")?;
                number += 1;
            }
        }
        Ok(())
    }
}
