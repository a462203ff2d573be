//! The tokens of SQL, as PostgreSQL writes it.
//!
//! A token is a range of the text. Comments and white space are no tokens: what is between two
//! tokens is copied as it is.

use std::ops::Range;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A keyword or a name without quotes.
    Word,
    /// A name in double quotes.
    Quoted,
    /// A string in single quotes.
    Text,
    /// A string with backslash escapes: `E'..'`.
    Escaped,
    /// A string between dollar signs: `$tag$..$tag$`.
    Dollar,
    /// A number.
    Number,
    /// A parameter: `$1`.
    Parameter,
    /// An operator of one or more characters.
    Operator,
    /// One of `( ) [ ] , ; .`
    Mark,
}

/// A token: its kind, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) at: Range<usize>,
}

/// Why a text has no tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unterminated {
    /// What has no end.
    pub(crate) what: &'static str,
    /// Where it begins.
    pub(crate) at: usize,
}

/// The tokens of a text.
pub(crate) fn tokens(sql: &str) -> Result<Vec<Token>, Unterminated> {
    let mut lexer = Lexer {
        bytes: sql.as_bytes(),
        at: 0,
    };
    let mut tokens = Vec::with_capacity(sql.len() / 5 + 1);
    while let Some(token) = lexer.next()? {
        tokens.push(token);
    }
    Ok(tokens)
}

struct Lexer<'s> {
    bytes: &'s [u8],
    at: usize,
}

const OPERATORS: &[u8] = b"+-*/<>=~!@#%^&|`?";

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    fn next(&mut self) -> Result<Option<Token>, Unterminated> {
        self.skip_space()?;
        let start = self.at;
        if start == self.bytes.len() {
            return Ok(None);
        }
        let kind = self.token()?;
        Ok(Some(Token {
            kind,
            at: start..self.at,
        }))
    }

    fn skip_space(&mut self) -> Result<(), Unterminated> {
        loop {
            match self.peek(0) {
                b'-' if self.peek(1) == b'-' => self.take_while(|byte| byte != b'\n'),
                b'/' if self.peek(1) == b'*' => self.skip_comment()?,
                byte if byte.is_ascii_whitespace() || byte == 0x0b => self.at += 1,
                _ => return Ok(()),
            }
        }
    }

    /// Comments nest, as PostgreSQL's do.
    fn skip_comment(&mut self) -> Result<(), Unterminated> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match (self.peek(0), self.peek(1)) {
                (b'/', b'*') => {
                    depth += 1;
                    self.at += 2;
                }
                (b'*', b'/') => {
                    depth -= 1;
                    self.at += 2;
                    if depth == 0 {
                        return Ok(());
                    }
                }
                _ if self.at >= self.bytes.len() => {
                    self.at = self.bytes.len();
                    return Err(Unterminated {
                        what: "/* comment",
                        at: start,
                    });
                }
                _ => self.at += 1,
            }
        }
    }

    fn token(&mut self) -> Result<Kind, Unterminated> {
        let start = self.at;
        match self.peek(0) {
            b'\'' => self
                .quoted(b'\'', false, "quoted string")
                .map(|()| Kind::Text),
            b'"' => self
                .quoted(b'"', false, "quoted identifier")
                .map(|()| Kind::Quoted),
            b'e' | b'E' if self.peek(1) == b'\'' => {
                self.at += 1;
                self.quoted(b'\'', true, "quoted string")
                    .map(|()| Kind::Escaped)
            }
            b'x' | b'X' if self.peek(1) == b'\'' => {
                self.at += 1;
                self.quoted(b'\'', false, "bit string").map(|()| Kind::Text)
            }
            b'$' if self.peek(1).is_ascii_digit() => {
                self.at += 1;
                self.take_while(|byte| byte.is_ascii_digit());
                Ok(Kind::Parameter)
            }
            b'$' => self.dollar(start),
            byte if byte.is_ascii_digit() || byte == b'.' && self.peek(1).is_ascii_digit() => {
                self.number();
                Ok(Kind::Number)
            }
            byte if is_word_start(byte) => {
                self.take_while(is_word);
                Ok(Kind::Word)
            }
            b':' if self.peek(1) == b':' || self.peek(1) == b'=' => {
                self.at += 2;
                Ok(Kind::Operator)
            }
            byte if OPERATORS.contains(&byte) => {
                self.operator();
                Ok(Kind::Operator)
            }
            _ => {
                self.at += 1;
                Ok(Kind::Mark)
            }
        }
    }

    /// Ends before the start of a comment; `+` and `-` end an operator that is no name of its own.
    fn operator(&mut self) {
        let start = self.at;
        while OPERATORS.contains(&self.peek(0)) && self.at < self.bytes.len() {
            let comment = matches!((self.peek(0), self.peek(1)), (b'-', b'-') | (b'/', b'*'));
            if comment && self.at > start {
                break;
            }
            self.at += 1;
        }
        let text = &self.bytes[start..self.at];
        let may_end_in_sign = text.iter().any(|byte| b"~!@#%^&|`?".contains(byte));
        if text.len() > 1 && !may_end_in_sign {
            let signs = text.iter().rev();
            let signs = signs.take_while(|byte| b"+-".contains(byte)).count();
            // `->` and `->>` end in no sign: they stay whole.
            self.at -= signs.min(text.len() - 1);
        }
    }

    fn quoted(&mut self, quote: u8, escapes: bool, what: &'static str) -> Result<(), Unterminated> {
        let start = self.at;
        self.at += 1;
        loop {
            if self.at >= self.bytes.len() {
                self.at = self.bytes.len();
                return Err(Unterminated { what, at: start });
            }
            match self.peek(0) {
                b'\\' if escapes => self.at += 2,
                byte if byte == quote && self.peek(1) == quote => self.at += 2,
                byte if byte == quote => {
                    self.at += 1;
                    return Ok(());
                }
                _ => self.at += 1,
            }
        }
    }

    fn dollar(&mut self, start: usize) -> Result<Kind, Unterminated> {
        self.at += 1;
        self.take_while(is_word);
        if self.peek(0) != b'$' {
            self.at = start + 1;
            return Ok(Kind::Mark);
        }
        self.at += 1;
        let tag = &self.bytes[start..self.at];
        let rest = &self.bytes[self.at..];
        let end = rest.windows(tag.len()).position(|window| window == tag);
        let Some(end) = end else {
            self.at = self.bytes.len();
            return Err(Unterminated {
                what: "dollar-quoted string",
                at: start,
            });
        };
        self.at += end + tag.len();
        Ok(Kind::Dollar)
    }

    fn number(&mut self) {
        if self.peek(0) == b'0' && matches!(self.peek(1), b'x' | b'X') {
            self.at += 2;
            return self.take_while(|byte| byte.is_ascii_hexdigit());
        }
        self.take_while(|byte| byte.is_ascii_digit() || byte == b'.');
        let sign = usize::from(matches!(self.peek(1), b'+' | b'-'));
        if matches!(self.peek(0), b'e' | b'E') && self.peek(1 + sign).is_ascii_digit() {
            self.at += 1 + sign;
            self.take_while(|byte| byte.is_ascii_digit());
        }
    }

    fn take_while(&mut self, keep: impl Fn(u8) -> bool) {
        let rest = &self.bytes[self.at..];
        self.at += rest.iter().take_while(|byte| keep(**byte)).count();
    }
}

fn is_word_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_' || byte >= 0x80
}

fn is_word(byte: u8) -> bool {
    is_word_start(byte) || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(sql: &str) -> Vec<&str> {
        let tokens = tokens(sql).expect("tokens");
        tokens.into_iter().map(|token| &sql[token.at]).collect()
    }

    #[test]
    fn strings_and_comments_hide_what_is_in_them() {
        assert_eq!(
            texts("a /* ; /* $1 */ */ 'it''s $1' -- ::int\n b"),
            ["a", "'it''s $1'", "b"]
        );
        assert_eq!(
            texts(r"E'a\'$1' $$ ; $$ $x$ $$ $x$ "),
            [r"E'a\'$1'", "$$ ; $$", "$x$ $$ $x$"]
        );
    }

    #[test]
    fn operators_end_where_postgresql_ends_them() {
        assert_eq!(texts("a=-1"), ["a", "=", "-", "1"]);
        assert_eq!(texts("a<>$1::int"), ["a", "<>", "$1", "::", "int"]);
        assert_eq!(texts("x->>'k' !~ y"), ["x", "->>", "'k'", "!~", "y"]);
        assert_eq!(texts("1.5e-3+.5"), ["1.5e-3", "+", ".5"]);
    }

    #[test]
    fn what_has_no_end_is_an_error() {
        for bad in ["'a", "\"a", "/* a", "$$ a", "E'\\'"] {
            assert!(tokens(bad).is_err(), "{bad}");
        }
    }
}
