//! The counters of a server as OpenMetrics text.

use std::{fmt::Write, sync::Arc};

use super::Shared;
use crate::{limits::Limit, routes::RouteReport, service::Service};

/// A family of numbers: one for each service.
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: fn(&Shared, &Arc<Service>) -> u64,
}

const FAMILIES: [Family; 5] = [
    Family {
        name: "paceline_server_connections",
        kind: "gauge",
        help: "Open connections",
        value: |_, service| service.open() as u64,
    },
    Family {
        name: "paceline_server_opened",
        kind: "counter",
        help: "Connections that were served",
        value: |_, service| service.counters().opened.get(),
    },
    Family {
        name: "paceline_server_items",
        kind: "counter",
        help: "Items that sessions have handled",
        value: |_, service| service.counters().items.get(),
    },
    Family {
        name: "paceline_server_received_bytes",
        kind: "counter",
        help: "Bytes that peers have sent",
        value: |_, service| service.counters().bytes_in.get(),
    },
    Family {
        name: "paceline_server_refused",
        kind: "counter",
        help: "Connections that were refused",
        value: |shared, service| shared.refused(service),
    },
];

/// A family of numbers: name, kind, help, and the value of each route.
type RouteFamily = (
    &'static str,
    &'static str,
    &'static str,
    fn(&RouteReport) -> u64,
);

const ROUTE_FAMILIES: [RouteFamily; 4] = [
    (
        "paceline_http_requests",
        "counter",
        "Requests, by route",
        |route| route.requests,
    ),
    (
        "paceline_http_refused",
        "counter",
        "Requests that a route answered with 4xx",
        |route| route.refused,
    ),
    (
        "paceline_http_failed",
        "counter",
        "Requests that a route answered with 5xx",
        |route| route.failed,
    ),
    (
        "paceline_http_unanswered",
        "gauge",
        "Requests whose handler has not answered yet",
        |route| route.unanswered,
    ),
];

impl Shared {
    /// All numbers of the server and of its pools.
    pub(super) fn open_metrics(&self) -> String {
        let mut text = String::new();
        for family in &FAMILIES {
            self.write_family(family, &mut text);
        }
        self.write_endings(&mut text);
        self.write_limits(&mut text);
        self.write_routes(&mut text);
        self.write_queue(&mut text);
        let pools = self.pools.snapshots();
        let pools: Vec<_> = pools
            .iter()
            .map(|(name, of)| (name.as_str(), *of))
            .collect();
        // It ends with the mark of the end.
        text.push_str(&paceline::observe::open_metrics(&pools));
        text
    }

    fn write_family(&self, family: &Family, text: &mut String) {
        head(text, family.name, family.kind, family.help);
        for service in &self.services {
            let value = (family.value)(self, service);
            let suffix = if family.kind == "counter" {
                "_total"
            } else {
                ""
            };
            line(
                text,
                family.name,
                suffix,
                &[("service", &service.name)],
                value,
            );
        }
    }

    fn write_endings(&self, text: &mut String) {
        let name = "paceline_server_ended";
        head(text, name, "counter", "Connections that ended, by reason");
        for service in &self.services {
            for (reason, count) in service.counters().endings() {
                let labels = [("service", service.name.as_str()), ("reason", reason)];
                line(text, name, "_total", &labels, count);
            }
        }
    }

    fn write_limits(&self, text: &mut String) {
        let name = "paceline_server_limit";
        head(text, name, "counter", "How often a limit was met");
        for service in &self.services {
            for limit in Limit::ALL {
                let labels = [("service", service.name.as_str()), ("limit", limit.name())];
                let count = match limit {
                    // The listeners of the pool count what they refuse.
                    Limit::Connections => self.refused(service),
                    limit => service.counters().times_met(*limit),
                };
                line(text, name, "_total", &labels, count);
            }
        }
    }

    fn write_routes(&self, text: &mut String) {
        let of = |service: &Arc<Service>| (service.name.clone(), service.route_reports());
        let all: Vec<_> = self.services.iter().map(of).collect();
        if all.iter().all(|(_, routes)| routes.is_empty()) {
            return;
        }
        for (name, kind, help, value) in ROUTE_FAMILIES {
            head(text, name, kind, help);
            let suffix = if kind == "counter" { "_total" } else { "" };
            for (service, routes) in &all {
                for route in routes {
                    let labels = [("service", service.as_str()), ("route", &route.name)];
                    line(text, name, suffix, &labels, value(route));
                }
            }
        }
    }

    fn write_queue(&self, text: &mut String) {
        if let Some(workers) = &self.workers {
            let name = "paceline_server_queue";
            head(text, name, "gauge", "Connections that wait for a worker");
            line(text, name, "", &[], workers.waiting() as u64);
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}");
}

fn line(text: &mut String, name: &str, suffix: &str, labels: &[(&str, &str)], value: u64) {
    let labels: Vec<_> = labels
        .iter()
        .map(|(label, of)| format!("{label}=\"{}\"", escaped(of)))
        .collect();
    let labels = match labels.as_slice() {
        [] => String::new(),
        labels => format!("{{{}}}", labels.join(",")),
    };
    let _ = writeln!(text, "{name}{suffix}{labels} {value}");
}

/// The value of a label: a name can't end its line.
fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}
