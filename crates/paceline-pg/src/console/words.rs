//! Splits a command into its words.

/// One word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// Letters, digits and `_`: a verb, a name or a value.
    Plain(String),
    /// In double quotes: a name.
    Name(String),
    /// In single quotes: a value.
    Text(String),
    /// `=`
    Equals,
}

impl Word {
    /// Its text, if it can be a verb or a name.
    pub(super) fn name(&self) -> Option<&str> {
        match self {
            Self::Plain(text) | Self::Name(text) => Some(text),
            Self::Text(_) | Self::Equals => None,
        }
    }

    /// Its text, if it can be a value.
    pub(super) fn value(&self) -> Option<&str> {
        match self {
            Self::Plain(text) | Self::Name(text) | Self::Text(text) => Some(text),
            Self::Equals => None,
        }
    }

    /// Whether it is this key word.
    pub(super) fn is(&self, keyword: &str) -> bool {
        self.name()
            .is_some_and(|name| name.eq_ignore_ascii_case(keyword))
    }
}

/// The words of `text`, up to a semicolon with nothing behind it. `None` if it is no command.
pub(super) fn words(text: &str) -> Option<Vec<Word>> {
    let mut words = Vec::new();
    let mut rest = text.trim_ascii();
    while !rest.is_empty() && rest != ";" {
        let (word, behind) = word(rest)?;
        let is_next_apart = behind.starts_with([' ', '\t', '\n', '\r', ';', '=']);
        if !(is_next_apart || behind.is_empty() || word == Word::Equals) {
            return None;
        }
        words.push(word);
        rest = behind.trim_ascii_start();
    }
    Some(words)
}

fn word(text: &str) -> Option<(Word, &str)> {
    match text.chars().next()? {
        '=' => Some((Word::Equals, &text[1..])),
        '"' => quoted(&text[1..], '"').map(|(name, rest)| (Word::Name(name), rest)),
        '\'' => quoted(&text[1..], '\'').map(|(value, rest)| (Word::Text(value), rest)),
        _ => {
            let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
            let (word, rest) = text.split_at(end);
            (end > 0).then(|| (Word::Plain(word.to_owned()), rest))
        }
    }
}

/// The text up to the closing quote, and the text behind it. Two quotes are one.
fn quoted(text: &str, quote: char) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut rest = text;
    loop {
        let (piece, behind) = rest.split_once(quote)?;
        value.push_str(piece);
        match behind.strip_prefix(quote) {
            Some(more) => {
                value.push(quote);
                rest = more;
            }
            None => return Some((value, behind)),
        }
    }
}
