//! The handlers: an echo that misbehaves as its script says, and the handler of a group of such
//! connections.

use std::{
    io::{self, IoSlice, Read, Write},
    sync::{
        atomic::{AtomicBool, Ordering},
        Arc,
    },
    thread,
    time::{Duration, Instant},
};

use paceline::{
    Closed, Context, Errand, EventHandler, GroupHandler, Handle, HandlerKind, InHandler, Members,
    Next, Overdue, Piece,
};

use crate::misuse::{
    ledger::{Bomb, Kind, Life},
    ops::{Act, AtClosed, Script, WhenOverdue, Work},
    wire::{Wire, NO_ECHO},
    world::World,
};

/// The largest piece that is read; smaller than every output limit.
const PIECE: usize = 512;

/// The handler of one connection.
#[derive(Debug)]
pub(crate) struct Service {
    world: Arc<World>,
    script: Script,
    calls: usize,
    knows_handle: bool,
    is_closed: bool,
    inside: AtomicBool,
    pub(crate) life: Life,
    _bomb: Bomb,
}

impl Service {
    pub(crate) fn new(world: &Arc<World>, script: Script, what: &'static str) -> Self {
        Self::of_kind(Kind::Handler, world, script, what)
    }

    /// A handler that a listener's maker makes.
    pub(crate) fn made(world: &Arc<World>, script: Script) -> Self {
        Self::of_kind(Kind::Made, world, script, "an accepted handler")
    }

    fn of_kind(kind: Kind, world: &Arc<World>, script: Script, what: &'static str) -> Self {
        Self {
            life: world.ledger.begin(kind, what),
            _bomb: Bomb(script.drop_panics),
            world: Arc::clone(world),
            script,
            calls: 0,
            knows_handle: false,
            is_closed: false,
            inside: AtomicBool::new(false),
        }
    }

    fn begin<S>(&mut self, cx: &Context<'_, S>) {
        if self.is_closed {
            self.complain("H3: called after its end");
        }
        if self.inside.swap(true, Ordering::SeqCst) {
            self.complain("H1: two threads in one handler");
        }
        if !self.knows_handle {
            self.knows_handle = true;
            self.world.ledger.set_handle(self.life.id, cx.handle());
        }
    }

    /// One call of the handler, which may panic.
    fn watched<S>(
        &mut self,
        cx: &mut Context<'_, S>,
        call: impl FnOnce(&mut Self, &mut Context<'_, S>) -> io::Result<Next>,
    ) -> io::Result<Next> {
        self.begin(cx);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| call(self, cx)));
        self.inside.store(false, Ordering::SeqCst);
        outcome.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// A time of the handle is over. At rest a deadline changes nothing; a handle that is idle
    /// ends, for otherwise it would be idle again and again.
    fn answer_overdue<S>(&mut self, cx: &mut Context<'_, S>, what: Overdue) -> io::Result<Next>
    where
        for<'s> &'s S: Read + Write,
    {
        let Some(_acting) = self.world.act() else {
            return match what {
                Overdue::Deadline => Ok(Next::Continue),
                _ => Err(io::ErrorKind::TimedOut.into()),
            };
        };
        match self.script.when_overdue {
            WhenOverdue::Fail => Err(io::ErrorKind::TimedOut.into()),
            WhenOverdue::GoOn => Ok(Next::Continue),
            WhenOverdue::LastWord => {
                cx.write_all(&[NO_ECHO])?;
                Ok(Next::CloseGently)
            }
            WhenOverdue::Panic => panic!("misuse: in overdue"),
        }
    }

    fn complain(&self, what: &str) {
        let text = format!("{what} (value {})", self.life.id);
        self.world.ledger.complain(text);
    }

    fn serve<S>(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next>
    where
        for<'s> &'s S: Read + Write,
    {
        let act = self.script.acts.get(self.calls).cloned().flatten();
        self.calls += 1;
        if let (Some(act), Some(_acting)) = (act, self.world.act()) {
            if let Some(next) = self.act(cx, act)? {
                return Ok(next);
            }
        }
        self.echo(cx)
    }

    fn echo<S>(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next>
    where
        for<'s> &'s S: Read + Write,
    {
        if cx.unsent() > 0 {
            // It would be called again and again, and do nothing.
            cx.read_while_sending(false);
        }
        while cx.unsent() == 0 {
            let mut buffer = [0; PIECE];
            let count = cx.read(&mut buffer)?;
            if count == 0 {
                return Ok(Next::Close);
            }
            cx.write_all(&buffer[..count])?;
            if !self.script.thorough {
                break;
            }
        }
        Ok(Next::Continue)
    }

    /// Does what the script says. `Some`: the call ends with it.
    fn act<S>(&mut self, cx: &mut Context<'_, S>, act: Act) -> io::Result<Option<Next>>
    where
        for<'s> &'s S: Read + Write,
    {
        let world = Arc::clone(&self.world);
        match act {
            Act::Panic => panic!("misuse: in a handler"),
            Act::Fail => return Err(io::Error::other("misuse: a handler fails")),
            Act::Close => return Ok(Some(Next::Close)),
            Act::CloseGently => return Ok(Some(Next::CloseGently)),
            Act::LeaveUnread => return Ok(Some(Next::Continue)),
            Act::Deadline(within) => cx.set_deadline(within),
            Act::BeginKind(number) => {
                if let Some(kind) = world.kind(number) {
                    cx.begin_kind(&kind);
                }
            }
            Act::Again => return Ok(Some(Next::Again)),
            Act::Ask(slot, ask) => drop(world.ask(slot, ask)),
            Act::CloseItselfAndWait => {
                if cx.handle().close_and_wait().is_ok() {
                    self.complain("close_and_wait from its own handler returned");
                }
            }
            Act::CloseOther(slot) => drop(world.ask(slot, crate::misuse::ops::Ask::Close)),
            Act::ReleaseThen { ask, panics } => after_release(cx, &world, ask, panics),
            Act::Block(span) => cx.blocking(|| thread::sleep(span)),
            Act::Compute(span) => compute(span),
            Act::WakeFollower => cx.wake_follower(),
            Act::Serve { within, serve } => {
                let errand = Errand {
                    within: Some(within),
                    serve: serve.get(),
                    own: None,
                };
                drop(cx.serve_until(errand, || false));
            }
            Act::Post(work) => {
                if let Some(pool) = world.pool(0) {
                    drop(world.post(&pool, work));
                }
            }
            Act::ShutDown(within) => world.shut_down(self.calls, within),
            Act::DropPool => world.drop_pool(self.calls),
            Act::Join => self.join(),
            Act::Flood(bytes) => drop(cx.write_all(&vec![NO_ECHO; bytes])),
            Act::FloodInParts { bytes, owned } => drop(flood_in_parts(cx, bytes, owned)),
            Act::MoveTo(level) => {
                if let Some(level) = world.levels.get(level) {
                    return Ok(cx.move_to(level).ok());
                }
            }
            Act::ReadWhileSending => cx.read_while_sending(true),
        }
        Ok(None)
    }

    /// A handler may not join its own pool; that of another level it may.
    fn join(&self) {
        if let (Some(pool), true) = (self.world.pool(0), self.world.pools.len() == 1) {
            if pool.join().is_ok() && pool.post(|_| ()).is_ok() {
                self.complain("joined from a handler");
            }
        }
    }
}

fn after_release<S>(
    cx: &mut Context<'_, S>,
    world: &Arc<World>,
    ask: Option<(usize, crate::misuse::ops::Ask)>,
    panics: bool,
) {
    let life = world.ledger.begin(Kind::Once, "work for afterwards");
    life.accept();
    let world = Arc::clone(world);
    cx.after_release(move |_| {
        life.called();
        let Some(_acting) = world.act() else { return };
        if let Some((slot, ask)) = ask {
            drop(world.ask(slot, ask));
        }
        if panics {
            panic!("misuse: in work for afterwards");
        }
    });
}

/// Sends so many bytes in three parts, of which one is empty.
fn flood_in_parts<S>(cx: &mut Context<'_, S>, bytes: usize, owned: bool) -> io::Result<()>
where
    for<'s> &'s S: Read + Write,
{
    let parts = [
        vec![NO_ECHO; bytes / 2],
        Vec::new(),
        vec![NO_ECHO; bytes - bytes / 2],
    ];
    if owned {
        cx.send_all(&mut parts.map(Piece::from))
    } else {
        cx.write_all_vectored(&parts.each_ref().map(|part| IoSlice::new(part)))
    }
}

fn compute(span: Duration) {
    let start = Instant::now();
    while start.elapsed() < span {
        std::hint::spin_loop();
    }
}

impl<S> EventHandler<S> for Service
where
    for<'s> &'s S: Read + Write,
{
    fn ready(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        self.watched(cx, Self::serve)
    }

    fn kind(&self) -> Option<HandlerKind> {
        self.world.kind(self.script.kind?)
    }

    fn overdue(&mut self, cx: &mut Context<'_, S>, what: Overdue) -> io::Result<Next> {
        self.watched(cx, |service, cx| service.answer_overdue(cx, what))
    }

    fn speaks_first(&self) -> bool {
        self.script.speaks_first
    }

    fn connected(&mut self, cx: &mut Context<'_, S>) -> io::Result<Next> {
        self.begin(cx);
        self.inside.store(false, Ordering::SeqCst);
        cx.write_all(&[NO_ECHO])?;
        Ok(Next::Continue)
    }

    fn expired(&mut self, cx: &mut Context<'_, S>, _: Duration) -> io::Result<Next> {
        if self.script.patient {
            return self.ready(cx);
        }
        Err(io::Error::other("misuse: it waited for too long"))
    }

    fn moved(&mut self, handle: &Handle) {
        self.knows_handle = true;
        self.world.ledger.set_handle(self.life.id, handle.clone());
    }

    fn closed(&mut self, _: Closed) {
        self.life.closed();
        self.is_closed = true;
        end(&self.world, self.script.at_closed);
    }
}

/// What a handler does at its end.
fn end(world: &Arc<World>, at_closed: Option<AtClosed>) {
    let (Some(at_closed), Some(_acting)) = (at_closed, world.act()) else {
        return;
    };
    match at_closed {
        AtClosed::Panic => panic!("misuse: in closed"),
        AtClosed::Ask(slot, ask) => drop(world.ask(slot, ask)),
        AtClosed::Post => {
            if let Some(pool) = world.pool(0) {
                drop(world.post(&pool, Work::default()));
            }
        }
    }
}

/// The handler of a group.
#[derive(Debug)]
pub(crate) struct Grouped {
    inner: Service,
    stays: bool,
}

impl Grouped {
    pub(crate) fn new(world: &Arc<World>, script: Script) -> Self {
        let mut inner = Service::new(world, script, "the handler of a group");
        inner.knows_handle = true;
        Self {
            stays: inner.script.patient,
            inner,
        }
    }
}

impl Grouped {
    pub(crate) fn id(&self) -> crate::misuse::ledger::Id {
        self.inner.life.id
    }
}

impl GroupHandler<Wire> for Grouped {
    fn ready(
        &mut self,
        cx: &mut Context<'_, Wire>,
        members: &mut Members<'_, Wire>,
    ) -> io::Result<Next> {
        if let Some(life) = &cx.source().life {
            life.ledger().set_handle(life.id, cx.handle());
        }
        if let Some(group) = self.inner.world.group(self.inner.calls % 2) {
            if self.inner.calls % 5 == 4 && self.inner.script.speaks_first {
                drop(members.move_to(&cx.handle(), &group.0));
            }
        }
        EventHandler::ready(&mut self.inner, cx)
    }

    fn kind(&self) -> Option<HandlerKind> {
        EventHandler::<Wire>::kind(&self.inner)
    }

    fn overdue(
        &mut self,
        cx: &mut Context<'_, Wire>,
        what: Overdue,
        _: &mut Members<'_, Wire>,
    ) -> io::Result<Next> {
        EventHandler::overdue(&mut self.inner, cx, what)
    }

    fn closed(&mut self, member: &Handle, _: Closed, _: &mut Members<'_, Wire>) {
        let mut ends = self.inner.world.member_ends.lock().unwrap();
        *ends.entry(member.clone()).or_default() += 1;
        drop(ends);
        end(&self.inner.world, self.inner.script.at_closed);
    }

    fn deserted(&mut self) -> Next {
        if self.stays {
            Next::Continue
        } else {
            Next::Close
        }
    }

    fn ended(&mut self, why: Closed) {
        EventHandler::<Wire>::closed(&mut self.inner, why);
    }
}
