//! Text that a user chose, within a line that people read.

use std::borrow::Cow;

/// The text without what would end the line, move a terminal's cursor, or turn the order of the rest: such a character
/// is told as Rust writes it, `\n` or `\u{1b}`. What was shown once may be shown again: it stays as it is.
pub fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(is_told) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        match is_told(char) {
            true => line.extend(char.escape_default()),
            false => line.push(char),
        }
    }
    Cow::Owned(line)
}

/// Control characters, ends of lines and paragraphs, and what turns the direction of writing.
fn is_told(char: char) -> bool {
    char.is_control()
        || matches!(char, '\u{2028}' | '\u{2029}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn a_name_made_lines_of_its_own_and_moved_the_cursor() {
        let name = "t\nEVIL task:9-9 \u{1b}[2Jz\u{202e}\u{9b}\0\t";
        let told = r"t\nEVIL task:9-9 \u{1b}[2Jz\u{202e}\u{9b}\u{0}\t";
        assert_eq!(shown(name), told);
        assert_eq!(shown(told), told, "once is enough");
    }

    #[test]
    fn what_is_no_control_character_stays_as_it_is() {
        let name = r#"tâche "à" 名前 C:\new 🚀"#;
        assert_eq!(shown(name), name);
    }
}
