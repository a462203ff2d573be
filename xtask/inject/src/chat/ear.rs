//! What one guest hears, judged line by line against the book of the room.
//!
//! ```text
//!   it enters     what is settled by now it may never hear            [Ear::enter]
//!   welcomed      what is said from now on it must hear               [Ear::welcome]
//!   hears         from each speaker the next number, once, unchanged  [Ear::hear]
//!   takes stock   what is settled by now it must have heard ...       [Ear::duty]
//!   still there   ... for the server has answered it since            [Ear::settle]
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::line::{self, Line, Said};
use super::room::{Book, Duty, Room, Sight, Time, Voice};
use crate::conversation::Findings;

/// The longest line that the server may send: the names of a crowd.
const LONGEST: usize = 16 * 1024;

/// The ear of one guest. Dropping it leaves the room.
pub(super) struct Ear {
    /// The book.
    room: Arc<Room>,
    /// The guest's connection.
    owner: u64,
    /// What has come of the next line.
    pending: Vec<u8>,
    /// What was settled before it came.
    came: Sight,
    /// What was said before it was welcomed; `None` before that.
    welcomed: Option<Sight>,
    /// The number that must come next, of each speaker that it has heard.
    next: HashMap<u64, u64>,
    /// What it has heard: speakers and numbers.
    heard: Vec<(u64, u64)>,
    /// How many receipts it was given.
    receipts: u64,
    /// How often it got the list of names.
    calls: u64,
    /// When it last asked for that.
    asked: Time,
    /// The guests whose arrival was reported to it.
    come: HashSet<String>,
    /// The guests whose departure was reported to it.
    gone: HashSet<String>,
}

impl Ear {
    /// One that is about to come.
    pub(super) fn enter(room: &Arc<Room>, owner: u64) -> Ear {
        let mut book = room.book();
        book.enter(owner);
        let came = book.sight(Voice::settled);
        drop(book);
        Ear {
            room: Arc::clone(room),
            owner,
            pending: Vec::new(),
            came,
            welcomed: None,
            next: HashMap::new(),
            heard: Vec::new(),
            receipts: 0,
            calls: 0,
            asked: 0,
            come: HashSet::new(),
            gone: HashSet::new(),
        }
    }

    /// How many receipts it was given.
    pub(super) fn receipts(&self) -> u64 {
        self.receipts
    }

    /// How often it got the list of names.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// It is about to request the list of names.
    pub(super) fn ask(&mut self) {
        self.asked = self.room.book().tick();
    }

    /// It has read the end.
    pub(super) fn end(&self) {
        self.room.book().gone(self.owner, &self.heard);
    }

    /// Whether nothing has come of the next line.
    pub(super) fn is_between_lines(&self) -> bool {
        self.pending.is_empty()
    }

    /// Judges what was read.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Findings {
        let room = Arc::clone(&self.room);
        let mut book = room.book();
        let mut findings = Findings::default();
        self.pending.extend_from_slice(bytes);
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<_> = self.pending.drain(..=end).take(end).collect();
            let text = std::str::from_utf8(&line).ok();
            let judged = text.and_then(line::read);
            let understood = judged.and_then(|line| self.judge(line, &mut book, &mut findings));
            if understood.is_none() {
                findings.garbled = true;
                return findings;
            }
        }
        findings.garbled = self.pending.len() > LONGEST;
        findings
    }

    /// What it must have heard by now.
    pub(super) fn duty(&self) -> Duty {
        match &self.welcomed {
            Some(welcomed) => self.room.book().duty(self.owner, welcomed),
            None => Duty::default(),
        }
    }

    /// It was still there after its duty was written down: has it heard all of it?
    pub(super) fn settle(&self, duty: &Duty) -> Findings {
        let mut book = self.room.book();
        let mut findings = Findings::default();
        for (speaker, lines) in &duty.lines {
            let next = self.next.get(speaker).copied().unwrap_or(0);
            findings.lost += lines.end - next.clamp(lines.start, lines.end);
            book.prove(*speaker, lines);
        }
        let unheard = |names: &[String], heard: &HashSet<String>| {
            names.iter().filter(|name| !heard.contains(*name)).count() as u64
        };
        findings.lost += unheard(&duty.come, &self.come) + unheard(&duty.gone, &self.gone);
        findings.misrouted += u64::from(book.was_there(self.owner, self.asked));
        findings
    }

    /// Judges one line. `None`: it should not be there at all.
    fn judge(&mut self, line: Line<'_>, book: &mut Book, found: &mut Findings) -> Option<()> {
        match (line, &self.welcomed) {
            (Line::Aside, _) => {}
            (Line::Welcome(name), None) => self.welcome(name, book, found),
            (Line::Welcome(_), Some(_)) | (_, None) => return None,
            (Line::Said(said), Some(_)) => self.hear(&said, book, found),
            (Line::Receipt(reached, missed), _) => {
                match book.receipt(self.owner, reached, missed) {
                    Some(()) => {
                        self.receipts += 1;
                        found.answered += 1;
                    }
                    // Another guest waits for it.
                    None => found.misrouted += 1,
                }
            }
            (Line::Missed(lines), _) => found.lost += lines,
            (Line::Here(names), _) => {
                self.calls += 1;
                let judged = book.judge_names(self.owner, names, self.asked);
                found.lost += judged.lost;
                found.doubled += judged.doubled;
                found.misrouted += judged.misrouted;
            }
            (Line::Come(name), _) => found.doubled += u64::from(!self.come.insert(name.to_owned())),
            (Line::Gone(name), _) => {
                book.told_gone(name);
                found.doubled += u64::from(!self.gone.insert(name.to_owned()));
            }
        }
        Some(())
    }

    /// It is in the room.
    fn welcome(&mut self, name: &str, book: &mut Book, found: &mut Findings) {
        let now = book.tick();
        self.welcomed = Some(book.sight(|voice| voice.said));
        let is_mine = book.voice(self.owner).is_some_and(|it| {
            it.welcomed = Some(now);
            it.is_called(name)
        });
        found.misrouted += u64::from(!is_mine);
    }

    /// A line of another guest has arrived.
    fn hear(&mut self, said: &Said<'_>, book: &mut Book, found: &mut Findings) {
        let expected = book
            .voice(said.speaker)
            .and_then(|voice| self.expected(said, voice));
        let Some(expected) = expected else {
            found.misrouted += 1;
            return;
        };
        if said.number < expected {
            found.doubled += 1;
            return;
        }
        found.lost += said.number - expected + u64::from(!said.is_whole());
        self.next.insert(said.speaker, said.number + 1);
        self.heard.push((said.speaker, said.number));
    }

    /// The number that must be next from this speaker of a line. `None`: no guest has said it, or not to us.
    fn expected(&self, said: &Said<'_>, voice: &mut Voice) -> Option<u64> {
        let is_said = said.number < voice.said && voice.is_called(said.name);
        if !is_said || said.speaker == self.owner {
            return None;
        }
        if let Some(next) = self.next.get(&said.speaker) {
            return Some(*next);
        }
        if said.number < self.settled_before(said.speaker, voice) {
            return None;
        }
        let first = self.said_before(said.speaker, voice);
        Some(first.map_or(said.number, |first| first.min(said.number)))
    }

    /// Lines of a speaker that were settled before this guest came.
    fn settled_before(&self, speaker: u64, voice: &Voice) -> u64 {
        match self.came.counts.get(&speaker) {
            Some(count) => *count,
            None if voice.had_left(&self.came) => voice.settled(),
            None => 0,
        }
    }

    /// Lines of a speaker that were said before this guest was welcomed: those behind them it must hear. `None`: the
    /// speaker had left, and what it said last may or may not be heard.
    fn said_before(&self, speaker: u64, voice: &Voice) -> Option<u64> {
        let welcomed = self.welcomed.as_ref()?;
        match welcomed.counts.get(&speaker) {
            Some(count) => Some(*count),
            None if voice.had_left(welcomed) => None,
            None => Some(0),
        }
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.room.book().leave(self.owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANN: u64 = 1;
    const BOB: u64 = 2;
    const EVE: u64 = 3;

    /// A guest whom the server has welcomed under its number.
    fn guest(room: &Arc<Room>, owner: u64) -> Ear {
        let mut ear = Ear::enter(room, owner);
        let welcome = format!("* welcome, guest-{owner}. /name, /who, /quit\n");
        assert_eq!(ear.take(welcome.as_bytes()), Findings::default());
        ear
    }

    /// These lines of a speaker, as the server must send them to the others.
    fn lines(speaker: u64, numbers: &[u64]) -> Vec<u8> {
        let line = |number| format!("guest-{speaker}: {}\n", line::words(speaker, number));
        let lines: String = numbers.iter().map(|number| line(*number)).collect();
        lines.into_bytes()
    }

    /// Receipts for so many lines, each of which has reached so many.
    fn receipts(count: usize, reached: u64) -> Vec<u8> {
        format!("* reached {reached}, missed by 0\n")
            .repeat(count)
            .into_bytes()
    }

    /// A room in which Ann has said `count` lines, and Bob hears.
    fn ann_speaks(count: u64) -> (Arc<Room>, Ear, Ear) {
        let room = Arc::new(Room::default());
        let (ann, bob) = (guest(&room, ANN), guest(&room, BOB));
        room.book().say(ANN, count);
        (room, ann, bob)
    }

    /// What Bob finds in what he is sent, and at the end.
    fn found(bob: &mut Ear, bytes: &[u8]) -> [u64; 3] {
        let found = bob.take(bytes);
        assert!(!found.garbled);
        let last = bob.settle(&bob.duty());
        [
            found.lost + last.lost,
            found.doubled,
            found.misrouted + last.misrouted,
        ]
    }

    #[test]
    fn an_honest_room_has_nothing_to_complain_of_however_lines_are_cut() {
        let (room, mut ann, mut bob) = ann_speaks(300);
        let numbers: Vec<_> = (0..300).collect();
        let all = [lines(ANN, &numbers), b"* here: guest-1, guest-2\n".to_vec()].concat();
        for chunk in all.chunks(7) {
            assert_eq!(bob.take(chunk), Findings::default());
        }
        let answered = ann.take(&receipts(300, 1)).answered;
        assert_eq!((answered, ann.receipts(), bob.calls()), (300, 300, 1));
        assert_eq!(bob.settle(&bob.duty()), Findings::default());
        assert_eq!(room.settle(), Findings::default());
        assert!(bob.is_between_lines());
    }

    #[test]
    fn a_line_that_is_left_out_is_lost_in_the_middle_and_at_the_end() {
        for heard in [[0, 2].as_slice(), &[1, 2], &[0, 1], &[]] {
            let (_room, mut ann, mut bob) = ann_speaks(3);
            ann.take(&receipts(3, 1));
            let missing = 3 - heard.len() as u64;
            assert_eq!(found(&mut bob, &lines(ANN, heard)), [missing, 0, 0]);
        }
    }

    #[test]
    fn what_has_no_receipt_yet_may_still_be_on_its_way() {
        let (_room, mut ann, mut bob) = ann_speaks(3);
        ann.take(&receipts(2, 1));
        assert_eq!(found(&mut bob, &lines(ANN, &[0, 1])), [0, 0, 0]);
    }

    #[test]
    fn a_line_that_comes_again_or_too_late_is_doubled() {
        let (_room, _ann, mut bob) = ann_speaks(3);
        assert_eq!(found(&mut bob, &lines(ANN, &[0, 0, 1, 2])), [0, 1, 0]);
        let (_room, _ann, mut bob) = ann_speaks(3);
        assert_eq!(found(&mut bob, &lines(ANN, &[0, 2, 1])), [1, 1, 0]);
    }

    #[test]
    fn a_changed_line_is_lost() {
        let (_room, _ann, mut bob) = ann_speaks(1);
        assert_eq!(found(&mut bob, b"guest-1: 1 0 x\n"), [1, 0, 0]);
    }

    #[test]
    fn what_belongs_to_others_is_misrouted() {
        let (room, mut ann, mut bob) = ann_speaks(1);
        let own = ann.take(&lines(ANN, &[0]));
        assert_eq!(own.misrouted, 1, "a speaker hears itself");
        assert_eq!(found(&mut bob, &receipts(1, 1)), [0, 0, 1], "a receipt");
        assert_eq!(found(&mut bob, &lines(ANN, &[1])), [0, 0, 1], "never said");
        assert_eq!(found(&mut bob, &lines(EVE, &[0])), [0, 0, 1], "nobody");
        let _eve = guest(&room, EVE);
        bob.take(b"* guest-3 has come\n");
        let stolen = [b"guest-3: ".to_vec(), lines(ANN, &[0])[9..].to_vec()].concat();
        assert_eq!(found(&mut bob, &stolen), [0, 0, 1], "another's name");
    }

    /// The mailbox of a guest that is gone must not be read to the next one in its place.
    #[test]
    fn what_was_settled_before_somebody_came_is_not_for_it() {
        let (room, mut ann, _bob) = ann_speaks(2);
        ann.take(&receipts(1, 1));
        let mut eve = guest(&room, EVE);
        assert_eq!(found(&mut eve, &lines(ANN, &[0])), [0, 0, 1]);
        // The other one was on its way, so it may come or not; what is said now must come.
        assert_eq!(found(&mut eve, &lines(ANN, &[1])), [0, 0, 0]);
        let mut late = guest(&room, 4);
        room.book().say(ANN, 2);
        assert_eq!(found(&mut late, &lines(ANN, &[3])), [1, 0, 0]);
    }

    #[test]
    fn the_last_words_of_somebody_who_has_left_may_come_and_settled_ones_may_not() {
        let (room, mut ann, _bob) = ann_speaks(2);
        ann.take(&receipts(1, 1));
        drop(ann);
        let mut eve = guest(&room, EVE);
        assert_eq!(found(&mut eve, &lines(ANN, &[1])), [0, 0, 0]);
        let mut late = guest(&room, 4);
        assert_eq!(found(&mut late, &lines(ANN, &[0])), [0, 0, 1]);
    }

    #[test]
    fn who_came_and_went_meanwhile_must_be_heard_too() {
        let room = Arc::new(Room::default());
        let mut bob = guest(&room, BOB);
        let mut ann = guest(&room, ANN);
        bob.take(b"* guest-1 has come\n");
        room.book().say(ANN, 2);
        ann.take(&receipts(2, 1));
        drop(ann);
        assert_eq!(found(&mut bob, &lines(ANN, &[0])), [1, 0, 0]);
    }

    #[test]
    fn a_server_that_admits_a_loss_has_lost() {
        let (_room, _ann, mut bob) = ann_speaks(1);
        assert_eq!(found(&mut bob, b"* you have missed 4\n"), [4, 0, 0]);
    }

    #[test]
    fn a_receipt_that_tells_of_too_few_is_found_at_the_end() {
        let (room, mut ann, mut bob) = ann_speaks(3);
        ann.take(&receipts(1, 1));
        ann.take(&receipts(2, 0));
        assert_eq!(found(&mut bob, &lines(ANN, &[0, 1, 2])), [0, 0, 0]);
        assert_eq!(room.settle().lost, 2);
    }

    /// Ann hears the end after Bob, which arrived late and spoke; returns what the room finds in Bob's receipts.
    fn settled(reached: u64, missed: u64, ann_hears: &[u64]) -> Findings {
        let room = Arc::new(Room::default());
        let (mut ann, mut bob) = (guest(&room, ANN), guest(&room, BOB));
        room.book().say(BOB, 1);
        ann.take(&lines(BOB, ann_hears));
        ann.end();
        bob.take(format!("* reached {reached}, missed by {missed}\n").as_bytes());
        room.settle()
    }

    #[test]
    fn a_receipt_that_tells_of_too_many_is_found_at_the_end() {
        assert_eq!(settled(1, 0, &[0]), Findings::default());
        assert_eq!(settled(0, 1, &[]), Findings::default());
        assert_eq!(settled(1, 0, &[]).lost, 1, "nobody has heard it");
        assert_eq!(settled(1, 1, &[0]).misrouted, 1, "nobody else was there");
    }

    /// Ann says three lines in one piece. Bob hears the first of them, and breaks off; Eve hears all of them. The receipt
    /// of what Bob has heard is last, because his handler was called once more before he was gone.
    #[test]
    fn receipts_of_one_piece_may_overtake_each_other_and_tell_of_no_more_for_that() {
        let settled = |told: [u64; 3]| {
            let (room, mut ann, mut bob) = ann_speaks(0);
            let mut eve = guest(&room, EVE);
            room.book().say(ANN, 3);
            bob.take(&lines(ANN, &[0]));
            eve.take(&lines(ANN, &[0, 1, 2]));
            bob.end();
            eve.end();
            told.into_iter().for_each(|reached| {
                let told = format!("* reached {reached}, missed by {}\n", 2 - reached);
                ann.take(told.as_bytes());
            });
            room.settle()
        };
        for told in [[2, 1, 1], [1, 2, 1], [1, 1, 2]] {
            assert_eq!(settled(told), Findings::default(), "{told:?}");
        }
        for told in [[2, 2, 1], [1, 2, 2], [2, 1, 2]] {
            assert_eq!(settled(told).lost, 1, "{told:?}");
        }
    }

    /// A guest without the end may have heard what its client has not read; a stranger may have heard anything.
    #[test]
    fn a_receipt_in_doubt_is_believed() {
        let (room, mut ann, bob) = ann_speaks(1);
        drop(bob);
        ann.take(&receipts(1, 1));
        assert_eq!(room.settle(), Findings::default());
        room.book().say(ANN, 1);
        room.book().stranger();
        ann.take(&receipts(1, 2));
        assert_eq!(room.settle(), Findings::default());
    }

    /// Bob has requested the list of names, and got this.
    fn asked(bob: &mut Ear, told: &str) -> [u64; 3] {
        bob.ask();
        let found = bob.take(format!("* here: {told}\n").as_bytes());
        [found.lost, found.doubled, found.misrouted]
    }

    #[test]
    fn who_is_told_to_be_there_is() {
        let (_room, ann, mut bob) = ann_speaks(0);
        assert_eq!(asked(&mut bob, "guest-1, guest-2"), [0, 0, 0]);
        assert_eq!(asked(&mut bob, "guest-1"), [1, 0, 0], "not oneself");
        assert_eq!(asked(&mut bob, "guest-2, guest-2"), [0, 1, 0], "twice");
        ann.end();
        drop(ann);
        assert_eq!(asked(&mut bob, "guest-1, guest-2"), [0, 0, 1], "gone");
    }

    #[test]
    fn who_comes_and_goes_is_told_of_once() {
        let (room, _ann, mut bob) = ann_speaks(0);
        let mut eve = guest(&room, EVE);
        assert_eq!(found(&mut bob, b""), [1, 0, 0], "nobody told that she came");
        assert_eq!(found(&mut bob, b"* guest-3 has come\n"), [0, 0, 0]);
        assert_eq!(found(&mut bob, b"* guest-3 has come\n"), [0, 1, 0]);
        eve.ask();
        assert_eq!(found(&mut eve, b""), [0, 0, 0]);
        eve.end();
        drop(eve);
        assert_eq!(found(&mut bob, b""), [1, 0, 0], "nobody told that she went");
        assert_eq!(found(&mut bob, b"* guest-3 has gone\n"), [0, 0, 0]);
        assert_eq!(found(&mut bob, b"* guest-3 has gone\n"), [0, 1, 0]);
    }

    #[test]
    fn who_is_said_to_have_gone_and_answers_has_not() {
        let (_room, mut ann, mut bob) = ann_speaks(0);
        bob.take(b"* guest-1 has gone\n");
        ann.ask();
        let told = b"* guest-2 has come\n* here: guest-1\n";
        assert_eq!(found(&mut ann, told), [0, 0, 1]);
    }

    #[test]
    fn what_is_no_line_of_a_chat_garbles_it() {
        let room = Arc::new(Room::default());
        let mut unwelcome = Ear::enter(&room, ANN);
        assert!(unwelcome.take(b"* guest-2 has come\n").garbled);
        let mut bob = guest(&room, BOB);
        assert!(bob.take(b"\xFF\n").garbled);
        let mut eve = guest(&room, EVE);
        assert!(eve.take(&[b'x'; LONGEST + 1]).garbled);
    }
}
