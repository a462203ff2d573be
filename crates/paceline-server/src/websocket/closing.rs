//! How a WebSocket ends: each side sends one close frame, and the server closes the connection when
//! both have been sent (RFC 6455, 7.1.1).
//!
//! ```text
//!                 close                      received
//!         Open ------------> Asked ---------------------> Over
//!           |                   \  failed                  ^
//!           |  received          +------------------------>|
//!           +----------------------------------------------+
//!                             failed
//! ```

use super::{Close, CloseCode, Outgoing};
use crate::codec::Malformed;

/// The end of one WebSocket, from the server's side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Closing {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// Messages go both ways.
    #[default]
    Open,
    /// The server has sent its close frame, and the client has not.
    Asked,
    /// No frame follows from the server.
    Over,
}

/// What the server does next.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Send this frame, and wait for the client's close frame.
    Send(Vec<u8>),
    /// Send this frame, then close the connection gently.
    SendAndClose(Vec<u8>),
    /// Close the connection gently.
    Close,
    /// Nothing: the close frame was sent before.
    Nothing,
}

impl Closing {
    /// Whether the server may still send messages.
    #[must_use]
    pub fn is_open(self) -> bool {
        self.state == State::Open
    }

    /// The server wants to close.
    pub fn close(&mut self, why: &Close) -> Reply {
        if self.state != State::Open {
            return Reply::Nothing;
        }
        self.state = State::Asked;
        Reply::Send(frame(Some(why)))
    }

    /// The client's close frame has come: the answer has the same code.
    pub fn received(&mut self, why: Option<&Close>) -> Reply {
        let before = std::mem::replace(&mut self.state, State::Over);
        match before {
            State::Open => Reply::SendAndClose(frame(why)),
            State::Asked => Reply::Close,
            State::Over => Reply::Nothing,
        }
    }

    /// The client has broken the protocol: the server says why and waits for nothing.
    pub fn failed(&mut self, why: &Malformed) -> Reply {
        let before = std::mem::replace(&mut self.state, State::Over);
        match before {
            State::Open => {
                let close = Close::new(CloseCode::of(why), &why.to_string());
                Reply::SendAndClose(frame(Some(&close)))
            }
            State::Asked => Reply::Close,
            State::Over => Reply::Nothing,
        }
    }
}

fn frame(why: Option<&Close>) -> Vec<u8> {
    // A `Close` is never longer than a control frame may be.
    Outgoing::Close(why).to_vec().unwrap_or_default()
}
