//! Counters as OpenMetrics text: every number of a snapshot is there, and the text is what the
//! standard asks for.

use std::{
    collections::HashSet,
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::support::{bounded, LONG};
use paceline::{observe::open_metrics, Pool};

/// Every field of a snapshot has its family. (Its `Debug` form knows them all.)
#[test]
fn nothing_is_left_out() {
    let pool = Pool::builder().threads(0).build().unwrap();
    let text = open_metrics(&[("one", pool.snapshot())]);
    let debug = format!("{:#?}", pool.snapshot());
    let fields = debug.lines().filter_map(|line| {
        let field = line.strip_prefix("    ")?;
        field.split_once(": ").map(|(name, _)| name.to_owned())
    });
    let mut count = 0;
    for field in fields {
        let is_there = |suffix: &str| text.contains(&format!("# TYPE paceline_{field}{suffix} "));
        assert!(
            is_there("") || is_there("_seconds"),
            "{field} is missing:\n{text}"
        );
        count += 1;
    }
    assert!(count >= 20, "{debug}");
}

/// Each family is told once, with its type and its help before its samples, of which each pool has
/// one; the end is marked.
#[test]
fn the_text_is_well_formed() {
    let pool = Pool::builder().threads(0).build().unwrap();
    let hostile = "a \"quoted\\\" name\nof two lines";
    let text = open_metrics(&[("one", pool.snapshot()), (hostile, pool.snapshot())]);
    assert!(text.ends_with("\n# EOF\n"));
    let (mut families, mut samples) = (HashSet::new(), HashSet::new());
    let mut current = String::new();
    for line in text.lines().filter(|line| *line != "# EOF") {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["counter", "gauge"].contains(&kind), "{line}");
            assert!(families.insert(name.to_owned()), "{name} twice");
            current = name.to_owned();
            continue;
        }
        if line.starts_with("# ") {
            assert!(line.contains(&current), "{line}");
            continue;
        }
        assert!(line.starts_with(&current), "{line} in {current}");
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert!(sample.ends_with("\"}"), "{line}");
        assert!(value.parse::<f64>().is_ok(), "{line}");
        assert!(samples.insert(sample.to_owned()), "{sample} twice");
    }
    assert_eq!(samples.len(), 2 * families.len());
    assert!(text.contains(r#"{pool="a \"quoted\\\" name\nof two lines"} "#));
}

/// What a request is answered.
fn ask(port: SocketAddr, request: &str) -> String {
    let mut client = TcpStream::connect(port).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    answer
}

/// A server on the core alone needed twenty lines of HTTP by hand for a port that a monitoring
/// system reads. It is one call.
#[test]
fn a_port_for_a_monitoring_system() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let port = pool.listener().bind_metrics("127.0.0.1:0", "orders");
        let port = port.unwrap().local_addr();
        let whole = ask(port, "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n");
        let (head, page) = whole.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200 OK\r\n"), "{head}");
        assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"));
        assert!(
            head.ends_with(&format!("content-length: {}", page.len())),
            "{head}"
        );
        assert!(
            page.contains("\npaceline_connections{pool=\"orders\"} 1\n"),
            "{page}"
        );
        assert!(page.ends_with("# EOF\n"));
        let head = ask(port, "HEAD / HTTP/1.0\r\n\r\n");
        assert!(
            head.starts_with("HTTP/1.0 200 OK\r\n") && head.ends_with("\r\n\r\n"),
            "{head}"
        );
        let refused = ask(port, "POST / HTTP/1.0\r\n\r\n");
        assert!(refused.starts_with("HTTP/1.0 405 "), "{refused}");
    });
}

/// A request without an end is given up, and no handler of the port keeps its pool alive.
#[test]
fn a_port_is_bounded() {
    bounded(|| {
        let pool = Pool::builder().threads(2).build().unwrap();
        let port = pool.listener().bind_metrics("127.0.0.1:0", "orders");
        let port = port.unwrap().local_addr();
        let _open = TcpStream::connect(port).unwrap();
        let mut endless = TcpStream::connect(port).unwrap();
        endless.set_read_timeout(Some(LONG)).unwrap();
        // Writing fails as soon as the server has closed.
        let line = [b'x'; 1000];
        let _ = (0..1000).try_for_each(|_| endless.write_all(&line));
        let end = endless.read(&mut [0; 1]);
        let closed = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        assert!(
            matches!(&end, Ok(0)) || end.as_ref().is_err_and(closed),
            "{end:?}"
        );
        let weak = pool.downgrade();
        drop(pool);
        assert!(weak.upgrade().is_none());
    });
}
