//! A statement with its tokens, and questions about them.

use std::ops::Range;

use super::lex::{self, Kind, Token, Unterminated};
use crate::failure::Failure;

/// One statement, without the semicolon behind it.
#[derive(Clone, Debug)]
pub(crate) struct Source<'s> {
    sql: &'s str,
    tokens: Vec<Token>,
}

impl<'s> Source<'s> {
    /// The statements of a script. Empty ones are left out.
    pub(crate) fn split(sql: &'s str) -> Result<Vec<Self>, Failure> {
        let tokens = lex::tokens(sql).map_err(|error| unterminated(sql, error))?;
        let mut statements = Vec::new();
        let mut rest = tokens.as_slice();
        while !rest.is_empty() {
            let end = end_of_statement(sql, rest);
            let (tokens, behind) = rest.split_at(end);
            if !tokens.is_empty() {
                statements.push(Self::of(sql, tokens));
            }
            rest = behind.get(1..).unwrap_or_default();
        }
        Ok(statements)
    }

    /// The text from the first token to the last one, with tokens that count from its start.
    fn of(sql: &'s str, tokens: &[Token]) -> Self {
        let (start, end) = (tokens[0].at.start, tokens[tokens.len() - 1].at.end);
        let moved = tokens.iter().map(|token| Token {
            kind: token.kind,
            at: token.at.start - start..token.at.end - start,
        });
        Self {
            sql: &sql[start..end],
            tokens: moved.collect(),
        }
    }

    pub(crate) fn sql(&self) -> &'s str {
        self.sql
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(crate) fn kind(&self, index: usize) -> Option<Kind> {
        self.tokens.get(index).map(|token| token.kind)
    }

    /// The text of a token; empty behind the end.
    pub(crate) fn text(&self, index: usize) -> &'s str {
        self.tokens
            .get(index)
            .map_or("", |token| &self.sql[token.at.clone()])
    }

    pub(crate) fn range(&self, index: usize) -> Range<usize> {
        self.tokens[index].at.clone()
    }

    /// Whether this token is the word, in any case.
    pub(crate) fn is_word(&self, index: usize, word: &str) -> bool {
        self.kind(index) == Some(Kind::Word) && self.text(index).eq_ignore_ascii_case(word)
    }

    /// Whether these words follow one another from `index` on.
    pub(crate) fn are_words(&self, index: usize, words: &[&str]) -> bool {
        let mut words = words.iter().enumerate();
        words.all(|(offset, word)| self.is_word(index + offset, word))
    }

    /// Whether the token is one of the words.
    pub(crate) fn is_one_of(&self, index: usize, words: &[&str]) -> bool {
        words.iter().any(|word| self.is_word(index, word))
    }

    /// Whether the token is this mark or operator.
    pub(crate) fn is_mark(&self, index: usize, mark: &str) -> bool {
        matches!(self.kind(index), Some(Kind::Mark | Kind::Operator)) && self.text(index) == mark
    }

    /// The token behind the bracket that closes the one at `index`; the end if none does.
    pub(crate) fn behind_bracket(&self, index: usize) -> usize {
        let mut depth = 0_usize;
        for at in index..self.len() {
            if self.is_mark(at, "(") || self.is_mark(at, "[") {
                depth += 1;
            } else if self.is_mark(at, ")") || self.is_mark(at, "]") {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return at + 1;
                }
            }
        }
        self.len()
    }

    /// The bracket that the one at `index` closes.
    pub(crate) fn opening_bracket(&self, index: usize) -> Option<usize> {
        let mut depth = 0_usize;
        for at in (0..=index).rev() {
            if self.is_mark(at, ")") || self.is_mark(at, "]") {
                depth += 1;
            } else if self.is_mark(at, "(") || self.is_mark(at, "[") {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        None
    }

    /// The bracket that is open at a token.
    pub(crate) fn opening_bracket_of(&self, index: usize) -> Option<usize> {
        let mut at = index;
        while at > 0 {
            at -= 1;
            if self.is_mark(at, ")") || self.is_mark(at, "]") {
                at = self.opening_bracket(at)?;
            } else if self.is_mark(at, "(") {
                return Some(at);
            }
        }
        None
    }

    /// The name at `index`, which may have a schema before it, and the token behind it. Names
    /// without quotes are folded to lower case.
    pub(crate) fn name(&self, index: usize) -> Option<(String, usize)> {
        let name = self.bare_name(index)?;
        if self.is_mark(index + 1, ".") {
            if let Some(last) = self.bare_name(index + 2) {
                return Some((last, index + 3));
            }
        }
        Some((name, index + 1))
    }

    fn bare_name(&self, index: usize) -> Option<String> {
        let text = self.text(index);
        match self.kind(index)? {
            Kind::Word => Some(text.to_ascii_lowercase()),
            Kind::Quoted => Some(text[1..text.len() - 1].replace("\"\"", "\"")),
            _ => None,
        }
    }

    /// The names from `index` on that commas separate, and the token behind them.
    pub(crate) fn names(&self, index: usize) -> Option<(Vec<String>, usize)> {
        let (first, mut at) = self.name(index)?;
        let mut names = vec![first];
        while self.is_mark(at, ",") {
            let (name, behind) = self.name(at + 1)?;
            names.push(name);
            at = behind;
        }
        Some((names, at))
    }

    /// The value of the string at `index`.
    pub(crate) fn string(&self, index: usize) -> Option<String> {
        let text = self.text(index);
        match self.kind(index)? {
            Kind::Text if text.starts_with('\'') => {
                Some(text[1..text.len() - 1].replace("''", "'"))
            }
            Kind::Escaped => unescape(&text[2..text.len() - 1]),
            Kind::Dollar => {
                let tag = text[1..].find('$')? + 2;
                Some(text[tag..text.len() - tag].to_owned())
            }
            _ => None,
        }
    }

    /// A failure that points at a token, as PostgreSQL words it.
    pub(crate) fn syntax_error(&self, index: usize) -> Failure {
        if index < self.len() {
            let text = self.text(index);
            Failure::new("42601", format!("syntax error at or near \"{text}\""))
        } else {
            Failure::new("42601", "syntax error at end of input")
        }
    }
}

/// A name in quotes.
pub(crate) fn quote_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A string in quotes.
pub(crate) fn quote_text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// The index of the semicolon that ends the first statement. A trigger has semicolons of its own:
/// it ends behind `END`.
fn end_of_statement(sql: &str, tokens: &[Token]) -> usize {
    let is_word = |index: usize, word: &str| {
        tokens
            .get(index)
            .is_some_and(|token| sql[token.at.clone()].eq_ignore_ascii_case(word))
    };
    let is_trigger = is_word(0, "create") && (1..4).any(|index| is_word(index, "trigger"));
    let mut is_inside = false;
    for (index, token) in tokens.iter().enumerate() {
        is_inside |= is_trigger && is_word(index, "begin");
        let is_semicolon = token.kind == Kind::Mark && is_word(index, ";");
        if is_semicolon && (!is_inside || is_word(index.saturating_sub(1), "end")) {
            return index;
        }
    }
    tokens.len()
}

fn unterminated(sql: &str, error: Unterminated) -> Failure {
    let near: String = sql[error.at..].chars().take(40).collect();
    Failure::new(
        "42601",
        format!("unterminated {} at or near \"{near}\"", error.what),
    )
}

/// The value of a string with backslash escapes; `None` if an escape is wrong.
fn unescape(text: &str) -> Option<String> {
    let mut value = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\'' => {
                chars.next();
                value.push('\'');
            }
            '\\' => value.push(escape(&mut chars)?),
            other => value.push(other),
        }
    }
    Some(value)
}

fn escape(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<char> {
    Some(match chars.next()? {
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'x' => return number(chars, 16, 2, 0),
        'u' => return number(chars, 16, 4, 0),
        'U' => return number(chars, 16, 8, 0),
        digit @ '0'..='7' => return number(chars, 8, 2, digit.to_digit(8)?),
        other => other,
    })
}

/// The character of a number of at most so many further digits.
fn number(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    radix: u32,
    most: usize,
    first: u32,
) -> Option<char> {
    let mut number = first;
    for _ in 0..most {
        let Some(digit) = chars.peek().and_then(|char| char.to_digit(radix)) else {
            break;
        };
        number = number.checked_mul(radix)?.checked_add(digit)?;
        chars.next();
    }
    char::from_u32(number).filter(|char| *char != '\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_split_at_its_semicolons() {
        let script = "; select ';' ;; create trigger x after insert on t begin
            delete from u; select 1; end; select 2 -- ; the end";
        let statements = Source::split(script).expect("statements");
        assert_eq!(statements.len(), 3);
        assert_eq!(statements[0].sql(), "select ';'");
        assert!(statements[1].sql().ends_with("end"));
        assert_eq!(statements[2].sql(), "select 2");
    }

    #[test]
    fn strings_have_their_values() {
        let all = Source::split(r"'it''s' E'a\n\x41\101\'' $q$a'b$q$ '\n'").expect("tokens");
        let values: Vec<_> = (0..4).map(|index| all[0].string(index)).collect();
        let expected = ["it's", "a\nAA'", "a'b", "\\n"];
        assert_eq!(values, expected.map(|text| Some(text.to_owned())));
    }

    #[test]
    fn names_are_folded_unless_quoted() {
        let all = Source::split("Public.Tab, \"Tab\"\"x\", c").expect("tokens");
        let (names, behind) = all[0].names(0).expect("names");
        assert_eq!(names, ["tab", "Tab\"x", "c"]);
        assert_eq!(behind, all[0].len());
    }
}
