//! What a pool tells, as events of the crate `tracing`: with the feature of this name, to a
//! subscriber of our own.

use std::{
    fmt, io,
    sync::{Arc, Mutex, OnceLock},
    time::Duration,
};

use crate::support::{bounded, gate::Gate, wait_until};
use paceline::{
    observe::Traces,
    simulated::{SimStream, Simulation},
    Context, Interest, Next, Pool, SetKind,
};
use tracing::{
    field::{Field, Visit},
    span, Event, Level, Metadata, Subscriber,
};

/// Level, and all fields with their values.
type Line = (Level, String);

static LINES: OnceLock<Arc<Mutex<Vec<Line>>>> = OnceLock::new();

/// What was told about this pool. Events come from the pool's threads, so the subscriber is the
/// whole process's.
fn lines(pool: &str) -> Vec<Line> {
    let mut lines = LINES.get().unwrap().lock().unwrap().clone();
    lines.retain(|(_, text)| text.contains(&format!("pool={pool} ")));
    lines
}

fn listen() {
    LINES.get_or_init(|| {
        let lines = Arc::new(Mutex::new(Vec::new()));
        tracing::subscriber::set_global_default(Listener(Arc::clone(&lines))).unwrap();
        lines
    });
}

struct Listener(Arc<Mutex<Vec<Line>>>);

#[derive(Default)]
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!("{}={value:?} ", field.name());
    }
}

impl Subscriber for Listener {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        assert_eq!(event.metadata().target(), "paceline");
        let mut text = Text::default();
        event.record(&mut text);
        let line = (*event.metadata().level(), text.0);
        self.0.lock().unwrap().push(line);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// Whether there is a line of this level that contains all this.
fn has(pool: &str, level: Level, parts: &[&str]) -> bool {
    let fits = |text: &String| parts.iter().all(|part| text.contains(part));
    lines(pool)
        .iter()
        .any(|(of, text)| *of == level && fits(text))
}

/// Each kind of event has its level and its fields.
#[test]
fn everything_is_told_on_its_level() {
    bounded(|| {
        listen();
        let (world, gate) = (Simulation::new(1), Gate::shut());
        let pool = Pool::builder()
            .threads(2..=3)
            .name("traced")
            .observer(Traces::new("traced"))
            .stuck_after(Duration::from_secs(5), |_| {})
            .handle_set(SetKind::Simulated(world.clone()));
        let pool = pool.build().unwrap();
        type Ready = fn(&mut Context<'_, SimStream>) -> io::Result<Next>;
        let ways: [Ready; 2] = [|_| Err(io::Error::other("no")), |_| panic!("ouch")];
        for ready in ways {
            let (stream, peer) = world.stream();
            pool.register(stream, Interest::READ, ready).unwrap();
            peer.send(b"x");
            peer.wait_closed();
        }
        // The source is gone before its end is told, and either of the two may be the only one that
        // has led so far.
        wait_until(|| {
            has(
                "traced",
                Level::WARN,
                &["handle=", "error=no", "a handle failed"],
            )
        });
        wait_until(|| {
            has(
                "traced",
                Level::ERROR,
                &["handle=", "ouch", "a handler panicked"],
            )
        });
        wait_until(|| has("traced", Level::TRACE, &["thread=", "role=leader"]));

        let peers = [(); 2].map(|()| {
            let (stream, peer) = world.stream();
            let gate = Arc::clone(&gate);
            let handler = move |cx: &mut Context<'_, SimStream>| {
                cx.read(&mut [0; 8])?;
                cx.blocking(|| gate.pass());
                Ok(Next::Continue)
            };
            pool.register(stream, Interest::READ, handler).unwrap();
            peer.send(b"x");
            peer
        });
        gate.wait_for(2);
        wait_until(|| has("traced", Level::DEBUG, &["thread=2", "a thread was called"]));
        wait_until(|| {
            world.clock().advance(Duration::from_secs(5));
            has(
                "traced",
                Level::WARN,
                &["thread=\"traced-", "lasts=", "a handler is stuck"],
            )
        });
        gate.let_through(2);
        wait_until(|| {
            world.clock().advance(Duration::from_secs(10));
            has("traced", Level::WARN, &["a handler is back"])
                && has("traced", Level::DEBUG, &["a thread was let go"])
        });
        drop(peers);
    });
}

/// A handler that leaves its input unread is a warning, with its name.
#[test]
fn unread_input_is_a_warning() {
    bounded(|| {
        listen();
        let world = Simulation::new(1);
        let pool = Pool::builder()
            .threads(1)
            .unread_limit(3)
            .observer(Traces::new("unread"))
            .handle_set(SetKind::Simulated(world.clone()))
            .build()
            .unwrap();
        let (stream, peer) = world.stream();
        let deaf = |_: &mut Context<'_, SimStream>| Ok(Next::Continue);
        pool.register(stream, Interest::READ, deaf).unwrap();
        peer.send(b"x");
        let parts = ["handle=", "handler=", "calls=3", "leaves input unread"];
        wait_until(|| has("unread", Level::WARN, &parts));
    });
}
