//! A session that notes each call, and does what the test says.

use std::{
    io,
    sync::{Arc, Mutex},
};

use paceline_server::{
    codec::{Malformed, Message},
    Ended, Limit, Next, Peer, Session,
};

use super::wait_until_or;

/// The calls of all sessions of a test, in their order.
#[derive(Clone, Default)]
pub struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    pub fn note(&self, call: impl Into<String>) {
        self.0.lock().unwrap().push(call.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    /// Waits for a call.
    pub fn wait_for(&self, call: &str) {
        wait_until_or(
            || self.has(call),
            || format!("no call {call:?} among {:?}", self.all()),
        );
    }

    pub fn has(&self, call: &str) -> bool {
        self.all().iter().any(|noted| noted == call)
    }

    /// How many calls begin with `start`.
    pub fn count(&self, start: &str) -> usize {
        let all = self.all();
        all.iter().filter(|call| call.starts_with(start)).count()
    }
}

type OnCall = Box<dyn FnMut(&mut Peer<'_>) -> io::Result<Next> + Send>;
type OnItem = Box<dyn FnMut(&Message<'_>, &mut Peer<'_>) -> io::Result<Next> + Send>;
type OnLimit = Box<dyn FnMut(Limit, &mut Peer<'_>) -> Next + Send>;
type OnEnd = Box<dyn FnMut(&mut Peer<'_>) -> Next + Send>;
type OnWord = Box<dyn FnMut(&mut Peer<'_>) + Send>;

/// A session that notes each call, and echoes items unless the test says otherwise.
pub struct Actor {
    calls: Calls,
    on_start: OnCall,
    on_item: OnItem,
    on_again: OnCall,
    on_limit: OnLimit,
    on_malformed: OnWord,
    on_ended: OnCall,
    on_draining: OnEnd,
}

impl Actor {
    pub fn new(calls: &Calls) -> Self {
        Self {
            calls: calls.clone(),
            on_start: Box::new(|_| Ok(Next::Continue)),
            on_item: Box::new(|item, cx| {
                cx.reply(item)?;
                Ok(Next::Continue)
            }),
            on_again: Box::new(|_| Ok(Next::Continue)),
            on_limit: Box::new(|_, _| Next::Close),
            on_malformed: Box::new(|_| {}),
            on_ended: Box::new(|_| Ok(Next::Close)),
            on_draining: Box::new(|_| Next::CloseGently),
        }
    }

    pub fn on_start(
        mut self,
        act: impl FnMut(&mut Peer<'_>) -> io::Result<Next> + Send + 'static,
    ) -> Self {
        self.on_start = Box::new(act);
        self
    }

    pub fn on_item(
        mut self,
        act: impl FnMut(&Message<'_>, &mut Peer<'_>) -> io::Result<Next> + Send + 'static,
    ) -> Self {
        self.on_item = Box::new(act);
        self
    }

    pub fn on_again(
        mut self,
        act: impl FnMut(&mut Peer<'_>) -> io::Result<Next> + Send + 'static,
    ) -> Self {
        self.on_again = Box::new(act);
        self
    }

    pub fn on_limit(
        mut self,
        act: impl FnMut(Limit, &mut Peer<'_>) -> Next + Send + 'static,
    ) -> Self {
        self.on_limit = Box::new(act);
        self
    }

    pub fn on_malformed(mut self, act: impl FnMut(&mut Peer<'_>) + Send + 'static) -> Self {
        self.on_malformed = Box::new(act);
        self
    }

    pub fn on_ended(
        mut self,
        act: impl FnMut(&mut Peer<'_>) -> io::Result<Next> + Send + 'static,
    ) -> Self {
        self.on_ended = Box::new(act);
        self
    }

    pub fn on_draining(mut self, act: impl FnMut(&mut Peer<'_>) -> Next + Send + 'static) -> Self {
        self.on_draining = Box::new(act);
        self
    }
}

impl Session for Actor {
    fn start(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.calls.note("start");
        (self.on_start)(cx)
    }

    fn handle(&mut self, item: Message<'_>, cx: &mut Peer<'_>) -> io::Result<Next> {
        let shown = String::from_utf8_lossy(&item[..item.len().min(40)]).into_owned();
        self.calls.note(format!("handle {shown}"));
        (self.on_item)(&item, cx)
    }

    fn again(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.calls.note("again");
        (self.on_again)(cx)
    }

    fn overdue(&mut self, limit: Limit, cx: &mut Peer<'_>) -> Next {
        self.calls.note(format!("overdue {limit}"));
        (self.on_limit)(limit, cx)
    }

    fn malformed(&mut self, why: Malformed, cx: &mut Peer<'_>) {
        self.calls.note(format!("malformed {why}"));
        (self.on_malformed)(cx);
    }

    fn ended(&mut self, cx: &mut Peer<'_>) -> io::Result<Next> {
        self.calls.note("ended");
        (self.on_ended)(cx)
    }

    fn draining(&mut self, cx: &mut Peer<'_>) -> Next {
        self.calls.note("draining");
        (self.on_draining)(cx)
    }

    fn closed(&mut self, why: &Ended) {
        self.calls.note(format!("closed: {why}"));
    }
}
