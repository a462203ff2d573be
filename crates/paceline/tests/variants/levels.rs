//! Service levels as a whole: how they are built, seen and ended; and handles that move under load.

use std::{
    io::{self, Read, Write},
    net::TcpStream,
    sync::{
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc, Arc, Mutex,
    },
    thread,
    time::Duration,
};

use crate::support::{
    self, bounded,
    levels::{asks, echo},
    tcp_pair, wait_until, Random, LONG,
};
use paceline::{
    Closed, Context, EventHandler, Handle, Interest, Level, Levels, Move, Next, Pool, SetKind,
};

fn two() -> Levels {
    let settings = || Pool::builder().threads(2);
    let levels = Levels::builder()
        .level("bulk", settings())
        .level("urgent", settings());
    levels.build().unwrap()
}

/// Levels are found by their name and in their order; a key of another's is no key of these.
#[test]
fn keys_find_their_pools() {
    bounded(|| {
        let (levels, others) = (two(), two());
        let [bulk, urgent] = levels.keys().unwrap();
        assert_eq!(levels.level("urgent"), Some(&urgent));
        assert_eq!(levels.level("urgentest"), None);
        assert_eq!(
            (bulk.name(), urgent.to_string().as_str()),
            ("bulk", "urgent")
        );
        assert!(levels.keys::<3>().is_none());
        assert!(levels.pool(&urgent).is_some());
        assert!(others.pool(&urgent).is_none());
        assert_ne!(bulk, urgent);
        let names: Vec<_> = levels
            .snapshot()
            .into_iter()
            .map(|(level, _)| level)
            .collect();
        assert_eq!(names, [bulk, urgent]);
    });
}

/// Everything that is wrong is told, with the level's name.
#[test]
fn bad_levels_are_refused() {
    let refused = |levels: io::Result<Levels>| {
        let error = levels.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        error.to_string()
    };
    assert!(refused(Levels::builder().build()).contains("none"));
    let twice = Levels::builder()
        .level("one", Pool::builder())
        .level("one", Pool::builder());
    assert!(refused(twice.build()).contains("two have this name"));
    let wrong = Levels::builder().level("slow", Pool::builder().parallelism(0));
    let told = refused(wrong.build());
    assert!(
        told.contains("slow") && told.contains("parallelism"),
        "{told}"
    );
}

/// The threads of a level have its name.
#[test]
fn threads_are_called_after_their_level() {
    bounded(|| {
        let levels = two();
        let [_, urgent] = levels.keys().unwrap();
        let (tell, told) = mpsc::channel();
        let name = move |_: &mut paceline::TaskContext<'_>| {
            tell.send(thread::current().name().unwrap().to_owned())
                .unwrap();
        };
        levels.pool(&urgent).unwrap().post(name).unwrap();
        assert!(told.recv_timeout(LONG).unwrap().starts_with("urgent-"));
    });
}

/// Waits until it may go on.
struct Gate(mpsc::Sender<()>, Arc<Mutex<mpsc::Receiver<()>>>);

impl EventHandler<TcpStream> for Gate {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        self.0.send(()).unwrap();
        let _ = self.1.lock().unwrap().recv();
        echo(cx)
    }
}

/// S1, S2: all levels end together, in the time of one, with one report that names the level where
/// something was left.
#[test]
fn one_report_for_all() {
    bounded(|| {
        let levels = two();
        let [bulk, urgent] = levels.keys().unwrap();
        let (begun, has_begun) = mpsc::channel();
        let (go_on, gate) = mpsc::channel::<()>();
        let gate = Gate(begun, Arc::new(Mutex::new(gate)));
        let (near, mut far) = tcp_pair();
        let pool = levels.pool(&bulk).unwrap();
        pool.register(near, Interest::READ, gate).unwrap();
        far.write_all(&[1]).unwrap();
        has_begun.recv_timeout(LONG).unwrap();
        let (near, idle) = tcp_pair();
        let pool = levels.pool(&urgent).unwrap();
        pool.register(near, Interest::READ, echo).unwrap();
        asks(&idle, &[2]);
        // Long enough for the threads of a busy machine to leave the other level.
        let report = levels.shutdown(Duration::from_secs(1));
        assert!(!report.is_clean());
        assert!(report.levels[1].1.is_clean(), "{report}");
        let told = report.to_string();
        assert!(
            told.starts_with("bulk: ") && told.contains("stuck"),
            "{told}"
        );
        assert!(!told.contains("urgent"), "{told}");
        drop(go_on);
        wait_until(|| levels.pool(&bulk).unwrap().snapshot().threads == 0);
    });
}

/// A handler of one level ends them all, and is not waited for.
#[test]
fn shutdown_from_a_handler() {
    bounded(|| {
        let levels = Arc::new(two());
        let [bulk, _] = levels.keys().unwrap();
        let (tell, told) = mpsc::channel();
        let all = Arc::downgrade(&levels);
        let handler = move |cx: &mut Context<'_, _>| {
            let report = all.upgrade().unwrap().shutdown(LONG);
            tell.send(report.is_clean()).unwrap();
            echo(cx)
        };
        let (near, mut far) = tcp_pair();
        let pool = levels.pool(&bulk).unwrap();
        pool.register(near, Interest::READ, handler).unwrap();
        far.write_all(&[1]).unwrap();
        assert!(told.recv_timeout(LONG).unwrap());
    });
}

/// What the wanderers share.
struct World {
    levels: Vec<Level>,
    keys: Mutex<Vec<Handle>>,
    inside: Vec<AtomicBool>,
    closed: AtomicUsize,
}

/// Echoes, and moves now and then.
struct Wanderer {
    number: usize,
    random: Random,
    world: Arc<World>,
}

impl EventHandler<TcpStream> for Wanderer {
    fn ready(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let inside = &self.world.inside[self.number];
        assert!(!inside.swap(true, Ordering::Relaxed), "two threads (H1)");
        let told = self.serve(cx);
        self.world.inside[self.number].store(false, Ordering::Relaxed);
        told
    }

    fn moved(&mut self, handle: &Handle) {
        self.world.keys.lock().unwrap()[self.number] = handle.clone();
    }

    fn closed(&mut self, _: Closed) {
        self.world.closed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Wanderer {
    fn serve(&mut self, cx: &mut Context<'_, TcpStream>) -> io::Result<Next> {
        let mut buffer = [0; 7];
        let count = cx.read(&mut buffer)?;
        if count == 0 {
            return Ok(Next::Close);
        }
        cx.write_all(&buffer[..count])?;
        let levels = &self.world.levels;
        if self.random.once_in(3) {
            cx.move_to(&levels[self.random.below(levels.len() as u64) as usize])
        } else {
            Ok(Next::Continue)
        }
    }
}

/// H1, H2: sixteen connections wander between levels on all kinds of sets, by their handlers and
/// from outside, while their clients talk. Every byte comes back in order; each is with one thread
/// at a time; each end is told once.
#[test]
fn nothing_is_lost_under_load() {
    const CONNECTIONS: usize = 16;
    const BYTES: usize = 4000;
    bounded(|| {
        let sets = [SetKind::Epoll, SetKind::OneShot, SetKind::Concurrent];
        let levels = sets
            .iter()
            .enumerate()
            .fold(Levels::builder(), |all, (at, set)| {
                all.level(
                    at.to_string(),
                    Pool::builder().threads(2).handle_set(set.clone()),
                )
            });
        let levels = levels.build().unwrap();
        let keys = levels.keys::<3>().unwrap();
        let world = Arc::new(World {
            levels: keys.to_vec(),
            keys: Mutex::default(),
            inside: (0..CONNECTIONS).map(|_| AtomicBool::new(false)).collect(),
            closed: AtomicUsize::new(0),
        });
        let peers: Vec<_> = (0..CONNECTIONS)
            .map(|number| {
                let (near, far) = tcp_pair();
                let wanderer = Wanderer {
                    number,
                    random: Random::new(number as u64),
                    world: Arc::clone(&world),
                };
                let pool = levels.pool(&keys[number % 3]).unwrap();
                let handle = pool.register(near, Interest::READ, wanderer).unwrap();
                world.keys.lock().unwrap().push(handle);
                far
            })
            .collect();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| push_around(&world, &is_over));
            let clients: Vec<_> = peers
                .iter()
                .enumerate()
                .map(|(number, peer)| scope.spawn(move || talk(peer, number, BYTES)))
                .collect();
            for client in clients {
                client.join().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        drop(peers);
        let report = levels.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.to_string(), "everything was finished");
        assert_eq!(world.closed.load(Ordering::Relaxed), CONNECTIONS);
        let moved: u64 = levels.snapshot().iter().map(|(_, it)| it.moved).sum();
        assert!(moved as usize > CONNECTIONS, "{moved}");
    });
}

/// Sends bytes that tell their place, in pieces, and expects them back.
fn talk(peer: &TcpStream, number: usize, bytes: usize) {
    let mut random = Random::new(number as u64 + 100);
    let sent: Vec<u8> = (0..bytes).map(|at| (at * 31 + number) as u8).collect();
    let mut at = 0;
    while at < bytes {
        let end = bytes.min(at + 1 + random.below(40) as usize);
        (&*peer).write_all(&sent[at..end]).unwrap();
        let mut back = vec![0; end - at];
        (&*peer).read_exact(&mut back).unwrap();
        assert_eq!(back, sent[at..end]);
        at = end;
    }
}

/// Moves whatever is idle, from outside.
fn push_around(world: &World, is_over: &AtomicBool) {
    let mut random = Random::new(7);
    while !is_over.load(Ordering::Relaxed) {
        let keys = world.keys.lock().unwrap().clone();
        for key in keys {
            let level = &world.levels[random.below(3) as usize];
            match key.move_to(level) {
                Ok(Move::Moved(_) | Move::Busy) => {}
                // It was faster, and has another key already.
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::NotFound),
            }
        }
        support::pause();
    }
}

/// The example tells what each class has waited, with levels and without: every connection moves,
/// or none.
#[test]
fn the_example_tells_both_classes() {
    bounded(|| {
        for (words, moved) in [
            (&["--age-limit", "1"][..], "level urgent"),
            (&["--plain"], "level all"),
        ] {
            let mut command = std::process::Command::new(support::example("levels"));
            command.args(["--seconds", "1", "--bulk", "4"]).args(words);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{output:?}");
            let told = String::from_utf8(output.stdout).unwrap();
            for class in ["bulk: ", "urgent: "] {
                assert!(told.lines().any(|line| line.starts_with(class)), "{told}");
            }
            let level = told.lines().find(|line| line.starts_with(moved)).unwrap();
            let expected = match moved {
                "level all" => " 0 moved away",
                _ => " 4 moved away",
            };
            assert!(level.ends_with(expected), "{told}");
            assert!(told.ends_with("everything was finished\n"), "{told}");
        }
    });
}
