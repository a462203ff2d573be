//! A codec of the user's own, on a server: items that borrow, and replies that it frames.

use std::io;

use paceline::{simulated::Simulation, Pool, SetKind};
use paceline_server::{
    codec::{Codec, Decoded, Malformed},
    Inlet, Listen, Next, Peer, Server, Session,
};

/// Numbers of two digits, with a plus between them.
#[derive(Clone)]
struct Sums;

struct Sum<'b> {
    left: &'b str,
    right: &'b str,
}

impl Codec for Sums {
    type Item<'b> = Sum<'b>;

    fn decode<'b>(&mut self, input: &'b [u8], _: bool) -> Result<Decoded<Sum<'b>>, Malformed> {
        let Some(bytes) = input.get(..5) else {
            return Ok(Decoded::Incomplete);
        };
        let text = std::str::from_utf8(bytes).map_err(|_| Malformed::Invalid("no text"))?;
        let (left, right) = text.split_once('+').ok_or(Malformed::Invalid("no plus"))?;
        Ok(Decoded::Item {
            item: Sum { left, right },
            consumed: 5,
        })
    }

    fn encode(&self, payload: &[u8], output: &mut Vec<u8>) -> Result<(), Malformed> {
        output.push(b'=');
        output.extend_from_slice(payload);
        Ok(())
    }
}

struct Adder;

impl Session<Sums> for Adder {
    fn handle(&mut self, sum: Sum<'_>, cx: &mut Peer<'_, Sums>) -> io::Result<Next> {
        let parse = |text: &str| text.parse::<u32>().map_err(io::Error::other);
        cx.reply((parse(sum.left)? + parse(sum.right)?).to_string())?;
        Ok(Next::Continue)
    }
}

#[test]
fn a_codec_of_the_users_own() {
    let world = Simulation::new(1);
    let inlet = Inlet::new(&world);
    let set = SetKind::Simulated(world);
    let _server = Server::builder()
        .pool(Pool::builder().threads(2).handle_set(set))
        .listener(Listen::simulated(&inlet), Sums, |_| Adder)
        .start()
        .unwrap();
    let peer = inlet.connect();
    peer.send(b"12+3");
    peer.send(b"054+01");
    assert_eq!(peer.wait_for(6), b"=42=55");
    peer.send(b"no sum");
    peer.finish();
    peer.wait_closed();
}
