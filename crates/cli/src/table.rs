//! Tables for people: columns as wide as their widest cell.

use std::io::{self, Write};

use hoplo_base::shown;

/// A column that is wider than this is cut, but for the last one.
const CELL_CHARS_MAX: usize = 60;

pub(crate) fn print(heads: &[&str], rows: &[Vec<String>]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(render(heads, rows).as_bytes())?;
    out.flush()
}

fn render(heads: &[&str], rows: &[Vec<String>]) -> String {
    let heads: Vec<String> = heads.iter().map(|head| head.to_uppercase()).collect();
    let last = heads.len() - 1;
    let cut = |at: usize, cell: &str| -> String {
        if at == last {
            // Reasons, which may have several lines.
            return match cell.split_once('\n') {
                Some((first, _)) => format!("{} …", shown(first)),
                None => shown(cell).into_owned(),
            };
        }
        let line = shown(cell);
        if line.chars().count() <= CELL_CHARS_MAX {
            return line.into_owned();
        }
        line.chars().take(CELL_CHARS_MAX - 1).chain(['…']).collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(&heads)
        .chain(rows)
        .map(|row| row.iter().enumerate().map(|(at, cell)| cut(at, cell)).collect())
        .collect();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| {
            let pad = width - cell.chars().count();
            format!("{cell}{}", " ".repeat(pad))
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::render;

    #[test]
    fn columns_line_up_and_long_cells_are_cut() {
        let rows = vec![
            vec!["1".to_string(), "é".to_string(), "x".repeat(100)],
            vec!["22".to_string(), "y".repeat(100), "a\nb".to_string()],
            vec!["3".to_string(), "t\nEVIL\x1b[2J".to_string(), "c\x07".to_string()],
        ];
        let text = render(&["id", "name", "why"], &rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("ID  NAME") && lines[0].ends_with("WHY"));
        assert_eq!(lines[1].find('x'), lines[1].find("é").map(|at| at + 60 + 2 + 1));
        assert!(lines[2].contains('…') && lines[2].ends_with("  a …"));
        assert!(lines[3].contains(r"  t\nEVIL\u{1b}[2J ") && lines[3].ends_with(r"  c\u{7}"));
        assert_eq!(lines.len(), 4);
    }
}
