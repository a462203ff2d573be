//! Connection strings: `key=value` pairs, quoted in single quotes where needed.

use std::borrow::Cow;

/// A key and its value.
type Pair<'t> = (&'t str, Cow<'t, str>);

/// Each pair of `text`, up to the first error.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = Result<Pair<'_>, &'static str>> {
    let mut rest = Some(text);
    std::iter::from_fn(move || {
        let text = rest?.trim_start();
        if text.is_empty() {
            return None;
        }
        let pair = pair(text);
        rest = pair.as_ref().ok().map(|(_, rest)| *rest);
        Some(pair.map(|(pair, _)| pair))
    })
}

/// The first pair of `text`, and what follows it.
fn pair(text: &str) -> Result<(Pair<'_>, &str), &'static str> {
    let end = text.find(|c: char| c == '=' || c.is_ascii_whitespace());
    let (name, rest) = text.split_at(end.ok_or("a key has no value")?);
    let rest = rest
        .trim_start()
        .strip_prefix('=')
        .ok_or("a key has no value")?;
    if name.is_empty() {
        return Err("a value has no key");
    }
    let (value, rest) = value(rest.trim_start())?;
    if value.is_empty() {
        return Err("a value is empty");
    }
    Ok(((name, value), rest))
}

/// The value at the start of `text`, and what follows it.
fn value(text: &str) -> Result<(Cow<'_, str>, &str), &'static str> {
    if let Some(quoted) = text.strip_prefix('\'') {
        return unquote(quoted);
    }
    let end = text.find(|c: char| c.is_ascii_whitespace());
    let (value, rest) = text.split_at(end.unwrap_or(text.len()));
    Ok((Cow::Borrowed(value), rest))
}

/// The quoted text: two quotes in it are one.
fn unquote(text: &str) -> Result<(Cow<'_, str>, &str), &'static str> {
    let mut value = Cow::Borrowed("");
    let mut rest = text;
    loop {
        let (piece, behind) = rest.split_once('\'').ok_or("a quote has no end")?;
        value += piece;
        match behind.strip_prefix('\'') {
            Some(more) => {
                value += "'";
                rest = more;
            }
            None => return Ok((value, behind)),
        }
    }
}
