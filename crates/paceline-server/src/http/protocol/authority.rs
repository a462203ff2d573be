//! The host and port of a request, in its target or its Host field.

use std::net::Ipv6Addr;

use memchr::memchr;

use super::bytes;

/// Whether `text` is a host, perhaps with a port: no user, no path, no list.
pub(super) fn is_authority(text: &[u8]) -> bool {
    let (host, port) = match text {
        [b'[', ..] => match text.iter().position(|byte| *byte == b']') {
            Some(end) => (&text[..=end], &text[end + 1..]),
            None => return false,
        },
        _ => match memchr(b':', text) {
            Some(colon) => (&text[..colon], &text[colon..]),
            None => (text, &b""[..]),
        },
    };
    is_host(host) && is_port(port)
}

fn is_host(host: &[u8]) -> bool {
    if let [b'[', address @ .., b']'] = host {
        let address = std::str::from_utf8(address).ok();
        return address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    !host.is_empty() && bytes::all(host, bytes::IN_HOST)
}

/// Nothing, or a colon and a number; RFC 3986 allows that no digit follows.
fn is_port(port: &[u8]) -> bool {
    match port {
        [] => true,
        [b':', digits @ ..] => {
            let value = digits.iter().try_fold(0_u32, |value, digit| {
                let digit = char::from(*digit).to_digit(10)?;
                Some(value.saturating_mul(10).saturating_add(digit))
            });
            value.is_some_and(|value| value <= 65_535)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_authority;

    /// A proxy and a server that read different hosts from one field route a request differently.
    #[test]
    fn a_host_is_a_name_or_an_address_and_perhaps_a_port() {
        for good in [
            "a",
            "a.example",
            "a:80",
            "a:",
            "127.0.0.1:8080",
            "[::1]",
            "[::1]:80",
            "x_y~1",
        ] {
            assert!(is_authority(good.as_bytes()), "{good}");
        }
        for bad in [
            "",
            ":80",
            "a:b",
            "a:65536",
            "a:80:80",
            "a/b",
            "u@a",
            "a b",
            "a,b",
            "[::1",
            "[::1]x",
            "[a]",
            "::1",
            "a?b",
            "a#b",
            "\u{fc}",
            "a:8 0",
            "[::1%eth0]",
            "a\\b",
        ] {
            assert!(!is_authority(bad.as_bytes()), "{bad}");
        }
    }
}
