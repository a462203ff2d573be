//! The end of a login: the client is who it says, and waits for its pool's first server.
//!
//! ```text
//!   proved ---> await_welcome ---> finish_login     the pool has had a server
//!                     |                 ^
//!                     +--- welcomed ----+           its first one has logged in
//!   proved ---> begin_console
//! ```

use std::sync::Arc;

use super::{
    console::ConsoleSession,
    login::{Login, Stage},
    Member, Session, State,
};
use crate::{
    console::Access,
    front::{
        call::Call,
        client::{Limits, Phase},
        registers::PoolEntry,
    },
    log::Level,
    login::{welcome, AuthType, Proof, ServerCredentials, StoredPassword},
    pg_wire::{backend, NewReport, Severity},
    pools::{Privilege, Refusal, Welcome},
    protocol::{canonical_encoding, ClientHalf},
};

impl Session {
    /// The client is who it says.
    pub(super) fn proved(&mut self, proof: Proof, call: &mut Call<'_, '_, '_>) {
        let Some(Login {
            asked: Some(asked), ..
        }) = self.login()
        else {
            return;
        };
        let (access, database) = (asked.access, asked.database.clone());
        let (name, user) = (asked.request.database.clone(), asked.request.user.clone());
        let stored = asked.stored.clone();
        if let Err(refusal) = self.identify(&user, access) {
            return self.refused(&refusal, call);
        }
        if let Some(access) = access {
            return self.begin_console(access, call);
        }
        let Some(database) = database else {
            return self.refuse("08P01", &format!("no such database: {name}"), call);
        };
        let config = database.config();
        if config.user.is_none() && self.is_anyone() {
            let text = format_args!("auth_type=any requires forced user");
            self.front.note_client(Level::Error, &self.client, text);
            return self.refuse("08P01", "bouncer config error", call);
        }
        let server_user = config.user.as_deref().unwrap_or(&user).to_owned();
        let Some(pool) = self.front.pool_of(&database, &server_user) else {
            return self.refuse("08P01", &format!("no such database: {name}"), call);
        };
        if config.user.is_none() {
            keep_credentials(&pool, stored, proof);
        }
        self.note_limits(&user, &pool);
        self.await_welcome(pool, call);
    }

    /// The user is known by now: the client counts for it.
    fn identify(&self, user: &str, access: Option<Access>) -> Result<(), Refusal> {
        let Some(id) = self.client.facts().id else {
            return Ok(());
        };
        let privilege = match access {
            Some(Access::Admin) => Privilege::Exempt,
            _ => Privilege::Ordinary,
        };
        let user = self.front.user(user);
        self.front.book().identify(id, user, privilege)
    }

    /// Whether any name is admitted.
    fn is_anyone(&self) -> bool {
        match &self.state {
            State::Login(login) => login.settings.auth_type == AuthType::Any,
            _ => false,
        }
    }

    fn await_welcome(&mut self, pool: Arc<PoolEntry>, call: &mut Call<'_, '_, '_>) {
        let Some(Login {
            asked: Some(asked), ..
        }) = self.login()
        else {
            return;
        };
        let (id, pool_id) = (asked.id, pool.id);
        let (answer, orders) = self
            .front
            .with_book(|book, now, orders| book.await_welcome(id, pool_id, now, orders));
        match answer {
            Welcome::Ready => self.finish_login(pool, call),
            Welcome::Waiting => {
                self.client.watch.enter(Phase::Waiting, self.front.now());
                if let Some(login) = self.login() {
                    login.stage = Stage::Welcome(pool);
                }
            }
            Welcome::Refused(Refusal::Gone) => {
                self.front.carry_out(orders);
                return self.enter_pool_again(&pool, call);
            }
            Welcome::Refused(refusal) => {
                self.refuse(refusal.code(), &refusal.to_string(), call);
            }
        }
        self.front.carry_out(orders);
    }

    /// The book has removed the pool since it was found, because it was not used, or its database.
    fn enter_pool_again(&mut self, gone: &PoolEntry, call: &mut Call<'_, '_, '_>) {
        match self.front.pool_after(gone) {
            Some(pool) => self.await_welcome(pool, call),
            None => self.refused(&Refusal::Gone, call),
        }
    }

    /// The pool has had its first server.
    pub(super) fn welcomed(&mut self, call: &mut Call<'_, '_, '_>) {
        let Some(login) = self.login() else { return };
        if let Stage::Welcome(pool) = &login.stage {
            let pool = Arc::clone(pool);
            self.finish_login(pool, call);
            self.take_input(call);
        }
    }

    fn finish_login(&mut self, pool: Arc<PoolEntry>, call: &mut Call<'_, '_, '_>) {
        let Some(reported) = pool.reported() else {
            // The book gives no welcome to a pool that has had no server.
            return self.refused(&Refusal::Gone, call);
        };
        let State::Login(login) = self.take_state() else {
            return;
        };
        let Login {
            asked: Some(asked), ..
        } = *login
        else {
            return;
        };
        let live = self.front.live();
        let mut values = reported.values.clone();
        let mut shown = reported.parameters.clone();
        let mut is_proven = true;
        for (name, value) in &asked.request.parameters {
            let value = canonical(name, value, &self.client, live.settings());
            let Some(place) = live.tracked.place(name.as_bytes()) else {
                continue;
            };
            if values.get(place) != Some(&value) {
                is_proven = false;
                values.set(place, &value);
            }
            match shown
                .iter_mut()
                .find(|(known, _)| known.eq_ignore_ascii_case(name.as_bytes()))
            {
                Some((_, known)) => *known = value.into(),
                None => shown.push((name.as_bytes().into(), value.into())),
            }
        }
        let number = self.client.number;
        let key = self.front.new_key(number, asked.request.minor);
        let mut out = Vec::new();
        let shown = shown.iter().map(|(name, value)| (&**name, &**value));
        welcome(&mut out, shown, key.process, key.secret());
        let message = &live.settings().login_notify_message;
        if !message.is_empty() {
            let report = NewReport::new(Severity::Notice, "00000", message.clone());
            let mut notice = Vec::new();
            backend::notice(&mut notice, &report);
            // Before the last message, which says that the session is ready.
            let at = out.len() - READY;
            out.splice(at..at, notice);
        }
        pool.database.counters.client_logins.add(1);
        self.client.facts().is_logged_in = true;
        self.say(&out, call);
        let values = self.front.commons.values(values);
        let half = ClientHalf::new(values, is_proven).with_others(&asked.request.others);
        let now = self.front.now();
        self.client.watch.enter(Phase::Idle, now);
        self.state = State::Idle(Box::new(Member {
            id: asked.id,
            pool,
            half,
            process: key.process,
        }));
    }

    /// The time-outs of the client.
    fn note_limits(&self, user: &str, pool: &PoolEntry) {
        let live = self.front.live();
        let config = pool.database.config();
        let effective = live.config.effective(&config, user);
        let limits = self.front.commons.limits(Limits::of(&effective));
        self.client.facts().limits = Some(limits);
    }

    fn begin_console(&mut self, access: Access, call: &mut Call<'_, '_, '_>) {
        let State::Login(login) = self.take_state() else {
            return;
        };
        let Some(asked) = login.asked else { return };
        let key = self.front.new_key(self.client.number, asked.request.minor);
        let console = ConsoleSession::new(asked.id, access, key.process);
        self.front.console.client_logins.add(1);
        self.client.facts().is_logged_in = true;
        self.client.watch.enter(Phase::Console, self.front.now());
        self.state = State::Console(Box::new(console));
        self.greet_at_console(key, call);
    }
}

/// The length of the message that says that a session is ready.
const READY: usize = 6;

/// The server takes what the client has proved itself with.
fn keep_credentials(pool: &PoolEntry, stored: Option<StoredPassword>, proof: Proof) {
    let credentials = match (stored, proof) {
        (
            _,
            Proof {
                keys: Some(keys), ..
            },
        ) => ServerCredentials::Keys(keys),
        (Some(stored @ (StoredPassword::Plain(_) | StoredPassword::Md5(_))), _) => {
            ServerCredentials::Password(stored)
        }
        (
            _,
            Proof {
                password: Some(password),
                ..
            },
        ) => ServerCredentials::Password(StoredPassword::Plain(password)),
        _ => return,
    };
    pool.credentials.store(Some(Arc::new(credentials)));
}

/// A value as a server shows it.
fn canonical(
    name: &str,
    value: &[u8],
    client: &crate::front::client::Client,
    settings: &crate::config::Settings,
) -> Vec<u8> {
    if name.eq_ignore_ascii_case("client_encoding") {
        let known = std::str::from_utf8(value).ok().and_then(canonical_encoding);
        return known.map_or_else(|| value.to_vec(), |name| name.as_bytes().to_vec());
    }
    if name.eq_ignore_ascii_case("application_name") && settings.application_name_add_host {
        let (host, port) = (client.address.logged(), client.address.port());
        let name = String::from_utf8_lossy(value);
        return format!("{name} - {host}:{port}").into_bytes();
    }
    value.to_vec()
}
