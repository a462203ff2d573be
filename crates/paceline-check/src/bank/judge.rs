//! What a read of the accounts may show.

use std::collections::BTreeMap;

use crate::finding::Finding;

/// What every read must show.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) accounts: u64,
    pub(super) total: i64,
}

/// What one read has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) accounts: u64,
    pub(super) total: i64,
    pub(super) least: i64,
}

impl Totals {
    /// The totals of single balances.
    pub(super) fn of(balances: impl IntoIterator<Item = i64>) -> Self {
        let none = Self {
            accounts: 0,
            total: 0,
            least: i64::MAX,
        };
        balances.into_iter().fold(none, |sum, balance| Self {
            accounts: sum.accounts + 1,
            total: sum.total + balance,
            least: sum.least.min(balance),
        })
    }
}

impl Expected {
    /// What is wrong with a read; `what` names it.
    pub(super) fn judge(&self, what: &str, seen: Totals) -> Option<Finding> {
        if seen.accounts != self.accounts {
            let text = format!("{what} has {} accounts of {}", seen.accounts, self.accounts);
            return Some(Finding::new("accounts", text));
        }
        if seen.total != self.total {
            let text = format!(
                "{what} has the total {} instead of {}",
                seen.total, self.total
            );
            return Some(Finding::new("total", text));
        }
        let is_overdrawn = seen.least < 0;
        is_overdrawn.then(|| Finding::new("overdrawn", format!("{what} shows {}", seen.least)))
    }
}

/// A transfer that a client has attempted and that was not rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Transfer {
    pub(super) from: i64,
    pub(super) to: i64,
    pub(super) amount: i64,
    /// Whether the server has acknowledged it.
    pub(super) is_acknowledged: bool,
}

/// Compares each account with the acknowledged transfers. Accounts that a transfer of unknown
/// outcome names are left out. Gives the findings, and how many accounts were compared.
pub(super) fn judge_balances(
    initial: i64,
    transfers: impl IntoIterator<Item = Transfer>,
    balances: &BTreeMap<i64, i64>,
) -> (Vec<Finding>, u64) {
    let mut expected: BTreeMap<i64, Option<i64>> =
        balances.keys().map(|id| (*id, Some(initial))).collect();
    for transfer in transfers {
        for (id, change) in [
            (transfer.from, -transfer.amount),
            (transfer.to, transfer.amount),
        ] {
            let balance = expected.entry(id).or_insert(None);
            *balance = balance
                .map(|balance| balance + change)
                .filter(|_| transfer.is_acknowledged);
        }
    }
    let known = expected
        .iter()
        .filter_map(|(id, balance)| Some((id, (*balance)?)));
    let compared = known.clone().count();
    let wrong = known.filter(|(id, balance)| balances[*id] != *balance);
    let findings = wrong.map(|(id, balance)| {
        let text = format!(
            "account {id} has {}; the acknowledged transfers make {balance}",
            balances[id]
        );
        Finding::new("balance", text)
    });
    (findings.collect(), compared as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPECTED: Expected = Expected {
        accounts: 3,
        total: 300,
    };

    fn rule(balances: &[i64]) -> Option<&'static str> {
        let finding = EXPECTED.judge("a read", Totals::of(balances.iter().copied()));
        finding.map(|finding| finding.rule)
    }

    #[test]
    fn a_read_with_the_right_total_passes() {
        assert_eq!(rule(&[100, 0, 200]), None);
    }

    /// Planted: one side of a transfer is seen without the other.
    #[test]
    fn a_torn_total_is_found() {
        assert_eq!(rule(&[90, 100, 100]), Some("total"));
        assert_eq!(rule(&[100, 110, 100]), Some("total"));
    }

    /// Planted: a row is seen twice, or not at all, in a total that happens to agree.
    #[test]
    fn a_missing_or_doubled_account_is_found() {
        assert_eq!(rule(&[100, 200]), Some("accounts"));
        assert_eq!(rule(&[100, 100, 100, 0]), Some("accounts"));
    }

    /// Planted: two transfers have both seen enough on one account.
    #[test]
    fn an_overdrawn_account_is_found() {
        assert_eq!(rule(&[-50, 250, 100]), Some("overdrawn"));
    }

    fn transfer(from: i64, to: i64, is_acknowledged: bool) -> Transfer {
        Transfer {
            from,
            to,
            amount: 10,
            is_acknowledged,
        }
    }

    /// Planted: an acknowledged transfer is gone as a whole, so that all totals agree.
    #[test]
    fn a_lost_transfer_is_found_by_its_accounts() {
        let transfers = [transfer(0, 1, true), transfer(1, 2, true)];
        let right = BTreeMap::from([(0, 90), (1, 100), (2, 110)]);
        assert_eq!(judge_balances(100, transfers, &right), (vec![], 3));
        let lost = BTreeMap::from([(0, 90), (1, 110), (2, 100)]);
        let (findings, _) = judge_balances(100, transfers, &lost);
        assert_eq!(findings.len(), 2);
    }

    #[test]
    fn accounts_of_unknown_transfers_are_not_compared() {
        let transfers = [transfer(0, 1, false), transfer(1, 2, true)];
        for (first, second) in [(90, 100), (100, 90)] {
            let balances = BTreeMap::from([(0, first), (1, second), (2, 110)]);
            assert_eq!(judge_balances(100, transfers, &balances), (vec![], 1));
        }
    }
}
