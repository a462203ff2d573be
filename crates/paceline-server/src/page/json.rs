//! JSON text, as much of it as a report needs. Names come from the application and its peers: a
//! string is escaped so that it is safe in any place of a page too.

use std::fmt::Write;

/// Appends objects and arrays to a text, with commas where they belong.
#[derive(Debug, Default)]
pub(super) struct Json {
    text: String,
    needs_comma: bool,
}

impl Json {
    pub(super) fn into_text(self) -> String {
        self.text
    }

    fn begin_value(&mut self) {
        if self.needs_comma {
            self.text.push(',');
        }
        self.needs_comma = true;
    }

    /// The key of the next value.
    fn key(&mut self, key: &str) {
        self.string(key);
        self.text.push(':');
        self.needs_comma = false;
    }

    pub(super) fn string(&mut self, value: &str) {
        self.begin_value();
        self.text.push('"');
        for character in value.chars() {
            match character {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '<' | '>' | '&' | '\'' | '\u{2028}' | '\u{2029}' | '\0'..='\x1f' | '\x7f' => {
                    // Writing to a string does not fail.
                    let _ = write!(self.text, "\\u{:04x}", u32::from(character));
                }
                other => self.text.push(other),
            }
        }
        self.text.push('"');
    }

    pub(super) fn number(&mut self, value: u64) {
        self.begin_value();
        let _ = write!(self.text, "{value}");
    }

    fn literal(&mut self, value: &str) {
        self.begin_value();
        self.text.push_str(value);
    }

    pub(super) fn object(&mut self, fill: impl FnOnce(&mut Self)) {
        self.nested('{', '}', fill);
    }

    pub(super) fn array(&mut self, fill: impl FnOnce(&mut Self)) {
        self.nested('[', ']', fill);
    }

    fn nested(&mut self, begin: char, end: char, fill: impl FnOnce(&mut Self)) {
        self.begin_value();
        self.text.push(begin);
        self.needs_comma = false;
        fill(self);
        self.text.push(end);
        self.needs_comma = true;
    }

    pub(super) fn string_field(&mut self, key: &str, value: &str) {
        self.key(key);
        self.string(value);
    }

    pub(super) fn number_field(&mut self, key: &str, value: u64) {
        self.key(key);
        self.number(value);
    }

    /// `None` is `null`.
    pub(super) fn option_field(&mut self, key: &str, value: Option<u64>) {
        self.key(key);
        match value {
            Some(value) => self.number(value),
            None => self.literal("null"),
        }
    }

    pub(super) fn bool_field(&mut self, key: &str, value: bool) {
        self.key(key);
        self.literal(if value { "true" } else { "false" });
    }

    pub(super) fn object_field(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.key(key);
        self.object(fill);
    }

    pub(super) fn array_field(&mut self, key: &str, fill: impl FnOnce(&mut Self)) {
        self.key(key);
        self.array(fill);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_are_where_they_belong() {
        let mut json = Json::default();
        json.object(|json| {
            json.string_field("a", "x");
            json.array_field("b", |json| {
                json.number(1);
                json.array(|_| {});
                json.object(|json| json.bool_field("c", true));
            });
            json.option_field("d", None);
        });
        let expected = r#"{"a":"x","b":[1,[],{"c":true}],"d":null}"#;
        assert_eq!(json.into_text(), expected);
    }

    /// A name can end neither its string nor a script that it is put into, and begins no element.
    #[test]
    fn page_escapes_names() {
        let mut json = Json::default();
        json.string("</script><b>\"\\\n\r\0&'\u{2028}é");
        let expected =
            r#""\u003c/script\u003e\u003cb\u003e\"\\\u000a\u000d\u0000\u0026\u0027\u2028é""#;
        assert_eq!(json.into_text(), expected);
    }
}
