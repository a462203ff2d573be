//! The servers of lines and of TLS, asked by the client that measures them: it checks every reply.

use super::{anywhere, bind, start, SETTING};
use crate::{
    load::{self, Pattern, Plan},
    servers::{Means, FRAMED},
};

/// A short plan for each server of `FRAMED`, after `change`.
fn ask_each(is_asked: fn(&str) -> bool, change: fn(&mut Plan)) {
    let chosen = FRAMED.iter().filter(|server| is_asked(server.name));
    let mut count = 0;
    for server in chosen {
        let Means::Here(serve) = server.means else {
            panic!("{} is not part of this program", server.name);
        };
        let address = start(serve, bind(anywhere()).unwrap(), &SETTING).unwrap();
        let mut plan = Plan::new(address);
        (plan.connections, plan.seconds, plan.warm_up) = (8, 0.2, 0.05);
        (plan.tls, plan.lines) = (is_tls(server.name), !is_tls(server.name));
        change(&mut plan);
        let load = load::run(&plan).unwrap();
        assert_eq!(load.errors, 0, "{}: {load:?}", server.name);
        assert!(load.requests > 0, "{}: {load:?}", server.name);
        count += 1;
    }
    assert!(count > 0);
}

fn is_tls(name: &str) -> bool {
    name.ends_with("-tls")
}

#[test]
fn each_answers() {
    ask_each(|_| true, |_| {});
}

#[test]
fn each_answers_requests_in_one_piece() {
    ask_each(|_| true, |plan| plan.pipeline = 16);
}

#[test]
fn each_does_every_task() {
    ask_each(
        |_| true,
        |plan| {
            let mix = "nothing=4,compute=1,sleep-short=1,sleep-long=1";
            plan.mix = mix.parse().unwrap();
        },
    );
}

#[test]
fn each_connection_has_its_handshake() {
    ask_each(is_tls, |plan| plan.pattern = Pattern::Churn);
}

/// The slow ones are answered too: a wrong byte counts as an error.
#[test]
fn slow_clients_are_answered() {
    ask_each(
        |name| !is_tls(name),
        |plan| (plan.pattern, plan.slow, plan.seconds) = (Pattern::SlowClient, Some(20), 0.5),
    );
}
