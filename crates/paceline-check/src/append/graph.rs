//! The dependencies of transactions, and the search for cycles in them.

use std::collections::VecDeque;

use super::history::{Key, Value};

/// Why a transaction must be before another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The other has appended behind it.
    Ww,
    /// The other has read what it has appended.
    Wr,
    /// The other has appended what it has not read.
    Rw,
}

/// A dependency of another transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Edge {
    pub(super) to: usize,
    pub(super) kind: Kind,
    pub(super) key: Key,
    pub(super) value: Value,
}

/// All dependencies.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    edges: Vec<Vec<Edge>>,
}

/// Which cycles are searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Walk {
    /// Of ww alone.
    Ww,
    /// Of ww and wr.
    WwWr,
    /// Without two rw one behind the other: no such cycle exists under snapshot isolation.
    NoRwBehindRw,
    /// Any.
    Any,
}

/// A transaction, and whether the walk has reached it by rw. Only [`Walk::NoRwBehindRw`] needs
/// the second: its states are numbered `2 * transaction + by_rw`.
type State = usize;

impl Graph {
    pub(super) fn new(transactions: usize) -> Self {
        Self {
            edges: vec![Vec::new(); transactions],
        }
    }

    pub(super) fn add(&mut self, from: usize, edge: Edge) {
        self.edges[from].push(edge);
    }

    /// A short cycle of each part of the graph in which all transactions depend on each other.
    /// Each step is a transaction with the edge that leaves it.
    pub(super) fn cycles(&self, walk: Walk) -> Vec<Vec<(usize, Edge)>> {
        let parts = self.parts(walk);
        parts
            .iter()
            .filter_map(|part| self.shortest(walk, part))
            .collect()
    }

    /// The edges that a walk may take from a state, with the state behind each.
    fn steps(&self, walk: Walk, from: State) -> impl Iterator<Item = (State, Edge)> + '_ {
        let was_rw = from % 2 == 1;
        let edges = self.edges[from / 2].iter();
        edges.filter_map(move |edge| {
            let is_rw = edge.kind == Kind::Rw;
            let (may, by_rw) = match walk {
                Walk::Ww => (edge.kind == Kind::Ww, false),
                Walk::WwWr => (!is_rw, false),
                Walk::NoRwBehindRw => (!(is_rw && was_rw), is_rw),
                Walk::Any => (true, false),
            };
            may.then(|| (2 * edge.to + usize::from(by_rw), *edge))
        })
    }

    /// The strongly connected parts with more than one state, by Tarjan's algorithm with a stack
    /// of its own: a chain of dependencies may be longer than the thread's stack.
    fn parts(&self, walk: Walk) -> Vec<Vec<State>> {
        let states = 2 * self.edges.len();
        let mut search = Search {
            index: vec![UNSEEN; states],
            low: vec![0; states],
            is_open: vec![false; states],
            open: Vec::new(),
            next: 0,
            parts: Vec::new(),
        };
        for root in 0..states {
            if search.index[root] == UNSEEN {
                self.search_from(walk, root, &mut search);
            }
        }
        search.parts
    }

    fn search_from(&self, walk: Walk, root: State, search: &mut Search) {
        search.enter(root);
        let mut path = vec![(root, self.steps(walk, root))];
        while let Some((state, steps)) = path.last_mut() {
            let state = *state;
            match steps.next() {
                Some((to, _)) if search.index[to] == UNSEEN => {
                    search.enter(to);
                    path.push((to, self.steps(walk, to)));
                }
                Some((to, _)) if search.is_open[to] => {
                    search.low[state] = search.low[state].min(search.index[to]);
                }
                Some(_) => {}
                None => {
                    path.pop();
                    search.leave(state);
                    if let Some((before, _)) = path.last() {
                        search.low[*before] = search.low[*before].min(search.low[state]);
                    }
                }
            }
        }
    }

    /// The shortest cycle through one of the first states of a part.
    fn shortest(&self, walk: Walk, part: &[State]) -> Option<Vec<(usize, Edge)>> {
        const STARTS: usize = 64;
        let inside = part.iter().copied().collect();
        let cycles = part.iter().take(STARTS);
        let cycles = cycles.filter_map(|start| self.cycle_through(walk, *start, &inside));
        cycles.min_by_key(Vec::len)
    }

    /// A shortest walk within a part from a state back to it.
    fn cycle_through(
        &self,
        walk: Walk,
        start: State,
        inside: &std::collections::HashSet<State>,
    ) -> Option<Vec<(usize, Edge)>> {
        let mut reached = std::collections::HashMap::new();
        let mut queue = VecDeque::from([start]);
        while let Some(state) = queue.pop_front() {
            for (to, edge) in self.steps(walk, state) {
                if inside.contains(&to) && !reached.contains_key(&to) {
                    reached.insert(to, (state, edge));
                    queue.push_back(to);
                }
            }
            if reached.contains_key(&start) {
                break;
            }
        }
        let mut cycle = Vec::new();
        let mut state = start;
        loop {
            let (before, edge) = *reached.get(&state)?;
            cycle.push((before / 2, edge));
            state = before;
            if state == start {
                cycle.reverse();
                return Some(cycle);
            }
        }
    }
}

const UNSEEN: usize = usize::MAX;

/// The state of Tarjan's search.
struct Search {
    /// The place of each state in the order of the search.
    index: Vec<usize>,
    /// The earliest place that each state is known to reach.
    low: Vec<usize>,
    is_open: Vec<bool>,
    open: Vec<State>,
    next: usize,
    parts: Vec<Vec<State>>,
}

impl Search {
    fn enter(&mut self, state: State) {
        self.index[state] = self.next;
        self.low[state] = self.next;
        self.next += 1;
        self.open.push(state);
        self.is_open[state] = true;
    }

    /// Closes the part of a state that reaches no earlier one.
    fn leave(&mut self, state: State) {
        if self.low[state] != self.index[state] {
            return;
        }
        let at = self.open.iter().rposition(|other| *other == state);
        let part = self.open.split_off(at.unwrap_or(0));
        part.iter().for_each(|state| self.is_open[*state] = false);
        if part.len() > 1 {
            self.parts.push(part);
        }
    }
}
