//! L5, the other half: a panic of the pool's own code, or of an observer, which runs in the middle
//! of it, ends the process. What it leaves behind could keep no promise.

use std::{
    env, os::unix::process::ExitStatusExt, process::Command, sync::mpsc, thread, time::Duration,
};

use crate::support::name_of;
use paceline::{
    observe::{Observer, Role},
    Pool,
};

struct Fragile;

impl Observer for Fragile {
    fn role_changed(&self, _thread: usize, role: Role) {
        assert_ne!(role, Role::Leader, "the observer is not up to it");
    }
}

/// On a thread of the pool's own, and on one that joined: the process dies of SIGABRT, and has said
/// why.
#[test]
fn panic_of_an_observer_aborts() {
    const NAME: &str = "panic_of_an_observer_aborts";
    const CHILD: &str = "PACELINE_TEST_CHILD";
    if let Ok(threads) = env::var(CHILD) {
        let threads: usize = threads.parse().unwrap();
        let pool = Pool::builder().threads(threads).observer(Fragile);
        let pool = pool.build().unwrap();
        let joiner = pool.clone();
        let joined = thread::spawn(move || (threads == 0).then(|| joiner.join()));
        // Nothing comes, and the process does not live that long.
        let (_never, nothing) = mpsc::channel::<()>();
        let _ = nothing.recv_timeout(Duration::from_secs(10));
        eprintln!("it goes on: {:?}", joined.join());
        return;
    }
    for threads in ["0", "1"] {
        let mut child = Command::new(env::current_exe().unwrap());
        let told = child.args(["--exact", &name_of(module_path!(), NAME), "--nocapture"]);
        let told = told.env(CHILD, threads).output().unwrap();
        let said = String::from_utf8_lossy(&told.stderr);
        assert_eq!(told.status.signal(), Some(6), "{}: {said}", told.status);
        assert!(said.contains("the pool's own code panicked"), "{said}");
        assert!(!said.contains("it goes on"), "{said}");
    }
}
