//! The protocol message by message: what a driver never sends, and failures in between.

mod common;

use std::{io::Read, net::TcpStream, time::Duration};

use common::{messages, start, Raw, World};
use paceline_pg_wire::{
    frontend::{self, Target},
    startup,
};

#[test]
fn a_failure_is_followed_by_silence_up_to_sync() {
    let world = World::new();
    let mut raw = Raw::open(world.address());
    raw.send(&messages(|out| {
        frontend::parse(out, b"", b"SELECT nosuch", &[]);
        frontend::bind(out, b"", b"", &[]);
        frontend::query(out, b"SELECT 1");
        frontend::execute(out, b"", 0);
        frontend::sync(out);
        frontend::query(out, b"SELECT 2");
    }));
    assert_eq!(raw.tags_to_ready(), "E42703Z");
    assert_eq!(raw.tags_to_ready(), "TDCZ");
}

#[test]
fn what_does_not_exist_keeps_the_connection() {
    let world = World::new();
    let mut raw = Raw::open(world.address());
    raw.send(&messages(|out| {
        frontend::bind(out, b"", b"nosuch", &[]);
        frontend::sync(out);
        frontend::describe(out, Target::Portal(b"nosuch"));
        frontend::sync(out);
        frontend::execute(out, b"nosuch", 0);
        frontend::sync(out);
        frontend::close(out, Target::Statement(b"nosuch"));
        frontend::sync(out);
        frontend::query(out, b"");
    }));
    assert_eq!(raw.tags_to_ready(), "E26000Z");
    assert_eq!(raw.tags_to_ready(), "E34000Z");
    assert_eq!(raw.tags_to_ready(), "E34000Z");
    assert_eq!(raw.tags_to_ready(), "3Z");
    assert_eq!(raw.tags_to_ready(), "IZ");
}

/// A portal whose rows are more than one piece sent all of them at once, before what describes them.
#[test]
fn a_portal_keeps_its_rows_until_they_are_fetched() {
    let world = World::new();
    let mut raw = Raw::open(world.address());
    let rows = b"SELECT n, hex(zeroblob(50)) FROM generate_series(1, 5000) AS n";
    let cursor = [b"BEGIN; DECLARE c CURSOR FOR ", &rows[..]].concat();
    raw.send(&messages(|out| {
        frontend::query(out, &cursor);
        frontend::query(out, b"FETCH 2 FROM c");
        frontend::query(out, b"FETCH 1 FROM c");
        frontend::parse(out, b"", rows, &[]);
        frontend::bind(out, b"p", b"", &[]);
        frontend::execute(out, b"p", 2);
        frontend::execute(out, b"p", 1);
        frontend::sync(out);
    }));
    assert_eq!(raw.tags_to_ready(), "CCZT");
    assert_eq!(raw.tags_to_ready(), "TDDCZT");
    assert_eq!(raw.tags_to_ready(), "TDCZT");
    assert_eq!(raw.tags_to_ready(), "12DDsDsZT");
}

/// Writes between two Syncs are one transaction, which ends with the second.
#[test]
fn a_pipeline_is_one_transaction() {
    let world = World::new();
    let mut raw = Raw::open(world.address());
    let insert = |out: &mut Vec<u8>, sql: &[u8]| {
        frontend::parse(out, b"", sql, &[]);
        frontend::bind(out, b"", b"", &[]);
        frontend::execute(out, b"", 0);
    };
    raw.send(&messages(|out| {
        frontend::query(out, b"CREATE TABLE t(id int PRIMARY KEY)");
        insert(out, b"INSERT INTO t VALUES (1)");
        insert(out, b"INSERT INTO t VALUES (1)");
        frontend::sync(out);
        frontend::query(out, b"SELECT count(*) FROM t HAVING count(*) = 0");
    }));
    assert_eq!(raw.tags_to_ready(), "CZ");
    assert_eq!(raw.tags_to_ready(), "12C12E23505Z");
    assert_eq!(raw.tags_to_ready(), "TDCZ");
}

/// While rows are copied in, Sync and Flush mean nothing; what follows a failed copy is dropped.
#[test]
fn a_copy_swallows_sync() {
    let world = World::new();
    let mut raw = Raw::open(world.address());
    raw.send(&messages(|out| {
        frontend::query(out, b"CREATE TABLE t(id int)");
        frontend::query(out, b"COPY t FROM STDIN");
        frontend::sync(out);
        frontend::flush(out);
        frontend::copy_data(out, b"1\n2");
        frontend::copy_data(out, b"3\n");
        frontend::copy_done(out);
        frontend::query(out, b"COPY t FROM STDIN");
        frontend::copy_fail(out, b"no more");
        frontend::copy_data(out, b"9\n");
        frontend::copy_done(out);
        frontend::query(out, b"SELECT count(*) FROM t HAVING sum(id) = 24");
    }));
    assert_eq!(raw.tags_to_ready(), "CZ");
    assert_eq!(raw.tags_to_ready(), "GCZ");
    assert_eq!(raw.tags_to_ready(), "GE57014Z");
    assert_eq!(raw.tags_to_ready(), "TDCZ");
}

#[test]
fn a_session_may_come_byte_by_byte() {
    let world = World::new();
    let stream = TcpStream::connect(world.address()).expect("a connection");
    stream.set_nodelay(true).expect("small packets");
    let mut raw = Raw {
        stream,
        bytes: Vec::new(),
    };
    let mut bytes = messages(startup::ask_tls);
    bytes.extend_from_slice(&start("bank"));
    frontend::query(&mut bytes, b"SELECT 1; SELECT 2");
    frontend::parse(&mut bytes, b"s", b"SELECT $1::int", &[]);
    frontend::describe(&mut bytes, Target::Statement(b"s"));
    frontend::sync(&mut bytes);
    for byte in bytes {
        raw.send(&[byte]);
    }
    let mut answer = [0];
    raw.stream.read_exact(&mut answer).expect("an answer");
    assert_eq!(&answer, b"N");
    assert!(raw.tags_to_ready().ends_with("KZ"));
    assert_eq!(raw.tags_to_ready(), "TDCTDCZ");
    assert_eq!(raw.tags_to_ready(), "1tTZ");
}

/// No input makes the server stop, and each is answered by an error or an end.
#[test]
fn hostile_input_ends_its_own_session_only() {
    let world = World::new();
    let mut other = world.client();
    let mut seed = 1_u64;
    for round in 0..200 {
        let mut raw = Raw::open(world.address());
        let mut bytes = Vec::new();
        for _ in 0..round {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            bytes.push((seed >> 33) as u8);
        }
        let tag = *b"QPBDECHSFdcfpX".get(round % 15).unwrap_or(&b'?');
        let length = (bytes.len() as i32 + 4).to_be_bytes();
        raw.send(&[&[tag], &length[..], &bytes].concat());
        let _ = raw.stream.shutdown(std::net::Shutdown::Write);
        while raw.message().is_some() {}
    }
    for bad in [
        &b"\0\0\0\x03"[..],
        b"\xff\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        &start("nosuch"),
    ] {
        let stream = TcpStream::connect(world.address()).expect("a connection");
        let mut raw = Raw {
            stream,
            bytes: Vec::new(),
        };
        raw.send(bad);
        assert!(raw.tags_to_ready().starts_with('E'), "{bad:?}");
    }
    let mut long = Raw::open(world.address());
    long.send(b"Q\x7f\xff\xff\xff");
    assert_eq!(long.tags_to_ready(), "E08P01.");
    other.batch_execute("SELECT 1").expect("the others go on");
}

/// The lane must not stay with a client that asks for a large result and does not read it.
#[test]
fn a_lane_holder_that_does_not_read_is_ended() {
    let idle_writer = Duration::from_millis(100);
    let limits = paceline_sqlite::Limits {
        idle_writer,
        ..Default::default()
    };
    let world = World::with(|builder| builder.limits(limits));
    let mut raw = Raw::open(world.address());
    raw.send(&messages(|out| {
        frontend::query(out, b"CREATE TABLE t(id int)");
        frontend::query(out, b"BEGIN; INSERT INTO t VALUES (1)");
        let large = b"SELECT repeat('x', 1000) FROM generate_series(1, 30000) AS g(i)";
        frontend::query(out, large);
    }));
    assert_eq!(raw.tags_to_ready(), "CZ");
    assert_eq!(raw.tags_to_ready(), "CCZT");
    let mut other = world.client();
    other
        .batch_execute("INSERT INTO t VALUES (2)")
        .expect("the lane");
    let row = other
        .query_one("SELECT sum(id)::int FROM t", &[])
        .expect("a sum");
    assert_eq!(row.get::<_, i32>(0), 2);
}
