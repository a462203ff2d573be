//! The first keyword of a statement: whether it can commit, and whether the front-end answers it.

/// The possible effect of a statement on a transaction. Ordered: the worst of several counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// It opens a block: outside of one it changes nothing.
    Opens,
    /// It can't commit the block that it runs in.
    Inside,
    /// As `Inside`, but it may make the server forget prepared statements.
    Forgets,
    /// It can commit.
    MayCommit,
    /// Several statements, or an unknown one.
    Several,
}

impl Class {
    /// Whether it may make the server forget prepared statements.
    pub(crate) fn may_forget(self) -> bool {
        matches!(self, Self::Forgets | Self::Several)
    }
}

/// The keywords of statements that can commit a block, or that call what can.
const COMMITTING: [&[u8]; 5] = [b"COMMIT", b"END", b"PREPARE", b"CALL", b"DO"];

/// The keywords that open a block.
const OPENING: [&[u8]; 2] = [b"BEGIN", b"START"];

/// The keywords of statements that can make the server forget prepared statements.
const FORGETTING: [&[u8]; 2] = [b"DEALLOCATE", b"DISCARD"];

/// The keywords of statements that several clients may send on one connection.
const SHARED: [&[u8]; 5] = [b"SELECT", b"INSERT", b"UPDATE", b"DELETE", b"VALUES"];

/// Whether the text is one statement that begins with one of these keywords.
pub(crate) fn is_shareable(sql: &[u8]) -> bool {
    skip_blanks(sql).is_some_and(|rest| {
        let word = first_word(rest);
        let is_known = SHARED.iter().any(|each| word.eq_ignore_ascii_case(each));
        is_known && !has_several(rest)
    })
}

/// The class of this text. `is_whole` is false if more of it follows.
pub(crate) fn class(sql: &[u8], is_whole: bool) -> Class {
    let Some(rest) = skip_blanks(sql) else {
        return Class::Several;
    };
    let word = first_word(rest);
    let is_one_of = |words: &[&[u8]]| words.iter().any(|each| word.eq_ignore_ascii_case(each));
    if word.is_empty() || !is_whole || has_several(rest) {
        Class::Several
    } else if is_one_of(&COMMITTING) {
        Class::MayCommit
    } else if is_one_of(&FORGETTING) {
        Class::Forgets
    } else if is_one_of(&OPENING) {
        Class::Opens
    } else {
        Class::Inside
    }
}

/// The name in a text that is exactly `DEALLOCATE [PREPARE] name`, in its usual spelling.
pub(crate) fn deallocated(sql: &[u8]) -> Option<&[u8]> {
    let sql = sql.trim_ascii();
    let sql = sql.strip_suffix(b";").unwrap_or(sql).trim_ascii();
    let rest = after_word(sql, b"DEALLOCATE")?;
    let name = after_word(rest, b"PREPARE").unwrap_or(rest);
    if let Some(quoted) = name.strip_prefix(b"\"") {
        let inner = quoted.strip_suffix(b"\"")?;
        return (!inner.is_empty() && !inner.contains(&b'"')).then_some(inner);
    }
    // The server folds an unquoted name with capitals, so it answers such a text itself.
    let is_plain = |byte: &u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'$');
    let is_name = name.first().is_some_and(|first| !first.is_ascii_digit())
        && name.iter().all(is_plain)
        && name != b"all"
        && name != b"prepare";
    is_name.then_some(name)
}

/// What follows a keyword and blanks.
fn after_word<'s>(sql: &'s [u8], word: &[u8]) -> Option<&'s [u8]> {
    let (start, rest) = sql.split_at_checked(word.len())?;
    let is_word = start.eq_ignore_ascii_case(word) && rest.first()?.is_ascii_whitespace();
    is_word.then(|| rest.trim_ascii_start())
}

/// The text behind blanks and comments; `None` if a comment does not end.
fn skip_blanks(mut sql: &[u8]) -> Option<&[u8]> {
    loop {
        sql = sql.trim_ascii_start();
        if let Some(comment) = sql.strip_prefix(b"--") {
            let end = comment.iter().position(|byte| *byte == b'\n')?;
            sql = &comment[end..];
        } else if sql.starts_with(b"/*") {
            sql = skip_comment(sql)?;
        } else {
            return Some(sql);
        }
    }
}

/// The text behind a comment in `/*` and `*/`, which may hold others.
fn skip_comment(sql: &[u8]) -> Option<&[u8]> {
    let (mut depth, mut at) = (0_usize, 0);
    loop {
        match sql.get(at..at + 2)? {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(&sql[at..]);
        }
    }
}

fn first_word(sql: &[u8]) -> &[u8] {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let end = sql.iter().position(|byte| !is_letter(byte));
    &sql[..end.unwrap_or(sql.len())]
}

/// Whether anything follows a semicolon. One within a literal counts too: that errs towards doubt.
fn has_several(sql: &[u8]) -> bool {
    let end = sql.iter().position(|byte| *byte == b';');
    end.is_some_and(|end| {
        sql[end..]
            .iter()
            .any(|byte| *byte != b';' && !byte.is_ascii_whitespace())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A lost connection is reported as rolled back only if nothing in flight could commit.
    #[test]
    fn what_may_commit_is_known_by_its_first_keyword() {
        for (sql, expected) in [
            ("select 1", Class::Inside),
            (" \n-- note\n/* a /* b */ c */ Insert into t", Class::Inside),
            ("select 1;\n", Class::Inside),
            ("BEGIN", Class::Opens),
            ("start transaction;", Class::Opens),
            ("begin; select 1", Class::Several),
            ("discard all", Class::Forgets),
            ("Deallocate a", Class::Forgets),
            ("commit", Class::MayCommit),
            ("END;", Class::MayCommit),
            ("Prepare Transaction 'x'", Class::MayCommit),
            ("call f()", Class::MayCommit),
            ("do $$ $$", Class::MayCommit),
            ("select ';'", Class::Several),
            ("", Class::Several),
            ("/* open", Class::Several),
            ("-- open", Class::Several),
            ("(select 1)", Class::Several),
        ] {
            assert_eq!(class(sql.as_bytes(), true), expected, "{sql}");
        }
        assert_eq!(class(b"select 1", false), Class::Several);
    }

    #[test]
    fn only_a_plain_deallocate_is_recognised() {
        let name = |sql: &'static str| deallocated(sql.as_bytes());
        assert_eq!(name("DEALLOCATE _pg3_0"), Some(&b"_pg3_0"[..]));
        assert_eq!(name(" deallocate Prepare \"A b\" ;"), Some(&b"A b"[..]));
        for other in [
            "DEALLOCATE ALL",
            "deallocate all",
            "DEALLOCATE",
            "DEALLOCATE Name",
            "DEALLOCATE a b",
            "DEALLOCATE a; SELECT 1",
            "DEALLOCATE \"a\"\"b\"",
            "SELECT 1",
        ] {
            assert_eq!(name(other), None, "{other}");
        }
    }
}
