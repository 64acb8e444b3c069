//! What a profile is made of, as a person writes it, and what is wrong with it (T1).

use std::fmt;

use crate::Propagation;

/// The longest TTL that a profile may set: what Kubernetes' `ttlSecondsAfterFinished` can hold, 68 years.
pub const SECONDS_MAX: i64 = i32::MAX as i64;
/// Nothing that Kubernetes serves lies deeper; what reads the fields keeps a state for each key.
const PATH_KEYS_MAX: usize = 16;
/// The longest name that Kubernetes allows for anything.
const NAME_BYTES_MAX: usize = 253;
/// So many conditions or phases: a kind has ten at most, and each is compared with each object.
const ENDS_MAX: usize = 64;
/// So many defaults: one for each namespace of a very large cluster.
const DEFAULTS_MAX: usize = 10_000;

/// A profile as a configuration file describes it, before [`Profile::new`](crate::ttl::Profile::new) has looked at it.
/// Errors name the keys as they are given here, in the spelling of Kubernetes' files (`protectAnnotation`).
///
/// A path is its keys with dots between them, `status.state.phase`; a dot within a key is written `\.`, as `kubectl
/// get -o jsonpath` has it.
///
/// ```
/// use gc_core::ttl::{FinishedSpec, Profile, ProfileSpec, TtlSpec};
///
/// let spec = ProfileSpec {
///     group: "argoproj.io".into(),
///     version: "v1alpha1".into(),
///     resource: "workflows".into(),
///     finished: FinishedSpec {
///         phase: Some("status.phase".into()),
///         success: vec!["Succeeded".into()],
///         failure: vec!["Failed".into(), "Error".into()],
///         time: Some("status.finishedAt".into()),
///         ..FinishedSpec::default()
///     },
///     ttl: TtlSpec { path: Some("spec.ttlStrategy.secondsAfterCompletion".into()), ..TtlSpec::default() },
///     ..ProfileSpec::default()
/// };
/// assert_eq!(Profile::new(&spec).unwrap().name(), "workflows.argoproj.io");
///
/// let error = Profile::new(&ProfileSpec { propagation: Some("foreground".into()), ..spec }).unwrap_err();
/// assert_eq!(error.to_string(), "propagation: \"foreground\" is none of Foreground, Background, Orphan");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProfileSpec {
    /// For example `batch`; empty for the core group.
    pub group: String,
    /// For example `v1`.
    pub version: String,
    /// The plural, for example `jobs`.
    pub resource: String,
    /// When an object has finished.
    pub finished: FinishedSpec,
    /// How long it stays after that.
    pub ttl: TtlSpec,
    /// TTLs for objects that set none themselves; none by default. One that names the object's namespace goes before
    /// one that names none.
    pub defaults: Vec<DefaultSpec>,
    /// No object goes sooner than this after its end, whatever its TTL, so that clients can still read the result; no
    /// floor by default.
    pub min: SecondsSpec,
    /// `Foreground` (the default), `Background` or `Orphan`.
    pub propagation: Option<String>,
    /// `protectAnnotation`: an object with this annotation stays, unless its value is `false`; none by default.
    pub protect_annotation: Option<String>,
}

/// When an object has finished: exactly one of `conditions` and `phase` is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedSpec {
    /// The path of a list of conditions, mostly `status.conditions`. The object has finished when one whose type is
    /// listed below has the status `True`.
    pub conditions: Option<String>,
    /// The path of a text. The object has finished when it is one of those listed below.
    pub phase: Option<String>,
    /// Types of conditions, or phases, of an object that has ended well.
    pub success: Vec<String>,
    /// The same for one that has not.
    pub failure: Vec<String>,
    /// The path of the time at which it finished, in RFC 3339. A phase needs it; with conditions it is the
    /// `lastTransitionTime` of the condition unless it is given.
    pub time: Option<String>,
}

/// How long an object stays: exactly one of the two is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TtlSpec {
    /// The path of a whole number of seconds. An object without it stays.
    pub path: Option<String>,
    /// The same for every object.
    pub seconds: Option<SecondsSpec>,
}

/// A TTL for objects that set none themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultSpec {
    /// In this namespace only; in all others if none is given.
    pub namespace: Option<String>,
    /// How long they stay.
    pub seconds: SecondsSpec,
    /// `alsoControlled`: also for objects that have a controller. They are spared by default: a CronJob keeps a history
    /// of its Jobs, and has limits of its own for it.
    pub also_controlled: bool,
}

/// Seconds by how an object ended; `None` sets nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecondsSpec {
    /// For an object that has ended well.
    pub success: Option<i64>,
    /// For one that has not.
    pub failure: Option<i64>,
}

impl SecondsSpec {
    /// The same however an object ended.
    pub fn both(seconds: i64) -> SecondsSpec {
        SecondsSpec { success: Some(seconds), failure: Some(seconds) }
    }
}

impl ProfileSpec {
    /// `batch/v1` Job (T1): the condition `Complete` or `Failed`.
    pub fn batch_job() -> ProfileSpec {
        ProfileSpec {
            group: "batch".into(),
            version: "v1".into(),
            resource: "jobs".into(),
            finished: FinishedSpec {
                conditions: Some("status.conditions".into()),
                success: vec!["Complete".into()],
                failure: vec!["Failed".into()],
                ..FinishedSpec::default()
            },
            ttl: TtlSpec { path: Some("spec.ttlSecondsAfterFinished".into()), ..TtlSpec::default() },
            ..ProfileSpec::default()
        }
    }

    /// `batch.volcano.sh/v1alpha1` Job (T1): the phase `Completed`, `Failed` or `Terminated`, as in Volcano's own
    /// collector. A job that is `Aborted` can be resumed; whoever wants it gone adds it to `finished.failure`
    /// (volcano-sh/volcano#3604).
    pub fn volcano_job() -> ProfileSpec {
        ProfileSpec {
            group: "batch.volcano.sh".into(),
            version: "v1alpha1".into(),
            resource: "jobs".into(),
            finished: FinishedSpec {
                phase: Some("status.state.phase".into()),
                success: vec!["Completed".into()],
                failure: vec!["Failed".into(), "Terminated".into()],
                time: Some("status.state.lastTransitionTime".into()),
                ..FinishedSpec::default()
            },
            ttl: TtlSpec { path: Some("spec.ttlSecondsAfterFinished".into()), ..TtlSpec::default() },
            ..ProfileSpec::default()
        }
    }

    /// The first thing that is wrong with it.
    pub(crate) fn check(&self) -> Result<(), ProfileError> {
        check_name("version", &self.version, "v1")?;
        check_name("resource", &self.resource, "jobs")?;
        if !self.group.is_empty() {
            check_name("group", &self.group, "batch.volcano.sh")?;
        }
        self.finished.check()?;
        match (&self.ttl.path, &self.ttl.seconds) {
            (Some(path), None) => check_path("ttl.path", path)?,
            (None, Some(seconds)) => seconds.check("ttl.seconds")?,
            _ => return Err(ProfileError::NotOne { key: "ttl", of: ["path", "seconds"] }),
        }
        if self.ttl.seconds == Some(SecondsSpec::default()) {
            return Err(ProfileError::Missing { key: "ttl.seconds", example: "3600" });
        }
        self.min.check("min")?;
        self.check_defaults()?;
        if let Some(text) = &self.propagation
            && propagation(text).is_none()
        {
            return Err(ProfileError::NotAPropagation { value: shown(text) });
        }
        if let Some(annotation) = &self.protect_annotation
            && (annotation.is_empty() || NAME_BYTES_MAX + 64 < annotation.len())
        {
            return Err(ProfileError::NotAName {
                key: "protectAnnotation",
                value: shown(annotation),
                example: "example.com/protect",
            });
        }
        self.check_overlap()
    }

    fn check_defaults(&self) -> Result<(), ProfileError> {
        if DEFAULTS_MAX < self.defaults.len() {
            return Err(ProfileError::TooMany { key: "defaults", max: DEFAULTS_MAX });
        }
        let mut seen = hashbrown::HashSet::new();
        for default in &self.defaults {
            default.seconds.check("defaults.seconds")?;
            if let Some(namespace) = &default.namespace {
                check_name("defaults.namespace", namespace, "team-a")?;
            }
            if !seen.insert(&default.namespace) {
                let value = default.namespace.as_deref().map_or("all namespaces".into(), shown);
                return Err(ProfileError::Twice { key: "defaults.namespace", value });
            }
        }
        Ok(())
    }

    /// What reads the fields keeps each value once, so that none may lie inside another.
    fn check_overlap(&self) -> Result<(), ProfileError> {
        let paths = self.all_paths();
        for (i, (key, path)) in paths.iter().enumerate() {
            for (other_key, other) in &paths[..i] {
                if path.starts_with(other) || other.starts_with(path) {
                    return Err(ProfileError::Overlap { key, other: other_key });
                }
            }
        }
        Ok(())
    }

    /// Every path that is read, by its key, in the order in which a profile gives them.
    pub(crate) fn all_paths(&self) -> Vec<(&'static str, Vec<String>)> {
        let FinishedSpec { conditions, phase, time, .. } = &self.finished;
        let given = [
            ("finished.conditions", conditions),
            ("finished.phase", phase),
            ("finished.time", time),
            ("ttl.path", &self.ttl.path),
        ];
        let mut paths: Vec<_> = given
            .into_iter()
            .filter_map(|(key, path)| path.as_deref().map(|path| (key, parse_path(path))))
            .collect();
        if let Some(annotation) = &self.protect_annotation {
            let path = vec!["metadata".into(), "annotations".into(), annotation.clone()];
            paths.push(("protectAnnotation", path));
        }
        paths
    }
}

impl FinishedSpec {
    fn check(&self) -> Result<(), ProfileError> {
        match (&self.conditions, &self.phase) {
            (Some(path), None) => check_path("finished.conditions", path)?,
            (None, Some(path)) => check_path("finished.phase", path)?,
            _ => return Err(ProfileError::NotOne { key: "finished", of: ["conditions", "phase"] }),
        }
        match &self.time {
            Some(path) => check_path("finished.time", path)?,
            None if self.phase.is_some() => {
                return Err(ProfileError::Missing { key: "finished.time", example: "status.finishedAt" });
            }
            None => {}
        }
        if self.success.is_empty() && self.failure.is_empty() {
            return Err(ProfileError::Missing { key: "finished.success", example: "[Complete]" });
        }
        for (key, ends) in [("finished.success", &self.success), ("finished.failure", &self.failure)] {
            if ENDS_MAX < ends.len() {
                return Err(ProfileError::TooMany { key, max: ENDS_MAX });
            }
            for (i, end) in ends.iter().enumerate() {
                if end.is_empty() || NAME_BYTES_MAX < end.len() {
                    return Err(ProfileError::NotAName { key, value: shown(end), example: "Complete" });
                }
                let is_success = key == "finished.failure" && self.success.contains(end);
                if is_success || ends[..i].contains(end) {
                    return Err(ProfileError::Twice { key, value: shown(end) });
                }
            }
        }
        Ok(())
    }
}

impl SecondsSpec {
    fn check(self, key: &'static str) -> Result<(), ProfileError> {
        for value in [self.success, self.failure].into_iter().flatten() {
            if !(0..=SECONDS_MAX).contains(&value) {
                return Err(ProfileError::OutOfRange { key, value });
            }
        }
        Ok(())
    }
}

/// The keys of a path: `status.state.phase`, with `\.` for a dot within a key.
///
/// ```
/// use gc_core::ttl::parse_path;
/// assert_eq!(parse_path("status.phase"), ["status", "phase"]);
/// assert_eq!(parse_path(r"metadata.annotations.example\.com/ttl"), ["metadata", "annotations", "example.com/ttl"]);
/// ```
pub fn parse_path(text: &str) -> Vec<String> {
    let (mut keys, mut key, mut chars) = (Vec::new(), String::new(), text.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&'.') => key.extend(chars.next()),
            '.' => keys.push(std::mem::take(&mut key)),
            c => key.push(c),
        }
    }
    keys.push(key);
    keys
}

pub(crate) fn propagation(text: &str) -> Option<Propagation> {
    [Propagation::Foreground, Propagation::Background, Propagation::Orphan]
        .into_iter()
        .find(|policy| policy.as_str() == text)
}

fn check_path(key: &'static str, text: &str) -> Result<(), ProfileError> {
    let keys = parse_path(text);
    let is_odd = |key: &String| {
        key.is_empty() || NAME_BYTES_MAX + 64 < key.len() || key.contains(['[', ']', '{', '}'])
    };
    if keys.len() < 2 || PATH_KEYS_MAX < keys.len() || keys.iter().any(is_odd) {
        return Err(ProfileError::NotAPath { key, value: shown(text) });
    }
    Ok(())
}

/// Names of groups, versions, resources and namespaces: what they have in common keeps a mistake out of a URL.
fn check_name(key: &'static str, text: &str, example: &'static str) -> Result<(), ProfileError> {
    if text.is_empty() {
        return Err(ProfileError::Missing { key, example });
    }
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_name = text.len() <= NAME_BYTES_MAX
        && text.starts_with(is_inner)
        && text.ends_with(is_inner)
        && text.chars().all(|c| is_inner(c) || c == '-' || c == '.');
    if is_name { Ok(()) } else { Err(ProfileError::NotAName { key, value: shown(text), example }) }
}

/// Enough of a text to find it again.
pub(crate) fn shown(text: &str) -> String {
    const CHARS_MAX: usize = 80;
    if text.chars().nth(CHARS_MAX).is_none() {
        return text.into();
    }
    text.chars().take(CHARS_MAX).chain(['…']).collect()
}

/// What is wrong with a [`ProfileSpec`]: one line that begins with the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProfileError {
    /// A key that is needed has no value.
    Missing {
        /// The key.
        key: &'static str,
        /// What could stand there.
        example: &'static str,
    },
    /// Both keys or none of them are given.
    NotOne {
        /// The key they stand under.
        key: &'static str,
        /// The two.
        of: [&'static str; 2],
    },
    /// The value is not a name of the kind that is expected.
    NotAName {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
        /// What could stand there.
        example: &'static str,
    },
    /// The value is not a path of 2 to 16 keys.
    NotAPath {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// A path lies inside another, or is the same.
    Overlap {
        /// The key of one.
        key: &'static str,
        /// The key of the other.
        other: &'static str,
    },
    /// A number of seconds that no TTL can have.
    OutOfRange {
        /// The key.
        key: &'static str,
        /// Its value.
        value: i64,
    },
    /// Not one of Kubernetes' propagation policies.
    NotAPropagation {
        /// The value.
        value: String,
    },
    /// A value that may stand once stands twice.
    Twice {
        /// The key.
        key: &'static str,
        /// The value.
        value: String,
    },
    /// A list is too long.
    TooMany {
        /// The key.
        key: &'static str,
        /// How long it may be.
        max: usize,
    },
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProfileError::Missing { key, example } => write!(f, "{key}: is missing, for example {example}"),
            ProfileError::NotOne { key, of: [a, b] } => write!(f, "{key}: needs either {a} or {b}"),
            ProfileError::NotAName { key, value, example } => {
                write!(f, "{key}: {value:?} is not a name such as {example}")
            }
            ProfileError::NotAPath { key, value } => {
                write!(
                    f,
                    "{key}: \"{value}\" is not a path of 2 to {PATH_KEYS_MAX} keys such as status.phase"
                )
            }
            ProfileError::Overlap { key, other } => write!(f, "{key}: is a part of {other}, or the same"),
            ProfileError::OutOfRange { key, value } => {
                write!(f, "{key}: {value} is not a number of seconds from 0 to {SECONDS_MAX}")
            }
            ProfileError::NotAPropagation { value } => {
                write!(f, "propagation: {value:?} is none of Foreground, Background, Orphan")
            }
            ProfileError::Twice { key, value } => write!(f, "{key}: {value} stands there twice"),
            ProfileError::TooMany { key, max } => write!(f, "{key}: has more than {max} entries"),
        }
    }
}

impl std::error::Error for ProfileError {}
