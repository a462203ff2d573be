//! The tables of one work in one place: what was measured of every server.

use crate::{
    goals::Quantity,
    report::{
        figures,
        sample::{Entry, Scene},
        table::{Side, Table},
    },
};

/// What is compared by ratios: the quantity, its unit, and the head of its column.
const COMPARED: [(Quantity, f64, &str); 3] = [
    (Quantity::Throughput, 1e3, "1000/s"),
    (Quantity::Cpu, 1.0, "CPU us/request"),
    (Quantity::P99, 1.0, "p99 us"),
];

/// The other quantities.
const BESIDE: [(Quantity, f64, &str); 4] = [
    (Quantity::P50, 1.0, "p50 us"),
    (Quantity::P999, 1.0, "p99.9 us"),
    (Quantity::Max, 1.0, "max us"),
    (Quantity::Memory, 1e6, "memory MB"),
];

/// The tables: first what is compared, then the rest.
pub(super) fn tables(scene: Scene<'_>) -> String {
    let entries = scene.entries();
    let ours = scene.ours();
    let compared = compared(&entries, ours.as_ref());
    format!("{}\n{}", compared.markdown(), beside(&entries).markdown())
}

/// The quantities that are compared, each with our ratio to the server.
fn compared(entries: &[Entry<'_>], ours: Option<&Entry<'_>>) -> Table {
    let mut head = vec![("server", Side::Left), ("runs", Side::Right)];
    for (_, _, name) in COMPARED {
        head.extend([(name, Side::Right), ("paceline / it", Side::Right)]);
    }
    let mut table = Table::new(&head);
    for entry in entries {
        table.row(compared_row(entry, ours));
    }
    table
}

/// A server's row in the first table.
fn compared_row(entry: &Entry<'_>, ours: Option<&Entry<'_>>) -> Vec<String> {
    let (counted, all) = entry.counted();
    let mut row = vec![name(entry), format!("{counted} of {all}")];
    for (quantity, unit, _) in COMPARED {
        row.push(figures::spread(entry.spread(quantity), unit));
        row.push(ratio(entry, ours, quantity));
    }
    row
}

/// Our ratio to a server; none to ourselves.
fn ratio(entry: &Entry<'_>, ours: Option<&Entry<'_>>, quantity: Quantity) -> String {
    match ours {
        Some(ours) if !entry.is_ours() => figures::ratio(&ours.ratios_to(entry, quantity), 2),
        _ => String::new(),
    }
}

/// The quantities that are not compared.
fn beside(entries: &[Entry<'_>]) -> Table {
    let mut head = vec![("server", Side::Left)];
    head.extend(BESIDE.map(|(_, _, name)| (name, Side::Right)));
    head.push(("switches/request: voluntary + involuntary", Side::Right));
    let mut table = Table::new(&head);
    for entry in entries {
        table.row(beside_row(entry));
    }
    table
}

/// A server's row in the second table.
fn beside_row(entry: &Entry<'_>) -> Vec<String> {
    let cell = |(quantity, unit, _)| figures::spread(entry.spread(quantity), unit);
    let mut row = vec![name(entry)];
    row.extend(BESIDE.map(cell));
    row.push(switches(entry));
    row
}

/// The server's name, ours in bold.
fn name(entry: &Entry<'_>) -> String {
    if entry.is_ours() {
        format!("**{}**", entry.label())
    } else {
        entry.label()
    }
}

/// Both kinds of switches per request.
fn switches(entry: &Entry<'_>) -> String {
    let median = |quantity| figures::median(entry.spread(quantity), 1.0);
    let (voluntary, involuntary) = (median(Quantity::Voluntary), median(Quantity::Involuntary));
    format!("{voluntary} + {involuntary}")
}
