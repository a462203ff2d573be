//! The word of a call: which call its slot is for, the claims to the slot, and the outcome for its
//! caller.
//!
//! | bits | field | meaning |
//! | --- | --- | --- |
//! | 32..64 | generation | which call of this slot; part of the id on the wire |
//! | 8 | listed | the slot is in the line of sleepers, or on its way there |
//! | 7 | begun | its reply is being read |
//! | 6 | owed | its request is on the wire, and its reply has not begun |
//! | 5 | queued | its request waits to be written, or is being written |
//! | 4 | owner | a caller holds the call |
//! | 0..3 | phase | what the caller does, or its outcome |
//!
//! The five in the middle are **claims**: as long as there is one, the slot belongs to this call.
//! The thread that takes the last one away gives the slot back ([`Left::Vacant`]). So a forgotten
//! call keeps its slot, and with it its id, until its reply has arrived: no other call can have the
//! id while that may still happen.
//!
//! ```text
//!            [register]            [fall_asleep]              [elect]
//!   vacant ------------> EXPECTED ---------------> ASLEEP ---------------> ELECTED
//!                         |  ^  ^ '------------------|--------------------'   |
//!                         |  |  |     [wake_up]      | [withdraw]             |
//!                         |  |  '--------------------+------------------------'
//!                         |  |          [complete], [lose]: from EXPECTED and ASLEEP
//!                         |  |  ------------------------------------> REPLIED, LOST
//! ```
//!
//! The word changes by read-modify-write only.

use crate::sync::atomic::{AtomicU64, Ordering};

const PHASE: u64 = 7;
const OWNER: u64 = 1 << 4;
const QUEUED: u64 = 1 << 5;
const OWED: u64 = 1 << 6;
const BEGUN: u64 = 1 << 7;
const LISTED: u64 = 1 << 8;
const CLAIMS: u64 = OWNER | QUEUED | OWED | BEGUN | LISTED;
const GENERATION_SHIFT: u32 = 32;

/// What the caller does, or its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Its caller is awake: it has not joined, or leads.
    Expected,
    /// Its caller sleeps until its reply is there.
    Asleep,
    /// Its caller sleeps until its reply begins: it wants to read the body by itself.
    AsleepToRead,
    /// The lead is its caller's.
    Elected,
    /// Its reply is there.
    Replied,
    /// The connection was lost before.
    Lost,
}

const PHASES: [Phase; 6] = [
    Phase::Expected,
    Phase::Asleep,
    Phase::AsleepToRead,
    Phase::Elected,
    Phase::Replied,
    Phase::Lost,
];

/// Whether a claim to the slot is left.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// There are other claims.
    Claimed,
    /// That was the last one: the thread that gets this value gives the slot back.
    Vacant,
}

/// The caller that waits for a reply that begins.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// A call; what its caller does.
    For(Phase),
    /// A call whose caller has gone.
    Late(Left),
    /// None: it had a reply already, or was never asked for.
    Unexpected,
}

/// Whether the caller of a reply, or of a loss, must be woken.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Its caller is awake and will find it.
    Awake,
    /// Its caller sleeps: wake it.
    Asleep,
    /// Its caller has gone, or knows already.
    Nobody(Left),
}

/// What became of the attempt to sleep.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FellAsleep {
    /// It is to be put into the line.
    Unlisted,
    /// It is in the line already, since an earlier sleep, and is found there.
    Listed,
    /// The call has an outcome already: it does not sleep.
    Not,
}

/// What was found of a sleeper in the line.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unlisted {
    /// It sleeps still.
    Sleeps,
    /// It does not, and is off the line.
    Gone(Left),
}

/// The word itself.
#[derive(Debug)]
pub(super) struct CallWord(AtomicU64);

impl CallWord {
    pub(super) fn vacant() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn look(&self) -> Snapshot {
        Snapshot(self.0.load(Ordering::Acquire))
    }

    /// A vacant slot becomes the call `generation`.
    pub(super) fn register(&self, generation: u32) {
        self.update(|seen| {
            debug_assert!(!seen.is_claimed());
            (Snapshot::fresh(generation), ())
        });
    }

    /// The call gives way to a new one, if there is a `next` generation for that. What the word
    /// was, and what `next` said. The old call may be in the line of sleepers; then the new one is
    /// where it was.
    pub(super) fn reclaim(
        &self,
        next: impl Fn(Snapshot) -> Option<u32>,
    ) -> Option<(Snapshot, u32)> {
        self.try_update(|seen| {
            let generation = next(seen)?;
            let word = Snapshot(Snapshot::fresh(generation).0 | seen.0 & LISTED);
            Some((word, (seen, generation)))
        })
    }

    /// The request is about to be put into the queue. `false`: it is there already, or was.
    #[must_use]
    pub(super) fn queue(&self) -> bool {
        let queued = self.try_update(|seen| {
            let first = !seen.has(QUEUED | OWED | BEGUN) && seen.phase() == Phase::Expected;
            first.then_some((seen.with(QUEUED), ()))
        });
        queued.is_some()
    }

    /// The request is not in the queue: the call is as it was before [`queue`](Self::queue).
    pub(super) fn unqueue(&self) {
        self.update(|seen| (seen.without(QUEUED), ()));
    }

    /// Its first byte is about to be written: from here on a reply may arrive. `Err`: no caller
    /// wants it any more, so it is off the queue and not to be written.
    pub(super) fn begin_write(&self) -> Result<(), Left> {
        self.update(|seen| {
            if seen.has(OWNER) {
                (seen.with(OWED), Ok(()))
            } else {
                let next = seen.without(QUEUED);
                (next, Err(next.left()))
            }
        })
    }

    /// Its last byte is written.
    pub(super) fn end_write(&self) -> Left {
        self.give_up(QUEUED)
    }

    /// Its caller is about to sleep.
    pub(super) fn fall_asleep(&self, phase: Phase) -> FellAsleep {
        let told = self.try_update(|seen| {
            let told = if seen.has(LISTED) {
                FellAsleep::Listed
            } else {
                FellAsleep::Unlisted
            };
            let next = seen.in_phase(phase).with(LISTED);
            (seen.phase() == Phase::Expected).then_some((next, told))
        });
        told.unwrap_or(FellAsleep::Not)
    }

    /// Its caller did not get into the line: it is awake, and may have an outcome meanwhile.
    pub(super) fn stay_awake(&self) {
        self.update(|seen| (seen.awake().without(LISTED), ()));
    }

    /// Its caller wants to sleep no longer. `false`: it has an outcome, or was elected.
    #[must_use]
    pub(super) fn withdraw(&self) -> bool {
        let withdrawn =
            self.try_update(|seen| seen.phase().is_asleep().then_some((seen.awake(), ())));
        withdrawn.is_some()
    }

    /// The one that was elected is awake.
    pub(super) fn wake_up(&self) {
        self.update(|seen| {
            debug_assert_eq!(seen.phase(), Phase::Elected);
            (seen.in_phase(Phase::Expected), ())
        });
    }

    /// The lead is its caller's, if it sleeps; else it is off the line.
    pub(super) fn elect(&self) -> Unlisted {
        self.update(|seen| {
            if seen.phase().is_asleep() {
                let next = seen.in_phase(Phase::Elected).without(LISTED);
                (next, Unlisted::Sleeps)
            } else {
                let next = seen.without(LISTED);
                (next, Unlisted::Gone(next.left()))
            }
        })
    }

    /// Takes it off the line, unless it sleeps.
    pub(super) fn unlist_if_awake(&self) -> Unlisted {
        let gone = self.try_update(|seen| {
            let next = seen.without(LISTED);
            (!seen.phase().is_asleep()).then_some((next, Unlisted::Gone(next.left())))
        });
        gone.unwrap_or(Unlisted::Sleeps)
    }

    /// Takes it off the line.
    pub(super) fn unlist(&self) -> Left {
        self.give_up(LISTED)
    }

    /// The reply of call `generation` begins: no other can, until it is whole.
    pub(super) fn begin_reply(&self, generation: u32) -> Begun {
        let begun = self.try_update(|seen| {
            if !seen.has(OWED) || seen.generation() != generation {
                return None;
            }
            let next = seen.without(OWED);
            Some(if seen.has(OWNER) {
                (next.with(BEGUN), Begun::For(seen.phase()))
            } else {
                (next, Begun::Late(next.left()))
            })
        });
        begun.unwrap_or(Begun::Unexpected)
    }

    /// The reply that has begun is whole.
    pub(super) fn complete(&self) -> Told {
        let told = self.tell(BEGUN, Phase::Replied);
        told.expect("its reply has begun")
    }

    /// The connection is lost: the caller that waits for this reply, or for its request to be
    /// written, gets the loss. `None`: there was nothing to lose.
    pub(super) fn lose(&self, loss: Loss) -> Option<Told> {
        let claims = match loss {
            Loss::Reply => OWED | BEGUN,
            Loss::Request => QUEUED,
        };
        self.tell(claims, Phase::Lost)
    }

    /// Gives up what there is of `claims`, and sets the caller's outcome.
    fn tell(&self, claims: u64, phase: Phase) -> Option<Told> {
        self.try_update(|seen| {
            if !seen.has(claims) {
                return None;
            }
            let next = seen.without(claims);
            Some(match (seen.has(OWNER), seen.phase()) {
                (true, Phase::Expected) => (next.in_phase(phase), Told::Awake),
                (true, Phase::Asleep | Phase::AsleepToRead) => (next.in_phase(phase), Told::Asleep),
                _ => (next, Told::Nobody(next.left())),
            })
        })
    }

    /// No thread holds the call any more.
    pub(super) fn forget(&self) -> Left {
        self.give_up(OWNER)
    }

    fn give_up(&self, claim: u64) -> Left {
        self.update(|seen| {
            debug_assert!(seen.has(claim));
            let next = seen.without(claim);
            (next, next.left())
        })
    }

    fn update<R>(&self, step: impl Fn(Snapshot) -> (Snapshot, R)) -> R {
        let told = self.try_update(|seen| Some(step(seen)));
        told.expect("every step is one")
    }

    /// Replaces the word by what `step` makes of it, as one step, if it makes anything.
    ///
    /// Acquire and Release on every change: the reply, the request and the links of a slot are
    /// passed on by it.
    fn try_update<R>(&self, step: impl Fn(Snapshot) -> Option<(Snapshot, R)>) -> Option<R> {
        let mut seen = self.0.load(Ordering::Acquire);
        loop {
            let (next, told) = step(Snapshot(seen))?;
            match self
                .0
                .compare_exchange_weak(seen, next.0, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(told),
                Err(newer) => seen = newer,
            }
        }
    }
}

/// What is lost of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// A reply that was owed.
    Reply,
    /// A request that waited to be written.
    Request,
}

impl Phase {
    pub(super) fn is_asleep(self) -> bool {
        matches!(self, Self::Asleep | Self::AsleepToRead)
    }
}

/// What the word was at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Snapshot(u64);

impl Snapshot {
    fn fresh(generation: u32) -> Self {
        Self(u64::from(generation) << GENERATION_SHIFT | OWNER)
    }

    pub(super) fn generation(self) -> u32 {
        (self.0 >> GENERATION_SHIFT) as u32
    }

    pub(super) fn phase(self) -> Phase {
        PHASES[(self.0 & PHASE) as usize % PHASES.len()]
    }

    /// Whether nothing of this call is on the wire yet.
    pub(super) fn is_unsent(self) -> bool {
        self.has(OWNER) && !self.has(OWED | BEGUN) && self.phase() == Phase::Expected
    }

    /// Whether the call was forgotten, and the only claim left is that of a peer that owes its
    /// reply; if `answered`, not even that one.
    pub(super) fn is_forgotten(self, answered: bool) -> bool {
        let others = if answered {
            CLAIMS & !LISTED
        } else {
            CLAIMS & !(LISTED | OWED)
        };
        self.is_claimed() && !self.has(others)
    }

    pub(super) fn has_owner(self) -> bool {
        self.has(OWNER)
    }

    /// Whether the peer owes its reply.
    pub(super) fn is_owed(self) -> bool {
        self.has(OWED)
    }

    pub(super) fn is_claimed(self) -> bool {
        self.0 & CLAIMS != 0
    }

    fn left(self) -> Left {
        if self.is_claimed() {
            Left::Claimed
        } else {
            Left::Vacant
        }
    }

    fn has(self, claims: u64) -> bool {
        self.0 & claims != 0
    }

    fn with(self, claim: u64) -> Self {
        Self(self.0 | claim)
    }

    fn without(self, claims: u64) -> Self {
        Self(self.0 & !claims)
    }

    fn in_phase(self, phase: Phase) -> Self {
        Self(self.0 & !PHASE | phase as u64)
    }

    /// A sleeper that is awake; else as it is.
    fn awake(self) -> Self {
        if self.phase().is_asleep() {
            self.in_phase(Phase::Expected)
        } else {
            self
        }
    }
}
