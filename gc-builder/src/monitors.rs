//! One watch for each deletable resource (S1 to S5): which there are, which are synced, and what became of each.

use std::collections::BTreeMap;
use std::time::Duration;

use gc_client::{ApiResource, Discovery, Error};
use gc_core::Kinds;
use gc_graph::SourceId;
use hashbrown::HashSet;

use crate::News;
use crate::convert::core_resource;

/// A resource is given up only after it has been missing from discovery for this long and in more than one answer:
/// an API server that is starting serves custom resources a moment later than it serves discovery.
const MISSING_FOR: Duration = Duration::from_secs(3);
/// How often one resource's versions may go back before they are taken for versions that do not count upwards (those of
/// an aggregated server with a counter for each replica, say). Without this one such resource would hold up collection
/// and have everything listed anew again and again. The restore of a server shows on all of its resources.
const RESTORES_MAX: u32 = 3;
/// A watch that has lost its connection and then found none so often in a row has no server. Once is what a proxy does
/// to an idle connection, or a server to its clients when another takes over.
const LOST_MIN: u32 = 2;

/// Group and resource.
type Name = (String, String);

/// One run of one watch: what a watch that was ended has still under way no longer counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MonitorId {
    /// How the graph knows the watch.
    pub source: SourceId,
    run: u64,
}

/// One watched resource.
#[derive(Clone, Debug)]
pub struct Monitor {
    /// What is watched.
    pub resource: ApiResource,
    /// How the resource writes itself in references.
    pub api_version: String,
    pub(crate) id: MonitorId,
    is_synced: bool,
    last_error: Option<String>,
    /// The newest version of the server's data that a list, an event or a bookmark has shown.
    version: u64,
    /// How often the server was at an older one.
    restores: u32,
    /// How often in a row no server answered.
    lost: u32,
    missing_since: Option<Duration>,
    /// The server answered that the path is not served. When discovery says that it is, a fresh reader starts at once
    /// instead of waiting out the old one's back-off.
    is_unserved: bool,
}

impl Monitor {
    /// This run of its watch.
    pub fn id(&self) -> MonitorId {
        self.id
    }

    /// Whether its first list is complete.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Whether it was listed once and finds no server now. Its state is what it was, unless the server comes back with
    /// another one (S7).
    pub fn is_lost(&self) -> bool {
        self.is_synced && LOST_MIN <= self.lost
    }

    /// Whether discovery's last answer was without it.
    pub fn is_missing(&self) -> bool {
        self.missing_since.is_some()
    }

    /// What went wrong last, if nothing has gone well since.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Whether its changes are news about which resources are served (S2).
    pub fn defines_resources(&self) -> bool {
        let ApiResource { group, resource, .. } = &self.resource;
        matches!(
            (group.as_str(), resource.as_str()),
            ("apiextensions.k8s.io", "customresourcedefinitions") | ("apiregistration.k8s.io", "apiservices")
        )
    }

    /// Notes at which version of the server's data an event or a bookmark was. The list after it may be newer than the
    /// list before and still older than this: then the server has gone back.
    pub(crate) fn saw(&mut self, version: &str) {
        if let Some(version) = parse_version(version) {
            self.version = self.version.max(version);
        }
    }

    /// Notes that the watch goes on after it had failed.
    pub(crate) fn resumed(&mut self) {
        self.lost = 0;
    }

    /// Notes that its reader has ended by a fault, or could not be started: the next discovery answer starts another
    /// one, not sooner, so that a fault that repeats itself does no harm.
    pub(crate) fn died(&mut self) {
        self.is_unserved = true;
    }

    /// Notes that a list is complete at a version of the server's data.
    pub(crate) fn listed(&mut self, version: &str, news: &mut Vec<News>) -> Listed {
        self.last_error = None;
        self.lost = 0;
        self.is_unserved = false;
        let version = parse_version(version).unwrap_or(self.version);
        let is_older = version < std::mem::replace(&mut self.version, version);
        let went_back = is_older && self.is_restore(news);
        let is_first = !std::mem::replace(&mut self.is_synced, true);
        match (went_back, is_first) {
            (true, _) => Listed::WentBack,
            (false, true) => Listed::First,
            (false, false) => Listed::Again,
        }
    }

    /// Notes that the server is at an older version than it was when this watch last had word of it; says whether that
    /// is believed.
    pub(crate) fn went_back(&mut self, version: &str, news: &mut Vec<News>) -> bool {
        self.version = parse_version(version).unwrap_or_default();
        self.is_restore(news)
    }

    /// Counts that the versions have gone back, and says whether that is believed to be a restore.
    fn is_restore(&mut self, news: &mut Vec<News>) -> bool {
        self.restores = self.restores.saturating_add(1);
        if self.restores == RESTORES_MAX + 1 {
            news.push(News::VersionsGoBack(self.id));
        }
        self.restores <= RESTORES_MAX
    }

    /// Notes that a list or watch failed; says whether that is another error than the last, and whether with it the
    /// watch has lost its server.
    pub(crate) fn failed(&mut self, error: &Error) -> (bool, bool) {
        let mut is_newly_lost = false;
        if matches!(error, Error::Transport { .. }) {
            self.lost = self.lost.saturating_add(1);
            is_newly_lost = self.is_synced && self.lost == LOST_MIN;
        }
        self.is_unserved = matches!(error, Error::Status(status) if status.code == 404 && !status.is_status);
        let error = error.to_string();
        let is_other = self.last_error.as_ref() != Some(&error);
        self.last_error = Some(error);
        (is_other, is_newly_lost)
    }
}

/// What a complete list says besides its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listed {
    /// The first list of this watch.
    First,
    /// A later one, after a 410 or a lost connection.
    Again,
    /// The server's data is older than what it showed before: it was restored from a backup (S7).
    WentBack,
}

/// All of them.
#[derive(Clone, Debug)]
pub struct Monitors {
    ignored: HashSet<Name>,
    /// In order, so that a run can be repeated.
    watched: BTreeMap<Name, SourceId>,
    /// By the number of the source.
    by_source: Vec<Option<Monitor>>,
    free_sources: Vec<u16>,
    /// The last discovery answer that was taken.
    last: Discovery,
    /// What discovery last said of each group and version, kept where it fails.
    kinds: BTreeMap<String, Vec<ApiResource>>,
    runs: u64,
}

/// What a discovery answer changed.
#[derive(Debug, Default)]
pub(crate) struct Updated {
    /// The kinds as they are now; none where they are as they were.
    pub kinds: Option<Kinds>,
    /// Watches that are no more; their objects are not proved to be gone (S2).
    pub unserved: Vec<SourceId>,
    /// Whether a resource is missing and not given up yet: look again soon.
    pub look_again: bool,
}

impl Monitors {
    /// No watch yet. `ignored` holds (group, resource) pairs.
    pub(crate) fn new(ignored: HashSet<Name>) -> Monitors {
        Monitors {
            ignored,
            watched: BTreeMap::new(),
            by_source: Vec::new(),
            free_sources: Vec::new(),
            last: Discovery::default(),
            kinds: BTreeMap::new(),
            runs: 0,
        }
    }

    /// The watch with this id, unless it has been ended.
    pub fn get(&self, id: MonitorId) -> Option<&Monitor> {
        self.by_source.get(usize::from(id.source.0))?.as_ref().filter(|monitor| monitor.id == id)
    }

    /// All watched resources, in the order of their groups and names.
    pub fn iter(&self) -> impl Iterator<Item = &Monitor> {
        self.watched.values().filter_map(|source| self.by_source.get(usize::from(source.0))?.as_ref())
    }

    pub(crate) fn get_mut(&mut self, id: MonitorId) -> Option<&mut Monitor> {
        self.by_source.get_mut(usize::from(id.source.0))?.as_mut().filter(|monitor| monitor.id == id)
    }

    /// Whether no watch that ever had a server has one now.
    pub fn are_all_lost(&self) -> bool {
        let mut synced = self.iter().filter(|monitor| monitor.is_synced).peekable();
        synced.peek().is_some() && synced.all(Monitor::is_lost)
    }

    /// Begins every watch anew (S7): what they have seen may not be true of the server any more.
    pub(crate) fn restart_all(&mut self, news: &mut Vec<News>) {
        let resources: Vec<ApiResource> = self.iter().map(|monitor| monitor.resource.clone()).collect();
        for resource in resources {
            self.start(resource, true, news);
        }
    }

    /// Takes a discovery answer that is not empty (S1 to S3): starts, restarts and ends watches.
    pub(crate) fn update(&mut self, discovery: &Discovery, now: Duration, news: &mut Vec<News>) -> Updated {
        let mut updated = Updated::default();
        let is_settled = |monitor: &Monitor| !monitor.is_unserved && monitor.missing_since.is_none();
        if self.last == *discovery && self.iter().all(is_settled) {
            return updated;
        }
        self.last.clone_from(discovery);
        let failed: HashSet<&str> =
            discovery.failed.iter().map(|(group_version, _)| group_version.as_str()).collect();
        self.take_kinds(discovery, &failed);
        updated.kinds = Some(Kinds::new(self.kinds.values().flatten().map(core_resource)));
        let wanted: Vec<ApiResource> =
            discovery.resources.iter().filter(|r| self.is_wanted(r)).cloned().collect();
        self.end_missing(&wanted, &failed, now, &mut updated, news);
        for resource in wanted {
            // While the better version's discovery fails, another one stands in for it; the watch stays as it is.
            if !self.named(&resource).is_some_and(|monitor| is_failed(&failed, &monitor.api_version)) {
                self.start(resource, false, news);
            }
        }
        updated
    }

    fn named(&self, resource: &ApiResource) -> Option<&Monitor> {
        let source = self.watched.get(&name_of(resource))?;
        self.by_source.get(usize::from(source.0))?.as_ref()
    }

    fn is_wanted(&self, resource: &ApiResource) -> bool {
        resource.preferred
            && resource.can_delete
            && resource.can_list
            && resource.can_watch
            && !self.ignored.contains(&name_of(resource))
    }

    /// A group whose discovery fails keeps the kinds that it had (S3).
    fn take_kinds(&mut self, discovery: &Discovery, failed: &HashSet<&str>) {
        self.kinds.retain(|group_version, _| is_failed(failed, group_version));
        for resource in &discovery.resources {
            let served = self.kinds.entry(resource.api_version()).or_default();
            served.retain(|r| r.resource != resource.resource);
            served.push(resource.clone());
        }
    }

    fn end_missing(
        &mut self,
        wanted: &[ApiResource],
        failed: &HashSet<&str>,
        now: Duration,
        updated: &mut Updated,
        news: &mut Vec<News>,
    ) {
        let names: HashSet<Name> = wanted.iter().map(name_of).collect();
        let mut gone = Vec::new();
        for (name, source) in &self.watched {
            let Some(Some(monitor)) = self.by_source.get_mut(usize::from(source.0)) else { continue };
            if names.contains(name) || is_failed(failed, &monitor.api_version) {
                // Back after it was missing: its reader has been told that the path is not served.
                monitor.is_unserved |= monitor.missing_since.take().is_some();
                continue;
            }
            match monitor.missing_since {
                Some(since) if MISSING_FOR <= now.saturating_sub(since) => gone.push(name.clone()),
                Some(_) => updated.look_again = true,
                None => {
                    monitor.missing_since = Some(now);
                    updated.look_again = true;
                }
            }
        }
        for name in gone {
            let Some(source) = self.watched.remove(&name) else { continue };
            if let Some(monitor) = self.by_source.get_mut(usize::from(source.0)).and_then(Option::take) {
                self.free_sources.push(source.0);
                updated.unserved.push(source);
                news.push(News::End(monitor.id, monitor.resource));
            }
        }
    }

    /// Ends every watch, as a mistake wants it.
    pub(crate) fn end_all(&mut self, news: &mut Vec<News>) -> Vec<SourceId> {
        let sources: Vec<SourceId> = std::mem::take(&mut self.watched).into_values().collect();
        for source in &sources {
            if let Some(monitor) = self.by_source.get_mut(usize::from(source.0)).and_then(Option::take) {
                self.free_sources.push(source.0);
                news.push(News::End(monitor.id, monitor.resource));
            }
        }
        self.last = Discovery::default();
        sources
    }

    /// Starts a watch, or replaces its reader where there is a reason to.
    fn start(&mut self, resource: ApiResource, anew: bool, news: &mut Vec<News>) {
        let (mut version, mut restores) = (0, 0);
        let source = match self.named(&resource) {
            Some(monitor) if monitor.resource == resource && !monitor.is_unserved && !anew => return,
            // Also when the preferred version moved (G5b). The new reader's first list sweeps what the old one had.
            Some(monitor) => {
                version = if anew { 0 } else { monitor.version };
                restores = monitor.restores;
                monitor.id.source
            }
            None => match self.free_source() {
                Some(source) => source,
                None => return news.push(News::TooMany(resource)),
            },
        };
        self.runs += 1;
        let id = MonitorId { source, run: self.runs };
        self.watched.insert(name_of(&resource), source);
        let monitor = Monitor {
            api_version: resource.api_version(),
            resource: resource.clone(),
            id,
            is_synced: false,
            last_error: None,
            lost: 0,
            version,
            restores,
            missing_since: None,
            is_unserved: false,
        };
        if let Some(place) = self.by_source.get_mut(usize::from(source.0)) {
            *place = Some(monitor);
        }
        news.push(News::Start(id, resource));
    }

    fn free_source(&mut self) -> Option<SourceId> {
        if let Some(source) = self.free_sources.pop() {
            return Some(SourceId(source));
        }
        let source = u16::try_from(self.by_source.len()).ok()?;
        self.by_source.push(None);
        Some(SourceId(source))
    }
}

fn name_of(resource: &ApiResource) -> Name {
    (resource.group.clone(), resource.resource.clone())
}

/// Versions are opaque to clients but for one purpose, to see which is older: kube-apiserver's count upwards (KEP-5504).
fn parse_version(version: &str) -> Option<u64> {
    version.parse().ok()
}

/// `failed` holds groups with a version, or a group alone when not even its versions are known.
fn is_failed(failed: &HashSet<&str>, api_version: &str) -> bool {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    failed.contains(api_version)
        || failed.iter().any(|failed| {
            // A failed group keeps all its watches, whichever of its versions failed.
            match failed.split_once('/') {
                Some((failed_group, _)) => failed_group == group,
                None => !group.is_empty() && *failed == group,
            }
        })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;

    /// One watched resource, and the discovery answer that names it.
    fn one_watch() -> (Monitors, Discovery) {
        let mut monitors = Monitors::new(HashSet::new());
        let widgets = ApiResource {
            group: "example.com".into(),
            version: "v1".into(),
            resource: "widgets".into(),
            kind: "Widget".into(),
            namespaced: true,
            preferred: true,
            can_delete: true,
            can_list: true,
            can_watch: true,
        };
        let discovery = Discovery { resources: vec![widgets], ..Discovery::default() };
        monitors.update(&discovery, NOW, &mut Vec::new());
        (monitors, discovery)
    }

    fn only(monitors: &mut Monitors) -> &mut Monitor {
        let id = monitors.iter().next().map(Monitor::id).unwrap();
        monitors.get_mut(id).unwrap()
    }

    #[test]
    fn s3_s7_versions_that_keep_going_back_are_no_sign_of_a_restore() {
        let (mut monitors, _) = one_watch();
        let (mut restores, mut news) = (0, Vec::new());
        for _ in 0..10 {
            only(&mut monitors).listed("20", &mut news);
            if only(&mut monitors).listed("10", &mut news) == Listed::WentBack {
                restores += 1;
                monitors.restart_all(&mut Vec::new());
            }
        }
        assert_eq!(restores, RESTORES_MAX);
        assert!(matches!(news[..], [News::VersionsGoBack(_)]), "told once: {news:?}");
    }

    #[test]
    fn s7_a_list_that_is_older_than_an_event_before_it_is_a_restore() {
        let (mut monitors, _) = one_watch();
        let (monitor, mut news) = (only(&mut monitors), Vec::new());
        assert_eq!(monitor.listed("10", &mut news), Listed::First);
        monitor.saw("20");
        monitor.saw("19");
        monitor.saw("not a number");
        assert_eq!(monitor.listed("20", &mut news), Listed::Again);
        monitor.saw("30");
        assert_eq!(monitor.listed("25", &mut news), Listed::WentBack);
        assert_eq!(monitor.listed("25", &mut news), Listed::Again);
    }

    #[test]
    fn s7_a_watch_is_lost_when_it_was_listed_and_finds_no_server_twice() {
        let (mut monitors, _) = one_watch();
        let refused = Error::Transport { request: "GET /".into(), cause: "refused".into() };
        only(&mut monitors).failed(&refused);
        only(&mut monitors).failed(&refused);
        assert!(!monitors.are_all_lost(), "it has never been listed");
        only(&mut monitors).listed("5", &mut Vec::new());
        let fail = |monitors: &mut Monitors| {
            let (_, is_newly_lost) = only(monitors).failed(&refused);
            (is_newly_lost, monitors.are_all_lost())
        };
        assert_eq!([(); 3].map(|()| fail(&mut monitors)), [(false, false), (true, true), (false, true)]);
        only(&mut monitors).resumed();
        assert!(!monitors.are_all_lost());
    }

    #[test]
    fn s3_a_reader_that_died_is_replaced_at_the_next_look() {
        let (mut monitors, discovery) = one_watch();
        let first = only(&mut monitors).id;
        monitors.update(&discovery, NOW, &mut Vec::new());
        assert_eq!(only(&mut monitors).id, first, "a reader that lives is left alone");
        only(&mut monitors).died();
        monitors.update(&discovery, NOW, &mut Vec::new());
        assert_ne!(only(&mut monitors).id, first);
        assert!(monitors.get(first).is_none());
    }
}
