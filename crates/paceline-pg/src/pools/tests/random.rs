//! Random operations on the book, each checked against the model.

use super::{
    model::{is_cancel, Connection, Does, Model, ModelPool},
    *,
};

/// Small random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % sides
    }

    fn one_of<V: Copy>(&mut self, values: &[V]) -> Option<V> {
        let count = values.len();
        (count > 0).then(|| values[self.roll(count)])
    }
}

struct Trial {
    dice: Dice,
    book: Book<u32>,
    model: Model,
    databases: Vec<DatabaseId>,
    users: Vec<UserId>,
    numbers: u32,
}

fn random_settings(dice: &mut Dice) -> Settings {
    Settings {
        max_clients: 0,
        pool_size: dice.roll(4),
        min_pool_size: dice.roll(2),
        reserve_size: dice.roll(2),
        reserve_timeout: ms(500),
        max_database_connections: dice.roll(5),
        max_user_connections: dice.roll(5),
        parallel_logins: 1 + dice.roll(3),
        login_retry: ms(300),
        round_robin: dice.roll(2) == 0,
        server_lifetime: [ms(0), ms(2_000), ms(1_000_000)][dice.roll(3)],
        server_idle_timeout: [ms(0), ms(1_000)][dice.roll(2)],
        check_delay: [None, Some(ms(0)), Some(ms(700))][dice.roll(3)],
        query_wait_timeout: [ms(0), ms(3_000)][dice.roll(2)],
        query_wait_notify: ms(1_000),
        switch_after: [ms(0), ms(100)][dice.roll(2)],
        ..Settings::default()
    }
}

impl Trial {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let settings = random_settings(&mut dice);
        let mut book = Book::new(settings.clone());
        let databases = ["a", "b"].map(|name| book.add_database(name, DatabaseSettings::default()));
        let users = ["u", "v"].map(|name| book.add_user(name, UserSettings::default()));
        let mut pools = Vec::new();
        for (database, of) in databases.iter().enumerate() {
            for (user, by) in users.iter().enumerate() {
                pools.push(ModelPool {
                    id: book.pool(*of, *by, ms(0)).expect("both exist"),
                    database,
                    user,
                    has_welcome: false,
                    fails_until: None,
                    is_paused: false,
                });
            }
        }
        let model = Model {
            settings,
            pools,
            clients: BTreeMap::new(),
            servers: BTreeMap::new(),
            arrivals: 0,
            now: ms(0),
            served: 0,
        };
        Self {
            dice,
            book,
            model,
            databases: databases.to_vec(),
            users: users.to_vec(),
            numbers: 0,
        }
    }

    fn clients(&self, does: impl Fn(&Does) -> bool) -> Vec<ClientId> {
        let clients = self.model.clients.iter();
        let meant = clients.filter(|(_, it)| does(it));
        meant.map(|(client, _)| *client).collect()
    }

    fn servers(&self, is_meant: impl Fn(&Connection) -> bool) -> Vec<ServerId> {
        let servers = self.model.servers.iter();
        let meant = servers.filter(|(_, it)| is_meant(it));
        meant.map(|(server, _)| *server).collect()
    }

    /// Calls the book, then applies its orders to the model.
    fn with<R>(&mut self, call: impl FnOnce(&mut Book<u32>, Duration, &mut Orders<u32>) -> R) -> R {
        let mut orders = Vec::new();
        let result = call(&mut self.book, self.model.now, &mut orders);
        self.model.apply(orders);
        result
    }

    fn step(&mut self) {
        match self.dice.roll(20) {
            0 => self.enter(),
            1..=4 => self.ask(),
            5 => self.await_welcome(),
            6..=8 => self.log_in(),
            9 => self.fail(),
            10..=12 => self.give_back(),
            13 => self.close(),
            14 => self.leave(),
            15 => self.cancel(),
            16 => self.carry(),
            17 => self.command(),
            18 => self.reset(),
            _ => self.pass_time(),
        }
        self.model.check_rest();
        self.check_counts();
    }

    fn enter(&mut self) {
        let (database, user) = (
            self.dice.one_of(&self.databases),
            self.dice.one_of(&self.users),
        );
        let client = self
            .book
            .enter(database, user, Privilege::Ordinary, self.model.now)
            .expect("no limit");
        self.model.clients.insert(client, Does::Rests);
    }

    fn random_pool(&mut self) -> (usize, PoolId) {
        let place = self.dice.roll(self.model.pools.len());
        (place, self.model.pools[place].id)
    }

    fn ask(&mut self) {
        let resting = self.clients(|does| *does == Does::Rests);
        let Some(client) = self.dice.one_of(&resting) else {
            return;
        };
        let (place, pool) = self.random_pool();
        let mut orders = Vec::new();
        match self.book.ask(client, pool, self.model.now, &mut orders) {
            Ask::Server {
                server, connection, ..
            } => {
                self.model.apply(orders);
                let it = &self.model.servers[&server];
                assert_eq!((it.pool, it.state), (place, ServerState::Idle));
                self.model.hold(client, server, connection);
            }
            Ask::Waiting => {
                self.model.arrivals += 1;
                let arrival = self.model.arrivals;
                self.model
                    .clients
                    .insert(client, Does::Waits(place, arrival));
                self.model.apply(orders);
            }
            Ask::Refused(why) => {
                assert!(matches!(why, Refusal::LoginKeepsFailing(_)), "{why:?}");
                let fails = self.model.pools[place].fails_until;
                assert!(fails.is_some_and(|until| self.model.now < until));
                self.model.apply(orders);
            }
        }
    }

    fn await_welcome(&mut self) {
        let resting = self.clients(|does| *does == Does::Rests);
        let Some(client) = self.dice.one_of(&resting) else {
            return;
        };
        let (place, pool) = self.random_pool();
        let mut orders = Vec::new();
        let now = self.model.now;
        match self.book.await_welcome(client, pool, now, &mut orders) {
            Welcome::Ready => assert!(self.model.pools[place].has_welcome),
            Welcome::Waiting => {
                assert!(!self.model.pools[place].has_welcome);
                self.model.arrivals += 1;
                let arrival = self.model.arrivals;
                self.model
                    .clients
                    .insert(client, Does::Arrives(place, arrival));
            }
            Welcome::Refused(why) => unreachable!("{why:?}"),
        }
        self.model.apply(orders);
    }

    fn log_in(&mut self) {
        let opening = self.servers(|it| it.state == ServerState::Opening);
        let Some(server) = self.dice.one_of(&opening) else {
            return;
        };
        self.numbers += 1;
        let number = self.numbers;
        let it = self.model.servers.get_mut(&server).expect("it is known");
        it.number = number;
        let (pool, is_marked) = (it.pool, it.is_marked);
        self.model.pools[pool].fails_until = None;
        self.model.pools[pool].has_welcome |= !is_marked;
        let mut orders = Vec::new();
        let now = self.model.now;
        let outcome = self
            .book
            .opened(server, number, Some(key(number)), now, &mut orders);
        self.returned(server, &outcome);
        self.model.apply(orders);
    }

    /// Takes over what has become of a server that the book got.
    fn returned(&mut self, server: ServerId, outcome: &GiveBack<u32>) {
        match outcome {
            GiveBack::ToClient {
                client, connection, ..
            } => self.model.give(*client, server, *connection),
            GiveBack::Idle => self.set_state(server, ServerState::Idle),
            GiveBack::Held => self.set_state(server, ServerState::BeingCancelled),
            GiveBack::Close { connection, .. } => {
                let gone = self.model.servers.remove(&server).expect("it is known");
                assert_eq!(gone.number, *connection);
            }
        }
    }

    fn set_state(&mut self, server: ServerId, state: ServerState) {
        let it = self.model.servers.get_mut(&server).expect("it is known");
        it.state = state;
    }

    fn fail(&mut self) {
        let opening = self.servers(|it| it.state == ServerState::Opening);
        let Some(server) = self.dice.one_of(&opening) else {
            return;
        };
        let scope = [FailureScope::Refused, FailureScope::Temporary][self.dice.roll(2)];
        let gone = self.model.servers.remove(&server).expect("it is known");
        if !gone.is_marked {
            let until = self.model.now + self.model.settings.login_retry;
            self.model.pools[gone.pool].fails_until = Some(until);
        }
        let failure = LoginFailure {
            code: None,
            message: "no".into(),
            scope,
        };
        self.with(|book, now, orders| book.open_failed(server, &failure, now, orders));
    }

    /// Ends the assignment of a server in the model.
    fn part(&mut self, server: ServerId) -> u32 {
        for does in self.model.clients.values_mut() {
            if *does == Does::Holds(server) {
                *does = Does::Rests;
            }
        }
        self.model.servers[&server].number
    }

    fn give_back(&mut self) {
        use ServerState::{Checking, Held, Resetting};
        let out = self.servers(|it| matches!(it.state, Held | Checking | Resetting));
        let Some(server) = self.dice.one_of(&out) else {
            return;
        };
        let number = self.part(server);
        // Remove the server first: the model's rules for its old state no longer hold.
        let mut orders = Vec::new();
        let now = self.model.now;
        let outcome = self.book.give_back(server, number, now, &mut orders);
        self.set_state(server, ServerState::Resetting);
        self.returned(server, &outcome);
        self.model.apply(orders);
    }

    fn reset(&mut self) {
        let held = self.servers(|it| it.state == ServerState::Held);
        let Some(server) = self.dice.one_of(&held) else {
            return;
        };
        self.part(server);
        self.set_state(server, ServerState::Resetting);
        self.with(|book, _, orders| book.reset(server, orders));
    }

    fn close(&mut self) {
        let all = self.servers(|it| !is_cancel(it.state) && it.state != ServerState::Opening);
        let Some(server) = self.dice.one_of(&all) else {
            return;
        };
        self.part(server);
        let gone = self.model.servers.remove(&server).expect("it is known");
        let kept = self.with(|book, now, orders| book.closed(server, now, orders));
        let is_kept = matches!(gone.state, ServerState::Idle | ServerState::BeingCancelled);
        assert_eq!(kept, is_kept.then_some(gone.number));
    }

    fn leave(&mut self) {
        let all = self.clients(|_| true);
        let Some(client) = self.dice.one_of(&all) else {
            return;
        };
        let does = self.model.clients.remove(&client).expect("it is known");
        let left = self.with(|book, now, orders| book.leave(client, now, orders));
        match does {
            Does::Holds(server) => assert_eq!(left, Left::Server(server)),
            _ => assert_eq!(left, Left::Nothing),
        }
    }

    fn cancel(&mut self) {
        let all = self.clients(|_| true);
        let Some(client) = self.dice.one_of(&all) else {
            return;
        };
        let holds = matches!(self.model.clients[&client], Does::Holds(_));
        let asked = self.with(|book, now, orders| book.ask_cancel(client, now, orders));
        assert_eq!(asked != CancelAsked::Dropped, holds);
    }

    /// A connection of a cancel is made, or ends.
    fn carry(&mut self) {
        let carrying = self.servers(|it| is_cancel(it.state));
        let Some(server) = self.dice.one_of(&carrying) else {
            return;
        };
        let it = self.model.servers[&server].clone();
        if it.state == ServerState::CancelOpening && self.dice.roll(4) > 0 {
            if let CancelReady::Send(key) = self.book.cancel_connected(server) {
                let target = it.cancels.expect("it has a target");
                let target = &self.model.servers[&target];
                assert_eq!(i32::try_from(target.number), Ok(key.process));
                assert_eq!(
                    target.state,
                    ServerState::Held,
                    "its client has it no longer"
                );
                self.set_state(server, ServerState::Cancelling);
                return;
            }
        }
        self.model.servers.remove(&server);
        let kept = self.with(|book, now, orders| book.closed(server, now, orders));
        assert_eq!(kept, None);
        if let Some(target) = it.cancels {
            self.free(target);
        }
    }

    /// Frees a server after its last cancel: it is idle, unless a client waits.
    fn free(&mut self, target: ServerId) {
        let is_hit =
            |it: &Connection| it.state == ServerState::Cancelling && it.cancels == Some(target);
        if self.servers(is_hit).is_empty() {
            if let Some(it) = self.model.servers.get_mut(&target) {
                if it.state == ServerState::BeingCancelled {
                    it.state = ServerState::Idle;
                }
            }
        }
    }

    fn command(&mut self) {
        let of = self.dice.roll(self.databases.len());
        let scope = Scope::Database(self.databases[of]);
        match self.dice.roll(6) {
            4 => self.retire(),
            5 => {
                let database = self.databases[of];
                let pools = self.model.pools.iter_mut();
                pools
                    .filter(|pool| pool.database == of)
                    .for_each(|pool| pool.fails_until = None);
                self.with(|book, now, orders| book.retry(database, now, orders));
            }
            0 => {
                self.set_paused(of, true);
                let _done = self.with(|book, _, orders| book.pause(scope, orders));
            }
            1 | 2 => {
                self.set_paused(of, false);
                let _done = self.with(|book, now, orders| book.resume(scope, now, orders));
            }
            _ => self.reconnect(of, scope),
        }
        // Other pools use the room that a command frees at the next maintenance.
        self.with(|book, now, orders| book.maintain(now, orders));
    }

    fn set_paused(&mut self, database: usize, is_paused: bool) {
        let pools = self.model.pools.iter_mut();
        pools
            .filter(|pool| pool.database == database)
            .for_each(|pool| pool.is_paused = is_paused);
    }

    fn reconnect(&mut self, database: usize, scope: Scope) {
        let pools = self.model.pools.iter_mut();
        pools
            .filter(|pool| pool.database == database)
            .for_each(|pool| pool.has_welcome = false);
        let before: Vec<ServerId> = self.servers(|_| true);
        let mut orders = Vec::new();
        let done = self.book.reconnect(scope, self.model.now, &mut orders);
        assert_eq!(done, Commanded::Done);
        for server in before {
            let it = self.model.servers.get_mut(&server).expect("it is known");
            it.is_marked |= self.model.pools[it.pool].database == database;
        }
        self.model.apply(orders);
    }

    /// The host of one connection has another role.
    fn retire(&mut self) {
        let judged_later = |it: &Connection| {
            use ServerState::{CancelOpening, Cancelling, Opening};
            !matches!(it.state, Opening | CancelOpening | Cancelling)
        };
        let all = self.servers(judged_later);
        if all.is_empty() {
            return;
        }
        let server = all[self.dice.roll(all.len())];
        let it = self.model.servers.get_mut(&server).expect("it is known");
        it.is_marked = true;
        self.with(|book, _, orders| book.retire(server, orders));
    }

    fn pass_time(&mut self) {
        self.model.now += ms(u64::try_from(self.dice.roll(800)).expect("small"));
        self.with(|book, now, orders| book.maintain(now, orders));
    }

    /// The book's own counts are those of the model.
    fn check_counts(&self) {
        let rows = self.book.pool_rows(self.model.now);
        for (place, row) in rows.iter().enumerate() {
            let of = |state| {
                let servers = self.model.servers.values();
                servers
                    .filter(|it| it.pool == place && it.state == state)
                    .count()
            };
            assert_eq!(row.servers_active, of(ServerState::Held));
            assert_eq!(row.servers_idle + row.servers_used, of(ServerState::Idle));
            let tested = of(ServerState::Checking) + of(ServerState::Resetting);
            assert_eq!(row.servers_tested, tested);
            let login = of(ServerState::Opening) + of(ServerState::CancelOpening);
            assert_eq!(row.servers_login, login);
            let waits = |does: &Does| match does {
                Does::Waits(of, _) | Does::Arrives(of, _) => *of == place,
                _ => false,
            };
            assert_eq!(row.clients_waiting, self.clients(waits).len());
        }
        assert_eq!(
            self.book.lists().login_clients + self.book.lists().used_clients,
            self.model.clients.len()
        );
    }

    /// Every client that waits is served or refused, although others ask again and again.
    fn settle(&mut self) {
        for (place, database) in self.databases.clone().into_iter().enumerate() {
            self.set_paused(place, false);
            let scope = Scope::Database(database);
            let _done = self.with(|book, now, orders| book.resume(scope, now, orders));
        }
        let old: Vec<(ClientId, Does)> = self.model.clients.clone().into_iter().collect();
        let waits = |does: &Does| matches!(does, Does::Waits(..) | Does::Arrives(..));
        let old: Vec<_> = old.into_iter().filter(|(_, does)| waits(does)).collect();
        let mut rounds = 0;
        while old
            .iter()
            .any(|(client, does)| self.model.clients.get(client) == Some(does))
        {
            rounds += 1;
            assert!(rounds < 500, "clients wait for ever: {:?}", self.model);
            self.model.now += ms(200);
            self.with(|book, now, orders| book.maintain(now, orders));
            for _ in 0..4 {
                self.ask();
                self.log_in();
                self.give_back();
                self.carry();
            }
            self.model.check_rest();
        }
    }

    /// When all have left, nothing remains.
    fn end(mut self) {
        while !self.model.clients.is_empty() {
            self.leave();
        }
        while !self.model.servers.is_empty() {
            let out = self.servers(|_| true);
            for server in out {
                if self.model.servers.remove(&server).is_some() {
                    self.with(|book, now, orders| book.closed(server, now, orders));
                }
            }
        }
        self.with(|book, now, orders| book.maintain(now, orders));
        let lists = self.book.lists();
        assert_eq!((lists.used_servers, lists.free_servers), (0, 0));
        assert_eq!((lists.used_clients, lists.login_clients), (0, 0));
        for row in self.book.database_rows() {
            assert_eq!((row.connections, row.clients), (0, 0));
        }
        for row in self.book.user_rows() {
            assert_eq!((row.connections, row.clients), (0, 0));
        }
        assert_eq!(self.book.cancels.len(), 0);
        assert!(self.book.nothing_is_listed());
    }
}

/// How many clients were served that had waited.
fn try_seed(seed: u64) -> u64 {
    // Shown if the test fails.
    println!("seed {seed}");
    let mut trial = Trial::new(seed);
    for _ in 0..400 {
        trial.step();
    }
    trial.settle();
    let served = trial.model.served;
    trial.end();
    served
}

/// One seed alone: `PACELINE_BOOK_SEED=7`.
#[test]
fn random_operations_keep_all_promises() {
    let served = match std::env::var("PACELINE_BOOK_SEED") {
        Ok(seed) => try_seed(seed.parse().expect("a number")),
        Err(_) => (0..200).map(try_seed).sum(),
    };
    assert!(served > 0, "no client had to wait: the trial shows nothing");
}
