//! Which entry is compared with which. Everything but ours is compared with ours, its *home*; ours, where a goal says so, with
//! itself elsewhere.

use crate::{
    goals::{goals, Against},
    record::Place,
    round::Entry,
};

/// With whom each of these entries is compared.
pub(crate) fn homes(entries: &[Entry]) -> Vec<Option<usize>> {
    let home_of = |(at, entry): (usize, &Entry)| {
        let home = itself(entries, entry)
            .or_else(|| find(entries, entry.work.name, entry.place, entry.work.ours()))
            .or_else(|| first_of_scene(entries, entry));
        home.filter(|home| *home != at)
    };
    entries.iter().enumerate().map(home_of).collect()
}

/// Ours, with which a goal compares ours.
fn itself(entries: &[Entry], entry: &Entry) -> Option<usize> {
    let ours = entry.work.ours();
    let is_ours = entry.server.name == ours;
    let mut goals =
        goals().filter(|goal| is_ours && goal.work == entry.work.name && goal.place == entry.place);
    goals.find_map(|goal| match goal.against {
        Against::Itself(work, place) => find(entries, work, place, ours),
        _ => None,
    })
}

fn find(entries: &[Entry], work: &str, place: Place, server: &str) -> Option<usize> {
    entries.iter().position(|entry| {
        entry.work.name == work && entry.place == place && entry.server.name == server
    })
}

/// Where ours is not measured, the first that is under the same work, at the same place.
fn first_of_scene(entries: &[Entry], entry: &Entry) -> Option<usize> {
    entries
        .iter()
        .position(|other| other.work.name == entry.work.name && other.place == entry.place)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{servers, works};

    fn entry(work: &str, server: &str, place: Place) -> Entry {
        Entry {
            work: works::find(work).unwrap(),
            server: servers::find(server).unwrap(),
            place,
        }
    }

    fn apart(work: &str, server: &str) -> Entry {
        entry(work, server, Place::Apart)
    }

    /// The homes of these entries, by their works and servers.
    fn named_homes(entries: &[Entry]) -> Vec<Option<(&'static str, &'static str)>> {
        let name = |home: usize| (entries[home].work.name, entries[home].server.name);
        let homes = homes(entries).into_iter();
        homes.map(|home| home.map(name)).collect()
    }

    #[test]
    fn peers_are_compared_with_ours_under_the_same_work() {
        let of_a = Some(("short-requests", "paceline"));
        assert_eq!(
            named_homes(&[
                apart("short-requests", "bare"),
                apart("short-requests", "paceline"),
                apart("short-requests", "paceline-spin"),
                entry("short-requests", "tokio", Place::Together),
                apart("one-connection", "bare"),
            ]),
            [of_a, None, of_a, None, None]
        );
    }

    #[test]
    fn ours_is_compared_with_itself_where_a_goal_says_so() {
        let few = Some(("threads-4", "paceline"));
        assert_eq!(
            named_homes(&[
                apart("threads-16", "paceline"),
                apart("threads-4", "paceline"),
                apart("threads-64", "paceline"),
            ]),
            [few, None, few]
        );
    }

    #[test]
    fn without_ours_the_first_is_the_home() {
        let homes = named_homes(&[
            apart("short-requests", "bare"),
            apart("short-requests", "tokio"),
            apart("short-requests", "half-sync"),
        ]);
        let bare = Some(("short-requests", "bare"));
        assert_eq!(homes, [None, bare, bare]);
    }
}
