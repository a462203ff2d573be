//! Lines of an ini file.

/// An item of a file, and its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Line<'t> {
    pub(super) number: u32,
    pub(super) item: Item<'t>,
}

/// An item of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'t> {
    /// `%include FILE`
    Include(&'t str),
    /// `[NAME]`
    Section(&'t str),
    /// `KEY = VALUE`; a doubled quote in a quoted key is still doubled.
    Entry(Key<'t>, &'t str),
    /// A syntax error.
    Broken(&'static str),
}

/// A key, perhaps in quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key<'t> {
    text: &'t str,
    quote: Option<char>,
}

impl Key<'_> {
    /// The key without its quotes.
    pub(super) fn unquoted(self) -> String {
        match self.quote {
            Some(quote) => self
                .text
                .replace(&format!("{quote}{quote}"), &quote.to_string()),
            None => self.text.to_owned(),
        }
    }
}

/// The items of `text`.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    let numbered = text.split('\n').zip(1..);
    numbered.flat_map(|(line, number)| items(line).map(move |item| Line { number, item }))
}

/// The items of one line: none, one, or a section and one more.
fn items(line: &str) -> impl Iterator<Item = Item<'_>> {
    let line = line.trim_ascii();
    let (section, rest) = match line.strip_prefix('[') {
        Some(line) => section(line),
        None => (None, line),
    };
    let is_comment = rest.is_empty() || rest.starts_with([';', '#']);
    let behind = (!is_comment).then(|| item(rest));
    section.into_iter().chain(behind)
}

/// The section at the start of a line, and what follows it.
fn section(line: &str) -> (Option<Item<'_>>, &str) {
    match line.split_once(']') {
        Some((name, rest)) => (Some(Item::Section(name)), rest.trim_ascii()),
        None => (Some(Item::Broken("a section has no closing bracket")), ""),
    }
}

fn item(line: &str) -> Item<'_> {
    if line.contains('\0') {
        return Item::Broken("a byte is zero");
    }
    match line.strip_prefix("%include") {
        Some(file) if file.starts_with([' ', '\t']) => Item::Include(file.trim_ascii()),
        _ => entry(line).unwrap_or_else(Item::Broken),
    }
}

fn entry(line: &str) -> Result<Item<'_>, &'static str> {
    let (key, rest) = key(line)?;
    let rest = rest.trim_start_matches([' ', '\t']);
    let value = rest.strip_prefix('=').ok_or("expected \"key = value\"")?;
    Ok(Item::Entry(key, value.trim_ascii()))
}

fn key(line: &str) -> Result<(Key<'_>, &str), &'static str> {
    let (text, quote, rest) = match line.chars().next() {
        Some(quote @ ('\'' | '"')) => {
            let (text, rest) = quoted(&line[1..], quote).ok_or("a quote has no end")?;
            (text, Some(quote), rest)
        }
        _ => {
            let is_key = |c: char| c.is_ascii_alphanumeric() || "_.-*".contains(c);
            let end = line.find(|c| !is_key(c)).unwrap_or(line.len());
            (&line[..end], None, &line[end..])
        }
    };
    if text.is_empty() {
        return Err("expected \"key = value\"");
    }
    Ok((Key { text, quote }, rest))
}

/// The text before the closing quote, and the text behind it.
fn quoted(text: &str, quote: char) -> Option<(&str, &str)> {
    let mut at = 0;
    loop {
        let end = at + text[at..].find(quote)?;
        if !text[end + 1..].starts_with(quote) {
            return Some((&text[..end], &text[end + 1..]));
        }
        at = end + 2;
    }
}
