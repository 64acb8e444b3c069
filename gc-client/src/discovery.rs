//! Which resources a server serves.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hashbrown::HashMap;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::error::shorten;
use crate::{ApiResource, Client, Error, Request, Response};

/// The aggregated form first, then what servers before Kubernetes 1.26 have.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";

/// For servers and proxies that refuse a header with parameters.
const ACCEPT_PLAIN: &str = "application/json";

/// `/api` costs a server nothing. One that takes longer for it is asked on a new connection.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Requests at once in the older form, which needs one for each version of each group.
const THREADS: usize = 8;

/// The most group versions that are asked for in the older form; a server with more is broken, and the rest goes to
/// [`Discovery::failed`].
const GROUP_VERSIONS_MAX: usize = 2_000;

/// What a server says that it serves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Discovery {
    /// Every resource in every version, in the server's order; sub-resources are left out.
    pub resources: Vec<ApiResource>,
    /// Group and version (`group/version`, or `v1` for the core group) of which nothing certain is known now, and
    /// why: an aggregated API that is down, say. What was known of them before still holds (spec S3).
    ///
    /// A resource of such a version may stand in [`resources`](Discovery::resources) under another version of its
    /// group, preferred there for want of the better one.
    pub failed: Vec<(String, String)>,
}

/// Asks the server what it serves: in the aggregated form (two requests), else in the older one (one more for each
/// version of each group, eight at a time). The first of them is a [`probe`](Client::probe) of the connections that are
/// open, so that whoever looks at discovery now and then learns of dead ones.
///
/// A resource is [`preferred`](ApiResource::preferred) as client-go's `ServerPreferredResources` has it: in its
/// group's preferred version, which in the aggregated form is the first that is not stale; a resource that this
/// version lacks, in the first version that has it.
///
/// # Errors
///
/// When `/api` or `/apis` itself cannot be had or read. A single version that fails is no error; nor is a 404 for
/// `/api`, which a server without a core group answers, but it counts as failed, because a server that is starting
/// answers it too.
///
/// # Example
///
/// ```no_run
/// use gc_client::{Client, Config, Options, discover};
///
/// let client = Client::new(&Config::plain("http://127.0.0.1:8080"), &Options::default())?;
/// let deletable = discover(&client)?.resources.into_iter().filter(|r| r.preferred && r.can_delete);
/// for resource in deletable {
///     println!("{} {}", resource.api_version(), resource.resource);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn discover(client: &Client) -> Result<Discovery, Error> {
    discover_with(&|path, accept| {
        let request = Request::get(path, accept);
        if path == "/api" { client.probe(&request, ANSWERED_WITHIN) } else { client.send(&request) }
    })
}

/// How a path is asked for, with that `Accept` header.
pub type Get<'g> = &'g (dyn Fn(&str, &str) -> Result<Response, Error> + Sync);

/// The same over any way to ask; hidden from the documentation, for a simulation without sockets.
#[doc(hidden)]
pub fn discover_with(get: Get<'_>) -> Result<Discovery, Error> {
    let mut groups = core_groups(get)?;
    groups.extend(named_groups(get)?);
    groups.iter_mut().for_each(refuse_impossible_names);
    fetch_missing(get, &mut groups);
    let mut discovery = Discovery::default();
    for mut group in groups {
        refuse_impossible_names(&mut group);
        add_group(&mut discovery, group);
    }
    Ok(discovery)
}

/// One group, whichever form it came in.
struct Group {
    /// Empty for the core group.
    name: String,
    /// Empty where the server names none.
    preferred_version: String,
    versions: Vec<Version>,
}

struct Version {
    name: String,
    contents: Contents,
}

enum Contents {
    Known(Vec<ApiResource>),
    /// The older form: to be asked for.
    Missing,
    Failed(String),
}

fn core_groups(get: Get<'_>) -> Result<Vec<Group>, Error> {
    let response = negotiate(get, "/api")?;
    if response.code == 404 {
        let contents = Contents::Failed(response.status().to_string());
        let version = Version { name: "v1".into(), contents };
        return Ok(vec![Group {
            name: String::new(),
            preferred_version: String::new(),
            versions: vec![version],
        }]);
    }
    let response = successful(response)?;
    if is_aggregated(&response) {
        return Ok(aggregated_groups(read("/api", &response)?));
    }
    let ApiVersions { versions } = read("/api", &response)?;
    let preferred_version = versions.first().cloned().unwrap_or_default();
    let versions = versions.into_iter().map(|name| Version { name, contents: Contents::Missing }).collect();
    Ok(vec![Group { name: String::new(), preferred_version, versions }])
}

fn named_groups(get: Get<'_>) -> Result<Vec<Group>, Error> {
    let response = successful(negotiate(get, "/apis")?)?;
    if is_aggregated(&response) {
        return Ok(aggregated_groups(read("/apis", &response)?));
    }
    let ApiGroupList { groups } = read("/apis", &response)?;
    let group = |group: ApiGroup| Group {
        name: group.name,
        preferred_version: group.preferred_version.map(|v| v.version).unwrap_or_default(),
        versions: (group.versions.into_iter())
            .map(|v| Version { name: v.version, contents: Contents::Missing })
            .collect(),
    };
    Ok(groups.into_iter().map(group).collect())
}

fn negotiate(get: Get<'_>, path: &str) -> Result<Response, Error> {
    let response = get(path, ACCEPT)?;
    if response.code == 406 { get(path, ACCEPT_PLAIN) } else { Ok(response) }
}

fn successful(response: Response) -> Result<Response, Error> {
    if response.code >= 300 { Err(Error::Status(Box::new(response.status()))) } else { Ok(response) }
}

/// The parameters may come in any order, and with others among them.
fn is_aggregated(response: &Response) -> bool {
    let has = |wanted: &str| response.content_type.split(';').any(|p| p.trim().eq_ignore_ascii_case(wanted));
    has("as=APIGroupDiscoveryList") && has("g=apidiscovery.k8s.io") && (has("v=v2") || has("v=v2beta1"))
}

fn read<T: DeserializeOwned + Document>(path: &str, response: &Response) -> Result<T, Error> {
    let decode = |cause: String| Error::Decode { request: format!("GET {path}"), cause: shorten(&cause) };
    let Kind { kind } = serde_json::from_slice(&response.body).map_err(|e| decode(e.to_string()))?;
    if kind.as_deref() != Some(T::KIND) {
        let found = kind.unwrap_or_else(|| "document without a kind".into());
        return Err(decode(format!("expected {}, found a {found:.100}", T::KIND)));
    }
    serde_json::from_slice(&response.body).map_err(|e| decode(e.to_string()))
}

fn aggregated_groups(list: ApiGroupDiscoveryList) -> Vec<Group> {
    let mut groups = Vec::new();
    for item in list.items {
        let name = item.metadata.name;
        let is_stale = |v: &VersionDiscovery| v.freshness == "Stale";
        let preferred = item.versions.iter().find(|v| !is_stale(v));
        let preferred_version = preferred.map(|v| v.version.clone()).unwrap_or_default();
        let version = |v: VersionDiscovery| {
            let contents = if is_stale(&v) {
                Contents::Failed("the server knows only a stale state of it".into())
            } else {
                Contents::Known(
                    v.resources
                        .into_iter()
                        .filter_map(|r| aggregated_resource(&name, &v.version, r))
                        .collect(),
                )
            };
            Version { name: v.version, contents }
        };
        let versions = item.versions.into_iter().map(version).collect();
        groups.push(Group { name, preferred_version, versions });
    }
    groups
}

/// `None` for the parent of sub-resources that is no resource itself: it has no kind.
fn aggregated_resource(group: &str, version: &str, found: ResourceDiscovery) -> Option<ApiResource> {
    let kind = found.response_kind.map(|k| k.kind).filter(|kind| !kind.is_empty())?;
    Some(resource(group, version, found.resource, kind, found.scope == "Namespaced", &found.verbs))
}

fn resource(
    group: &str,
    version: &str,
    name: String,
    kind: String,
    namespaced: bool,
    verbs: &[String],
) -> ApiResource {
    let can = |verb: &str| verbs.iter().any(|v| v == verb);
    ApiResource {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: name,
        kind,
        namespaced,
        preferred: false,
        can_delete: can("delete"),
        can_list: can("list"),
        can_watch: can("watch"),
    }
}

/// A group, version or resource whose name is no part of a path would be asked for under some other path. Nothing is
/// known of such a version.
fn refuse_impossible_names(group: &mut Group) {
    let is_possible_group = group.name.is_empty() || is_path_segment(&group.name);
    for version in &mut group.versions {
        let is_possible = is_possible_group
            && is_path_segment(&version.name)
            && match &version.contents {
                Contents::Known(resources) => resources.iter().all(|r| is_path_segment(&r.resource)),
                Contents::Missing | Contents::Failed(_) => true,
            };
        if !is_possible {
            version.contents = Contents::Failed("the server gives a name that cannot stand in a path".into());
        }
    }
}

/// What names of groups, versions and resources are made of, and at most as long as a DNS name.
fn is_path_segment(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    (1..=253).contains(&name.len()) && name.bytes().all(is_plain) && !name.bytes().all(|b| b == b'.')
}

/// Asks for every version whose contents are missing. A few threads share the work; each asks for one at a time.
fn fetch_missing(get: Get<'_>, groups: &mut [Group]) {
    let mut missing = Vec::new();
    for group in groups {
        for version in &mut group.versions {
            match version.contents {
                Contents::Missing if missing.len() < GROUP_VERSIONS_MAX => {
                    missing.push((group.name.as_str(), version));
                }
                Contents::Missing => {
                    version.contents = Contents::Failed("the server has too many versions".into());
                }
                Contents::Known(_) | Contents::Failed(_) => {}
            }
        }
    }
    let threads = missing.len().min(THREADS);
    let queue = Mutex::new(missing.into_iter());
    let pop = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((group, version)) = pop() {
            version.contents = fetch(get, group, &version.name);
        }
    };
    thread::scope(|scope| {
        // This thread is one of them, so that the work is done even where no thread can be had.
        for number in 1..threads {
            let builder = thread::Builder::new().name(format!("discovery-{number}"));
            if builder.spawn_scoped(scope, work).is_err() {
                break;
            }
        }
        work();
    });
}

fn fetch(get: Get<'_>, group: &str, version: &str) -> Contents {
    let path = if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
    let list = get(&path, ACCEPT_PLAIN).and_then(successful).and_then(|r| read::<ApiResourceList>(&path, &r));
    match list {
        Ok(ApiResourceList { resources }) => {
            let main = resources.into_iter().filter(|r| !r.name.contains('/') && !r.kind.is_empty());
            Contents::Known(
                main.map(|r| resource(group, version, r.name, r.kind, r.namespaced, &r.verbs)).collect(),
            )
        }
        Err(error) => Contents::Failed(error.to_string()),
    }
}

/// Marks what is preferred and takes the group over.
fn add_group(discovery: &mut Discovery, group: Group) {
    let first = discovery.resources.len();
    // From the resource's name to its place in the list.
    let mut chosen: HashMap<String, usize> = HashMap::new();
    for version in group.versions {
        let is_preferred = version.name == group.preferred_version;
        let resources = match version.contents {
            Contents::Known(resources) => resources,
            Contents::Failed(why) => {
                discovery.failed.push((shorten(&group_version(&group.name, &version.name)), why));
                continue;
            }
            Contents::Missing => continue,
        };
        for resource in resources {
            let place = discovery.resources.len();
            if is_preferred {
                chosen.insert(resource.resource.clone(), place);
            } else {
                chosen.entry(resource.resource.clone()).or_insert(place);
            }
            discovery.resources.push(resource);
        }
    }
    for (place, resource) in discovery.resources.iter_mut().enumerate().skip(first) {
        resource.preferred = chosen.get(&resource.resource) == Some(&place);
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// The part of every document that tells which it is.
#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

/// A document of this kind; anything else that happens to be JSON is refused, because read as this it would be empty.
trait Document {
    const KIND: &'static str;
}

/// `apidiscovery.k8s.io/v2` and `v2beta1`, which do not differ in what is read here.
#[derive(Deserialize)]
struct ApiGroupDiscoveryList {
    #[serde(default, deserialize_with = "null_is_empty")]
    items: Vec<GroupDiscovery>,
}

#[derive(Deserialize)]
struct GroupDiscovery {
    #[serde(default)]
    metadata: Named,
    #[serde(default, deserialize_with = "null_is_empty")]
    versions: Vec<VersionDiscovery>,
}

/// The core group has no name here.
#[derive(Default, Deserialize)]
struct Named {
    #[serde(default)]
    name: String,
}

#[derive(Deserialize)]
struct VersionDiscovery {
    version: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    resources: Vec<ResourceDiscovery>,
    #[serde(default)]
    freshness: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ResourceDiscovery {
    resource: String,
    response_kind: Option<ResponseKind>,
    #[serde(default)]
    scope: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    verbs: Vec<String>,
}

#[derive(Deserialize)]
struct ResponseKind {
    #[serde(default)]
    kind: String,
}

/// The older form of `/api`.
#[derive(Deserialize)]
struct ApiVersions {
    #[serde(default, deserialize_with = "null_is_empty")]
    versions: Vec<String>,
}

/// The older form of `/apis`.
#[derive(Deserialize)]
struct ApiGroupList {
    #[serde(default, deserialize_with = "null_is_empty")]
    groups: Vec<ApiGroup>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiGroup {
    name: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    versions: Vec<ApiGroupVersion>,
    preferred_version: Option<ApiGroupVersion>,
}

#[derive(Deserialize)]
struct ApiGroupVersion {
    version: String,
}

/// `/api/v1` and `/apis/GROUP/VERSION`.
#[derive(Deserialize)]
struct ApiResourceList {
    #[serde(default, deserialize_with = "null_is_empty")]
    resources: Vec<ApiResourceEntry>,
}

#[derive(Deserialize)]
struct ApiResourceEntry {
    name: String,
    #[serde(default)]
    kind: String,
    #[serde(default)]
    namespaced: bool,
    #[serde(default, deserialize_with = "null_is_empty")]
    verbs: Vec<String>,
}

impl Document for ApiGroupDiscoveryList {
    const KIND: &'static str = "APIGroupDiscoveryList";
}

impl Document for ApiVersions {
    const KIND: &'static str = "APIVersions";
}

impl Document for ApiGroupList {
    const KIND: &'static str = "APIGroupList";
}

impl Document for ApiResourceList {
    const KIND: &'static str = "APIResourceList";
}

/// Go writes an empty list as `null` where it was never filled.
fn null_is_empty<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests;
