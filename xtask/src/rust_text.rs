//! Rust sources as text: which bytes are code, and which are comments or literals. No grammar, only as much
//! of the lexer as is needed not to take a word in a comment or in a string for code.

/// What a stretch of source text is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Everything else.
    Code,
    /// A comment of any form.
    Comment,
    /// A string, a byte string, a raw string or a character.
    Literal,
}

/// The code alone: comments and literals become spaces, so that lines and columns stay where they were.
pub(crate) fn code_only(source: &str) -> String {
    only(Kind::Code, source)
}

/// The comments alone, with their marks: code and literals become spaces.
pub(crate) fn comments_only(source: &str) -> String {
    only(Kind::Comment, source)
}

/// What is of one kind; the rest becomes spaces.
fn only(kept: Kind, source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    let mut before = ' ';
    while !rest.is_empty() {
        let (kind, length) = stretch(rest, before);
        let (now, later) = rest.split_at(length);
        if kind == kept {
            text.push_str(now);
        } else {
            text.extend(now.chars().map(blank));
        }
        before = now.chars().next_back().unwrap_or(' ');
        rest = later;
    }
    text
}

/// Whether a line has this word, and not only as a part of a longer one.
pub(crate) fn contains_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        !before.is_some_and(is_word_char) && !after.is_some_and(is_word_char)
    })
}

/// Whether a character can be part of a name.
pub(crate) fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// A space for everything but the end of a line.
fn blank(c: char) -> char {
    match c {
        '\n' => '\n',
        _ => ' ',
    }
}

/// The kind of the first stretch, and its length in bytes. `before` is the character in front of it.
fn stretch(text: &str, before: char) -> (Kind, usize) {
    if text.starts_with("//") {
        return (Kind::Comment, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Kind::Comment, block_comment(text));
    }
    if let Some(length) = literal(text, before) {
        return (Kind::Literal, length);
    }
    (Kind::Code, text.chars().next().map_or(0, char::len_utf8))
}

/// The length of a block comment; they nest.
fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let step = match &text.as_bytes()[at..] {
            [b'/', b'*', ..] => {
                depth += 1;
                2
            }
            [b'*', b'/', ..] => {
                depth -= 1;
                2
            }
            _ => 1,
        };
        at += step;
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// The length of the literal at the beginning, if there is one.
fn literal(text: &str, before: char) -> Option<usize> {
    match text.chars().next()? {
        '"' => Some(1 + quoted(&text[1..], '"')),
        '\'' => character(text),
        'r' | 'b' | 'c' if !is_word_char(before) => raw_string(text),
        _ => None,
    }
}

/// The length up to and with the closing quote; a backslash takes the next character with it.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + c.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// The length of a character literal; nothing if the quote begins a lifetime.
fn character(text: &str) -> Option<usize> {
    let mut chars = text.chars().skip(1);
    let first = chars.next()?;
    match (first, chars.next()) {
        ('\\', _) => Some(1 + quoted(&text[1..], '\'')),
        (_, Some('\'')) => Some(2 + first.len_utf8()),
        _ => None,
    }
}

/// The length of a raw string such as `r#"..."#`, `br"..."` or `cr"..."`.
fn raw_string(text: &str) -> Option<usize> {
    let marks = text
        .strip_prefix(['b', 'c'])
        .unwrap_or(text)
        .strip_prefix('r')?;
    let body = marks.trim_start_matches('#');
    let hashes = marks.len() - body.len();
    let body = body.strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let opening = text.len() - body.len();
    Some(
        body.find(&close)
            .map_or(text.len(), |at| opening + at + close.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that are left of a source.
    fn words(source: &str) -> Vec<String> {
        code_only(source)
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(words("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(words("//! b\n/// c\nd"), ["d"]);
        assert_eq!(words("a /* never closed"), ["a"]);
    }

    #[test]
    fn literals_are_not_code() {
        assert_eq!(words(r#"a "b \" // c" d"#), ["a", "d"]);
        assert_eq!(words(r##"a r#"b " c"# d"##), ["a", "d"]);
        assert_eq!(words(r#"a br"b\" c"#), ["a", "c"]);
        assert_eq!(words(r"a '\'' b '/' c '\u{7d}' d"), ["a", "b", "c", "d"]);
    }

    #[test]
    fn comments_alone_are_kept_with_their_lines() {
        let text = comments_only("a(); // b \"c\"\n\"// d\"\n/* e\nf */ g\n");
        let lines: Vec<_> = text.lines().map(str::trim).collect();
        assert_eq!(lines, ["// b \"c\"", "", "/* e", "f */"]);
    }

    #[test]
    fn lifetimes_and_raw_names_are_code() {
        assert_eq!(
            words("fn a<'a>(x: &'a str) -> &'static str"),
            ["fn", "a<'a>(x:", "&'a", "str)", "->", "&'static", "str"]
        );
        assert_eq!(words("r#type bar\"x\""), ["r#type", "bar"]);
    }

    #[test]
    fn lines_stay_where_they_were() {
        let source = "a\n/* b\n c */ d\n\"e\nf\"\ng\n";
        assert_eq!(code_only(source).lines().count(), source.lines().count());
        assert_eq!(code_only(source).lines().nth(2), Some("      d"));
    }

    #[test]
    fn a_word_is_not_a_part_of_a_word() {
        assert!(contains_word("an unsafe block", "unsafe"));
        assert!(!contains_word("#![forbid(unsafe_code)]", "unsafe"));
        assert!(contains_word("unsafe_code, unsafe", "unsafe"));
    }
}
