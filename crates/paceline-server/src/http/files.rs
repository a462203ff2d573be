//! Files of a folder, and nothing outside of it.

use std::{
    fs::File,
    io,
    path::{Component, Path, PathBuf},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::fs::{Mode, OFlags, ResolveFlags};

use super::{Content, Error, Request, Response, Result};

/// A folder whose files are served.
#[derive(Debug)]
pub(super) struct Folder {
    root: PathBuf,
}

/// A file that is to be served.
struct Found {
    file: File,
    length: u64,
    modified: Option<SystemTime>,
    encoding: Option<&'static str>,
}

/// The forms of a file that may be there beside it, the preferred one first.
const PRECOMPRESSED: [(&str, &str); 2] = [("br", ".br"), ("gzip", ".gz")];

impl Folder {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { root }
    }

    pub(super) fn serve(&self, request: &Request<'_>) -> Result<Response> {
        let path: String = request.param("path").map_err(|_| not_found())?;
        let path = harmless(&path).ok_or_else(not_found)?;
        let found = self.find(path, request)?;
        found.answer(path, request)
    }

    /// The file, or a compressed form of it that the client takes.
    fn find(&self, path: &Path, request: &Request<'_>) -> Result<Found> {
        let accepted = request.header("accept-encoding").unwrap_or_default();
        for (encoding, suffix) in PRECOMPRESSED {
            if accepts(accepted, encoding) {
                let mut name = path.as_os_str().to_owned();
                name.push(suffix);
                if let Some(found) = self.open(Path::new(&name), Some(encoding)) {
                    return Ok(found);
                }
            }
        }
        self.open(path, None).ok_or_else(not_found)
    }

    /// A regular file of the folder; whatever else is there is not found.
    fn open(&self, path: &Path, encoding: Option<&'static str>) -> Option<Found> {
        let file = open_beneath(&self.root, path).ok()?;
        let metadata = file.metadata().ok()?;
        metadata.is_file().then(|| Found {
            length: metadata.len(),
            modified: metadata.modified().ok(),
            file,
            encoding,
        })
    }
}

/// A path that names something below a folder by plain names alone.
fn harmless(path: &str) -> Option<&Path> {
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    let is_harmless = !path.is_empty()
        && !path.contains(['\0', '\\'])
        && !path.split('/').any(|part| matches!(part, "" | "." | ".."))
        && Path::new(path).components().all(is_plain);
    is_harmless.then(|| Path::new(path))
}

/// Opens a file below `root`. No link leads out of it; where the kernel can't see to that, no link
/// is followed at all.
fn open_beneath(root: &Path, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let folder = rustix::fs::open(
        root,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(&folder, path, flags, Mode::empty(), resolve) {
        Ok(file) => Ok(file.into()),
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => step_by_step(folder, path),
        Err(error) => Err(error.into()),
    }
}

/// Opens one part of the path after the other, none of them a link.
fn step_by_step(mut folder: std::os::fd::OwnedFd, path: &Path) -> io::Result<File> {
    let flags = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::NONBLOCK;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let kind = if parts.peek().is_some() {
            OFlags::PATH | OFlags::DIRECTORY
        } else {
            OFlags::RDONLY
        };
        folder = rustix::fs::openat(&folder, part.as_os_str(), flags | kind, Mode::empty())?;
    }
    Ok(folder.into())
}

impl Found {
    fn answer(self, path: &Path, request: &Request<'_>) -> Result<Response> {
        let tag = self.tag();
        let modified = self.modified.map(httpdate::fmt_http_date);
        let range = self.range(request, &tag, modified.as_deref());
        let is_fresh = is_known(request, &tag, self.modified);
        let length = self.length;
        let encoding = self.encoding;
        let response = match range {
            _ if is_fresh => Response::empty(304),
            Range::Whole => Response::new(Content::part_of_file(self.file, 0, length)?),
            Range::Part(start, end) => {
                let content = Content::part_of_file(self.file, start, end - start)?;
                let place = format!("bytes {start}-{}/{length}", end - 1);
                Response::new(content)
                    .status(206)
                    .header("content-range", place)
            }
            Range::Outside => {
                let place = format!("bytes */{length}");
                return Ok(Response::empty(416).header("content-range", place));
            }
        };
        let mut response = response
            .content_type(kind_of(path))
            .header("etag", tag)
            .header("accept-ranges", "bytes")
            .header("vary", "accept-encoding")
            .header("x-content-type-options", "nosniff");
        if let Some(modified) = modified {
            response = response.header("last-modified", modified);
        }
        Ok(match encoding {
            Some(encoding) => response.header("content-encoding", encoding),
            None => response,
        })
    }

    /// A name for this version of the file.
    fn tag(&self) -> String {
        let since = self
            .modified
            .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let nanos = since.unwrap_or_default().as_nanos();
        let encoding = self.encoding.unwrap_or("-");
        format!("\"{nanos:x}-{:x}-{encoding}\"", self.length)
    }

    /// Which part the client asks for. Several ranges are answered with the whole file: they are
    /// rare, and a way to ask for far more than there is.
    fn range(&self, request: &Request<'_>, tag: &str, modified: Option<&str>) -> Range {
        let Some(wanted) = request.header("range") else {
            return Range::Whole;
        };
        let condition = request.header("if-range");
        if condition.is_some_and(|known| known != tag && Some(known) != modified) {
            return Range::Whole;
        }
        parse_range(wanted, self.length)
    }
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Range {
    Whole,
    /// From here to there, without the last.
    Part(u64, u64),
    /// The file has no such part.
    Outside,
}

/// What is no single range of bytes is ignored.
fn parse_range(text: &str, length: u64) -> Range {
    let Some((first, last)) = text
        .strip_prefix("bytes=")
        .and_then(|text| text.split_once('-'))
    else {
        return Range::Whole;
    };
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then(|| text.parse::<u64>().unwrap_or(u64::MAX))
    };
    match (number(first.trim()), number(last.trim()), last.trim()) {
        (Some(first), last, text) if last.is_some() || text.is_empty() => {
            let end = last.unwrap_or(u64::MAX).saturating_add(1).min(length);
            if last.is_some_and(|last| last < first) {
                Range::Whole
            } else if first >= length {
                Range::Outside
            } else {
                Range::Part(first, end)
            }
        }
        (None, Some(0), _) if first.trim().is_empty() => Range::Outside,
        (None, Some(_), _) if first.trim().is_empty() && length == 0 => Range::Outside,
        (None, Some(count), _) if first.trim().is_empty() => {
            Range::Part(length - count.min(length), length)
        }
        _ => Range::Whole,
    }
}

/// Whether the client has this version already.
fn is_known(request: &Request<'_>, tag: &str, modified: Option<SystemTime>) -> bool {
    if let Some(known) = request.header("if-none-match") {
        let mut tags = known.split(',').map(str::trim);
        return tags.any(|known| known == "*" || known.trim_start_matches("W/") == tag);
    }
    let since = request.header("if-modified-since");
    let since = since.and_then(|date| httpdate::parse_http_date(date).ok());
    match (since, modified) {
        // The date has whole seconds only.
        (Some(since), Some(modified)) => modified < since + Duration::from_secs(1),
        _ => false,
    }
}

/// Whether a list such as `gzip, br;q=0.5` has `encoding`, and does not refuse it.
fn accepts(list: &str, encoding: &str) -> bool {
    list.split(',').any(|item| {
        let mut parts = item.split(';').map(str::trim);
        let is_named = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(encoding));
        let is_refused = parts.any(|part| {
            let weight = part.strip_prefix("q=").or_else(|| part.strip_prefix("Q="));
            weight.is_some_and(|weight| weight.trim_matches(['0', '.']).is_empty())
        });
        is_named && !is_refused
    })
}

fn kind_of(path: &Path) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension.unwrap_or_default().to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" | "md" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "json" | "map" => "application/json",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "woff" => "font/woff",
        "wasm" => "application/wasm",
        "pdf" => "application/pdf",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mp3" => "audio/mpeg",
        _ => "application/octet-stream",
    }
}

fn not_found() -> Error {
    Error::new(404, "not found")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name may be anything that a client can write.
    #[test]
    fn a_path_has_plain_names_alone() {
        for good in ["a", "a/b.c", "..a", "a..", ".a", "a b", "\u{e4}"] {
            assert!(harmless(good).is_some(), "{good}");
        }
        let bad = [
            "", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/.", "a\0b", "a\\b",
        ];
        for bad in bad {
            assert!(harmless(bad).is_none(), "{bad}");
        }
    }

    /// Where the kernel does not look after links, none is followed.
    #[test]
    fn step_by_step_no_link_is_followed() {
        let root = std::env::temp_dir().join(format!("paceline-files-{}", std::process::id()));
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::write(root.join("in/a"), b"a").unwrap();
        std::os::unix::fs::symlink("a", root.join("in/link")).unwrap();
        std::os::unix::fs::symlink("in", root.join("folder")).unwrap();
        let open = |path: &str| {
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let folder = rustix::fs::open(&root, flags, Mode::empty()).unwrap();
            step_by_step(folder, Path::new(path))
        };
        assert!(open("in/a").is_ok());
        assert!(open("in/link").is_err());
        assert!(open("folder/a").is_err());
        assert!(open_beneath(&root, Path::new("in/link")).is_ok());
        std::fs::remove_dir_all(&root).unwrap();
    }

    /// A player asks for parts; a range that is none is ignored (RFC 9110, 14.2).
    #[test]
    fn a_range_is_a_part_of_the_file() {
        let cases = [
            ("bytes=0-0", Range::Part(0, 1)),
            ("bytes=2-", Range::Part(2, 10)),
            ("bytes=2-99", Range::Part(2, 10)),
            ("bytes=2-18446744073709551615", Range::Part(2, 10)),
            ("bytes=-3", Range::Part(7, 10)),
            ("bytes=-99", Range::Part(0, 10)),
            ("bytes=10-", Range::Outside),
            ("bytes=-0", Range::Outside),
            ("bytes=5-2", Range::Whole),
            ("bytes=0-0,2-3", Range::Whole),
            ("bytes=a-b", Range::Whole),
            ("bytes=+1-2", Range::Whole),
            ("bytes=-", Range::Whole),
            ("lines=0-1", Range::Whole),
        ];
        for (text, range) in cases {
            assert_eq!(parse_range(text, 10), range, "{text}");
        }
    }

    /// A weight of zero refuses an encoding.
    #[test]
    fn encodings_are_accepted_by_name() {
        assert!(accepts("gzip, br;q=0.5", "br") && accepts("GZIP", "gzip"));
        assert!(!accepts("gzip;q=0, *", "gzip") && !accepts("gzip; q=0.0", "gzip"));
        assert!(!accepts("xgzip", "gzip") && !accepts("", "gzip"));
    }
}
