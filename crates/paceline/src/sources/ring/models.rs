//! loom's models of a ring: a side that falls asleep against one that moves.

use std::sync::Arc;

use loom::thread;

use super::{
    memory::Map,
    records::{In, Out, Popped, Pushed, Sleep, HEADER},
};
use crate::sync::{explore, Parker};

/// A ring with so much room for data, and two bells.
struct World {
    map: Map,
    consumer: Parker,
    producer: Parker,
}

impl World {
    fn new(data: usize) -> Arc<Self> {
        Arc::new(Self {
            map: Map::of_words(HEADER + data),
            consumer: Parker::new(),
            producer: Parker::new(),
        })
    }

    /// Sends, as a producer that waits for room does.
    fn send(&self, out: &Out, record: &[u8]) {
        loop {
            match out.push(self.map.words(), record).unwrap() {
                Pushed::Quiet => return,
                Pushed::WakePeer => return ring(&self.consumer),
                Pushed::Full => {}
            }
            if out.announce_sleep(self.map.words()) == Sleep::Announced {
                sleep(&self.producer);
            }
        }
    }

    /// Receives, as a consumer that waits for records does.
    fn receive(&self, into: &In) -> Vec<u8> {
        let mut record = Vec::new();
        loop {
            match into.pop(self.map.words(), &mut record).unwrap() {
                Popped::Quiet => return record,
                Popped::WakePeer => {
                    ring(&self.producer);
                    return record;
                }
                Popped::Empty => {}
            }
            if into.announce_sleep(self.map.words()) == Sleep::Announced {
                sleep(&self.consumer);
            }
        }
    }
}

fn ring(bell: &Parker) {
    bell.post(1);
    bell.wake();
}

/// Until the bell rings; it may have rung before.
fn sleep(bell: &Parker) {
    while bell.take() == 0 {
        bell.sleep(None);
    }
}

/// H2: a record is sent while the consumer looks for the last time, or sleeps already. It is woken,
/// or sees it, whole.
#[test]
fn loom_ring_send_against_sleep() {
    explore(|| {
        let world = World::new(4);
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.send(&Out::default(), b"whole"))
        };
        assert_eq!(world.receive(&In::default()), b"whole");
        other.join().unwrap();
    });
}

/// The ring is full while the consumer takes: the producer waits for room and is woken, or sees it;
/// and nothing is written over what was not read.
#[test]
fn loom_ring_full_against_taken() {
    explore(|| {
        let world = World::new(2);
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                let out = Out::default();
                world.send(&out, &[1]);
                world.send(&out, &[2]);
            })
        };
        let into = In::default();
        assert_eq!(world.receive(&into), [1]);
        assert_eq!(world.receive(&into), [2]);
        other.join().unwrap();
    });
}
