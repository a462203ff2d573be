//! What each of the pool's own threads begins with: its cores and its nice value.

use std::{
    fs,
    sync::{mpsc, Arc},
    thread,
};

use crate::support::{
    bounded,
    by_hand::{own_task, status},
    gate::Gate,
    stage::Stage,
    LONG,
};
use paceline::{simulated::SimStream, Context, Next};

/// Each of the pool's own threads is where it shall be, and as nice, before it handles anything:
/// also one that was called later. The kernel says so.
#[test]
fn threads_have_their_cores_and_nice_values() {
    bounded(|| {
        let core = first_core();
        let stage = Stage::new(1, |pool| {
            pool.threads(1..=2)
                .name("thread_settings")
                .thread_affinity(move |_| vec![core])
                .thread_nice(|index| 3 + index as i32)
        });
        let (tell, told) = mpsc::channel();
        let gate = Gate::shut();
        for _ in 0..2 {
            let (tell, gate) = (tell.clone(), Arc::clone(&gate));
            let peer = stage.serve(move |cx: &mut Context<'_, SimStream>| {
                cx.read(&mut [0; 8])?;
                tell.send(thread_settings()).unwrap();
                gate.pass();
                Ok(Next::Close)
            });
            peer.send(b"x");
        }
        let mut seen: Vec<_> = told.iter().take(2).collect();
        seen.sort_unstable();
        let expected = |index: i32| {
            (
                format!("thread_settings-{index}"),
                core.to_string(),
                3 + index,
            )
        };
        assert_eq!(seen, [expected(0), expected(1)]);
        gate.let_through(2);
        let report = stage.pool.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
    });
}

/// A core that does not exist, and a user who does not know: both are told, and the thread does
/// without.
#[test]
fn a_thread_does_without_what_it_can_not_have() {
    bounded(|| {
        let (tell, told) = mpsc::channel();
        let stage = Stage::new(1, move |pool| {
            pool.thread_affinity(|_| vec![65_000])
                .thread_nice(|_| panic!("how nice?"))
                .on_error(move |error| tell.send(error.to_string()).unwrap())
        });
        stage.ask(&stage.echo(), 0);
        let [cores, nice] = [(); 2].map(|()| told.recv_timeout(LONG).unwrap());
        assert!(
            cores.starts_with("thread_affinity of thread 0: "),
            "{cores}"
        );
        assert_eq!(nice, "thread_nice(0) panicked: how nice?");
        assert_eq!(stage.pool.shutdown(LONG).errors.len(), 2);
    });
}

/// The first core that this thread may use.
fn first_core() -> usize {
    let list = status(own_task(), "Cpus_allowed_list:");
    let first = list.split(|other: char| !other.is_ascii_digit()).next();
    first.unwrap().parse().unwrap()
}

/// The calling thread's name, cores and nice value, as the kernel tells them.
fn thread_settings() -> (String, String, i32) {
    let name = thread::current().name().unwrap().to_owned();
    let cores = status(own_task(), "Cpus_allowed_list:");
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The second field is the name, in parentheses; nice is the nineteenth.
    let after_name = stat.rsplit_once(')').unwrap().1;
    let nice = after_name.split_whitespace().nth(16).unwrap();
    (name, cores, nice.parse().unwrap())
}
