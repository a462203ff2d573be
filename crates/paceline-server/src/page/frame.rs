//! One report of the page as JSON: what the browser gets four times a second.

use std::{collections::HashMap, time::Duration};

use paceline::{
    observe::{Snapshot, ThreadReport},
    Pool,
};

use super::{
    json::Json,
    lanes::{Doing, LaneReport, Report, SLOT},
    subject::{ServiceState, Subject},
};
use crate::routes::RouteReport;

/// A handler that runs for so long is listed.
const STUCK_AFTER: Duration = Duration::from_millis(500);

/// A counter that the page shows, by its name in `/metrics`.
type Counter = (&'static str, fn(&Snapshot) -> u64);

const COUNTERS: [Counter; 24] = [
    ("promotions", |it| it.promotions),
    ("wakes", |it| it.wakes),
    ("wasted_wakes", |it| it.wasted_wakes),
    ("leads_taken_back", |it| it.leads_taken_back),
    ("ticks", |it| it.ticks),
    ("rings", |it| it.rings),
    ("spins", |it| it.spins),
    ("without_leader", |it| nanos(it.without_leader)),
    ("longest_without_leader", |it| {
        nanos(it.longest_without_leader)
    }),
    ("longest_blind", |it| nanos(it.longest_blind)),
    ("connections", |it| it.connections as u64),
    ("accepted", |it| it.accepted),
    ("refused", |it| it.refused),
    ("aborted", |it| it.aborted),
    ("posted", |it| it.posted),
    ("timers", |it| it.timers),
    ("late_timers", |it| it.late_timers),
    ("timed_out", |it| it.timed_out),
    ("expired", |it| it.expired),
    ("panics", |it| it.panics),
    ("failed", |it| it.failed),
    ("unread_calls", |it| it.unread_calls),
    ("grown", |it| it.grown),
    ("retired", |it| it.retired),
];

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A pool that is observed, and what its threads have done since the last report.
pub(super) struct Observed<'o> {
    pub(super) name: &'o str,
    pub(super) pool: Pool,
    pub(super) report: Report,
}

/// The report at `now`, on a clock that does not jump.
pub(super) fn encode(subject: &dyn Subject, pools: Vec<Observed<'_>>, now: Duration) -> String {
    let mut json = Json::default();
    json.object(|json| {
        json.string_field("name", &subject.name());
        json.number_field("at", nanos(now) / 1_000_000);
        json.bool_field("ready", subject.is_ready());
        json.number_field("slot", SLOT.as_millis() as u64);
        json.array_field("pools", |json| {
            pools
                .into_iter()
                .for_each(|pool| json.object(|json| write_pool(subject, &pool, json)));
        });
        json.array_field("services", |json| {
            for service in subject.services() {
                json.object(|json| write_service(&service, json));
            }
        });
    });
    json.into_text()
}

fn write_pool(subject: &dyn Subject, observed: &Observed<'_>, json: &mut Json) {
    let Observed { name, pool, report } = observed;
    let snapshot = pool.snapshot();
    let threads = pool.inspect().threads();
    let known: HashMap<_, _> = threads.iter().map(|it| (it.index, it)).collect();
    json.string_field("name", name);
    json.number_field("threads", snapshot.threads as u64);
    json.option_field("bound", pool.inspect().blind_bound().map(nanos));
    let times = pool.inspect().histograms();
    let blind_p99 = times.map(|times| nanos(times.blind.p99()));
    json.option_field("blind_p99", blind_p99);
    json.number_field("end", report.end);
    json.object_field("counters", |json| {
        for (name, value) in COUNTERS {
            json.number_field(name, value(&snapshot));
        }
    });
    json.array_field("times", |json| {
        for (index, count) in report.times.counts() {
            json.array(|json| {
                json.number(index as u64);
                json.number(count);
            });
        }
    });
    json.array_field("lanes", |json| {
        for lane in &report.lanes {
            let known = known.get(&lane.thread).copied();
            json.object(|json| write_lane(subject, lane, known, json));
        }
    });
}

/// `known` is what the board of the pool says of the thread, if it has one.
fn write_lane(
    subject: &dyn Subject,
    lane: &LaneReport,
    known: Option<&ThreadReport>,
    json: &mut Json,
) {
    json.number_field("thread", lane.thread as u64);
    let name = known.map(|it| it.name.clone());
    json.string_field(
        "name",
        &name.unwrap_or_else(|| format!("thread {}", lane.thread)),
    );
    json.string_field("doing", lane.doing.map_or("unknown", Doing::name));
    json.number_field("ms", lane.lasts.as_millis() as u64);
    json.string_field("slots", &lane.slots);
    let is_inside = lane.doing.is_some_and(Doing::is_inside);
    if is_inside && lane.lasts >= STUCK_AFTER {
        let call = known.and_then(|it| it.handles);
        let name = call.map_or_else(String::new, |call| {
            let service = subject.service_of(call.handle);
            service.unwrap_or_else(|| call.handler.to_owned())
        });
        json.string_field("stuck", &name);
    }
}

fn write_service(service: &ServiceState, json: &mut Json) {
    json.string_field("name", &service.name);
    json.number_field("opened", service.opened);
    json.number_field("items", service.items);
    json.number_field("bytes", service.bytes_in);
    json.number_field("refused", service.refused);
    json.object_field("states", |json| {
        let states = service.states;
        json.number_field("open", states.open as u64);
        json.number_field("handshaking", states.handshaking as u64);
        json.number_field("paused", states.paused as u64);
        json.number_field("with_mail", states.with_mail as u64);
    });
    for (key, counts) in [("limits", &service.limits), ("endings", &service.endings)] {
        json.object_field(key, |json| {
            counts
                .iter()
                .for_each(|(name, count)| json.number_field(name, *count));
        });
    }
    json.array_field("routes", |json| {
        for route in &service.routes {
            json.object(|json| write_route(route, json));
        }
    });
}

fn write_route(route: &RouteReport, json: &mut Json) {
    json.string_field("name", &route.name);
    json.string_field("pace", route.pace);
    for (key, count) in [
        ("requests", route.requests),
        ("refused", route.refused),
        ("failed", route.failed),
        ("unanswered", route.unanswered),
    ] {
        json.number_field(key, count);
    }
    json.option_field("p50", route.percentiles.map(|(half, _)| nanos(half)));
    json.option_field("p99", route.percentiles.map(|(_, most)| nanos(most)));
}
