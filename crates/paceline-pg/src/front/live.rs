//! The configuration in force, and what is made of it: secrets of users, TLS, socket options.

use std::{collections::HashMap, fmt, io, path::Path, sync::Arc, time::Duration};

use super::{
    session::login_settings,
    sockets::TcpOptions,
    tls::{ClientSide, Fault, ServerSide},
};
use crate::{
    config::{self, hba::Rules, AuthType, Config, Faulty, Problem, Reason, Settings},
    login::LoginSettings,
    pools::{self, DatabaseSettings, UserSettings},
    protocol::Tracked,
};

/// One configuration with everything that its files name.
#[derive(Debug)]
pub(crate) struct Live {
    pub(crate) config: Config,
    /// The secrets of `auth_file`, by user.
    secrets: HashMap<Box<[u8]>, Arc<[u8]>>,
    pub(crate) rules: Option<Rules>,
    pub(crate) client_tls: ClientSide,
    pub(crate) server_tls: ServerSide,
    pub(crate) tracked: Arc<Tracked>,
    pub(crate) login: Arc<LoginSettings>,
    pub(crate) tcp: TcpOptions,
    /// What was accepted, although it is not as it should be.
    pub(crate) remarks: Vec<String>,
}

/// Why a configuration can't be used: every error and every warning, with file and line.
#[derive(Debug)]
pub(crate) struct Unusable {
    pub(crate) errors: Vec<String>,
    pub(crate) warnings: Vec<String>,
}

impl Unusable {
    fn of(config: &Config, errors: Vec<String>) -> Self {
        Self {
            errors,
            warnings: warnings(config),
        }
    }

    /// A configuration with wrong lines: the files that it names may be wrong too.
    fn of_faulty(faulty: &Faulty) -> Self {
        let config = &faulty.config;
        let mut errors = texts(&faulty.errors);
        if let Err(more) = Named::read(config) {
            errors.extend(more);
        }
        let mut warnings = warnings(config);
        // The users of a configuration that is not used are no concern.
        let _ = secrets(config, &mut warnings);
        Self { errors, warnings }
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let warnings = self.warnings.iter().map(|text| format!("warning: {text}"));
        let lines: Vec<String> = self.errors.iter().cloned().chain(warnings).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Unusable {}

/// Reads the configuration in this file, without what it names.
pub(crate) fn read_config(file: &Path) -> Result<Config, Unusable> {
    let loaded = config::load(&file.to_string_lossy(), &mut read_file);
    loaded.map_err(|faulty| Unusable::of_faulty(&faulty))
}

/// What the files are that a configuration names, but for the secrets of users.
struct Named {
    client_tls: ClientSide,
    server_tls: ServerSide,
    rules: Option<Rules>,
}

impl Named {
    fn read(config: &Config) -> Result<Self, Vec<String>> {
        let client_tls = ClientSide::new(&config.settings);
        let server_tls = ServerSide::new(&config.settings);
        match (client_tls, server_tls, rules(config)) {
            (Ok(client_tls), Ok(server_tls), Ok(rules)) => Ok(Self {
                client_tls,
                server_tls,
                rules,
            }),
            (client, server, rules) => {
                let mut errors = Vec::new();
                errors.extend(client.err().iter().flat_map(|it| tls_errors(config, it)));
                errors.extend(server.err().iter().flat_map(|it| tls_errors(config, it)));
                errors.extend(rules.err().unwrap_or_default());
                Err(errors)
            }
        }
    }
}

impl Live {
    /// Reads everything that this configuration names.
    ///
    /// # Errors
    /// The TLS files or the rules can't be used. A missing `auth_file` is only remarked on.
    pub(crate) fn new(config: Config) -> Result<Self, Unusable> {
        match Named::read(&config) {
            Ok(named) => Ok(Self::with(config, named)),
            Err(errors) => Err(Unusable::of(&config, errors)),
        }
    }

    /// The same, but where TLS can't be set up as it says, TLS stays as it was: the settings may be
    /// half of a change. Then the second value says why.
    ///
    /// # Errors
    /// As [`new`](Self::new), but for TLS.
    pub(crate) fn after(&self, config: Config) -> Result<(Self, Option<Unusable>), Unusable> {
        let rules = rules(&config).map_err(|errors| Unusable::of(&config, errors))?;
        match Named::read(&config) {
            Ok(named) => Ok((Self::with(config, named), None)),
            Err(errors) => {
                let named = Named {
                    client_tls: self.client_tls.clone(),
                    server_tls: self.server_tls.clone(),
                    rules,
                };
                let why_not = Unusable::of(&config, errors);
                Ok((Self::with(config, named), Some(why_not)))
            }
        }
    }

    fn with(config: Config, named: Named) -> Self {
        let settings = &config.settings;
        let mut remarks = warnings(&config);
        let secrets = secrets(&config, &mut remarks);
        let tracked = Arc::new(Tracked::new(settings.track_extra_parameters.iter()));
        Self {
            secrets,
            rules: named.rules,
            login: Arc::new(login_settings(settings, &named.client_tls, &tracked)),
            client_tls: named.client_tls,
            server_tls: named.server_tls,
            tracked,
            tcp: tcp_options(settings),
            remarks,
            config,
        }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.config.settings
    }

    /// The secret that `auth_file` has of this user.
    pub(crate) fn secret(&self, user: &[u8]) -> Option<Arc<[u8]>> {
        self.secrets.get(user).cloned()
    }

    /// The users of `auth_file` and of the section `[users]`.
    pub(crate) fn users(&self) -> Vec<String> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let listed = self.secrets.keys().map(|name| text(name));
        let configured = self.config.users.keys().map(|name| name.to_string());
        listed.chain(configured).collect()
    }

    /// What the book has to know for all pools.
    pub(crate) fn book_settings(&self) -> pools::Settings {
        book_settings(self.settings())
    }
}

fn read_file(path: &str) -> io::Result<Vec<u8>> {
    std::fs::read(path)
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(Problem::to_string).collect()
}

/// What is accepted, although it has no effect.
fn warnings(config: &Config) -> Vec<String> {
    let mut all = texts(&config.warnings);
    all.extend(texts(&config.without_effect()));
    all
}

/// The errors of one side of TLS. A key that no line sets is missing for the mode.
fn tls_errors(config: &Config, faults: &[Fault]) -> Vec<String> {
    let text = |fault: &Fault| {
        let mode = match fault.key.split_once('_') {
            Some(("client", _)) => "client_tls_sslmode",
            _ => "server_tls_sslmode",
        };
        let is_set = config.places.contains_key(fault.key);
        let key = if is_set { fault.key } else { mode };
        let problem = config.problem(key, Reason::Unusable(fault.why.as_str().into()));
        format!("TLS setup failed: {problem}")
    };
    faults.iter().map(text).collect()
}

/// The rules, if the configuration asks for them.
fn rules(config: &Config) -> Result<Option<Rules>, Vec<String>> {
    let file = &config.settings.auth_hba_file;
    if config.settings.auth_type != AuthType::Hba {
        return Ok(None);
    }
    match config::load_hba(file, &mut read_file) {
        Ok(rules) => Ok(Some(rules)),
        Err(config::Error::Lines(problems)) => Err(texts(&problems)),
        Err(_) if file.is_empty() => {
            let why = "this needs the key auth_hba_file";
            Err(vec![config
                .problem("auth_type", Reason::Unusable(why.into()))
                .to_string()])
        }
        Err(error) => {
            let reason = Reason::Unusable(error.to_string().into());
            Err(vec![config.problem("auth_hba_file", reason).to_string()])
        }
    }
}

fn secrets(config: &Config, remarks: &mut Vec<String>) -> HashMap<Box<[u8]>, Arc<[u8]>> {
    let file = &config.settings.auth_file;
    if file.is_empty() {
        return HashMap::new();
    }
    match config::load_userlist(file, &mut read_file) {
        Ok(list) => {
            remarks.extend(list.broken.iter().map(Problem::to_string));
            let users = list.users.into_iter();
            users
                .map(|user| (user.name, Arc::from(user.secret)))
                .collect()
        }
        Err(error) => {
            let reason = Reason::Unusable(error.to_string().into());
            remarks.push(config.problem("auth_file", reason).to_string());
            HashMap::new()
        }
    }
}

fn tcp_options(settings: &Settings) -> TcpOptions {
    TcpOptions {
        keepalive: settings.tcp_keepalive,
        keepcount: settings.tcp_keepcnt,
        keepidle: settings.tcp_keepidle,
        keepinterval: settings.tcp_keepintvl,
        user_timeout: settings.tcp_user_timeout,
        send_buffer: settings.tcp_socket_buffer as usize,
    }
}

fn book_settings(settings: &Settings) -> pools::Settings {
    let checks = !settings.server_check_query.is_empty();
    pools::Settings {
        max_clients: settings.max_client_conn as usize,
        max_database_clients: settings.max_db_client_connections as usize,
        max_user_clients: settings.max_user_client_connections as usize,
        pool_size: settings.default_pool_size as usize,
        min_pool_size: settings.min_pool_size as usize,
        reserve_size: settings.reserve_pool_size as usize,
        reserve_timeout: settings.reserve_pool_timeout,
        max_database_connections: settings.max_db_connections as usize,
        max_user_connections: settings.max_user_connections as usize,
        parallel_logins: settings.server_login_concurrency as usize,
        login_retry: settings.server_login_retry,
        round_robin: settings.server_round_robin,
        server_lifetime: settings.server_lifetime,
        server_idle_timeout: settings.server_idle_timeout,
        check_delay: checks.then_some(settings.server_check_delay),
        query_wait_timeout: settings.query_wait_timeout,
        query_wait_notify: Duration::from_secs(settings.query_wait_notify.into()),
        fast_close: settings.server_fast_close,
        ..pools::Settings::default()
    }
}

/// What the book has to know of a database.
pub(crate) fn database_settings(database: &config::Database) -> DatabaseSettings {
    let size = |limit: Option<u32>| limit.map(|limit| limit as usize);
    DatabaseSettings {
        pool_size: size(database.pool_size),
        min_pool_size: size(database.min_pool_size),
        reserve_size: size(database.reserve_pool_size),
        max_connections: size(database.max_db_connections),
        max_clients: size(database.max_db_client_connections),
        server_lifetime: database.server_lifetime,
        query_wait_timeout: database.query_wait_timeout,
        forced_user: database.user.is_some(),
        is_auto: database.is_auto,
        parks: database.roles != config::Roles::Off,
    }
}

/// What the book has to know of a user.
pub(crate) fn user_settings(user: Option<&config::User>) -> UserSettings {
    let Some(user) = user else {
        return UserSettings::default();
    };
    let size = |limit: Option<u32>| limit.map(|limit| limit as usize);
    UserSettings {
        pool_size: size(user.pool_size),
        reserve_size: size(user.reserve_pool_size),
        max_connections: size(user.max_user_connections),
        max_clients: size(user.max_user_client_connections),
        query_wait_timeout: user.query_wait_timeout,
    }
}
