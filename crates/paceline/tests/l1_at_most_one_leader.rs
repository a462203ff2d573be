//! L1: at most one thread holds the lead of a handle set.

mod support;

use std::io::{Read, Write};

use paceline::{observe::Role, Context, Interest, Next, Pool};
use support::{bounded, tcp_pair, Witness};

/// Many threads, many events: whoever is told to lead leads alone. The paper says "exactly one leader
/// at all times" (E18); it is at most one: while all threads process, nobody leads.
#[test]
fn never_two_leaders_under_load() {
    bounded(|| {
        let witness = Witness::default();
        let pool = Pool::builder()
            .threads(8)
            .observer(witness.clone())
            .build()
            .unwrap();
        let clients: Vec<_> = (0..16)
            .map(|_| {
                let (near, far) = tcp_pair();
                pool.register(near, Interest::READ, |cx: &mut Context<'_, _>| {
                    let mut buffer = [0; 64];
                    let count = cx.read(&mut buffer)?;
                    cx.write_all(&buffer[..count])?;
                    Ok(Next::Continue)
                })
                .unwrap();
                far
            })
            .collect();
        for round in 0..50_u8 {
            for mut client in &clients {
                client.write_all(&[round]).unwrap();
            }
            for mut client in &clients {
                let mut answer = [0];
                client.read_exact(&mut answer).unwrap();
                assert_eq!(answer, [round]);
            }
        }
        assert_eq!(witness.most_leaders(), 1);
        witness.wait_for(Role::Leader, 1);
    });
}
