//! Requests and replies of one client.

use super::*;

/// A request is refused, or it is sent: never both.
#[test]
fn a_request_is_withdrawn_or_sent() {
    let address = Address::Unix {
        port: 0,
        process: None,
    };
    let client = Client::new(1, address, Duration::ZERO);
    client.queue_request();
    assert_eq!(client.withdraw_request(), RequestStage::Withdrawn);
    assert_eq!(client.begin_request(), RequestStage::Withdrawn);
    client.queue_request();
    assert_eq!(client.begin_request(), RequestStage::Begun);
    assert_eq!(client.withdraw_request(), RequestStage::Begun);
    client.queue_request();
    assert!(client.close_mail().is_none());
    assert_eq!(client.begin_request(), RequestStage::Withdrawn);
}

/// Thousands of idle clients are the reason for a pooler.
#[test]
fn an_idle_client_is_small() {
    assert!(
        size_of::<ClientFacts>() <= 136,
        "{} bytes",
        size_of::<ClientFacts>()
    );
    assert!(size_of::<Client>() <= 304, "{} bytes", size_of::<Client>());
}

fn watch_at(phase: Phase) -> Watch {
    let watch = Watch::default();
    watch.enter(phase, Duration::from_secs(10));
    watch
}

/// A limit of zero is off, and each phase has its own limit.
#[test]
fn each_phase_has_its_own_limit() {
    let second = Duration::from_secs(1);
    let limits = Limits {
        idle: second,
        query: 2 * second,
        ..Limits::default()
    };
    let overdue = |phase, at| watch_at(phase).overdue(&limits, Duration::from_secs(at));
    assert_eq!(overdue(Phase::Idle, 12), Some(Overdue::Idle));
    assert_eq!(overdue(Phase::Busy, 12), None);
    assert_eq!(overdue(Phase::Busy, 13), Some(Overdue::Query));
    assert_eq!(overdue(Phase::HeldInTransaction, 99), None);
    assert_eq!(
        watch_at(Phase::Idle).overdue(&Limits::default(), Duration::MAX),
        None
    );
}

/// The phase and its time share a word.
#[test]
fn a_phase_keeps_its_time() {
    for phase in [Phase::Login, Phase::Held, Phase::Cancel, Phase::Queued] {
        let (seen, since) = watch_at(phase).phase();
        assert_eq!((seen, since), (phase, Duration::from_secs(10)));
    }
}
