//! Receipts under chance: members that join, read, do not read, and close, while several threads
//! send. Of each message, reached and missed make up its addressees, and its receipt comes once.

use std::{collections::HashMap, sync::mpsc, thread, time::Duration};

use paceline::simulated::SimPeer;
use paceline_server::{codec::line, Limits, Next, Receipt, Room};

use crate::support::{
    actor::Actor,
    pause, wait_until,
    world::{on_both_engines, World},
    Random,
};

const SENDERS: usize = 3;
const MESSAGES: usize = 40;

/// A member's peer: what it got, and whether it reads.
struct Member {
    peer: SimPeer,
    got: Vec<u8>,
    reads: bool,
}

/// The messages of the threads have their number, and one length.
fn text(sender: usize, number: usize) -> Vec<u8> {
    format!("{sender}:{number:03};").into_bytes()
}

fn round(world: &World, seed: u64) {
    let mut random = Random::new(seed);
    let room = Room::new();
    let limits = Limits::default()
        .mailbox(200)
        .idle(None)
        .least_rate(None)
        .silent(Duration::from_secs(1_000_000));
    let (calls, joined) = (world.calls.clone(), room.clone());
    let server = world.serve(limits, line(80), move || {
        let joined = joined.clone();
        Actor::new(&calls).on_start(move |cx| {
            joined.join(cx);
            Ok(Next::Continue)
        })
    });
    let (done, receipts) = mpsc::channel::<((usize, usize), Receipt)>();
    let senders: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let (room, done) = (room.clone(), done.clone());
            thread::spawn(move || {
                for number in 0..MESSAGES {
                    let done = done.clone();
                    let message = room.message(text(sender, number));
                    message
                        .on_done(move |receipt| done.send(((sender, number), receipt)).unwrap())
                        .send();
                    pause();
                }
            })
        })
        .collect();
    drop(done);
    let mut members = Vec::new();
    let mut ended = Vec::new();
    let mut steps = 0;
    while steps < 60 || !senders.iter().all(thread::JoinHandle::is_finished) {
        steps += 1;
        step(world, &mut random, &mut members, &mut ended);
        pause();
    }
    for sender in senders {
        sender.join().unwrap();
    }
    for member in members.iter_mut().chain(&mut ended) {
        member.reads = true;
    }
    let mut counts = HashMap::new();
    let mut left = SENDERS * MESSAGES;
    wait_until(|| {
        members.iter_mut().chain(&mut ended).for_each(take);
        while let Ok((message, receipt)) = receipts.try_recv() {
            let before = counts.insert(message, receipt);
            assert_eq!(before, None, "a receipt comes once");
            left -= 1;
        }
        left == 0
    });
    members.iter_mut().for_each(take);
    ended.extend(members);
    check(&ended, &counts);
    check_addressees(&room);
    drop(server);
}

/// One thing that happens to one member.
fn step(world: &World, random: &mut Random, members: &mut Vec<Member>, ended: &mut Vec<Member>) {
    if members.len() < 5 {
        members.push(Member {
            peer: world.inlet.connect(),
            got: Vec::new(),
            reads: random.below(4) > 0,
        });
    }
    let chosen = random.below(members.len());
    match random.below(10) {
        0 => {
            members[chosen].peer.reset();
            ended.push(members.swap_remove(chosen));
        }
        1 => {
            members[chosen].peer.finish();
            ended.push(members.swap_remove(chosen));
        }
        2 => members[chosen].reads = !members[chosen].reads,
        _ => take(&mut members[chosen]),
    }
}

fn take(member: &mut Member) {
    if member.reads {
        member.got.extend(member.peer.received());
    }
}

/// Each member has whole messages, those of each thread in their order, and each once; and no
/// message was received more often than its receipt says, nor by fewer of those that went on.
fn check(members: &[Member], receipts: &HashMap<(usize, usize), Receipt>) {
    let mut received: HashMap<(usize, usize), usize> = HashMap::new();
    for member in members {
        let whole = member.got.len() / 6 * 6;
        let mut last = [None; SENDERS];
        for message in member.got[..whole].chunks(6) {
            let text = std::str::from_utf8(message).unwrap();
            let (sender, number) = text.trim_end_matches(';').split_once(':').unwrap();
            let (sender, number) = (sender.parse::<usize>().unwrap(), number.parse().unwrap());
            assert!(last[sender] < Some(number), "{text} after {last:?}");
            last[sender] = Some(number);
            *received.entry((sender, number)).or_default() += 1;
        }
    }
    assert_eq!(receipts.len(), SENDERS * MESSAGES);
    for (message, count) in received {
        let receipt = receipts[&message];
        assert!(
            count <= receipt.reached,
            "{message:?}: {count} got it, {receipt:?}"
        );
    }
}

/// When nothing else happens, a message has as many addressees as the room has members.
fn check_addressees(room: &Room) {
    let (done, receipt) = mpsc::channel();
    // Connections that end leave the room once, and none joins.
    let before = room.len();
    let message = room.message(*b"the last");
    message
        .on_done(move |receipt| done.send(receipt).unwrap())
        .send();
    let after = room.len();
    let receipt = receipt.recv_timeout(crate::support::patience()).unwrap();
    let all = receipt.reached + receipt.missed;
    assert!(
        (after..=before).contains(&all),
        "{receipt:?}, members {after}..={before}"
    );
}

#[test]
fn receipts_are_exact_under_chance() {
    for seed in 1..9 {
        on_both_engines(move |world| {
            eprintln!("seed {seed}");
            round(&world, seed);
        });
    }
}
