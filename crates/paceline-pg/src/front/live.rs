//! The configuration in force, and what is made of it: secrets of users, TLS, socket options.

use std::{collections::HashMap, fmt, io, path::Path, sync::Arc, time::Duration};

use super::{
    session::login_settings,
    sockets::TcpOptions,
    tls::{ClientSide, ServerSide},
};
use crate::{
    config::{self, hba::Rules, AuthType, Config, Problem, Settings},
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

/// Why a configuration can't be used.
#[derive(Debug)]
pub(crate) enum Unusable {
    Config(config::Error),
    Tls(io::Error),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Tls(error) => write!(f, "TLS setup failed: {error}"),
        }
    }
}

impl std::error::Error for Unusable {}

impl From<config::Error> for Unusable {
    fn from(error: config::Error) -> Self {
        Self::Config(error)
    }
}

/// Reads the configuration in this file, without what it names.
pub(crate) fn read_config(file: &Path) -> Result<Config, config::Error> {
    config::load(&file.to_string_lossy(), &mut read_file)
}

impl Live {
    /// Reads everything that this configuration names.
    ///
    /// # Errors
    /// The TLS files or the rules can't be used. A missing `auth_file` is only remarked on.
    pub(crate) fn new(config: Config) -> Result<Self, Unusable> {
        let settings = &config.settings;
        let client_tls = ClientSide::new(settings).map_err(Unusable::Tls)?;
        let server_tls = ServerSide::new(settings).map_err(Unusable::Tls)?;
        Self::with_tls(config, client_tls, server_tls)
    }

    /// The same, but where TLS can't be set up as it says, TLS stays as it was: the settings may be
    /// half of a change. Then the second value says why.
    ///
    /// # Errors
    /// As [`new`](Self::new), but for TLS.
    pub(crate) fn after(&self, config: Config) -> Result<(Self, Option<Unusable>), Unusable> {
        let sides = ClientSide::new(&config.settings)
            .and_then(|client| Ok((client, ServerSide::new(&config.settings)?)));
        match sides {
            Ok((client, server)) => Ok((Self::with_tls(config, client, server)?, None)),
            Err(why) => {
                let (client, server) = (self.client_tls.clone(), self.server_tls.clone());
                let live = Self::with_tls(config, client, server)?;
                Ok((live, Some(Unusable::Tls(why))))
            }
        }
    }

    fn with_tls(
        config: Config,
        client_tls: ClientSide,
        server_tls: ServerSide,
    ) -> Result<Self, Unusable> {
        let settings = &config.settings;
        let mut remarks: Vec<String> = config.warnings.iter().map(Problem::to_string).collect();
        let secrets = secrets(settings, &mut remarks);
        let rules = match settings.auth_type {
            AuthType::Hba => Some(config::load_hba(&settings.auth_hba_file, &mut read_file)?),
            _ => None,
        };
        let tracked = Arc::new(Tracked::new(settings.track_extra_parameters.iter()));
        Ok(Self {
            secrets,
            rules,
            login: Arc::new(login_settings(settings, &client_tls, &tracked)),
            client_tls,
            server_tls,
            tracked,
            tcp: tcp_options(settings),
            remarks,
            config,
        })
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

fn secrets(settings: &Settings, remarks: &mut Vec<String>) -> HashMap<Box<[u8]>, Arc<[u8]>> {
    if settings.auth_file.is_empty() {
        return HashMap::new();
    }
    match config::load_userlist(&settings.auth_file, &mut read_file) {
        Ok(list) => {
            remarks.extend(list.broken.iter().map(Problem::to_string));
            let users = list.users.into_iter();
            users
                .map(|user| (user.name, Arc::from(user.secret)))
                .collect()
        }
        Err(error) => {
            remarks.push(error.to_string());
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
