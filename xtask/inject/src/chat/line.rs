//! The lines of `chat`: what a guest says carries its connection and its number, and follows from those two
//! alone, so what others hear is compared letter by letter; and what the server says.

/// The longest that anybody says; the server takes a thousand bytes.
const LONGEST: u64 = 900;

/// A line from the server, or from another guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<'l> {
    /// It is in the room, under this name.
    Welcome(&'l str),
    /// One of its lines is settled: so many others have it, and so many have not.
    Receipt(u64, u64),
    /// So many lines were not kept for it.
    Missed(u64),
    /// The names of all guests, separated by commas.
    Here(&'l str),
    /// This one has come.
    Come(&'l str),
    /// This one has gone.
    Gone(&'l str),
    /// Another guest has said something.
    Said(Said<'l>),
    /// In which room it is, of which there is only one; or that there is no place for it, before its end.
    Aside,
}

/// What another guest has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Said<'l> {
    /// The name that the server gives it.
    pub(super) name: &'l str,
    /// Its connection.
    pub(super) speaker: u64,
    /// The number of the line.
    pub(super) number: u64,
    /// All of it.
    words: &'l str,
}

impl Said<'_> {
    /// Whether it came as it was said.
    pub(super) fn is_whole(&self) -> bool {
        self.words == words(self.speaker, self.number)
    }
}

/// What the guest of this connection says with this number: most lines are short, one in sixty-four is not.
pub(super) fn words(speaker: u64, number: u64) -> String {
    let mixed = speaker
        .wrapping_mul(0x9E37_79B9_7F4A_7C15)
        .wrapping_add(number.wrapping_mul(0xD1B5_4A32_D192_ED03))
        >> 33;
    let length = match mixed % 64 {
        0 => LONGEST,
        _ => 1 + mixed / 64 % 120,
    };
    let letter = |index| char::from(b'a' + (speaker.wrapping_add(number + index) % 26) as u8);
    let filler: String = (0..length).map(letter).collect();
    format!("{speaker} {number} {filler}")
}

/// Understands a line, which has no end of line any more.
pub(super) fn read(line: &str) -> Option<Line<'_>> {
    let line = line.strip_suffix('\r').unwrap_or(line);
    if let Some(counts) = line.strip_prefix("- heard by ") {
        return receipt(counts.split_once(", missed "));
    }
    match line.strip_prefix("* ") {
        Some(told) => of_server(told),
        None => of_guest(line).map(Line::Said),
    }
}

/// How many others have a line, and how many have not.
fn receipt<'l>(counts: Option<(&str, &str)>) -> Option<Line<'l>> {
    let (reached, missed) = counts?;
    Some(Line::Receipt(reached.parse().ok()?, missed.parse().ok()?))
}

/// A word of the server's own.
fn of_server(told: &str) -> Option<Line<'_>> {
    if let Some(greeting) = told.strip_prefix("welcome, ") {
        return Some(Line::Welcome(greeting.split(['.', ':']).next()?));
    }
    if let Some(counts) = told.strip_prefix("reached ") {
        return receipt(counts.split_once(", missed by "));
    }
    if let Some(count) = told.strip_prefix("you have missed ") {
        return Some(Line::Missed(count.parse().ok()?));
    }
    if let Some(names) = told.strip_prefix("here: ") {
        return Some(Line::Here(names));
    }
    if matches!(told, "you are in lobby" | "the house is full") {
        return Some(Line::Aside);
    }
    let ending = |words: &[&str]| words.iter().find_map(|words| told.strip_suffix(words));
    let come = ending(&[" has come", " has joined"]).map(Line::Come);
    come.or_else(|| ending(&[" has gone", " has left"]).map(Line::Gone))
}

/// A word of another guest.
fn of_guest(line: &str) -> Option<Said<'_>> {
    let (name, words) = line.split_once(": ")?;
    let mut parts = words.splitn(3, ' ');
    Some(Said {
        name,
        speaker: parts.next()?.parse().ok()?,
        number: parts.next()?.parse().ok()?,
        words,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_server_says_is_understood() {
        let greeting = "* welcome, guest-7. /name, /who, /quit";
        assert_eq!(read(greeting), Some(Line::Welcome("guest-7")));
        assert_eq!(read("* reached 3, missed by 1"), Some(Line::Receipt(3, 1)));
        assert_eq!(read("* you have missed 9"), Some(Line::Missed(9)));
        assert_eq!(
            read("* here: guest-1, guest-2"),
            Some(Line::Here("guest-1, guest-2"))
        );
        assert_eq!(read("* guest-7 has come"), Some(Line::Come("guest-7")));
        assert_eq!(read("* guest-7 has gone"), Some(Line::Gone("guest-7")));
        // The words of `chat_rooms`.
        let greeting = "* welcome, guest-7: /name, /join, /rooms, /who, /quit\r";
        assert_eq!(read(greeting), Some(Line::Welcome("guest-7")));
        assert_eq!(read("- heard by 3, missed 1\r"), Some(Line::Receipt(3, 1)));
        assert_eq!(read("* guest-7 has joined\r"), Some(Line::Come("guest-7")));
        assert_eq!(read("* guest-7 has left\r"), Some(Line::Gone("guest-7")));
        assert_eq!(read("* you are in lobby\r"), Some(Line::Aside));
        for nonsense in [
            "",
            "* ",
            "guest-7",
            "* reached x, missed by 0",
            "* reached 0, missed by x",
            "guest-7: hello",
        ] {
            assert_eq!(read(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn what_a_guest_says_is_told_from_its_numbers_and_fits_the_server() {
        for number in 0..500 {
            let line = format!("guest-3: {}", words(12, number));
            let Some(Line::Said(said)) = read(&line) else {
                panic!("{line} is not understood");
            };
            assert_eq!(
                (said.name, said.speaker, said.number),
                ("guest-3", 12, number)
            );
            assert!(said.is_whole() && line.len() < 1000);
        }
        let Some(Line::Said(changed)) = read("guest-3: 12 0 other words") else {
            panic!("a changed line is still a line");
        };
        assert!(!changed.is_whole());
    }
}
