//! Server-sent events (the `text/event-stream` of the HTML standard), as bytes: no I/O, no clock.

use std::time::Duration;

use crate::codec::Malformed;

/// One event of a stream.
///
/// ```
/// use paceline_server::sse::Event;
///
/// let mut stream = Vec::new();
/// Event::new("two\nlines").name("news").id("7").append(&mut stream)?;
/// assert_eq!(stream, b"event: news\nid: 7\ndata: two\ndata: lines\n\n");
/// # Ok::<_, paceline_server::codec::Malformed>(())
/// ```
#[must_use = "it is encoded by `append`"]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Event<'e> {
    data: &'e str,
    name: Option<&'e str>,
    id: Option<&'e str>,
    retry: Option<Duration>,
}

impl<'e> Event<'e> {
    /// An event with this text. Its lines may end with CR, LF or both: the client gets LF.
    pub fn new(data: &'e str) -> Self {
        Self {
            data,
            ..Self::default()
        }
    }

    /// The type of the event; without one it is `message`.
    pub fn name(mut self, name: &'e str) -> Self {
        self.name = Some(name);
        self
    }

    /// What the client sends as `Last-Event-ID` when it connects again.
    pub fn id(mut self, id: &'e str) -> Self {
        self.id = Some(id);
        self
    }

    /// How long the client waits before it connects again.
    pub fn retry(mut self, time: Duration) -> Self {
        self.retry = Some(time);
        self
    }

    /// Appends the event.
    ///
    /// # Errors
    /// `Invalid` if the name or the id has a line break, or the id a NUL, which a client ignores:
    /// `output` is as it was.
    pub fn append(&self, output: &mut Vec<u8>) -> Result<(), Malformed> {
        if self.name.is_some_and(has_break) {
            return Err(Malformed::Invalid("the name of an event has a line break"));
        }
        if self.id.is_some_and(|id| has_break(id) || id.contains('\0')) {
            return Err(Malformed::Invalid(
                "the id of an event has a line break or a NUL",
            ));
        }
        let mut field = |name: &str, value: &str| append_line(name, value, output);
        if let Some(name) = self.name {
            field("event: ", name);
        }
        if let Some(id) = self.id {
            field("id: ", id);
        }
        if let Some(time) = self.retry {
            field("retry: ", &time.as_millis().to_string());
        }
        lines(self.data).for_each(|line| field("data: ", line));
        output.push(b'\n');
        Ok(())
    }
}

/// Appends a comment, which clients ignore: it keeps a silent stream open.
pub fn append_comment(text: &str, output: &mut Vec<u8>) {
    lines(text).for_each(|line| append_line(": ", line, output));
    output.push(b'\n');
}

fn append_line(field: &str, value: &str, output: &mut Vec<u8>) {
    output.extend_from_slice(field.as_bytes());
    output.extend_from_slice(value.as_bytes());
    output.push(b'\n');
}

fn has_break(text: &str) -> bool {
    text.contains(['\r', '\n'])
}

/// The lines of a text, at least one. CR, LF and CR LF end a line, as they do for a client.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?;
        let Some(end) = text.find(['\r', '\n']) else {
            rest = None;
            return Some(text);
        };
        let behind = &text[end..];
        let ending = if behind.starts_with("\r\n") { 2 } else { 1 };
        rest = Some(&behind[ending..]);
        Some(&text[..end])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An event as a browser sees it.
    #[derive(Debug, Default, PartialEq, Eq)]
    struct Seen {
        data: String,
        name: String,
        id: String,
        retry: Option<u64>,
    }

    /// What a browser makes of a stream, by the rules of the HTML standard (9.2.6).
    fn browser(stream: &str) -> Vec<Seen> {
        let (mut all, mut seen, mut id) = (Vec::new(), Seen::default(), String::new());
        let stream = stream.replace("\r\n", "\n").replace('\r', "\n");
        for line in stream.split('\n') {
            let (field, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match (line, field) {
                ("", _) if seen.data.is_empty() => seen = Seen::default(),
                ("", _) => {
                    seen.data.pop();
                    seen.id.clone_from(&id);
                    all.push(std::mem::take(&mut seen));
                }
                (_, "data") => seen.data.extend([value, "\n"]),
                (_, "event") => seen.name = value.to_owned(),
                (_, "id") if !value.contains('\0') => id = value.to_owned(),
                (_, "retry") => seen.retry = value.parse().ok(),
                _ => {}
            }
        }
        all
    }

    fn sent(event: &Event<'_>) -> Vec<Seen> {
        let mut stream = Vec::new();
        append_comment("before\r\ndata: forged", &mut stream);
        event.append(&mut stream).unwrap();
        browser(std::str::from_utf8(&stream).unwrap())
    }

    /// Data can't end its event, or begin another field.
    #[test]
    fn line_breaks_in_data_forge_nothing() {
        for data in [
            "a\n\ndata: b",
            "a\r\revent: b",
            "a\r\n\r\nid: 9",
            "\n",
            "\r",
            "",
        ] {
            let expected = data.replace("\r\n", "\n").replace('\r', "\n");
            let seen = sent(&Event::new(data).name("n").retry(Duration::from_secs(2)));
            assert_eq!(seen.len(), 1, "{data:?}");
            assert_eq!((&*seen[0].data, &*seen[0].name), (&*expected, "n"));
            assert_eq!((&*seen[0].id, seen[0].retry), ("", Some(2000)));
        }
    }

    /// A name or an id with a line break would be another field.
    #[test]
    fn line_breaks_in_names_are_refused() {
        for bad in ["a\nb", "a\rb", "\r\n"] {
            let mut stream = b"before".to_vec();
            assert!(Event::new("x").name(bad).append(&mut stream).is_err());
            assert!(Event::new("x").id(bad).append(&mut stream).is_err());
            assert_eq!(stream, b"before");
        }
        assert!(Event::new("x").id("a\0b").append(&mut Vec::new()).is_err());
    }

    /// A comment is no event, whatever is in it.
    #[test]
    fn comments_are_no_events() {
        let mut stream = Vec::new();
        append_comment("", &mut stream);
        append_comment("a\n\ndata: b\r\r", &mut stream);
        assert_eq!(browser(std::str::from_utf8(&stream).unwrap()), []);
    }

    proptest! {
        /// The browser gets what was sent.
        #[test]
        fn an_event_comes_as_it_was_sent(
            data in "[a-z: \r\n\u{e9}]{0,40}",
            name in "[a-z:\u{e9}]{1,8}",
            id in "[a-z0-9]{1,8}",
        ) {
            let seen = sent(&Event::new(&data).name(&name).id(&id));
            let data = data.replace("\r\n", "\n").replace('\r', "\n");
            prop_assert_eq!(seen, [Seen { data, name, id, retry: None }]);
        }
    }
}
