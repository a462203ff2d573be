//! Questions about the catalogue: functions and arrays that become subqueries.

use super::Pass;

impl Pass<'_, '_> {
    /// `ARRAY(SELECT ..)`, which only questions about the catalogue have: the first row replaces
    /// the array, and options of tables do not exist.
    pub(super) fn array_of_rows(&mut self, at: usize) -> Option<usize> {
        let behind = self.source.behind_bracket(at + 1);
        if (at..behind).any(|index| self.source.is_word(index, "unnest")) {
            return self.put(at, behind, "NULL");
        }
        self.put(at, at + 1, "")
    }

    /// `pg_get_indexdef(oid, ..)`: what a view of the catalogue says of this number.
    pub(super) fn definition(&mut self, at: usize, view: &str, column: &str) -> Option<usize> {
        let open = at + 1;
        if !self.source.is_mark(open, "(") {
            return None;
        }
        let behind = self.source.behind_bracket(open);
        let mut end = open + 1;
        while end < behind - 1 && !self.source.is_mark(end, ",") {
            let is_open = self.source.is_mark(end, "(");
            end = if is_open {
                self.source.behind_bracket(end)
            } else {
                end + 1
            };
        }
        let before = format!("(SELECT p.{column} FROM {view} p WHERE p.oid = ");
        self.put(at, open + 1, &before);
        let mut next = open + 1;
        while next < end {
            next = self.step(next);
        }
        self.output.push(')');
        for index in end..behind {
            self.primaries[index] = at;
        }
        self.copied = self.source.range(behind - 1).end;
        Some(behind)
    }
}
