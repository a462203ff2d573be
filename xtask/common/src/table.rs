//! Tables on the terminal.

/// Prints a heading and rows, with their columns aligned.
pub fn print<const N: usize>(heading: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let heading = std::iter::once(heading.map(str::to_owned));
    let rows: Vec<_> = heading.chain(rows).collect();
    let widths = widths(&rows);
    for row in &rows {
        println!("{}", aligned(row, &widths));
    }
}

/// The widest cell of each column.
fn widths<const N: usize>(rows: &[[String; N]]) -> [usize; N] {
    std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    })
}

/// One row, each cell as wide as its column.
fn aligned<const N: usize>(row: &[String; N], widths: &[usize; N]) -> String {
    let cells: Vec<_> = row
        .iter()
        .zip(widths)
        .map(|(cell, width)| format!("{cell:<width$}"))
        .collect();
    cells.join(" | ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "bcd", "e"], ["fgh", "i", ""]].map(|row| row.map(str::to_owned));
        let widths = widths(&rows);
        assert_eq!(aligned(&rows[0], &widths), "a   | bcd | e");
        assert_eq!(aligned(&rows[1], &widths), "fgh | i   |");
    }
}
