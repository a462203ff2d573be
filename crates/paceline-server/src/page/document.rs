//! The page itself: one document with its script and its style, which alone may run.

use super::http::{Answer, HTML};

/// The document. Nothing is put into it: names come with the reports, as data.
const DOCUMENT: &str = include_str!("page.html");

/// The fields that go with it. The hashes are those of the script and the style in the document.
const FIELDS: &str = concat!(
    "content-security-policy: default-src 'none'; connect-src 'self'; img-src data:; ",
    "script-src 'sha256-qcn0Nr7JdUqwekaSrmVBAxJE2UWR0Ud04tgN/rvI5rw='; ",
    "style-src 'sha256-JI8f/HrqRyteRKToEeFKCh+7zw447X6zj1fmHTSf6SA='; ",
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n",
    "referrer-policy: no-referrer\r\n",
);

pub(super) fn answer() -> Answer<'static> {
    Answer {
        status: "200 OK",
        kind: HTML,
        fields: FIELDS,
        body: DOCUMENT,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::base64;
    use sha2::{Digest, Sha256};

    fn hash_of(element: &str) -> String {
        let (begin, end) = (format!("<{element}>"), format!("</{element}>"));
        let (_, behind) = DOCUMENT.split_once(&begin).expect("it is in the document");
        let (text, rest) = behind.split_once(&end).expect("it ends");
        assert!(!rest.contains(&begin), "there is one {element}");
        format!("'sha256-{}'", base64(&Sha256::digest(text)))
    }

    /// The browser runs the script and uses the style only if these hashes are right.
    #[test]
    fn the_policy_names_the_script_and_the_style() {
        for element in ["script", "style"] {
            let hash = hash_of(element);
            let allowed = format!("{element}-src {hash};");
            assert!(FIELDS.contains(&allowed), "FIELDS must have: {allowed}");
        }
    }

    /// One small document, which loads nothing else.
    #[test]
    fn the_document_is_small_and_whole() {
        assert!(DOCUMENT.len() <= 40 * 1024, "{} bytes", DOCUMENT.len());
        for outside in [
            "http://",
            "https://",
            "src=",
            "@import",
            "innerHTML",
            "eval(",
        ] {
            assert!(!DOCUMENT.contains(outside), "{outside}");
        }
    }
}
