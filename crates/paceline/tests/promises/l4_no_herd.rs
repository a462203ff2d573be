//! L4: a promotion wakes at most one thread. And in an idle pool nobody wakes (L2): by the kernel's
//! own count of how often each thread went to sleep.

use std::{
    fs,
    io::{Read, Write},
    sync::mpsc,
    thread,
    time::Duration,
};

use crate::support::{
    bounded,
    by_hand::{claim, lead, own_task, pause, sleeps, status, wait_asleep, Scene},
    tcp_pair, wait_until,
};
use paceline::{Context, Interest, Next, Pool};

/// corosio 33: a wake-up woke everyone. Now of all the followers that sleep a promotion wakes one,
/// and the others do not even turn over: the kernel's own count of their naps says so.
#[test]
fn herd_on_wakeup_is_one() {
    bounded(|| {
        const FOLLOWERS: usize = 6;
        let scene = Scene::unobserved();
        let peer = scene.echo();
        let leader = lead(&scene.pool);
        let (tell, told) = mpsc::channel();
        for _ in 0..FOLLOWERS {
            let (pool, tell) = (scene.pool.clone(), tell.clone());
            thread::spawn(move || {
                tell.send(own_task()).unwrap();
                pool.join()
            });
        }
        let tasks: Vec<_> = told.iter().take(FOLLOWERS).collect();
        scene.wait_asleep(FOLLOWERS);

        let before = settled_naps(&tasks);
        peer.send(b"0");
        let processing = claim(leader).promote();
        assert_eq!(scene.pool.snapshot().wakes, 1);
        scene.wait_asleep(FOLLOWERS - 1);
        let after = settled_naps(&tasks);
        assert_eq!(differing(&before, &after), 1);
        drop(processing.run());
        assert_eq!(peer.received(), b"0");

        // From now on two threads turn over per event: the leader, which handles it, and its
        // successor.
        for round in 1..=5 {
            let before = settled_naps(&tasks);
            peer.send(b"x");
            assert_eq!(peer.wait_for(1), b"x");
            scene.wait_asleep(FOLLOWERS - 1);
            let after = settled_naps(&tasks);
            assert_eq!(differing(&before, &after), 2);
            let seen = scene.pool.snapshot();
            assert_eq!((seen.promotions, seen.wakes), (1 + round, 1 + round));
        }
    });
}

/// async-io 8 and 40, Grizzly 1712: something polled while there was nothing to do. Now, with
/// connections open and settled, no thread of the pool runs at all.
#[test]
fn idle_pool_costs_nothing() {
    bounded(|| {
        let pool = Pool::builder().threads(4).name("idler").build().unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let (near, far) = tcp_pair();
                pool.register(near, Interest::READ, |cx: &mut Context<'_, _>| {
                    let mut buffer = [0; 64];
                    let count = cx.read(&mut buffer)?;
                    cx.write_all(&buffer[..count])?;
                    Ok(Next::Continue)
                })
                .unwrap();
                far
            })
            .collect();
        for mut client in &clients {
            client.write_all(b"x").unwrap();
            client.read_exact(&mut [0]).unwrap();
        }
        wait_asleep(&pool, 3);
        let tasks = tasks_named("idler-");
        assert_eq!(tasks.len(), 4);

        let before = settled_naps(&tasks);
        pause(Duration::from_millis(500));
        assert_eq!(before, naps(&tasks));
        drop(clients);
    });
}

/// The kernel's numbers of this process's threads whose names are this and a number. (On a busy
/// machine there may be a watcher too.)
fn tasks_named(prefix: &str) -> Vec<u32> {
    let is_meant = |name: &str| {
        let number = name.trim_end().strip_prefix(prefix);
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks
        .map(|task| task.unwrap().path())
        // A thread of another test may end in this moment.
        .filter(|task| fs::read_to_string(task.join("comm")).is_ok_and(|name| is_meant(&name)))
        .map(|task| task.file_name().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

/// How often each thread went to sleep so far.
fn naps(tasks: &[u32]) -> Vec<u64> {
    let field = |task: &u32| status(*task, "voluntary_ctxt_switches:").parse().unwrap();
    tasks.iter().map(field).collect()
}

/// As [`naps`], once all sleep and for a while nothing changes.
fn settled_naps(tasks: &[u32]) -> Vec<u64> {
    for _ in 0..100 {
        wait_until(|| tasks.iter().all(|task| sleeps(*task)));
        let seen = naps(tasks);
        pause(Duration::from_millis(20));
        if seen == naps(tasks) {
            return seen;
        }
    }
    panic!("they do not come to rest");
}

fn differing(before: &[u64], after: &[u64]) -> usize {
    before.iter().zip(after).filter(|(b, a)| b != a).count()
}
