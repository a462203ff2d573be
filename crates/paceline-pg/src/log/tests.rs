//! Dates, the form of a line, and texts that try to leave it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis)
}

#[test]
fn dates_are_those_of_the_calendar() {
    // From `date -u -d @SECONDS`.
    let rows = [
        (0, "1970-01-01 00:00:00 UTC"),
        (951_782_399, "2000-02-28 23:59:59 UTC"),
        (951_782_400, "2000-02-29 00:00:00 UTC"),
        (951_868_800, "2000-03-01 00:00:00 UTC"),
        (1_709_164_800, "2024-02-29 00:00:00 UTC"),
        (1_735_689_599, "2024-12-31 23:59:59 UTC"),
        (1_783_684_801, "2026-07-10 12:00:01 UTC"),
        (4_107_542_400, "2100-03-01 00:00:00 UTC"),
    ];
    for (since, expected) in rows {
        assert_eq!(seconds(at(1000 * since)), expected);
    }
}

/// Tools search the log with patterns made for PgBouncer.
#[test]
fn a_line_has_pgbouncers_form() {
    let peer = |side, address| Peer {
        side,
        id: 17,
        database: Some("p0"),
        user: Some("bouncer"),
        address,
        port: 40_000,
    };
    let mut text = String::new();
    let client = peer(Side::Client, "127.0.0.1");
    let reason = format_args!("{client}closing because: client close request (age=3s)");
    line(&mut text, at(1_783_684_801_045), 4711, Level::Log, reason);
    assert_eq!(
        text,
        "2026-07-10 12:00:01.045 UTC [4711] LOG C-17: p0/bouncer@127.0.0.1:40000 closing \
         because: client close request (age=3s)\n"
    );
    let server = peer(Side::Server, "::1").to_string();
    assert_eq!(server, "S-17: p0/bouncer@[::1]:40000 ");
    let new = Peer {
        database: None,
        user: None,
        ..peer(Side::Client, "unix")
    };
    assert_eq!(new.to_string(), "C-17: (nodb)/(nouser)@unix:40000 ");
}

/// A client chooses its names and may send any bytes, but it must not be able to forge a line.
#[test]
fn a_text_can_not_forge_a_line() {
    let mut text = String::new();
    line(
        &mut text,
        at(0),
        1,
        Level::Warning,
        format_args!("a\nb\r\u{1b}[2K\0c \n"),
    );
    let expected = "1970-01-01 00:00:00.000 UTC [1] WARNING a\n\tb\\x0d\\x1b[2K\\x00c\n";
    assert_eq!(text, expected);
}
