//! The login of a client: joins the machine of `login` to the configuration, the book, and the
//! client's connection.
//!
//! ```text
//!   Talking ---> Secret   auth_query runs on a server that the book has given
//!   Talking, Secret ---> Welcome   the pool has had no server yet
//!   Talking ---> Cancelling   the connection has asked for a cancel, and waits for its end
//! ```

use std::sync::{Arc, OnceLock};

use super::{
    auth_query::AuthQuery, encrypting::TlsStart, relay::Progress, Reading, Session, State,
};
use crate::{
    config::{
        hba::{Attempt, Method},
        AuthType as Configured, PoolMode, Settings, CONSOLE,
    },
    console::Access,
    front::{
        call::Call,
        client::{Letter, Phase},
        random,
        registers::{Database, Lookup, PoolEntry},
        state::Front,
        tls,
    },
    log::Level,
    login::{
        Admission, AuthType, ClientLogin, ClientStep, ClientTls, LoginSettings, Seeds,
        SessionRequest, StartupRules, StoredPassword, Transport,
    },
    pools::{CancelAsked, CancelId, ClientId, Destination, Privilege, Refusal, UserId},
    protocol::Tracked,
};

/// A client that logs in.
pub(super) struct Login {
    pub(super) machine: ClientLogin,
    pub(super) settings: Arc<LoginSettings>,
    pub(super) stage: Stage,
    /// What the client has asked for, from its first packet on.
    pub(super) asked: Option<Asked>,
    pub(super) tls_start: TlsStart,
}

/// What a login waits for.
pub(super) enum Stage {
    /// The client.
    Talking,
    /// The secret of the user.
    Secret(Box<AuthQuery>),
    /// The pool's first server.
    Welcome(Arc<PoolEntry>),
    /// The end of its cancel.
    Cancelling(CancelId),
}

/// What a client has asked for.
pub(super) struct Asked {
    pub(super) request: Box<SessionRequest>,
    /// Its key in the book.
    pub(super) id: ClientId,
    /// `None`: there is no such database, or it is the console.
    pub(super) database: Option<Arc<Database>>,
    /// The user's secret, if it is known.
    pub(super) stored: Option<StoredPassword>,
    pub(super) access: Option<Access>,
}

impl Login {
    pub(super) fn new(front: &Front, is_unix: bool) -> Self {
        let seeds = Seeds {
            md5_salt: random::bytes(),
            nonce: random::bytes(),
            scram_salt: random::bytes(),
        };
        let transport = if is_unix {
            Transport::Unix
        } else {
            Transport::Tcp
        };
        Self {
            machine: ClientLogin::new(transport, seeds),
            settings: Arc::clone(&front.live().login),
            stage: Stage::Talking,
            asked: None,
            tls_start: TlsStart::Asked,
        }
    }

    pub(super) fn asked(&self) -> Option<&Asked> {
        self.asked.as_ref()
    }
}

/// What holds for all logins.
pub(crate) fn login_settings(
    settings: &Settings,
    client_tls: &tls::ClientSide,
    tracked: &Tracked,
) -> LoginSettings {
    let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let ignored = settings.ignore_startup_parameters.iter();
    LoginSettings {
        tls: match (&client_tls.tls, client_tls.is_required()) {
            (None, _) => ClientTls::Disabled,
            (Some(_), false) => ClientTls::Allowed,
            (Some(_), true) => ClientTls::Required,
        },
        auth_type: auth_type(settings.auth_type),
        scram_iterations: settings.scram_iterations,
        rules: StartupRules {
            tracked: tracked.names().map(name).collect(),
            ignored: ignored.map(str::to_owned).collect(),
            passes_others: true,
        },
        mock_seed: mock_seed(),
    }
}

/// A secret of this process: the salt of an unknown user stays the same.
fn mock_seed() -> [u8; 32] {
    static SEED: OnceLock<[u8; 32]> = OnceLock::new();
    *SEED.get_or_init(random::bytes)
}

fn auth_type(configured: Configured) -> AuthType {
    match configured {
        Configured::Any => AuthType::Any,
        Configured::Trust => AuthType::Trust,
        Configured::Plain => AuthType::Plain,
        Configured::Md5 => AuthType::Md5,
        // Each client of an hba file has a method of its own: see `settings_for`.
        Configured::Scram | Configured::Hba => AuthType::Scram,
    }
}

impl Session {
    pub(super) fn login(&mut self) -> Option<&mut Login> {
        match &mut self.state {
            State::Login(login) => Some(login),
            _ => None,
        }
    }

    /// Bytes of a client that logs in.
    pub(super) fn login_input(&mut self, bytes: &[u8], call: &mut Call<'_, '_, '_>) -> Progress {
        if self.wire.is_handshaking() || bytes.is_empty() {
            return Progress::Stuck;
        }
        let Some(login) = self.login() else {
            return Progress::Stuck;
        };
        if !matches!(login.stage, Stage::Talking) {
            return Progress::Stuck;
        }
        let mut out = Vec::new();
        let settings = Arc::clone(&login.settings);
        let fed = login.machine.feed(bytes, &settings, &mut out);
        let (consumed, is_more) = (fed.consumed, matches!(fed.step, ClientStep::More));
        if matches!(fed.step, ClientStep::StartDirectTls) {
            login.tls_start = TlsStart::Direct;
            self.login_step(fed.step, out, call);
            return self.first_ciphertext(bytes, call);
        }
        self.login_step(fed.step, out, call);
        if is_more && consumed == 0 {
            Progress::Stuck
        } else {
            Progress::Took(consumed)
        }
    }

    /// Does what the machine says. What it has appended is sent first.
    fn login_step(&mut self, step: ClientStep, mut out: Vec<u8>, call: &mut Call<'_, '_, '_>) {
        let mut step = step;
        loop {
            if let ClientStep::Refused(denied) = &step {
                self.log_refusal(&denied.0);
                return self.leave_with(&out, &denied.0, call);
            }
            if !out.is_empty() {
                self.say(&out, call);
                out.clear();
            }
            step = match step {
                ClientStep::More => return,
                ClientStep::StartTls => return self.begin_tls(call),
                ClientStep::StartDirectTls => return self.begin_tls(call),
                ClientStep::Cancel { process, secret } => {
                    return self.ask_cancel(process, &secret, call);
                }
                ClientStep::Start(request) => match self.start(request, call) {
                    Some(admission) => self.admit(admission, &mut out),
                    None => return,
                },
                ClientStep::Hash(hashing) => {
                    call.wake_follower();
                    self.hashed(hashing.run(), &mut out)
                }
                ClientStep::Proved(proof) => return self.proved(proof, call),
                ClientStep::Refused(_) => return,
                ClientStep::Close(closing) => {
                    return self.leave(&closing.to_string(), call);
                }
            };
        }
    }

    fn hashed(&mut self, hashed: crate::login::Hashed, out: &mut Vec<u8>) -> ClientStep {
        let front = Arc::clone(&self.front);
        let Some(login) = self.login() else {
            return ClientStep::More;
        };
        if let (Some(secret), Some(asked)) = (hashed.derived(), &login.asked) {
            if let Some(stored) = &asked.stored {
                let iterations = login.settings.scram_iterations;
                let user = &asked.request.user;
                front.verifiers().put(user, stored, iterations, secret);
            }
        }
        login.machine.hashed(hashed, out)
    }

    fn admit(&mut self, admission: Admission, out: &mut Vec<u8>) -> ClientStep {
        let Some(login) = self.login() else {
            return ClientStep::More;
        };
        let settings = Arc::clone(&login.settings);
        login.machine.admit(admission, &settings, out)
    }

    /// The client has said who it is and what it wants. How it is admitted; `None`: that is not
    /// known yet, or it is refused.
    fn start(
        &mut self,
        request: Box<SessionRequest>,
        call: &mut Call<'_, '_, '_>,
    ) -> Option<Admission> {
        let is_console = request.database == CONSOLE;
        self.note_attempt(&request, is_console);
        let access = if is_console {
            self.access(&request.user)
        } else {
            None
        };
        // A name that is not known is kept only when it has proved to be a user's.
        let user_id = self.front.known_user(&request.user);
        let privilege = match access {
            Some(Access::Admin) if self.is_trusted(&request.user, access) => Privilege::Exempt,
            Some(Access::Admin) => Privilege::Claimed,
            _ => Privilege::Ordinary,
        };
        let entered = self.enter(&request.database, is_console, user_id, privilege);
        let (id, database) = match entered {
            Ok(entered) => entered,
            Err(refusal) => {
                self.refuse(refusal.code(), &refusal.to_string(), call);
                return None;
            }
        };
        self.client.facts().id = Some(id);
        self.front.clients().name(id, Arc::clone(&self.client));
        let stored = self.stored_secret(&request.user);
        let trusted = self.is_trusted(&request.user, access);
        let asked = Asked {
            request,
            id,
            database,
            stored: stored.clone(),
            access,
        };
        if is_console && access.is_none() {
            self.keep_asked(asked);
            self.refuse("08P01", "not allowed", call);
            return None;
        }
        if let Some(text) = self.refusal_of_others(&asked) {
            self.keep_asked(asked);
            self.refuse("08P01", &text, call);
            return None;
        }
        if !self.choose_method(&asked, call) {
            self.keep_asked(asked);
            return None;
        }
        let needs_query = !trusted && stored.is_none() && self.needs_secret();
        let user = asked.request.user.clone();
        let query = needs_query.then(|| self.auth_query_for(&asked));
        self.keep_asked(asked);
        match query {
            _ if trusted => Some(Admission::Trusted),
            Some(Ok(Some(pool))) => {
                self.begin_auth_query(pool, call);
                None
            }
            Some(Err(text)) => {
                self.refuse("08P01", &text, call);
                None
            }
            Some(Ok(None)) | None => Some(self.admission(&user, stored)),
        }
    }

    /// Why the client's parameters that are not tracked are refused: only a session has a server
    /// for itself, on which it may set them.
    fn refusal_of_others(&self, asked: &Asked) -> Option<String> {
        let text = asked.request.refusal_of_others.clone()?;
        let Some(database) = &asked.database else {
            return Some(text);
        };
        let config = database.config();
        let user = config.user.as_deref().unwrap_or(&asked.request.user);
        let mode = self.front.live().config.effective(&config, user).pool_mode;
        (mode != PoolMode::Session).then_some(text)
    }

    fn keep_asked(&mut self, asked: Asked) {
        if let Some(login) = self.login() {
            login.asked = Some(asked);
        }
    }

    fn needs_secret(&self) -> bool {
        match &self.state {
            State::Login(login) => login.settings.auth_type != AuthType::Any,
            _ => false,
        }
    }

    /// The secret of this user, from the file or the configuration.
    fn stored_secret(&self, user: &str) -> Option<StoredPassword> {
        let secret = self.front.live().secret(user.as_bytes());
        secret.map(|secret| StoredPassword::read(&secret))
    }

    pub(super) fn admission(&self, user: &str, stored: Option<StoredPassword>) -> Admission {
        let iterations = self.front.live().settings().scram_iterations;
        match stored {
            None => Admission::Unknown,
            Some(password) => Admission::Known {
                verifier: self.front.verifiers().get(user, &password, iterations),
                password,
            },
        }
    }

    /// A secret was found by `auth_query`, or was not: the login goes on.
    pub(super) fn secret_found(
        &mut self,
        stored: Option<StoredPassword>,
        call: &mut Call<'_, '_, '_>,
    ) {
        let Some(login) = self.login() else { return };
        login.stage = Stage::Talking;
        let Some(asked) = &mut login.asked else {
            return;
        };
        asked.stored.clone_from(&stored);
        let user = asked.request.user.clone();
        let mut out = Vec::new();
        let admission = self.admission(&user, stored);
        let step = self.admit(admission, &mut out);
        self.login_step(step, out, call);
        self.read_client(Reading::On);
        self.take_input(call);
    }

    /// Writes the line that says who wants to log in.
    fn note_attempt(&mut self, request: &SessionRequest, is_console: bool) {
        let tls = {
            let commons = &self.front.commons;
            let (database, user) = (commons.text(&request.database), commons.text(&request.user));
            let application = commons.text(&application(request));
            let mut facts = self.client.facts();
            (facts.database, facts.user) = (database, user);
            facts.is_console = is_console;
            facts.application = application;
            if facts.tls.is_empty() {
                "no".to_owned()
            } else {
                facts.tls.to_string()
            }
        };
        if self.front.live().settings().log_connections {
            let (database, user) = (&request.database, &request.user);
            self.front.note_client(
                Level::Log,
                &self.client,
                format_args!("login attempt: db={database} user={user} tls={tls} replication=no"),
            );
        }
    }

    /// What this user may do at the console.
    fn access(&self, user: &str) -> Option<Access> {
        let live = self.front.live();
        let settings = live.settings();
        if self.is_own_user(user) || settings.admin_users.contains(user) {
            Some(Access::Admin)
        } else if settings.stats_users.contains(user) {
            Some(Access::Stats)
        } else if settings.auth_type == Configured::Any {
            Some(Access::Admin)
        } else {
            None
        }
    }

    /// The console admits the user of this process on the Unix socket.
    fn is_own_user(&self, user: &str) -> bool {
        user == CONSOLE && self.process.is_some_and(|process| process.is_own_user)
    }

    fn is_trusted(&self, user: &str, access: Option<Access>) -> bool {
        access.is_some() && self.is_own_user(user)
    }

    /// Counts the client for its database and its user.
    fn enter(
        &self,
        name: &str,
        is_console: bool,
        user: Option<UserId>,
        privilege: Privilege,
    ) -> Result<(ClientId, Option<Arc<Database>>), Refusal> {
        loop {
            let database = self.find_database(name, is_console);
            let destination = if is_console {
                Destination::Console
            } else {
                Destination::from(database.as_ref().map(|database| database.id))
            };
            let now = self.front.now();
            match self.front.book().enter(destination, user, privilege, now) {
                // It was unused, and was forgotten since it was found.
                Err(Refusal::Gone) => {}
                entered => return entered.map(|id| (id, database)),
            }
        }
    }

    fn find_database(&self, name: &str, is_console: bool) -> Option<Arc<Database>> {
        if is_console {
            return None;
        }
        match self.front.database(name) {
            Lookup::Known(database) => Some(database),
            Lookup::Registered(database) => {
                self.front.note_client(
                    Level::Log,
                    &self.client,
                    format_args!("registered new auto-database: {name}"),
                );
                Some(database)
            }
            Lookup::Unknown => None,
        }
    }

    /// With an hba file each client has a method of its own. Whether there is one.
    fn choose_method(&mut self, asked: &Asked, call: &mut Call<'_, '_, '_>) -> bool {
        let live = self.front.live();
        let Some(rules) = &live.rules else {
            return true;
        };
        let attempt = Attempt {
            database: &asked.request.database,
            user: &asked.request.user,
            address: self.client.address.ip(),
            is_tls: self.wire.tls_info().is_some(),
        };
        let method = match rules.method(&attempt) {
            Method::Trust => AuthType::Trust,
            Method::Md5 => AuthType::Md5,
            Method::Scram => AuthType::Scram,
            Method::Plain => AuthType::Plain,
            Method::Reject => {
                self.refuse("08P01", "login rejected", call);
                return false;
            }
        };
        if let Some(login) = self.login() {
            login.settings = Arc::new(LoginSettings {
                auth_type: method,
                ..LoginSettings::clone(&login.settings)
            });
        }
        true
    }

    /// The connection asks for the cancel of another one's query.
    fn ask_cancel(&mut self, process: i32, secret: &[u8], call: &mut Call<'_, '_, '_>) {
        let number = self.front.find_key(process, secret);
        let client = number.and_then(|number| self.front.clients().with_number(number).cloned());
        let Some(client) = client else {
            self.log_refusal("failed cancel request");
            return self.leave("failed cancel request", call);
        };
        let (id, is_console) = {
            let facts = client.facts();
            (facts.id, facts.is_console)
        };
        if is_console {
            client.send(Letter::CancelWait);
            return self.leave("canceling console wait", call);
        }
        let Some(id) = id else {
            return self.leave("cancel request for idle client", call);
        };
        let (asked, orders) = self
            .front
            .with_book(|book, now, orders| book.ask_cancel(id, now, orders));
        match asked {
            CancelAsked::Dropped => self.leave("cancel request for idle client", call),
            CancelAsked::Queued(cancel) => {
                self.front
                    .cancels()
                    .insert(cancel, Arc::clone(&self.client));
                self.client.watch.enter(Phase::Cancel, self.front.now());
                if let Some(login) = self.login() {
                    login.stage = Stage::Cancelling(cancel);
                }
            }
        }
        self.front.carry_out(orders);
    }

    /// The session ends before the login does.
    pub(super) fn end_login(&mut self, login: Login, call: &mut Call<'_, '_, '_>) {
        match login.stage {
            Stage::Secret(query) => self.end_auth_query(*query, call),
            Stage::Cancelling(cancel) => drop(self.front.cancels().remove(&cancel)),
            Stage::Talking | Stage::Welcome(_) => {}
        }
        if let Some(asked) = login.asked {
            let id = asked.id;
            let (_, orders) = self
                .front
                .with_book(|book, now, orders| book.leave(id, now, orders));
            self.front.carry_out(orders);
        }
    }

    /// What the client waits for is refused.
    pub(super) fn refused(&mut self, refusal: &Refusal, call: &mut Call<'_, '_, '_>) {
        if *refusal == Refusal::QueryWaitTimeout && self.lacks_host() {
            return self.refuse("57P03", NO_HOST, call);
        }
        self.refuse(refusal.code(), &refusal.to_string(), call);
    }

    /// Whether the client waits because no host has the role that its database asks for.
    fn lacks_host(&self) -> bool {
        let pool = match &self.state {
            State::Waiting(member) => Some(&member.pool),
            State::Login(login) => match &login.stage {
                Stage::Welcome(pool) => Some(pool),
                _ => None,
            },
            _ => None,
        };
        let site = pool.and_then(|pool| pool.database.site());
        site.is_some_and(|site| !site.has_usable())
    }
}

/// What a client gets that was parked for too long.
const NO_HOST: &str = "query_wait_timeout: no host of the database has the role that is asked for";

fn application(request: &SessionRequest) -> String {
    let given = request
        .parameters
        .iter()
        .find(|(name, _)| name == "application_name");
    let value = given.map(|(_, value)| String::from_utf8_lossy(value).into_owned());
    value.unwrap_or_default()
}
