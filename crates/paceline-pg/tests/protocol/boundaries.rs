//! When a server is at a boundary, message by message.

use paceline_pg::protocol::{Mode, RelaySettings, Release};
use paceline_pg_wire::frontend::{self as f, Target};

use crate::support::{
    postgres,
    rig::{tags, Rig},
    session::Session,
};

/// One client, one server, names of statements unchanged.
fn rig() -> Option<Rig> {
    let mut settings = RelaySettings::new(Mode::Transaction);
    settings.max_prepared_statements = 0;
    let session = Session::new(postgres::server()?);
    Some(Rig::new(settings, 1, vec![session]))
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

/// The types of all messages that the client has received.
fn received(rig: &mut Rig) -> String {
    String::from_utf8(tags(&rig.received(0))).expect("types are letters")
}

#[test]
fn a_transaction_keeps_its_server() {
    let Some(mut rig) = rig() else { return };
    for (done, sql) in ["BEGIN", "SELECT 1; SELECT 2", "SELECT 1/0"]
        .iter()
        .enumerate()
    {
        rig.send(0, &written(|out| f::query(out, sql.as_bytes())))
            .expect("it passes");
        rig.await_messages(0, b'Z', done + 1).expect("it answers");
        assert_eq!(rig.clients[0].server, Some(0));
    }
    rig.send(0, &written(|out| f::query(out, b"ROLLBACK")))
        .expect("it passes");
    assert_eq!(rig.finish(0), Ok(()));
    assert_eq!(received(&mut rig), "CZTDCTDCZEZCZ");
    assert_eq!(rig.servers[0].counts.queries, 4);
    assert_eq!(rig.servers[0].counts.transactions, 1);
}

/// A server that has got a Parse without a Sync is in the middle of something.
#[test]
fn a_flush_is_no_end() {
    let Some(mut rig) = rig() else { return };
    let bytes = written(|out| {
        f::parse(out, b"", b"SELECT 1", &[]);
        f::flush(out);
    });
    rig.send(0, &bytes).expect("it passes");
    assert_eq!(rig.receive(0), Ok(Release::Held));
    let bytes = written(|out| {
        f::bind(out, b"", b"", &[]);
        f::describe(out, Target::Portal(b""));
        f::execute(out, b"", 0);
        f::sync(out);
    });
    rig.send(0, &bytes).expect("it passes");
    assert_eq!(rig.finish(0), Ok(()));
    assert_eq!(received(&mut rig), "12TDCZ");
}
