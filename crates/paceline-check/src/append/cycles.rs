//! Names the cycles of dependencies, as Adya's thesis does, and writes them down.

use std::fmt::Write;

use super::{
    graph::{Edge, Graph, Kind, Walk},
    history::{History, Outcome},
};
use crate::{finding::Finding, options::Isolation};

/// The cycles that must not be there under this isolation.
pub(super) fn find(history: &History, graph: &Graph, expected: Isolation) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for walk in forbidden(expected) {
        for cycle in graph.cycles(*walk) {
            let rule = name(&cycle);
            // A walk with more edges finds the cycles of the earlier ones again.
            if is_new(*walk, rule) {
                findings.push(Finding::new(rule, written(history, &cycle)));
            }
        }
    }
    findings
}

fn forbidden(expected: Isolation) -> &'static [Walk] {
    match expected {
        Isolation::ReadCommitted => &[Walk::Ww, Walk::WwWr],
        Isolation::Snapshot => &[Walk::Ww, Walk::WwWr, Walk::NoRwBehindRw],
        Isolation::Serializable => &[Walk::Ww, Walk::WwWr, Walk::NoRwBehindRw, Walk::Any],
    }
}

/// Whether the walk is the first that finds a cycle of this name.
fn is_new(walk: Walk, rule: &str) -> bool {
    match rule {
        "G0" => walk == Walk::Ww,
        "G1c" => walk == Walk::WwWr,
        "G-single" | "G-nonadjacent" => walk == Walk::NoRwBehindRw,
        _ => walk == Walk::Any,
    }
}

/// The name of a cycle: by its edges, and whether two of them are rw one behind the other.
fn name(cycle: &[(usize, Edge)]) -> &'static str {
    let is_rw = |index: usize| cycle[index % cycle.len()].1.kind == Kind::Rw;
    let count = (0..cycle.len()).filter(|index| is_rw(*index)).count();
    let is_adjacent = (0..cycle.len()).any(|index| is_rw(index) && is_rw(index + 1));
    match count {
        0 if cycle.iter().all(|(_, edge)| edge.kind == Kind::Ww) => "G0",
        0 => "G1c",
        1 => "G-single",
        _ if is_adjacent => "G2",
        _ => "G-nonadjacent",
    }
}

/// The cycle as a sentence.
fn written(history: &History, cycle: &[(usize, Edge)]) -> String {
    let mut text = String::new();
    for (from, edge) in cycle {
        let Edge { to, key, value, .. } = edge;
        let what = match edge.kind {
            Kind::Ww => format!("T{to} appended {value} to list {key} behind T{from}"),
            Kind::Wr => format!("T{to} read {value} in list {key} of T{from}"),
            Kind::Rw => format!("T{from} read list {key} without {value} of T{to}"),
        };
        let separator = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{separator}{what}");
    }
    let is_unknown = |number: &usize| history.transactions[*number].outcome == Outcome::Unknown;
    let unknown: Vec<_> = cycle
        .iter()
        .map(|(number, _)| *number)
        .filter(is_unknown)
        .collect();
    if !unknown.is_empty() {
        let _ = write!(
            text,
            " (the outcome of {unknown:?} was unknown to their clients)"
        );
    }
    text
}
