//! Rings between processes: whole records in order; a bell only for who sleeps; and the death of
//! the other side is told.

#![allow(
    clippy::incompatible_msrv,
    reason = "the tests are not built by the oldest Rust"
)]

use std::{
    io::{self, Read},
    os::unix::net::UnixStream,
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use crate::support::{bounded, kernel_sets, wait_until, LONG};
use paceline::{Context, Interest, Next, Pool, RingConsumer, RingProducer, SourcePool};

/// Both sides of a ring, in one process.
fn ring(capacity: usize) -> (RingProducer, RingConsumer) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let producer = RingProducer::create(ours, capacity).unwrap();
    (producer, RingConsumer::open(theirs, capacity).unwrap())
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + LONG)
}

/// Record number so much: its size and all of its bytes follow from that.
fn record(number: usize) -> Vec<u8> {
    let size = number * 7 % 200;
    (0..size).map(|byte| (byte + number) as u8).collect()
}

/// On every set of the kernel: records come whole and in order, through a ring that is much too
/// small for all of them; and when the producer goes, the consumer is told after the last one.
#[test]
fn whole_and_in_order_on_every_set() {
    const RECORDS: usize = 3_000;
    for set in kernel_sets() {
        bounded(move || {
            let pool = Pool::builder().threads(2).handle_set(set).build().unwrap();
            let (mut producer, consumer) = ring(512);
            let (tell, told) = mpsc::channel();
            let (mut got, mut count) = (Vec::new(), 0);
            let handler = move |cx: &mut Context<'_, RingConsumer>| {
                while cx.try_read(|ring| ring.receive(&mut got))? {
                    assert_eq!(got, record(count), "record {count}");
                    count += 1;
                }
                tell.send(count).unwrap();
                Ok(Next::Close)
            };
            pool.register(consumer, Interest::READ, handler).unwrap();
            for number in 0..RECORDS {
                producer.send_until(&record(number), soon()).unwrap();
            }
            drop(producer);
            assert_eq!(told.recv_timeout(LONG).unwrap(), RECORDS);
        });
    }
}

/// A handler that takes one record per call is called again for the next: what waits in memory is
/// not forgotten.
#[test]
fn one_record_per_call() {
    bounded(|| {
        let pool = Pool::builder().threads(1).build().unwrap();
        let (mut producer, consumer) = ring(4096);
        (0..20).for_each(|number| producer.send(&[number]).unwrap());
        let (tell, told) = mpsc::channel();
        let handler = move |cx: &mut Context<'_, RingConsumer>| {
            let mut got = Vec::new();
            cx.try_read(|ring| ring.receive(&mut got))?;
            tell.send(got[0]).unwrap();
            Ok(Next::Continue)
        };
        pool.register(consumer, Interest::READ, handler).unwrap();
        for number in 0..20 {
            assert_eq!(told.recv_timeout(LONG).unwrap(), number);
        }
    });
}

/// The producer makes a system call only if the consumer has said that it sleeps: one byte for the
/// first record after that, and none for the others.
#[test]
fn a_bell_only_for_who_sleeps() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let mut producer = RingProducer::create(ours, 1 << 16).unwrap();
    let mut bell = theirs.try_clone().unwrap();
    let consumer = RingConsumer::open(theirs, 1 << 16).unwrap();
    bell.set_nonblocking(true).unwrap();
    let mut rung = || match bell.read(&mut [0; 64]) {
        Ok(count) => count,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
        Err(error) => panic!("{error}"),
    };
    let mut got = Vec::new();
    // At first it sleeps.
    (0..100).for_each(|_| producer.send(b"awake").unwrap());
    assert_eq!(rung(), 1);
    (0..100).for_each(|_| assert!(consumer.receive(&mut got).unwrap()));
    producer.send(b"awake").unwrap();
    assert_eq!(rung(), 0);
    assert!(consumer.receive(&mut got).unwrap());
    let dry = consumer.receive(&mut got).unwrap_err();
    assert_eq!(dry.kind(), io::ErrorKind::WouldBlock);
    (0..100).for_each(|_| producer.send(b"asleep").unwrap());
    assert_eq!(rung(), 1);
}

/// A full ring gives an error at once, or waits: for a time, or until there is room.
#[test]
fn a_full_ring() {
    bounded(|| {
        let (mut producer, consumer) = ring(64);
        assert_eq!(producer.largest(), 56);
        let error = producer.send(&[0; 57]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        producer.send(&[1; 56]).unwrap();
        let error = producer.send(&[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
        let error = producer.send_until(&[], Some(Instant::now() + Duration::from_millis(1)));
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let taker = thread::spawn(move || {
            let mut got = Vec::new();
            assert!(consumer.receive(&mut got).unwrap());
            assert_eq!(got, [1; 56]);
            consumer
        });
        producer.send_until(&[2; 56], soon()).unwrap();
        let (consumer, mut got) = (taker.join().unwrap(), Vec::new());
        assert!(consumer.receive(&mut got).unwrap());
        assert_eq!(got, [2; 56]);
    });
}

/// The other side is gone: a producer that rings, waits or finds no room learns it; a consumer
/// after the last record.
#[test]
fn the_other_side_is_gone() {
    bounded(|| {
        let (mut producer, consumer) = ring(64);
        drop(consumer);
        producer.send(&[1; 56]).unwrap();
        let error = producer.send_until(&[2], soon()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
        let error = producer.send(&[2]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe, "{error}");
        let (mut producer, consumer) = ring(64);
        producer.send(b"last").unwrap();
        drop(producer);
        let mut got = Vec::new();
        assert!(consumer.receive(&mut got).unwrap());
        assert_eq!(got, b"last");
        assert!(!consumer.receive(&mut got).unwrap());
    });
}

/// R1: a peer that rings without end, and sends nothing, does not hold a thread: others are served
/// meanwhile.
#[test]
fn an_endless_bell() {
    bounded(|| {
        use std::io::Write;
        let pool = Pool::builder().threads(1).build().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut bell = ours.try_clone().unwrap();
        let _producer = RingProducer::create(ours, 64).unwrap();
        let consumer = RingConsumer::open(theirs, 64).unwrap();
        let handler = |cx: &mut Context<'_, RingConsumer>| {
            cx.try_read(|ring| ring.receive(&mut Vec::new()))?;
            Ok(Next::Continue)
        };
        pool.register(consumer, Interest::READ, handler).unwrap();
        bell.set_nonblocking(true).unwrap();
        let (tell, told) = mpsc::channel();
        for _ in 0..50 {
            while bell.write(&[1; 4096]).is_ok() {}
            let tell = tell.clone();
            pool.post(move |_| tell.send(()).unwrap()).unwrap();
            told.recv_timeout(LONG).unwrap();
        }
        assert!(pool.shutdown(LONG).is_clean());
    });
}

/// A ring has a leader of its own, too; it is interrupted when the pool ends.
#[test]
fn a_leader_of_its_own() {
    bounded(|| {
        let (mut producer, consumer) = ring(256);
        let (tell, told) = mpsc::channel();
        let tell = std::sync::Mutex::new(tell);
        let pool = SourcePool::builder()
            .source("ring", consumer, move |record: Vec<u8>| {
                tell.lock().unwrap().send(record.len()).unwrap();
            })
            .build()
            .unwrap();
        let mut sizes = Vec::new();
        for number in 0..500 {
            producer.send_until(&record(number), soon()).unwrap();
            sizes.push(told.recv_timeout(LONG).unwrap());
        }
        assert!((0..500).all(|number| sizes[number] == record(number).len()));
        assert!(pool.shutdown(LONG).is_clean());
        wait_until(|| producer.send(&[1; 240]).is_err());
    });
}

/// What no record fits into is refused, and the socket given back.
#[test]
fn impossible_capacities() {
    for capacity in [0, 8, usize::MAX] {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let rejected = RingProducer::create(ours, capacity).unwrap_err();
        assert!(
            rejected.to_string().starts_with("create a ring: "),
            "{rejected}"
        );
        rejected.value.set_nonblocking(true).unwrap();
    }
}
