//! Calls that PostgreSQL spells with words, and functions with another name in SQLite.

use super::Pass;

impl Pass<'_, '_> {
    /// The call whose name is at `at` and whose bracket follows.
    pub(super) fn call(&mut self, at: usize, word: &str) -> Option<usize> {
        match word {
            "extract" => self.extract(at),
            "position" => self.position(at),
            "substring" => self.substring(at),
            "bool_and" | "every" => self.put(at, at + 1, "min"),
            "bool_or" => self.put(at, at + 1, "max"),
            "json_agg" | "jsonb_agg" => self.put(at, at + 1, "json_group_array"),
            "json_build_object" | "jsonb_build_object" => self.put(at, at + 1, "json_object"),
            "json_build_array" | "jsonb_build_array" => self.put(at, at + 1, "json_array"),
            "jsonb_array_length" => self.put(at, at + 1, "json_array_length"),
            "jsonb_typeof" | "json_typeof" => self.put(at, at + 1, "json_type"),
            "to_json" | "to_jsonb" => self.put(at, at + 1, "json_quote"),
            _ => None,
        }
    }

    /// `extract(year FROM x)`
    fn extract(&mut self, at: usize) -> Option<usize> {
        if !self.source.is_word(at + 3, "from") {
            return None;
        }
        let field = self.source.string(at + 2);
        let field = field.unwrap_or_else(|| self.source.text(at + 2).to_ascii_lowercase());
        self.put(
            at,
            at + 4,
            &format!("pg_extract('{}', ", field.replace('\'', "''")),
        )
    }

    /// `position(x IN y)`
    fn position(&mut self, at: usize) -> Option<usize> {
        let found = self.inside(at, &["in"])?;
        self.commas.push(found);
        self.put(at, at + 1, "pg_position")
    }

    /// `substring(x FROM 2 FOR 3)`
    fn substring(&mut self, at: usize) -> Option<usize> {
        let from = self.inside(at, &["from"]);
        self.commas.extend(from);
        self.commas.extend(self.inside(at, &["for"]));
        self.put(at, at + 1, "substr")
    }

    /// The word within the call at `at`, and within no brackets of its arguments.
    fn inside(&self, at: usize, words: &[&str]) -> Option<usize> {
        let behind = self.source.behind_bracket(at + 1);
        let mut index = at + 2;
        while index < behind {
            if self.source.is_mark(index, "(") {
                index = self.source.behind_bracket(index);
                continue;
            }
            if self.source.is_one_of(index, words) {
                return Some(index);
            }
            index += 1;
        }
        None
    }

    /// Writes a comma in place of a word that separates arguments.
    pub(super) fn comma(&mut self, at: usize) -> Option<usize> {
        let is_comma = self.commas.contains(&at);
        is_comma.then(|| self.put(at, at + 1, ","))?
    }
}
