//! Places whose calls were forgotten: late replies against callers that look for a place.

use super::*;

/// Ids of two bits: two places with two ids each.
struct Narrow;

impl Protocol for Narrow {
    type Request = u8;
    const ID_BITS: u32 = 2;

    fn encode(&self, _: &u8, id: u64, out: &mut Vec<u8>) -> io::Result<()> {
        out.push(id as u8);
        Ok(())
    }

    fn header(&self, bytes: &[u8]) -> io::Result<Option<Header>> {
        Ok(bytes.first().map(|id| Header {
            whose: Whose::Call((*id).into()),
            skip: 1,
            length: 0,
        }))
    }
}

/// A call is sent and forgotten. Its id.
fn forgotten(calls: &Calls) -> Option<u64> {
    let key = calls.register()?;
    let word = &calls.slot(key).word;
    assert!(word.queue());
    assert_eq!(word.begin_write(), Ok(()));
    let _ = word.end_write();
    calls.forget(key);
    Some(calls.id(key))
}

/// B2: all ids are owed, and all replies have come. Two callers find no place at the same moment:
/// one reads for both, or each for itself, and neither is refused.
#[test]
fn loom_bound_what_has_come_makes_room() {
    explore(|| {
        let bounds = Bounds {
            calls: 2,
            unsent: 100,
            longest_reply: 100,
            elect: Elect::Oldest,
            leader_spin: Duration::ZERO,
        };
        let clock = Clock::Virtual(Arc::new(VirtualClock::new()));
        let link = Link::new(Narrow, clock, &bounds);
        let link = Arc::new(link.map_err(|(_, error)| error).unwrap());
        let wire = new_wire(0);
        assert!(link.begin(Arc::clone(&wire) as Arc<dyn Line>).is_ok());
        let owed = [(); 2].map(|()| link.calls.register().unwrap());
        for key in owed {
            let word = &link.calls.slot(key).word;
            assert!(word.queue());
            assert_eq!(word.begin_write(), Ok(()));
            let _ = word.end_write();
            link.calls.forget(key);
        }
        let again = [(); 2].map(|()| forgotten(&link.calls).unwrap() as u8);
        assert_eq!(link.calls.register(), None);
        let first = owed.map(|key| link.calls.id(key) as u8);
        wire.bring(&[first, again].concat());
        let other = {
            let link = Arc::clone(&link);
            thread::spawn(move || link.register().expect("its reply has come"))
        };
        let one = link.register().expect("its reply has come");
        let other = other.join().unwrap();
        assert_ne!(one.index, other.index);
        link.calls.forget(one);
        link.calls.forget(other);
    });
}

/// B1: a late reply comes while another call takes the place of the one that it is for. The id is
/// free afterwards, whichever was first: of two ids none is lost, and the new call has not got that
/// reply.
#[test]
fn loom_bound_late_reply_against_reclaim() {
    explore(|| {
        let calls = Arc::new(Calls::new(1, 1).unwrap());
        let owed = forgotten(&calls).unwrap();
        let taking = {
            let calls = Arc::clone(&calls);
            // For a moment the place is neither forgotten nor vacant: the reader is about to give
            // it back.
            thread::spawn(move || loop {
                match calls.register() {
                    Some(key) => return key,
                    None => thread::yield_now(),
                }
            })
        };
        let _ = calls.begin_reply(owed);
        let new = taking.join().unwrap();
        assert_eq!(calls.counters.snapshot().late_replies, 1);
        assert_ne!(calls.id(new), owed);
        assert_eq!(calls.slot(new).word.look().phase(), Phase::Expected);
        calls.forget(new);
        let next = calls.register().expect("its reply has come");
        assert_eq!(calls.id(next), owed, "there are two");
    });
}

/// B2: a late reply comes while a caller finds that its id is the only one that the place could
/// use. The caller gets the place, or the next one does.
#[test]
fn loom_bound_late_reply_against_parking() {
    explore(|| {
        let calls = Arc::new(Calls::new(1, 1).unwrap());
        let owed = forgotten(&calls).unwrap();
        let other = calls.register().expect("there is another id");
        calls.forget(other);
        let taking = {
            let calls = Arc::clone(&calls);
            thread::spawn(move || calls.register())
        };
        let _ = calls.begin_reply(owed);
        let taken = taking.join().unwrap();
        let key = taken.or_else(|| calls.register());
        let key = key.expect("the place is in no list");
        assert_eq!(calls.id(key), owed);
        assert_eq!(calls.register(), None, "there is one place");
    });
}
