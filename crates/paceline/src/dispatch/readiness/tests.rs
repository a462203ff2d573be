//! Unit tests of the readiness word.

use super::*;

/// A word of a registration that is interested in both directions, in a set that reports once.
fn word() -> (Readiness, u32) {
    let word = Readiness::new();
    let generation = word.occupy(Interest::READ | Interest::WRITE, Reports::Once);
    (word, generation)
}

/// What could not be armed is to be armed again, and nothing else: neither the other direction,
/// nor does a hang-up that was to be reported mean that the input has ended.
#[test]
fn one_direction_is_disarmed() {
    let (word, generation) = word();
    let both = Ready::READABLE | Ready::WRITABLE;
    assert_eq!(word.arm(both), both);
    word.end_input();
    let state = word.disarm(generation, Ready::READABLE | Ready::HANG_UP);
    assert_eq!(state.unwrap().armed(), Ready::WRITABLE);
    assert_eq!(state.unwrap().unarmed(), Ready::READABLE);
    assert_eq!(state.unwrap().reportable(), Ready::WRITABLE);
    assert!(word.disarm(generation + 1, both).is_err());
}

/// A visit claims what its handler is to be called for, and finds it suspended in that very
/// step: the calls are put back, for when it is resumed. What it was not to be called for is
/// not, nor what else the word said then.
#[test]
fn calls_are_put_back() {
    for (notified, greets) in [(true, false), (false, true), (true, true)] {
        let (word, generation) = word();
        if notified {
            word.notify(generation).unwrap();
        }
        if greets {
            word.greet();
        }
        let look = word.look();
        let suspended = word.set_suspended(generation, true);
        let seen = word.claim_calls(Ready::NONE, look);
        assert!(suspended.is_ok() && !seen.is_called());
        let resumed = word.set_suspended(generation, false).unwrap();
        assert!(!resumed.is_called(), "they are claimed");
        word.restore_calls(seen);
        let state = word.look();
        assert_eq!((state.is_notified(), state.greets()), (notified, greets));
        assert!(!state.is_suspended() && !state.is_closing());
    }
}

/// Readiness that is not waited for changes nothing, but for a hang-up beside an awaited
/// direction.
#[test]
fn news_is_what_is_awaited() {
    let (word, generation) = word();
    let state = word.set_interest(generation, Interest::READ).unwrap();
    let all = Ready::READABLE | Ready::WRITABLE | Ready::HANG_UP;
    assert_eq!(state.of_news(Ready::READABLE), Ready::READABLE);
    assert_eq!(state.of_news(Ready::WRITABLE), Ready::NONE);
    assert_eq!(state.of_news(all), Ready::READABLE | Ready::HANG_UP);
}

/// A registration goes on in another word: with what is ready and awaited, and how its handler
/// is to be called; not with what its set was asked for, nor with what its pool is about to do.
#[test]
fn what_goes_along() {
    let carried = |from: Readiness| {
        let (to, left) = (Readiness::new(), from.depart());
        to.occupy(Interest::NONE, Reports::Once);
        to.carry_on(left.expect("nobody closes it"));
        to.look().0 as u32
    };
    let (from, generation) = word();
    from.restore(Ready::from_bits(0xF));
    from.set_suspended(generation, true).unwrap();
    from.set_sending(true, true);
    from.notify_self();
    from.greet();
    from.end_input();
    from.end_input();
    let all = from.look().0 as u32;
    assert_eq!(carried(from), all);

    let (from, _) = word();
    let interest = from.look().0 as u32;
    let _ = from.arm(Ready::READABLE | Ready::WRITABLE);
    from.drain();
    from.expire();
    assert_eq!(carried(from), interest);
}
