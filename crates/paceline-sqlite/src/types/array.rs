//! Arrays: PostgreSQL's text `{1,NULL,"a b"}` is what SQLite keeps; clients may send and get binary.

use rusqlite::types::{Value, ValueRef};

use super::{encode, parameter, Declared, Type};
use crate::failure::Failure;

/// PostgreSQL's own limit of dimensions.
const MOST_DIMENSIONS: usize = 6;

/// An array of texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Array {
    /// The length of each dimension; none for an empty array.
    dimensions: Vec<usize>,
    elements: Vec<Option<String>>,
}

/// The text of an array of these texts.
pub(crate) fn of_texts(elements: Vec<Option<String>>) -> String {
    let array = Array {
        dimensions: vec![elements.len()],
        elements,
    };
    array.to_text()
}

/// The text of an array in its normal form, with elements in the normal form of their type.
pub(super) fn normal(element: Type, text: &str) -> Result<String, Failure> {
    let mut array = read(text).ok_or_else(|| malformed(text))?;
    for text in array.elements.iter_mut().flatten() {
        *text = normal_element(element, text)?;
    }
    Ok(array.to_text())
}

fn normal_element(kind: Type, text: &str) -> Result<String, Failure> {
    let value = parameter::of_text(kind, text)?;
    let mut output = Vec::new();
    encode::encode(
        ValueRef::from(&value),
        Declared::plain(kind),
        false,
        &mut output,
    )?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// The text of an array that a client has sent in binary.
pub(super) fn of_binary(element: Type, bytes: &[u8]) -> Result<String, Failure> {
    let mut fields = Fields(bytes);
    let dimensions = fields.number().filter(|count| *count <= MOST_DIMENSIONS);
    let dimensions = dimensions.ok_or_else(parameter::wrong_length)?;
    let (_has_nulls, kind) = (fields.number(), fields.number());
    if kind != Some(element.0 as usize) {
        return Err(Failure::new("42804", "wrong element type of an array"));
    }
    let mut array = Array::default();
    for _ in 0..dimensions {
        let length = fields.number().ok_or_else(parameter::wrong_length)?;
        let _lower_bound = fields.number();
        array.dimensions.push(length);
    }
    let count = array.count().ok_or_else(parameter::wrong_length)?;
    for _ in 0..count {
        let text = match fields.value()? {
            Some(bytes) => Some(text_of(element, &parameter::of_binary(element, bytes)?)?),
            None => None,
        };
        array.elements.push(text);
    }
    if !fields.0.is_empty() {
        return Err(parameter::wrong_length());
    }
    Ok(array.to_text())
}

fn text_of(kind: Type, value: &Value) -> Result<String, Failure> {
    let mut output = Vec::new();
    encode::encode(
        ValueRef::from(value),
        Declared::plain(kind),
        false,
        &mut output,
    )?;
    Ok(String::from_utf8_lossy(&output).into_owned())
}

/// Appends the binary form of the text of an array.
pub(super) fn to_binary(element: Type, text: &str, output: &mut Vec<u8>) -> Result<(), Failure> {
    let array = read(text).ok_or_else(|| malformed(text))?;
    let has_nulls = array.elements.iter().any(Option::is_none);
    push(output, array.dimensions.len());
    push(output, usize::from(has_nulls));
    push(output, element.0 as usize);
    for length in &array.dimensions {
        push(output, *length);
        push(output, 1);
    }
    for text in &array.elements {
        let Some(text) = text else {
            output.extend_from_slice(&(-1_i32).to_be_bytes());
            continue;
        };
        let value = parameter::of_text(element, text)?;
        let at = output.len();
        push(output, 0);
        encode::encode(
            ValueRef::from(&value),
            Declared::plain(element),
            true,
            output,
        )?;
        let length = (output.len() - at - 4) as u32;
        output[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

fn push(output: &mut Vec<u8>, number: usize) {
    output.extend_from_slice(&(number as u32).to_be_bytes());
}

fn malformed(text: &str) -> Failure {
    Failure::new("22P02", format!("malformed array literal: \"{text}\""))
}

/// The bytes that are still to be read.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn number(&mut self) -> Option<usize> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number) as usize)
    }

    /// A value with its length before it; `None` is NULL.
    fn value(&mut self) -> Result<Option<&'b [u8]>, Failure> {
        let length = self.number().ok_or_else(parameter::wrong_length)?;
        if length == u32::MAX as usize {
            return Ok(None);
        }
        let value = self.0.get(..length).ok_or_else(parameter::wrong_length)?;
        self.0 = &self.0[length..];
        Ok(Some(value))
    }
}

impl Array {
    /// How many elements the dimensions hold; `None` if there are too many.
    fn count(&self) -> Option<usize> {
        if self.dimensions.is_empty() {
            return Some(0);
        }
        let product = self
            .dimensions
            .iter()
            .try_fold(1_usize, |product, length| product.checked_mul(*length));
        product.filter(|count| *count <= 1 << 27)
    }

    fn to_text(&self) -> String {
        if self.elements.is_empty() {
            return "{}".to_owned();
        }
        let mut text = String::new();
        self.append(0, &mut self.elements.iter(), &mut text);
        text
    }

    fn append(
        &self,
        depth: usize,
        elements: &mut std::slice::Iter<'_, Option<String>>,
        text: &mut String,
    ) {
        text.push('{');
        for index in 0..self.dimensions[depth] {
            if index > 0 {
                text.push(',');
            }
            if depth + 1 < self.dimensions.len() {
                self.append(depth + 1, elements, text);
            } else {
                append_element(elements.next().and_then(Option::as_deref), text);
            }
        }
        text.push('}');
    }
}

fn append_element(element: Option<&str>, text: &mut String) {
    let Some(element) = element else {
        text.push_str("NULL");
        return;
    };
    let is_special = |char: char| "{},\"\\".contains(char) || char.is_ascii_whitespace();
    let is_plain = !element.is_empty()
        && !element.eq_ignore_ascii_case("null")
        && !element.contains(is_special);
    if is_plain {
        text.push_str(element);
        return;
    }
    text.push('"');
    for char in element.chars() {
        if matches!(char, '"' | '\\') {
            text.push('\\');
        }
        text.push(char);
    }
    text.push('"');
}

/// Reads the text of an array; `None` if it is none.
fn read(text: &str) -> Option<Array> {
    let mut reader = Reader {
        rest: text.trim(),
        array: Array::default(),
    };
    reader.level(0)?;
    reader.rest.is_empty().then_some(reader.array)
}

struct Reader<'t> {
    rest: &'t str,
    array: Array,
}

impl Reader<'_> {
    /// Reads `{..}` at this depth. All arrays of a depth have the same length.
    fn level(&mut self, depth: usize) -> Option<()> {
        self.take('{').filter(|()| depth < MOST_DIMENSIONS)?;
        if self.take('}').is_some() {
            // Only a whole array may be empty.
            return (depth == 0).then_some(());
        }
        let is_first = self.array.dimensions.len() == depth;
        if is_first {
            self.array.dimensions.push(0);
        }
        let mut length = 0;
        loop {
            let is_leaf = length > 0 && self.array.dimensions.len() == depth + 1;
            if self.rest.starts_with('{') && !is_leaf {
                self.level(depth + 1)?;
            } else if self.array.dimensions.len() == depth + 1 {
                self.element()?;
            } else {
                return None;
            }
            length += 1;
            if self.take(',').is_none() {
                break;
            }
        }
        self.take('}')?;
        if is_first {
            self.array.dimensions[depth] = length;
        }
        (self.array.dimensions[depth] == length).then_some(())
    }

    fn element(&mut self) -> Option<()> {
        let (mut value, mut is_quoted) = (String::new(), false);
        let mut chars = self.rest.char_indices();
        let mut end = None;
        let mut was_quoted = false;
        while let Some((at, char)) = chars.next() {
            match char {
                '\\' => value.push(chars.next()?.1),
                '"' => {
                    is_quoted = !is_quoted;
                    was_quoted = true;
                }
                ',' | '}' if !is_quoted => {
                    end = Some(at);
                    break;
                }
                '{' if !is_quoted => return None,
                other => value.push(other),
            }
        }
        self.rest = self.rest[end?..].trim_start();
        let element = if was_quoted {
            Some(value)
        } else {
            let value = value.trim();
            if value.is_empty() {
                return None;
            }
            (!value.eq_ignore_ascii_case("null")).then(|| value.to_owned())
        };
        self.array.elements.push(element);
        Some(())
    }

    fn take(&mut self, char: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(char)?.trim_start();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_a_normal_form() {
        for (text, normal_text) in [
            ("{}", "{}"),
            (" { 1 , 2,NULL } ", "{1,2,NULL}"),
            ("{{1,2},{3,4}}", "{{1,2},{3,4}}"),
        ] {
            assert_eq!(normal(Type::INT4, text).ok().as_deref(), Some(normal_text));
        }
        let text = r#"{a,"b c","null","\"\\",""}"#;
        assert_eq!(normal(Type::TEXT, text).ok().as_deref(), Some(text));
        for bad in [
            "",
            "1",
            "{1",
            "{1}}",
            "{1,}",
            "{{1},{2,3}}",
            "{1,{2}}",
            "{{}}",
        ] {
            let code = normal(Type::INT4, bad).map_err(|failure| failure.code);
            assert_eq!(code, Err("22P02"), "{bad}");
        }
        let code = normal(Type::INT4, "{x}").map_err(|failure| failure.code);
        assert_eq!(code, Err("22P02"));
    }

    #[test]
    fn binary_is_read_as_it_was_written() {
        for (kind, text) in [
            (Type::INT4, "{1,-2,NULL}"),
            (Type::INT8, "{{1,2},{3,4}}"),
            (Type::TEXT, r#"{a,"b, c",""}"#),
            (Type::BOOL, "{t,f}"),
            (Type::NUMERIC, "{1.5}"),
            (Type::DATE, "{2024-02-29}"),
            (Type::TEXT, "{}"),
        ] {
            let mut bytes = Vec::new();
            to_binary(kind, text, &mut bytes).expect("an array");
            assert_eq!(of_binary(kind, &bytes).ok().as_deref(), Some(text));
            bytes.pop();
            assert!(of_binary(kind, &bytes).is_err(), "{text}");
        }
    }

    #[test]
    fn hostile_lengths_are_refused() {
        let mut bytes = Vec::new();
        push(&mut bytes, 2);
        push(&mut bytes, 0);
        push(&mut bytes, 23);
        for _ in 0..2 {
            push(&mut bytes, u32::MAX as usize);
            push(&mut bytes, 1);
        }
        assert!(of_binary(Type::INT4, &bytes).is_err());
    }
}
