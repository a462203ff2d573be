//! A Markdown table whose columns stand under each other, so that it reads as text too.

/// On which side a column's cells stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Words.
    Left,
    /// Figures.
    Right,
}

/// A table, row by row.
#[derive(Debug)]
pub(super) struct Table {
    /// The side of each column.
    sides: Vec<Side>,
    /// The head, and the rows under it.
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with this head and no row.
    pub(super) fn new(head: &[(&str, Side)]) -> Table {
        Table {
            sides: head.iter().map(|(_, side)| *side).collect(),
            rows: vec![head.iter().map(|(name, _)| (*name).to_owned()).collect()],
        }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.sides.len(), "a row has a cell per column");
        self.rows.push(cells);
    }

    /// The table as text.
    pub(super) fn markdown(&self) -> String {
        let mut lines: Vec<String> = self.rows.iter().map(|row| self.line(row)).collect();
        lines.insert(1, self.rule());
        lines.concat()
    }

    /// A row as a line.
    fn line(&self, row: &[String]) -> String {
        let cells = row.iter().enumerate();
        let padded = cells.map(|(column, cell)| match self.sides[column] {
            Side::Left => format!("{cell:<width$}", width = self.width(column)),
            Side::Right => format!("{cell:>width$}", width = self.width(column)),
        });
        format!("| {} |\n", padded.collect::<Vec<_>>().join(" | "))
    }

    /// The line between head and rows.
    fn rule(&self) -> String {
        let sides = self.sides.iter().enumerate();
        let dashes = sides.map(|(column, side)| match side {
            Side::Left => "-".repeat(self.width(column)),
            Side::Right => "-".repeat(self.width(column) - 1) + ":",
        });
        format!("| {} |\n", dashes.collect::<Vec<_>>().join(" | "))
    }

    /// How wide a column is; a rule needs three places.
    fn width(&self, column: usize) -> usize {
        let widths = self.rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or(0).max(3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_stand_under_each_other() {
        let mut table = Table::new(&[("name", Side::Left), ("figure", Side::Right)]);
        table.row(vec!["a".to_owned(), "1234567".to_owned()]);
        table.row(vec!["longer".to_owned(), "1".to_owned()]);
        let expected = "\
| name   |  figure |
| ------ | ------: |
| a      | 1234567 |
| longer |       1 |
";
        assert_eq!(table.markdown(), expected);
    }
}
