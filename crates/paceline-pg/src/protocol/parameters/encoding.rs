//! The names of encodings, as a server spells them.

/// Each encoding as the server spells it, and its other names without their marks.
const ENCODINGS: [(&str, &[&str]); 42] = [
    ("SQL_ASCII", &["sqlascii"]),
    ("EUC_JP", &["eucjp"]),
    ("EUC_CN", &["euccn"]),
    ("EUC_KR", &["euckr"]),
    ("EUC_TW", &["euctw"]),
    ("EUC_JIS_2004", &["eucjis2004"]),
    ("UTF8", &["utf8", "unicode"]),
    ("MULE_INTERNAL", &["muleinternal"]),
    ("LATIN1", &["latin1", "iso88591"]),
    ("LATIN2", &["latin2", "iso88592"]),
    ("LATIN3", &["latin3", "iso88593"]),
    ("LATIN4", &["latin4", "iso88594"]),
    ("LATIN5", &["latin5", "iso88599"]),
    ("LATIN6", &["latin6", "iso885910"]),
    ("LATIN7", &["latin7", "iso885913"]),
    ("LATIN8", &["latin8", "iso885914"]),
    ("LATIN9", &["latin9", "iso885915"]),
    ("LATIN10", &["latin10", "iso885916"]),
    ("WIN1256", &["win1256", "windows1256"]),
    (
        "WIN1258",
        &["win1258", "windows1258", "abc", "tcvn", "tcvn5712", "vscii"],
    ),
    ("WIN866", &["win866", "windows866", "alt"]),
    ("WIN874", &["win874", "windows874"]),
    ("KOI8R", &["koi8r", "koi8"]),
    ("WIN1251", &["win1251", "windows1251", "win"]),
    ("WIN1252", &["win1252", "windows1252"]),
    ("ISO_8859_5", &["iso88595"]),
    ("ISO_8859_6", &["iso88596"]),
    ("ISO_8859_7", &["iso88597"]),
    ("ISO_8859_8", &["iso88598"]),
    ("WIN1250", &["win1250", "windows1250"]),
    ("WIN1253", &["win1253", "windows1253"]),
    ("WIN1254", &["win1254", "windows1254"]),
    ("WIN1255", &["win1255", "windows1255"]),
    ("WIN1257", &["win1257", "windows1257"]),
    ("KOI8U", &["koi8u"]),
    (
        "SJIS",
        &["sjis", "shiftjis", "mskanji", "win932", "windows932"],
    ),
    ("BIG5", &["big5", "win950", "windows950"]),
    ("GBK", &["gbk", "win936", "windows936"]),
    ("UHC", &["uhc", "win949", "windows949"]),
    ("GB18030", &["gb18030"]),
    ("JOHAB", &["johab"]),
    ("SHIFT_JIS_2004", &["shiftjis2004", "sjis2004"]),
];

/// The name of an encoding as a server spells it; `None` if no server knows it.
#[must_use]
pub fn canonical_encoding(name: &str) -> Option<&'static str> {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    let plain: String = letters.map(|letter| letter.to_ascii_lowercase()).collect();
    let found = ENCODINGS
        .iter()
        .find(|(_, names)| names.contains(&plain.as_str()));
    found.map(|(canonical, _)| *canonical)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A driver that asks for `utf8` checks that the welcome says `UTF8`.
    #[test]
    fn encoding_canonical() {
        for (name, canonical) in [
            ("utf8", Some("UTF8")),
            ("UTF-8", Some("UTF8")),
            ("unicode", Some("UTF8")),
            ("latin1", Some("LATIN1")),
            ("ISO-8859-1", Some("LATIN1")),
            ("iso_8859_5", Some("ISO_8859_5")),
            ("sql_ascii", Some("SQL_ASCII")),
            ("WINDOWS-1252", Some("WIN1252")),
            ("nonsense", None),
        ] {
            assert_eq!(canonical_encoding(name), canonical, "{name}");
        }
    }
}
