//! What one kind needs to know of TTLs.

use std::sync::Arc;

use crate::Propagation;
use crate::ttl::spec::{DefaultSpec, ProfileError, ProfileSpec, SecondsSpec, propagation};
use crate::ttl::{End, Facts};

/// One kind whose objects go some time after they have finished (T1).
///
/// ```
/// use gc_core::ttl::{Profile, ProfileSpec, SecondsSpec};
///
/// // Volcano's jobs, also those that were aborted, and none before its result could be read.
/// let mut spec = ProfileSpec::volcano_job();
/// spec.finished.failure.push("Aborted".into());
/// spec.min = SecondsSpec::both(30);
/// let profile = Profile::new(&spec).unwrap();
/// assert_eq!(profile.name(), "jobs.batch.volcano.sh");
/// assert_eq!(profile.paths()[0], ["status", "state", "phase"]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    name: Arc<str>,
    group: String,
    version: String,
    resource: String,
    pub(crate) signal: Signal,
    pub(crate) success: Vec<String>,
    pub(crate) failure: Vec<String>,
    pub(crate) fields: Fields,
    paths: Vec<Vec<String>>,
    ttl: TtlSource,
    defaults: Vec<DefaultSpec>,
    min: SecondsSpec,
    propagation: Propagation,
}

/// Where it shows that an object has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    Conditions,
    Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TtlSource {
    /// At a path, as a number.
    Number,
    /// At a path below the annotations or labels, whose values are text.
    Text,
    Fixed(SecondsSpec),
}

/// Which of the paths is which; the first is the conditions or the phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) time: Option<usize>,
    pub(crate) ttl: Option<usize>,
    pub(crate) protection: Option<usize>,
}

impl Profile {
    /// The profile of this description.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong with the description, in one line that begins with its key.
    pub fn new(spec: &ProfileSpec) -> Result<Profile, ProfileError> {
        spec.check()?;
        Ok(Profile::build(spec))
    }

    /// `batch/v1` Job, as [`ProfileSpec::batch_job`] describes it.
    pub fn batch_job() -> Profile {
        Profile::build(&ProfileSpec::batch_job())
    }

    /// Volcano's Job, as [`ProfileSpec::volcano_job`] describes it.
    pub fn volcano_job() -> Profile {
        Profile::build(&ProfileSpec::volcano_job())
    }

    fn build(spec: &ProfileSpec) -> Profile {
        let name = if spec.group.is_empty() {
            spec.resource.clone()
        } else {
            format!("{}.{}", spec.resource, spec.group)
        };
        let keyed = spec.all_paths();
        let place = |wanted: &str| keyed.iter().position(|(key, _)| *key == wanted);
        let fields = Fields {
            time: place("finished.time"),
            ttl: place("ttl.path"),
            protection: place("protectAnnotation"),
        };
        let is_text = |(_, path): &(&str, Vec<String>)| {
            path.starts_with(&["metadata".into()])
                && path.get(1).is_some_and(|key| key == "annotations" || key == "labels")
        };
        let ttl = match fields.ttl {
            Some(place) if keyed.get(place).is_some_and(is_text) => TtlSource::Text,
            Some(_) => TtlSource::Number,
            None => TtlSource::Fixed(spec.ttl.seconds.unwrap_or_default()),
        };
        Profile {
            name: name.into(),
            group: spec.group.clone(),
            version: spec.version.clone(),
            resource: spec.resource.clone(),
            signal: if spec.finished.phase.is_some() { Signal::Phase } else { Signal::Conditions },
            success: spec.finished.success.clone(),
            failure: spec.finished.failure.clone(),
            fields,
            paths: keyed.into_iter().map(|(_, path)| path).collect(),
            ttl,
            defaults: spec.defaults.clone(),
            min: spec.min,
            propagation: spec.propagation.as_deref().and_then(propagation).unwrap_or(Propagation::Foreground),
        }
    }

    /// For logs and as a metric's label, for example `jobs.batch`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// For example `v1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The plural, for example `jobs`.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// How its objects are deleted.
    pub fn propagation(&self) -> Propagation {
        self.propagation
    }

    /// The fields to read beside the metadata, each as the keys that lead to it, in the order in which
    /// [`Profile::facts`] wants their values. Five at most; none lies inside another.
    pub fn paths(&self) -> &[Vec<String>] {
        &self.paths
    }

    /// The TTL in the form that it has on an object, for messages.
    pub(crate) fn path_text(&self, field: usize) -> String {
        self.paths.get(field).map_or_else(String::new, |path| path.join("."))
    }

    pub(crate) fn ttl_is_text(&self) -> bool {
        self.ttl == TtlSource::Text
    }

    pub(crate) fn fixed_ttl(&self) -> Option<SecondsSpec> {
        match self.ttl {
            TtlSource::Fixed(seconds) => Some(seconds),
            TtlSource::Number | TtlSource::Text => None,
        }
    }

    /// The TTL of an object that sets none.
    pub(crate) fn default_seconds(&self, facts: &Facts, end: End) -> Option<i64> {
        let in_namespace =
            |wanted: Option<&str>| self.defaults.iter().find(|d| d.namespace.as_deref() == wanted);
        let default = in_namespace(Some(&facts.namespace)).or_else(|| in_namespace(None))?;
        if facts.is_controlled && !default.also_controlled {
            return None;
        }
        by_end(default.seconds, end)
    }

    /// What no TTL may undercut, in seconds.
    pub(crate) fn min_seconds(&self, end: End) -> i64 {
        by_end(self.min, end).unwrap_or(0)
    }
}

pub(crate) fn by_end(seconds: SecondsSpec, end: End) -> Option<i64> {
    match end {
        End::Success => seconds.success,
        End::Failure => seconds.failure,
    }
}
