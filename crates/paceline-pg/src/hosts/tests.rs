//! Tests of roles, health and choice.

use super::*;
use HostState::{Down, Fenced, Primary, Replica, Unknown};

fn s(count: u64) -> Duration {
    Duration::from_secs(count)
}

struct Site {
    hosts: Hosts,
    now: Duration,
    changes: Vec<Change>,
}

impl Site {
    fn new(count: usize, settings: HostSettings) -> Self {
        Self {
            hosts: Hosts::new(count, settings),
            now: s(0),
            changes: Vec::new(),
        }
    }

    fn with(attrs: TargetAttrs) -> Self {
        let balance = Balance::LeastOutstanding;
        Self::new(
            3,
            HostSettings {
                attrs,
                balance,
                ..HostSettings::default()
            },
        )
    }

    fn answer(&mut self, host: usize, role: Role, timeline: u32) {
        let timeline = (timeline > 0).then_some(timeline);
        let lag = None;
        let answer = Observed::Answer {
            role,
            timeline,
            lag,
        };
        self.hosts
            .observe(host, answer, self.now, &mut self.changes);
    }

    fn no_answer(&mut self, host: usize) {
        let no = Observed::NoAnswer;
        self.hosts.observe(host, no, self.now, &mut self.changes);
    }

    fn states(&self) -> Vec<HostState> {
        self.hosts.rows().map(|row| row.state).collect()
    }

    fn choose(&mut self) -> Choice {
        self.hosts.choose(self.now)
    }
}

#[test]
fn attributes_are_read_as_libpq_names_them() {
    for (text, attrs) in [
        ("any", TargetAttrs::Any),
        ("read-write", TargetAttrs::Primary),
        ("primary", TargetAttrs::Primary),
        ("read-only", TargetAttrs::Standby),
        ("standby", TargetAttrs::Standby),
        ("prefer-standby", TargetAttrs::PreferStandby),
    ] {
        assert_eq!(TargetAttrs::read(text), Some(attrs));
    }
    assert_eq!(TargetAttrs::read("master"), None);
}

/// One lost packet must not move all clients to another host and back.
#[test]
fn health_has_hysteresis() {
    let mut site = Site::with(TargetAttrs::Any);
    site.answer(0, Role::Primary, 1);
    site.no_answer(0);
    assert_eq!(site.states()[0], Primary, "one failure is not enough");
    site.answer(0, Role::Primary, 1);
    site.no_answer(0);
    assert_eq!(site.states()[0], Primary, "the failures were not in a row");
    site.no_answer(0);
    assert_eq!(site.states()[0], Down);
    site.answer(0, Role::Primary, 1);
    assert_eq!(site.states()[0], Down, "one success is not enough");
    site.answer(0, Role::Primary, 1);
    assert_eq!(site.states()[0], Primary);
    let changes: Vec<_> = site
        .changes
        .iter()
        .map(|it| (it.before, it.after))
        .collect();
    assert_eq!(
        changes,
        [(Unknown, Primary), (Primary, Down), (Down, Primary)]
    );
}

/// An old primary that returns must get no writes: what it takes is lost.
#[test]
fn old_primary_returns() {
    let mut site = Site::with(TargetAttrs::Primary);
    site.answer(0, Role::Primary, 1);
    site.answer(1, Role::Replica, 1);
    site.no_answer(0);
    site.no_answer(0);
    assert_eq!(
        site.choose(),
        Choice::Ask(2),
        "the one that is not known may be it"
    );
    site.answer(2, Role::Replica, 1);
    assert_eq!(site.choose(), Choice::Park);
    site.answer(1, Role::Primary, 2);
    assert_eq!(site.choose(), Choice::Host(1));
    site.answer(0, Role::Primary, 1);
    site.answer(0, Role::Primary, 1);
    assert_eq!(site.states(), [Fenced, Primary, Replica]);
    // Even when its successor is gone.
    site.no_answer(1);
    site.no_answer(1);
    site.answer(0, Role::Primary, 1);
    assert_eq!(site.states(), [Fenced, Down, Replica]);
    assert_eq!(site.choose(), Choice::Park);
    site.answer(0, Role::Replica, 2);
    assert_eq!(site.states(), [Replica, Down, Replica]);
}

#[test]
fn of_two_primaries_the_higher_timeline_wins() {
    let mut site = Site::with(TargetAttrs::Primary);
    site.answer(0, Role::Primary, 3);
    site.answer(1, Role::Primary, 4);
    assert_eq!(site.states(), [Fenced, Primary, Unknown]);
    let fenced = Change {
        host: 0,
        before: Primary,
        after: Fenced,
    };
    assert_eq!(site.changes.last(), Some(&fenced));
    // Without timelines the one that was it before stays.
    site.answer(2, Role::Primary, 0);
    assert_eq!(site.states(), [Fenced, Primary, Fenced]);
}

#[test]
fn replicas_share_by_least_outstanding() {
    let mut site = Site::with(TargetAttrs::PreferStandby);
    site.answer(0, Role::Primary, 1);
    site.answer(1, Role::Replica, 1);
    site.answer(2, Role::Replica, 1);
    let mut counts = [0; 3];
    for _ in 0..6 {
        let Choice::Host(host) = site.choose() else {
            unreachable!("there are replicas");
        };
        site.hosts.opened(host);
        counts[host] += 1;
        site.hosts.set_outstanding(host, counts[host]);
    }
    assert_eq!(counts, [0, 3, 3]);
    site.hosts.set_outstanding(1, 2);
    assert_eq!(site.choose(), Choice::Host(1));
    for host in [1, 2] {
        site.no_answer(host);
        site.no_answer(host);
    }
    assert_eq!(
        site.choose(),
        Choice::Host(0),
        "better the primary than none"
    );
}

/// The first reader came before any role was known, and got the primary. Its connection was used by
/// all later readers, though a standby was there.
#[test]
fn readers_leave_the_primary_when_a_replica_is_there() {
    let mut site = Site::with(TargetAttrs::PreferStandby);
    let suit = |site: &Site| [0, 1].map(|host| site.hosts.suits(host));
    assert_eq!(site.choose(), Choice::Ask(0));
    site.answer(0, Role::Primary, 1);
    assert!(
        site.hosts.admits(Primary) && suit(&site)[0],
        "there is no other"
    );
    site.answer(1, Role::Replica, 1);
    assert_eq!(suit(&site), [false, true]);
    site.no_answer(1);
    site.no_answer(1);
    assert_eq!(suit(&site), [true, false], "better the primary than none");
}

#[test]
fn a_replica_too_far_behind_is_not_used() {
    let mut site = Site::with(TargetAttrs::Standby);
    let mut settings = site.hosts.settings.clone();
    settings.most_lag = Some(s(10));
    site.hosts.configure(settings);
    for (host, lag) in [(0, 11), (1, 10)] {
        let answer = Observed::Answer {
            role: Role::Replica,
            timeline: Some(1),
            lag: Some(s(lag)),
        };
        site.hosts.observe(host, answer, s(0), &mut site.changes);
    }
    site.answer(2, Role::Primary, 1);
    assert_eq!(site.choose(), Choice::Host(1));
    assert_eq!(site.choose(), Choice::Host(1));
    let suit: Vec<_> = (0..3).map(|host| site.hosts.suits(host)).collect();
    assert_eq!(suit, [false, true, false]);
}

#[test]
fn clients_are_parked_within_a_deadline() {
    let mut site = Site::with(TargetAttrs::Primary);
    for host in 0..3 {
        site.answer(host, Role::Replica, 1);
    }
    site.now = s(100);
    assert_eq!(site.choose(), Choice::Park);
    site.now = s(120);
    assert_eq!(site.choose(), Choice::Overdue);
    site.answer(1, Role::Primary, 2);
    assert_eq!(site.choose(), Choice::Host(1));
    site.no_answer(1);
    site.no_answer(1);
    site.now = s(239);
    assert_eq!(site.choose(), Choice::Park, "the time begins anew");
    site.now = s(240);
    assert_eq!(site.choose(), Choice::Overdue);
}

/// PgBouncer's `load_balance_hosts`: in turn, or the first that works.
#[test]
fn hosts_are_used_in_turn_or_in_order() {
    let settings = HostSettings::without_roles;
    let mut site = Site::new(3, settings(Balance::RoundRobin));
    let turns = [(); 4].map(|()| site.choose());
    assert_eq!(turns, [0, 1, 2, 0].map(Choice::Host));
    let mut site = Site::new(3, settings(Balance::InOrder));
    assert_eq!([(); 2].map(|()| site.choose()), [0, 0].map(Choice::Host));
    site.no_answer(0);
    assert_eq!([(); 2].map(|()| site.choose()), [1, 1].map(Choice::Host));
    // A failure of a host that is no longer tried changes nothing.
    site.no_answer(0);
    assert_eq!(site.choose(), Choice::Host(1));
}

#[test]
fn probes_are_due_once() {
    let mut site = Site::with(TargetAttrs::Any);
    let mut due = Vec::new();
    site.hosts.due(s(0), &mut due);
    assert_eq!(due, [0, 1, 2]);
    due.clear();
    site.hosts.due(s(0), &mut due);
    assert!(due.is_empty() && site.hosts.next_probe().is_none());
    site.answer(1, Role::Primary, 1);
    assert_eq!(site.hosts.next_probe(), Some(s(1)));
    let doubtful = Observed::Doubtful;
    site.hosts.observe(1, doubtful, s(0), &mut site.changes);
    site.hosts.due(s(0), &mut due);
    assert_eq!(due, [1]);
}

/// A question whose connection ends before it is asked gets no answer. The host was then never
/// asked again, stayed down, and its clients stayed parked.
#[test]
fn a_lost_question_is_asked_anew() {
    let mut site = Site::with(TargetAttrs::Any);
    let mut due = Vec::new();
    site.hosts.due(s(0), &mut due);
    due.clear();
    let doubtful = Observed::Doubtful;
    site.hosts.observe(1, doubtful, s(1), &mut site.changes);
    site.hosts.due(s(1), &mut due);
    assert!(due.is_empty(), "a question is under way");
    site.hosts.put_off(1, s(1));
    site.hosts.due(s(1), &mut due);
    assert_eq!(due, [1]);
}

#[test]
fn a_connection_serves_only_what_it_was_opened_for() {
    for (attrs, admitted) in [
        (TargetAttrs::Any, vec![Unknown, Primary, Replica]),
        (TargetAttrs::Primary, vec![Primary]),
        (TargetAttrs::Standby, vec![Replica]),
        (TargetAttrs::PreferStandby, vec![Primary, Replica]),
    ] {
        let hosts = Site::with(attrs).hosts;
        let all = [Unknown, Primary, Replica, Down, Fenced];
        let found: Vec<_> = all
            .into_iter()
            .filter(|state| hosts.admits(*state))
            .collect();
        assert_eq!(found, admitted, "{attrs:?}");
    }
}
