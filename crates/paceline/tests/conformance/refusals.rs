//! What a set refuses, and what becomes of it then.

use std::{
    fs::File,
    io::{self, ErrorKind, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{mpsc, Arc, Mutex},
};

use crate::support::{
    by_hand::{claim, lead},
    told,
    unowned::Unowned,
};
use paceline::{Closed, ConcurrentContext, ConcurrentHandler, Context, Interest, Next};

use super::world::{until_dry, Set, World};

/// A file or a directory is always ready, so it can't be waited for. epoll says so; `poll` would
/// tell it without end. Every set refuses it, says why, and gives everything back.
fn regular_files_are_refused(set: Set) {
    let world = World::new(set);
    let folder = env!("CARGO_MANIFEST_DIR");
    for path in [format!("{folder}/Cargo.toml"), folder.to_owned()] {
        let handler = |_: &mut Context<'_, File>| Ok(Next::Continue);
        let file = File::open(&path).unwrap();
        let told = world.pool.register(file, Interest::READ, handler);
        let rejected = told.map(drop).unwrap_err();
        assert_eq!(rejected.error.kind(), ErrorKind::PermissionDenied);
        let text = rejected.to_string();
        assert!(text.contains("a regular file or a directory"), "{text}");
        let (file, _handler) = rejected.value;
        assert!(file.metadata().is_ok(), "it is open");
    }
    assert_eq!(world.work(), 0);
}
on_kernel_sets!(regular_files_are_refused);

/// A descriptor can be registered once. The second registration is refused and gives source and
/// handler back; the first one goes on as if nothing had been.
fn registering_twice_is_refused(set: Set) {
    let world = World::new(set);
    let (near, far) = world.pair();
    let (first, reads) = until_dry();
    let handle = world.pool.register(near.clone(), Interest::READ, first);
    let handle = handle.unwrap();
    let (second, others_reads) = until_dry();
    let told = world.pool.register(near.clone(), Interest::READ, second);
    let rejected = told.map(drop).unwrap_err();
    assert_eq!(rejected.error.kind(), ErrorKind::AlreadyExists);
    let text = rejected.to_string();
    assert!(text.contains("registered already"), "{text}");
    let (source, second) = rejected.value;
    assert!(source.is(&near));

    for round in 0..3 {
        far.send(&[round]);
        assert_eq!(world.work(), 1);
        assert_eq!(reads.try_iter().collect::<Vec<_>>(), [[round]]);
    }
    // When the first one is over, what was given back will do.
    handle.close().unwrap();
    world.pool.register(source, Interest::READ, second).unwrap();
    far.send(b"x");
    assert_eq!(world.work(), 1);
    assert_eq!(others_reads.try_iter().collect::<Vec<_>>(), [b"x"]);
    assert!(reads.try_recv().is_err());
}
on_every_set!(registering_twice_is_refused);

/// A source that has lost its descriptor: the set refuses to be armed for it again. The handle is
/// closed, and is told why.
fn what_is_refused_later_is_told(set: Set) {
    let world = World::new(set);
    let (near, mut far) = UnixStream::pair().unwrap();
    let source = Fleeting {
        descriptor: Unowned(near.as_raw_fd()),
        stream: Mutex::new(Some(near)),
    };
    let (handler, end) = told(|cx: &mut Context<'_, Fleeting>| {
        cx.try_read(|source| {
            source.stream.lock().unwrap().take();
            Err(ErrorKind::WouldBlock.into())
        })
    });
    let handle = world.pool.register(source, Interest::READ, handler);
    let handle = handle.unwrap();
    far.write_all(b"x").unwrap();
    world.work();
    let why = end.try_recv().unwrap();
    assert!(
        matches!(&why, Closed::Failed(error) if error.to_string().contains("arm descriptor")),
        "{why}"
    );
    assert_eq!(handle.close().unwrap_err().kind(), ErrorKind::NotFound);
}
on_sets!(what_is_refused_later_is_told: one_shot, concurrent);

/// The same for a handle that several threads may use: it is armed before it is used, so it loses
/// its descriptor before that.
fn what_is_refused_to_several_is_told(set: Set) {
    struct Shared(Mutex<mpsc::Sender<Closed>>);
    impl ConcurrentHandler<Arc<Fleeting>> for Shared {
        fn ready(&self, _: &mut ConcurrentContext<'_, Arc<Fleeting>>) -> io::Result<Next> {
            Ok(Next::Continue)
        }

        fn closed(&self, why: Closed) {
            self.0.lock().unwrap().send(why).unwrap();
        }
    }
    let world = World::new(set);
    let (near, mut far) = UnixStream::pair().unwrap();
    let source = Arc::new(Fleeting {
        descriptor: Unowned(near.as_raw_fd()),
        stream: Mutex::new(Some(near)),
    });
    let (tell, end) = mpsc::channel();
    let handler = Shared(Mutex::new(tell));
    let registered = world
        .pool
        .register_concurrent(Arc::clone(&source), Interest::READ, handler);
    registered.unwrap();
    far.write_all(b"x").unwrap();
    let claimed = claim(lead(&world.pool));
    source.stream.lock().unwrap().take();
    drop(claimed.promote().run());
    world.work();
    let why = end.try_recv().unwrap();
    assert!(
        matches!(&why, Closed::Failed(error) if error.to_string().contains("arm descriptor")),
        "{why}"
    );
}
on_sets!(what_is_refused_to_several_is_told: one_shot);

struct Fleeting {
    descriptor: Unowned,
    stream: Mutex<Option<UnixStream>>,
}

impl AsFd for Fleeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
