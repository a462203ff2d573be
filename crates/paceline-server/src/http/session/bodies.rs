//! The body of a request, on its way to the handler: whole, pushed, pulled, or dropped.

use std::{io, sync::Arc};

use paceline::Next;

use super::{rest_of, Asked, Cx, HttpSession, Reading, Rest};
use crate::http::{
    calls::{call_given, call_push, push_on, Pushing, Turn},
    gather::{Gathered, Gathering, Place},
    outgoing,
    protocol::{BodyStart, Head},
    pull::{Pipe, Pull, Pulling},
    refusals::{overloaded, too_long},
    response::Decided,
    router::Route,
    Body, Error, Response,
};

impl HttpSession {
    /// The body of a request comes later, or has begun to come.
    pub(super) fn begin_body(
        &mut self,
        head: Head<'_>,
        route: &Arc<Route>,
        asked: Asked,
        limit: u64,
        expected: Option<u64>,
        cx: &mut Cx<'_>,
    ) -> io::Result<Next> {
        let expects = head.expects_continue();
        match route.body {
            Body::Whole => {
                self.reading = Reading::Whole(Box::new(Gathering {
                    head: head.keep(),
                    route: Arc::clone(route),
                    asked,
                    limit,
                    expected,
                    body: Gathered::default(),
                }));
            }
            Body::Push => {
                let mut turn = Turn::new(cx, &mut self.output, self.requests);
                let push = match call_push(&self.app, &head, &mut turn) {
                    Decided::Push(push) => push,
                    now => {
                        let rest = rest_of(&head, BodyStart::Follows { length: None });
                        return self.answer(now, asked, rest, cx);
                    }
                };
                self.reading = Reading::Push(Box::new(Pushing {
                    push,
                    head: head.keep(),
                    route: Arc::clone(route),
                    asked,
                    limit,
                    length: 0,
                }));
            }
            Body::Pull => match self.begin_pull(head, route, asked, cx) {
                Ok(()) => {}
                Err(refusal) => {
                    return self.answer(Decided::Now(*refusal), asked, Rest::Unwanted, cx);
                }
            },
        }
        if expects {
            self.output
                .extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
        }
        Ok(Next::Continue)
    }

    /// Gives a request to a thread of its own; or the answer, if there is none.
    fn begin_pull(
        &mut self,
        head: Head<'_>,
        route: &Arc<Route>,
        asked: Asked,
        cx: &mut Cx<'_>,
    ) -> Result<(), Box<Response>> {
        let Some(permit) = self.app.permit() else {
            let refusal = overloaded("as many bodies are read as may be at once");
            return Err(Box::new(refusal));
        };
        let pipe = Arc::new(Pipe::new(cx.remote()));
        let pull = Pull {
            app: Arc::clone(&self.app),
            route: Arc::clone(route),
            head: head.keep(),
            number: self.requests,
            permit,
            #[cfg(feature = "_tls")]
            tls: cx.tls().cloned(),
        };
        if let Err(error) = pull.start(&pipe) {
            return Err(Box::new(overloaded(error)));
        }
        self.reading = Reading::Pull(Box::new(Pulling {
            asked,
            pipe,
            has_all: false,
            input_ended: false,
        }));
        Ok(())
    }

    /// A part of a body has come.
    pub(super) fn data(
        &mut self,
        bytes: &[u8],
        is_last: bool,
        cx: &mut Cx<'_>,
    ) -> io::Result<Next> {
        outgoing::prepare(&mut self.output);
        match std::mem::replace(&mut self.reading, Reading::Head) {
            Reading::Whole(gathering) => self.gather(gathering, bytes, is_last, cx),
            Reading::Push(pushing) => self.push(pushing, bytes, is_last, cx),
            Reading::Pull(mut pulling) => {
                pulling.pipe.push(bytes, is_last);
                pulling.has_all = is_last;
                self.reading = Reading::Pull(pulling);
                Ok(Next::Continue)
            }
            Reading::Drop(left) => match left.checked_sub(bytes.len() as u64) {
                None => Ok(Next::CloseGently),
                Some(_) if is_last => Ok(Next::Continue),
                Some(left) => {
                    self.reading = Reading::Drop(left);
                    Ok(Next::Continue)
                }
            },
            // No such item follows them.
            reading @ (Reading::Head | Reading::Socket(_) | Reading::Events) => {
                self.reading = reading;
                Ok(Next::Continue)
            }
        }
    }

    fn gather(
        &mut self,
        mut gathering: Box<Gathering>,
        bytes: &[u8],
        is_last: bool,
        cx: &mut Cx<'_>,
    ) -> io::Result<Next> {
        let Gathering { asked, limit, .. } = *gathering;
        let rest = if is_last {
            Rest::Nothing
        } else {
            Rest::Unwanted
        };
        if gathering.body.length() + bytes.len() as u64 > limit {
            return self.answer(Decided::Now(too_long(limit)), asked, rest, cx);
        }
        let folder = &self.app.store.folder;
        let expected = gathering.expected;
        let body = &mut gathering.body;
        let place = body.place_for(bytes.len(), expected, &self.app.store);
        let added = match place {
            Place::Memory => body.add(bytes, place, folder),
            Place::File => cx.blocking(|| body.add(bytes, place, folder)),
        };
        if let Err(error) = added {
            let refusal = overloaded(format!("keep a body in {}: {error}", folder.display()));
            return self.answer(Decided::Now(refusal), asked, rest, cx);
        }
        if !is_last {
            self.reading = Reading::Whole(gathering);
            return Ok(Next::Continue);
        }
        let Gathering {
            head,
            route,
            mut body,
            ..
        } = *gathering;
        let mut turn = Turn::new(cx, &mut self.output, self.requests);
        let decided = match body.give() {
            Ok(given) => call_given(&self.app, &route, &head.head(), given, &mut turn),
            Err(error) => Decided::Now(Error::from(error).into_response()),
        };
        self.answer(decided, asked, Rest::Nothing, cx)
    }

    fn push(
        &mut self,
        mut pushing: Box<Pushing>,
        bytes: &[u8],
        is_last: bool,
        cx: &mut Cx<'_>,
    ) -> io::Result<Next> {
        let asked = pushing.asked;
        let rest = if is_last {
            Rest::Nothing
        } else {
            Rest::Unwanted
        };
        pushing.length += bytes.len() as u64;
        if pushing.length > pushing.limit {
            let refusal = too_long(pushing.limit);
            return self.answer(Decided::Now(refusal), asked, rest, cx);
        }
        let mut turn = Turn::new(cx, &mut self.output, self.requests);
        match push_on(&self.app, pushing, bytes, is_last, &mut turn) {
            Ok(pushing) => {
                self.reading = Reading::Push(pushing);
                Ok(Next::Continue)
            }
            Err(response) => self.answer(Decided::Now(*response), asked, rest, cx),
        }
    }
}
