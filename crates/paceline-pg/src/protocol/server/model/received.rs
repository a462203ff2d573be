//! The messages of the server: what each one answers, and how it changes the model.

use paceline_pg_wire::TransactionStatus;

use super::{
    super::{super::Broken, tally::Tally},
    Answer, Copy, Entry, Fate, Model, Whose, KEPT,
};

impl Model {
    /// The fate of a reply of this type; an error if it can't be due. Not for `E`, `N`, `A` and
    /// `S`.
    pub(crate) fn fate(&self, tag: u8) -> Result<Fate, Broken> {
        let fits = match (self.queue.front(), tag) {
            (Some(Entry::Query(..) | Entry::Execute(_)), b'W') => true,
            (Some(Entry::Query(..)), b'T' | b'D' | b'C' | b'I' | b'G' | b'H' | b'Z') => true,
            (Some(Entry::Execute(_)), b'D' | b'C' | b'I' | b's' | b'G' | b'H') => true,
            (Some(Entry::Query(..) | Entry::Execute(_)), b'd' | b'c') => self.copy == Copy::Out,
            (Some(Entry::Function), b'V' | b'Z') => true,
            (Some(Entry::Parse { .. }), b'1') => true,
            (Some(Entry::Bind(_)), b'2') => true,
            (Some(Entry::Describe(_)), b't' | b'T' | b'n') => true,
            (Some(Entry::Close | Entry::Evict(_)), b'3') => true,
            (Some(Entry::Sync(_)), b'Z') => true,
            _ => false,
        };
        if fits {
            Ok(self.fate_of_head())
        } else {
            Err(Broken::Unexpected(tag))
        }
    }

    /// The fate of replies to the oldest outstanding message.
    pub(crate) fn fate_of_head(&self) -> Fate {
        match self.queue.front() {
            Some(
                Entry::Query(Whose::Own, _)
                | Entry::Sync(Whose::Own)
                | Entry::Evict(_)
                | Entry::Parse {
                    whose: Whose::Own, ..
                },
            ) => Fate::Swallow,
            _ => Fate::Deliver,
        }
    }

    /// A reply of this type is complete. Returns the entry that it completes.
    pub(crate) fn settle(&mut self, tag: u8) -> Option<Entry> {
        match (self.queue.front()?, tag) {
            (_, b'G') => self.begin_copy_in(),
            (_, b'H') => self.copy = Copy::Out,
            // Data flow both ways, and only the two sides know where they end.
            (_, b'W') => self.pin(),
            (Entry::Execute(_), b'C' | b'I' | b's') => {
                self.copy = Copy::None;
                let done = self.pop();
                done.iter().for_each(|entry| self.tally.add(entry));
                return done;
            }
            (Entry::Query(..), b'C') => self.copy = Copy::None,
            (Entry::Describe(_), b'T' | b'n') | (_, b'1' | b'2' | b'3') => {
                return self.pop();
            }
            _ => {}
        }
        None
    }

    /// A `Z` is complete. Returns the entry that it ends.
    pub(crate) fn ready(&mut self, status: TransactionStatus) -> Option<Entry> {
        self.status = status;
        self.tally = Tally::new(status != TransactionStatus::Idle);
        self.copy = Copy::None;
        let done = self.pop();
        if self.queue.is_empty() {
            self.queue.shrink_to(KEPT);
        }
        done
    }

    /// An answer of the front-end that is due now.
    pub(crate) fn answer_due(&mut self) -> Option<Answer> {
        loop {
            match self.queue.front()? {
                Entry::CopyEnd => drop(self.pop()),
                Entry::Answer(answer) => {
                    let answer = *answer;
                    self.pop();
                    return Some(answer);
                }
                _ => return None,
            }
        }
    }

    /// The server waits for data: it reads all entries up to the end of the data as data.
    fn begin_copy_in(&mut self) {
        let mut syncs = 0;
        loop {
            match self.queue.get(1) {
                Some(Entry::Sync(_)) => syncs += 1,
                Some(Entry::CopyEnd) => {
                    self.remove_second();
                    self.copy = Copy::InEnded { syncs };
                    return;
                }
                None => {
                    self.copy = Copy::In { syncs };
                    self.is_open = matches!(self.queue.front(), Some(Entry::Execute(_)));
                    return;
                }
                // An own answer has nothing to do with the server.
                Some(_) => return self.pin(),
            }
            self.remove_second();
        }
    }

    /// An error is complete. Calls `drop_entry` with each entry that the server skips, the
    /// youngest first.
    pub(crate) fn failed(&mut self, is_interrupt: bool, mut drop_entry: impl FnMut(Entry)) {
        let copy = std::mem::replace(&mut self.copy, Copy::None);
        if let Copy::In { syncs: 1.. } | Copy::InEnded { syncs: 1.. } = copy {
            // The model can't know how many of them the server read before the failure.
            return self.pin();
        }
        match self.queue.front() {
            // `Z` follows: directly, or after the Sync, which an interrupt may have preceded.
            Some(Entry::Sync(_)) => {}
            Some(Entry::Query(..) | Entry::Function)
                // The server may have skipped the query, which then has no `Z`.
                if is_interrupt && copy == Copy::None && self.behind_open >= self.first =>
            {
                self.pin();
            }
            Some(Entry::Query(..) | Entry::Function) => {}
            Some(_) => self.skip(&mut drop_entry),
            // A time-out between two messages of a batch.
            None if self.is_open => self.is_skipping = true,
            None => self.pin(),
        }
    }

    /// Drops everything up to the next Sync.
    fn skip(&mut self, drop_entry: &mut impl FnMut(Entry)) {
        let is_sync = |entry: &Entry| matches!(entry, Entry::Sync(_));
        let sync = self.queue.iter().position(is_sync);
        self.is_skipping = sync.is_none();
        let count = sync.unwrap_or(self.queue.len());
        self.first += count as u64;
        self.queue.drain(..count).rev().for_each(drop_entry);
    }
}
