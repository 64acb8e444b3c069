//! Who the client is at this moment: its connections and its credentials, renewed as they change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ureq::http::{HeaderName, HeaderValue};

use crate::auth::{Auth, Credential};
use crate::config::{Config, ConfigError, Place};
use crate::gate::Gate;
use crate::http::Options;
use crate::tls::{self, CLEAR_TEXT_BYTES, Material, Places, TlsConnector};
use crate::{Error, auth};

/// Token and certificate files are looked at this often. A projected token is replaced at 80 % of its life of at
/// least ten minutes, so a minute loses nothing.
const FILES_EVERY: Duration = Duration::from_secs(60);

/// After a 401 or a certificate that does not fit, or after a plugin failed, credentials are not fetched again before this has passed: twenty workers
/// that all get a 401 must not start twenty plugins.
const REFRESH_PAUSE: Duration = Duration::from_secs(5);

/// Time-outs by phase. There is none for the whole call: it would cut watches short, and ureq would start a thread
/// for every request.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const SEND_WITHIN: Duration = Duration::from_secs(30);
/// The API server itself gives up a request after 60 s.
const ANSWER_WITHIN: Duration = Duration::from_secs(65);

/// API servers close a connection that was idle for 90 s; ours go earlier, so that both sides rarely race.
const IDLE_AT_MOST: Duration = Duration::from_secs(60);

/// What the socket's own buffers hold, in and out. With TLS it is ciphertext in pieces of any size, and a watch, of which
/// there are hundreds and which sends one small request in minutes, needs little. A proxy's head has to fit as well.
const SOCKET_BYTES: (usize, usize) = (CLEAR_TEXT_BYTES, CLEAR_TEXT_BYTES);
const WATCH_SOCKET_BYTES: (usize, usize) = (4 << 10, 1 << 10);

/// Few lists are read at a time, and hundreds of megabytes may be in them: whole records of TLS come with one call.
const LIST_SOCKET_BYTES: (usize, usize) = (32 << 10, 1 << 10);

/// Few lists are read at a time (see [`turn`](crate::turn)), one after the other on these. Each holds 50 KB for good.
const IDLE_STREAMS_MAX: usize = 4;

/// A head that fills the buffer is known to be too large by this: ureq takes a buffer without room for a connection that
/// has ended.
const RESPONSE_HEAD_BYTES_MAX: usize = CLEAR_TEXT_BYTES - 1;

/// Pools of connections.
pub(crate) struct Agents {
    /// For short requests.
    pub(crate) api: ureq::Agent,
    /// For lists.
    pub(crate) list: ureq::Agent,
    /// For watches.
    pub(crate) watch: ureq::Agent,
    /// The one connection that [`probe`](crate::Client::probe) keeps. Among the others it could be taken by somebody
    /// who then waits on it for an answer that never comes.
    pub(crate) probe: ureq::Agent,
}

impl Agents {
    /// Closes every connection; requests on them fail at once.
    fn shut_down(&self) {
        for agent in [&self.api, &self.list, &self.watch, &self.probe] {
            agent.clone().shutdown();
        }
    }
}

/// What one request needs: connections and headers that belong together.
#[derive(Clone)]
pub(crate) struct Current {
    pub(crate) agents: Arc<Agents>,
    /// `Authorization` and the impersonation headers.
    pub(crate) headers: Arc<[(HeaderName, HeaderValue)]>,
    /// Counts the changes, so that a 401 is known to be about these credentials and not about older ones.
    pub(crate) generation: u64,
}

/// What is looked for after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Renew {
    /// Files only: where certificates do not fit together, a plugin's token is no help.
    Files,
    /// The plugin's answer too.
    All,
}

pub(crate) struct Session {
    config: Config,
    options: Options,
    state: Mutex<State>,
}

struct State {
    current: Current,
    material: Material,
    /// What the plugin or the token file last gave.
    credential: Credential,
    /// When files were last read.
    checked: Instant,
    /// When a refusal last led to a refresh.
    refreshed: Option<Instant>,
    /// How a plugin last failed, and when.
    failure: Option<(Instant, Error)>,
    /// Agents before a change of certificates. Their streams run on to their end; `shut_down` must reach them.
    retired: Vec<Weak<Agents>>,
}

impl Session {
    pub(crate) fn new(config: &Config, options: &Options) -> Result<Session, ConfigError> {
        // ureq panics on a user agent that cannot stand in a header.
        HeaderValue::from_str(&options.user_agent).map_err(|_| {
            let place = Place::new("the client's options", "user_agent");
            place.error("it cannot stand in an HTTP header", "write it in visible ASCII characters")
        })?;
        let material = config.tls.read()?;
        let credential = config.auth.first()?;
        let headers = headers(config, &credential)?;
        let agents = Arc::new(build_agents(config, options, &material, &config.tls.places())?);
        let state = State {
            current: Current { agents, headers, generation: 0 },
            material,
            credential,
            checked: Instant::now(),
            refreshed: None,
            failure: None,
            retired: Vec::new(),
        };
        Ok(Session { config: config.clone(), options: options.clone(), state: Mutex::new(state) })
    }

    /// The credentials for the next request, renewed first if they are due.
    ///
    /// A plugin runs under the lock: whoever else needs its answer waits for it. Its time is bounded, and closing the
    /// gate ends it.
    pub(crate) fn current(&self, gate: &Gate) -> Result<Current, Error> {
        let mut state = self.lock();
        let now = Instant::now();
        if let Auth::Exec(plugin) = &self.config.auth
            && state.credential.is_stale(jiff::Timestamp::now())
        {
            self.run_plugin(&mut state, plugin, gate, now)?;
        }
        if now.saturating_duration_since(state.checked) >= FILES_EVERY {
            self.reread_files(&mut state, now);
        }
        if gate.is_closed() { Err(Error::ShutDown) } else { Ok(state.current.clone()) }
    }

    /// After the server has refused the credentials of `generation`, or has itself shown a certificate that they do not
    /// cover: whether there are other ones now.
    pub(crate) fn refresh(&self, gate: &Gate, generation: u64, what: Renew) -> Result<bool, Error> {
        let mut state = self.lock();
        let now = Instant::now();
        let too_soon = state.refreshed.is_some_and(|at| is_recent(at, now));
        if state.current.generation == generation && !too_soon {
            state.refreshed = Some(now);
            if let (Auth::Exec(plugin), Renew::All) = (&self.config.auth, what) {
                self.run_plugin(&mut state, plugin, gate, now)?;
            }
            self.reread_files(&mut state, now);
        }
        Ok(state.current.generation != generation)
    }

    /// Closes every connection; requests on them fail at once.
    pub(crate) fn shut_down(&self) {
        let state = self.lock();
        let retired = state.retired.iter().filter_map(Weak::upgrade);
        for agents in retired.chain([state.current.agents.clone()]) {
            agents.shut_down();
        }
    }

    /// The same credentials with connections of their own, of which none is open yet.
    pub(crate) fn unconnected(&self) -> Result<Current, Error> {
        let state = self.lock();
        let agents = build_agents(&self.config, &self.options, &state.material, &self.config.tls.places());
        let agents = agents.map_err(|error| credentials_error(&self.config.auth, error))?;
        Ok(Current { agents: Arc::new(agents), ..state.current.clone() })
    }

    /// Uses the connections of `new` from now on and closes all that were open before.
    pub(crate) fn reconnect(&self, new: &Current) {
        let mut state = self.lock();
        // With other certificates than these meanwhile, the present connections are newer.
        if state.current.generation == new.generation {
            let old = std::mem::replace(&mut state.current.agents, new.agents.clone());
            state.retired.push(Arc::downgrade(&old));
        }
        for agents in state.retired.drain(..).filter_map(|agents| agents.upgrade()) {
            agents.shut_down();
        }
    }

    fn run_plugin(
        &self,
        state: &mut State,
        plugin: &auth::ExecPlugin,
        gate: &Gate,
        now: Instant,
    ) -> Result<(), Error> {
        if let Some((_, failure)) = state.failure.as_ref().filter(|(at, _)| is_recent(*at, now)) {
            return Err(failure.clone());
        }
        let outcome = plugin.run(gate).and_then(|credential| self.adopt(state, credential));
        state.failure = outcome.as_ref().err().map(|error| (Instant::now(), error.clone()));
        outcome
    }

    /// Files that cannot be read, or no longer make sense, leave what was there in use: a rotation in the middle of a
    /// write must not take the client down. The log says so.
    fn reread_files(&self, state: &mut State, now: Instant) {
        state.checked = now;
        let outcome = self.config.auth.reread().map_err(|e| e.to_string()).and_then(|credential| {
            let credential = credential.unwrap_or_else(|| state.credential.clone());
            self.adopt(state, credential).map_err(|e| e.to_string())
        });
        if let Err(cause) = outcome {
            log::warn!("credentials stay as they are: {cause}");
        }
    }

    /// Puts new credentials and whatever the certificate files hold now into use.
    fn adopt(&self, state: &mut State, credential: Credential) -> Result<(), Error> {
        let describe = |error: ConfigError| credentials_error(&self.config.auth, error);
        let mut material = self.config.tls.read().map_err(describe)?;
        let mut places = self.config.tls.places();
        if let Some(identity) = &credential.identity {
            material.identity = Some(identity.clone());
            (places.certificate, places.key) = self.config.auth.identity_places();
        }
        let headers = headers(&self.config, &credential).map_err(describe)?;
        let mut next = Current { headers, ..state.current.clone() };
        if material != state.material {
            next.agents =
                Arc::new(build_agents(&self.config, &self.options, &material, &places).map_err(describe)?);
            state.retired.retain(|agents| agents.strong_count() > 0);
            state.retired.push(Arc::downgrade(&state.current.agents));
        }
        if material != state.material || next.headers != state.current.headers {
            next.generation += 1;
        }
        state.current = next;
        state.material = material;
        state.credential = credential;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn credentials_error(auth: &Auth, error: ConfigError) -> Error {
    let source = auth.describe();
    let cause = match error {
        // The source is named already.
        ConfigError::Field { file, field, cause, mend } if file == source => {
            format!("{field}: {cause}; {mend}")
        }
        other => other.to_string(),
    };
    Error::Credentials { source, cause }
}

fn is_recent(at: Instant, now: Instant) -> bool {
    now.saturating_duration_since(at) < REFRESH_PAUSE
}

fn headers(
    config: &Config,
    credential: &Credential,
) -> Result<Arc<[(HeaderName, HeaderValue)]>, ConfigError> {
    let mut headers = Vec::new();
    if let Some(authorization) = &credential.authorization {
        let mut value = HeaderValue::from_bytes(authorization.reveal()).map_err(|_| {
            let mend = "write the token on one line, without control characters";
            config.auth.place().error("the token cannot stand in an HTTP header", mend)
        })?;
        value.set_sensitive(true);
        headers.push((ureq::http::header::AUTHORIZATION, value));
    }
    headers.extend(config.impersonate.iter().cloned());
    Ok(headers.into())
}

fn build_agents(
    config: &Config,
    options: &Options,
    material: &Material,
    places: &Places,
) -> Result<Agents, ConfigError> {
    let connector = TlsConnector {
        config: tls::client_config(&config.tls, material, places)?,
        server_host: config.server_host.clone(),
        server_name: config.tls.server_name.clone(),
        keeps_buffers: false,
    };
    let proxy = config.proxy()?;
    let base = |(input_bytes, output_bytes)| {
        ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(proxy.clone())
            .user_agent(&options.user_agent)
            .no_delay(true)
            .timeout_connect(Some(CONNECT_WITHIN))
            .timeout_send_request(Some(SEND_WITHIN))
            .timeout_send_body(Some(SEND_WITHIN))
            .timeout_per_write(Some(SEND_WITHIN))
            .max_idle_age(IDLE_AT_MOST)
            .max_response_header_size(RESPONSE_HEAD_BYTES_MAX)
            .input_buffer_size(input_bytes)
            .output_buffer_size(output_bytes)
    };
    let in_flight = options.max_in_flight.max(1);
    let api = base(SOCKET_BYTES)
        .timeout_recv_response(Some(ANSWER_WITHIN))
        .timeout_per_read(Some(ANSWER_WITHIN))
        .max_idle_connections(in_flight)
        .max_idle_connections_per_host(in_flight)
        .build();
    // A stream is followed by the next one at once, so a few idle connections are enough.
    let streams = |bytes| {
        base(bytes)
            .max_idle_connections(IDLE_STREAMS_MAX)
            .max_idle_connections_per_host(IDLE_STREAMS_MAX)
            .build()
    };
    let is_bare = config.tls.is_plain || proxy.is_some();
    let watch = streams(if is_bare { SOCKET_BYTES } else { WATCH_SOCKET_BYTES });
    let list = streams(if is_bare { SOCKET_BYTES } else { LIST_SOCKET_BYTES });
    let probe = base(SOCKET_BYTES).max_idle_connections(1).max_idle_connections_per_host(1).build();
    let busy = TlsConnector { keeps_buffers: true, ..connector.clone() };
    let agent = |config| tls::agent(config, connector.clone());
    Ok(Agents { api: tls::agent(api, busy), list: agent(list), watch: agent(watch), probe: agent(probe) })
}

/// Said once for each client: what the configuration allows, but an operator should know.
pub(crate) fn warn_of_risks(config: &Config) {
    if config.tls.insecure {
        log::warn!("{}: insecure-skip-tls-verify is set: the server is not authenticated", config.server());
    }
    if config.tls.is_plain && !config.is_loopback() && config.auth.has_secret() {
        log::warn!("{}: credentials go over the network unencrypted; use https", config.server());
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A session on a token file, and the header that it gives when the files were last read `ago`.
    fn header_after(session: &Session, ago: Duration) -> String {
        if let Some(then) = Instant::now().checked_sub(ago) {
            session.lock().checked = then;
        }
        let current = session.current(&Gate::new(1, 0.0, 0)).unwrap();
        current
            .headers
            .iter()
            .map(|(_, value)| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .collect()
    }

    #[test]
    fn r1_token_files_are_read_again_after_a_minute_and_not_before() {
        let path: PathBuf = std::env::temp_dir().join(format!("gc-client-session-{}", std::process::id()));
        std::fs::write(&path, "old").unwrap();
        let place = Place::new("test", "token");
        let mut config = Config::plain("http://127.0.0.1:1");
        config.auth = Auth::TokenFile { path: path.clone(), place };
        let session = Session::new(&config, &Options::default()).unwrap();
        std::fs::write(&path, "new").unwrap();
        assert_eq!(header_after(&session, Duration::from_secs(1)), "Bearer old");
        assert_eq!(header_after(&session, FILES_EVERY), "Bearer new");
        // A file that is gone for a while does not take the client down.
        std::fs::remove_file(&path).unwrap();
        assert_eq!(header_after(&session, FILES_EVERY), "Bearer new");
    }

    #[test]
    fn r7_a_user_agent_that_is_no_header_is_an_error_and_not_a_panic() {
        let options = Options { user_agent: "a\nb".into(), ..Options::default() };
        let error = Session::new(&Config::plain("http://127.0.0.1:1"), &options).err().unwrap().to_string();
        assert!(error.starts_with("the client's options: user_agent: "), "{error}");
    }
}
