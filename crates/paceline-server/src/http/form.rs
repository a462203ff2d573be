//! Names and values in queries and forms: `a=1&b=two+words&c=%C3%A4`.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use super::{Error, Result};

/// The most pairs of a form: each costs memory, and a map of them may cost much more.
const MOST_FIELDS: usize = 1000;

/// The names and values of a query, decoded: see [`Request::query_pairs`](super::Request::query_pairs).
#[derive(Clone, Debug)]
pub struct Pairs<'q> {
    rest: Option<&'q str>,
}

impl<'q> Pairs<'q> {
    pub(super) fn new(query: &'q str) -> Self {
        Self { rest: Some(query) }
    }
}

impl<'q> Iterator for Pairs<'q> {
    type Item = (Cow<'q, str>, Cow<'q, str>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.rest?;
            let (pair, others) = match rest.split_once('&') {
                Some((pair, others)) => (pair, Some(others)),
                None => (rest, None),
            };
            self.rest = others;
            if let (false, Some(pair)) = (pair.is_empty(), decode_pair(pair)) {
                return Some(pair);
            }
        }
    }
}

fn decode_pair(pair: &str) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    Some((decode_plus(name)?, decode_plus(value)?))
}

/// Decodes `%41`; `None` if the result is not UTF-8.
pub(super) fn decode(text: &str) -> Option<Cow<'_, str>> {
    percent_decode_str(text).decode_utf8().ok()
}

/// The same, and `+` is a space.
fn decode_plus(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('+') {
        return decode(text);
    }
    let spaced = text.replace('+', " ");
    decode(&spaced).map(|text| Cow::Owned(text.into_owned()))
}

/// The pairs of a form.
pub(super) fn parse(body: &[u8]) -> Result<Vec<(String, String)>> {
    let text = std::str::from_utf8(body).map_err(|_| Error::new(400, "the form is not UTF-8"))?;
    let mut pairs = Vec::new();
    for pair in text.split('&').filter(|pair| !pair.is_empty()) {
        if pairs.len() == MOST_FIELDS {
            return Err(Error::new(400, "the form has too many fields"));
        }
        let pair = decode_pair(pair).ok_or_else(|| Error::new(400, "the form is not UTF-8"))?;
        pairs.push((pair.0.into_owned(), pair.1.into_owned()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A browser encodes what a person types: all of it comes back.
    #[test]
    fn pairs_are_decoded() {
        let pairs: Vec<_> = Pairs::new("a=1&b=two+words&&c=%C3%A4%26&d&=e&a=2%2B").collect();
        let expected = [
            ("a", "1"),
            ("b", "two words"),
            ("c", "\u{e4}&"),
            ("d", ""),
            ("", "e"),
            ("a", "2+"),
        ];
        assert!(pairs
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .eq(expected));
    }

    /// A form of very many fields is a way to use up memory.
    #[test]
    fn a_form_has_so_many_fields_and_is_text() {
        assert_eq!(parse("a&".repeat(1000).as_bytes()).unwrap().len(), 1000);
        assert_eq!(
            parse("a&".repeat(1001).as_bytes()).unwrap_err().status(),
            400
        );
        assert_eq!(parse(b"a=%ff").unwrap_err().status(), 400);
        assert_eq!(parse(b"a=\xff").unwrap_err().status(), 400);
    }
}
