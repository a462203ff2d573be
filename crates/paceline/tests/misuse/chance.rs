//! Draws the operations of a plan.

use std::time::Duration;

use crate::misuse::{
    is_known,
    ops::{
        Act, Ask, AtClosed, HangUp, Near, Op, Script, ServeWord, Stage, WhenOverdue, Work, KINDS,
    },
    settings::pick,
    world::{GROUPS, OBSERVERS, SLOTS, TIMERS},
};
use crate::support::Random;

/// A defect of [`KNOWN`](crate::KNOWN).
const LINGERS: &str = "a close that lingers blocks its thread";

/// Draws operations.
pub(crate) struct Chance {
    pub(crate) random: Random,
    pub(crate) pools: usize,
    /// A pool may end in the middle of the plan.
    pub(crate) ends_early: bool,
    /// A handle that is ready again and again keeps others waiting for ever, as documented.
    pub(crate) starves: bool,
}

impl Chance {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.random.once_in(times)
    }

    fn micros(&mut self, most: u64) -> Duration {
        Duration::from_micros(self.random.below(most))
    }

    pub(crate) fn op(&mut self) -> Op {
        let (slot, at) = (self.below(SLOTS), self.below(self.pools));
        match self.below(40) {
            0..=4 => Op::Register {
                slot,
                at,
                near: self.near(),
                interest: self.interest(),
                script: self.script(),
            },
            5..=7 => Op::Dial { slot, at },
            8 if self.one_in(3) => Op::Datagrams { slot, at },
            8 => Op::Connect {
                slot,
                at,
                answers: !self.one_in(4),
                script: self.script(),
            },
            9..=14 => Op::Send {
                slot,
                bytes: pick(&mut self.random, &[1, 10, 1000, 20_000]),
            },
            15 | 16 => Op::Receive { slot },
            17 => Op::HangUp {
                slot,
                how: pick(
                    &mut self.random,
                    &[HangUp::Close, HangUp::Reset, HangUp::HalfClose],
                ),
            },
            18..=22 => Op::Ask {
                slot,
                ask: self.ask(),
            },
            23 => Op::CloseAndWait { slot },
            24..=26 => self.of_group(slot),
            27..=30 => self.of_task(at),
            31 | 32 => self.of_store(slot, at),
            33 => Op::Observe {
                observer: self.below(OBSERVERS),
                at,
            },
            34 => Op::EndObservation {
                observer: self.below(OBSERVERS),
            },
            35 if self.one_in(3) => self.attack(at),
            35 => Op::Look { at },
            36 => Op::Join {
                at,
                span: self.micros(2000),
            },
            37 => self.by_hand(slot, at),
            38 => self.early_end(at),
            _ => Op::Pause(self.micros(1000)),
        }
    }

    fn by_hand(&mut self, slot: usize, at: usize) -> Op {
        let stages = [
            Stage::Follower,
            Stage::Leader,
            Stage::Claimed,
            Stage::Processing,
            Stage::Done,
        ];
        Op::ByHand {
            at,
            stage: pick(&mut self.random, &stages),
            slot,
            ask: self.ask(),
        }
    }

    fn early_end(&mut self, at: usize) -> Op {
        if !self.ends_early || !self.one_in(3) {
            Op::Pause(self.micros(3000))
        } else if self.one_in(2) {
            Op::DropPool { at }
        } else {
            Op::ShutDown {
                at,
                within: self.micros(10_000),
            }
        }
    }

    fn of_group(&mut self, slot: usize) -> Op {
        let group = self.below(GROUPS);
        match self.below(8) {
            0 | 1 => Op::Group {
                group,
                script: self.script(),
            },
            2 => Op::NotifyGroup { group },
            3 if self.one_in(3) => Op::CloseGroup { group },
            _ => Op::Member {
                slot,
                group,
                near: self.near(),
            },
        }
    }

    fn of_task(&mut self, at: usize) -> Op {
        let timer = self.below(TIMERS);
        match self.below(6) {
            0 | 1 => Op::Post {
                at,
                work: self.work(),
            },
            2 | 3 => Op::After {
                timer,
                at,
                span: self.micros(4000),
                work: self.work(),
            },
            4 => Op::Every {
                timer,
                at,
                period: self.micros(2000) + Duration::from_micros(50),
                panics_at: self.one_in(4).then_some(2),
            },
            _ => Op::Cancel {
                timer,
                waits: self.one_in(2),
            },
        }
    }

    fn of_store(&mut self, slot: usize, at: usize) -> Op {
        match self.below(12) {
            0..=3 => Op::Enqueue {
                items: 1 + self.below(6) as u32,
                bombs: self.one_in(4),
            },
            4 | 5 => Op::Release {
                units: 1 + self.below(6) as u32,
            },
            6 if self.one_in(4) => Op::CloseQueue,
            7 if self.one_in(4) => Op::CloseSemaphore,
            8 => Op::Ring { slot, at },
            9 => Op::Signal {
                number: pick(&mut self.random, &[28, 18, 17]),
            },
            _ => Op::Record {
                slot,
                records: 1 + self.below(20) as u32,
            },
        }
    }

    fn ask(&mut self) -> Ask {
        if self.pools > 1 && self.one_in(6) {
            return Ask::MoveTo(self.below(3));
        }
        match self.below(17) {
            0 => Ask::Close,
            1..=3 => Ask::Interest(self.interest()),
            4 => Ask::Suspend,
            5 | 6 => Ask::Resume,
            7 | 8 => Ask::Notify,
            9 => Ask::TimeOut(self.one_in(2).then(|| self.micros(4000))),
            10 => Ask::Priority(self.below(3) as u8),
            11 => Ask::Pin(self.below(6)),
            12 => Ask::Sticky(self.micros(2000)),
            13 => Ask::Unpin,
            14 => Ask::MoveTo(self.below(3)),
            15 => Ask::Deadline(self.deadline()),
            _ => Ask::Adopt(self.below(GROUPS)),
        }
    }

    /// A deadline that passes in the round, or none.
    fn deadline(&mut self) -> Option<Duration> {
        (!self.one_in(3)).then(|| self.micros(4000))
    }

    /// What broke the library once.
    fn attack(&mut self, at: usize) -> Op {
        let signals = !is_known("signals that come at once overflow the stack of signals");
        let rings = !is_known("a refused ring keeps descriptors");
        let deep = !is_known("ends within ends overflow the stack");
        match self.below(4) {
            3 if !is_known(LINGERS) => Op::Linger {
                slot: self.below(SLOTS),
                at,
            },
            0 if signals => Op::Signals {
                times: 1 + self.below(60) as u32,
            },
            1 if rings => Op::BadRing,
            _ if deep && self.one_in(4) => Op::Chain { at, links: 4000 },
            _ => Op::Chain {
                at,
                links: 3 + self.below(30),
            },
        }
    }

    fn interest(&mut self) -> u8 {
        let all = if self.starves { 1 } else { 3 };
        pick(&mut self.random, &[1, 1, 1, 0, 2, 3]) & all
    }

    fn near(&mut self) -> Near {
        let lingers = self.one_in(8) && !is_known(LINGERS);
        Near {
            tcp: self.one_in(3),
            lingers,
            narrow: self.one_in(4),
            panics_at: self.one_in(16).then(|| self.below(4) as u32),
            fails_at: self.one_in(16).then(|| self.below(4) as u32),
            drop_panics: self.one_in(16),
        }
    }

    pub(crate) fn script(&mut self) -> Script {
        let acts = pick(&mut self.random, &[0, 2, 5]);
        Script {
            acts: (0..acts)
                .map(|_| (!self.one_in(3)).then(|| self.act()))
                .collect(),
            thorough: self.one_in(2),
            speaks_first: self.one_in(4),
            patient: self.one_in(2),
            when_overdue: self.when_overdue(),
            kind: self.one_in(4).then(|| self.below(KINDS)),
            at_closed: match self.below(10) {
                0 => Some(AtClosed::Panic),
                1 | 2 => Some(AtClosed::Ask(self.below(SLOTS), self.ask())),
                3 => Some(AtClosed::Post),
                _ => None,
            },
            drop_panics: self.one_in(16),
        }
    }

    fn when_overdue(&mut self) -> WhenOverdue {
        let ways = [
            WhenOverdue::Fail,
            WhenOverdue::GoOn,
            WhenOverdue::LastWord,
            WhenOverdue::Panic,
        ];
        pick(&mut self.random, &ways)
    }

    fn act(&mut self) -> Act {
        let slot = self.below(SLOTS);
        if self.pools > 1 && self.one_in(12) {
            return Act::MoveTo(self.below(3));
        }
        match self.below(35) {
            0 | 1 => Act::Panic,
            2 => Act::Fail,
            3 => Act::Close,
            4 | 5 => Act::Again,
            6..=9 => Act::Ask(slot, self.ask()),
            10 => Act::CloseItselfAndWait,
            11 => Act::CloseOther(slot),
            12 | 13 => Act::ReleaseThen {
                ask: self.one_in(2).then(|| (slot, self.ask())),
                panics: self.one_in(4),
            },
            14 | 15 => Act::Block(self.micros(1500)),
            16 => Act::Compute(self.micros(1000)),
            17 => Act::WakeFollower,
            18 | 19 => Act::Serve {
                within: self.micros(2000),
                serve: self.serve(),
            },
            20 | 21 => Act::Post(self.work()),
            22 if self.ends_early && self.one_in(3) => Act::ShutDown(self.micros(10_000)),
            23 if self.ends_early && self.one_in(3) => Act::DropPool,
            24 => Act::Join,
            25 => Act::Flood(self.flood()),
            26 => Act::MoveTo(self.below(3)),
            27 | 28 => Act::CloseGently,
            29 => Act::LeaveUnread,
            30 | 31 => Act::Deadline(self.deadline()),
            32 => Act::BeginKind(self.below(KINDS)),
            33 => Act::FloodInParts {
                bytes: self.flood(),
                owned: self.one_in(2),
            },
            _ => Act::ReadWhileSending,
        }
    }

    fn flood(&mut self) -> usize {
        pick(&mut self.random, &[1, 500, 5000, 100_000])
    }

    fn serve(&mut self) -> ServeWord {
        pick(
            &mut self.random,
            &[ServeWord::Chain, ServeWord::Nothing, ServeWord::Any],
        )
    }

    fn work(&mut self) -> Work {
        let slot = self.below(SLOTS);
        Work {
            panics: self.one_in(6),
            drop_panics: self.one_in(12),
            blocks: self.one_in(4).then(|| self.micros(1000)),
            serves: self.one_in(4).then(|| (self.micros(1500), self.serve())),
            ask: self.one_in(2).then(|| (slot, self.ask())),
        }
    }
}
