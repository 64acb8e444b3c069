//! `--ttl-config`: kinds whose objects go some time after they have finished, as a file in YAML.
//!
//! What is wrong gets one line that names the file, the profile and the key (R7).

use std::io::Read;
use std::path::Path;

use gc_client::Fields;
use gc_core::ttl::{DefaultSpec, FinishedSpec, Profile, ProfileSpec, SecondsSpec, TtlSpec};
use serde::Deserialize;

/// Ten thousand defaults fit; whatever is larger is another file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// More kinds than anybody gives TTLs; each has a watch.
const PROFILES_MAX: usize = 100;

/// The file as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    profiles: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    #[serde(default)]
    group: String,
    #[serde(default)]
    version: String,
    #[serde(default)]
    resource: String,
    finished: Option<Finished>,
    ttl: Option<Ttl>,
    #[serde(default)]
    defaults: Vec<DefaultTtl>,
    #[serde(default)]
    min: Option<Seconds>,
    propagation: Option<String>,
    protect_annotation: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Finished {
    conditions: Option<String>,
    phase: Option<String>,
    #[serde(default)]
    success: Vec<String>,
    #[serde(default)]
    failure: Vec<String>,
    time: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ttl {
    path: Option<String>,
    seconds: Option<Seconds>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct DefaultTtl {
    namespace: Option<String>,
    seconds: Seconds,
    #[serde(default)]
    also_controlled: bool,
}

/// `3600`, or `{success: 3600, failure: 86400}`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "expected a whole number of seconds, or {success: N, failure: N},")]
enum Seconds {
    Both(i64),
    Each(Each),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Each {
    success: Option<i64>,
    failure: Option<i64>,
}

/// The profiles of a file.
///
/// # Errors
///
/// One line that names the file, the key and what is wrong.
pub fn read(file: &Path) -> Result<Vec<Profile>, String> {
    let error = |what: &str| format!("--ttl-config {}: {what}", file.display());
    let mut text = String::new();
    let opened = std::fs::File::open(file).map_err(|e| error(&e.to_string()))?;
    opened.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|e| error(&e.to_string()))?;
    if FILE_BYTES_MAX < text.len() as u64 {
        return Err(error("is larger than 1 MiB; name a file of profiles"));
    }
    parse(&text).map_err(|what| error(&what))
}

/// The profiles of a text, or one line.
pub(crate) fn parse(text: &str) -> Result<Vec<Profile>, String> {
    let file: File = serde_saphyr::from_str(text).map_err(|yaml| {
        // The parser's words name the key, the line and the column.
        let words = yaml.without_snippet().to_string();
        words.lines().next().unwrap_or_default().to_owned()
    })?;
    if file.profiles.is_empty() || PROFILES_MAX < file.profiles.len() {
        let count = file.profiles.len();
        return Err(format!("profiles: there are {count}; name 1 to {PROFILES_MAX}"));
    }
    let mut profiles: Vec<Profile> = Vec::new();
    for (index, entry) in file.profiles.into_iter().enumerate() {
        let at = |what: String| format!("profiles[{index}].{what}");
        let profile = Profile::new(&entry.spec()).map_err(|error| at(error.to_string()))?;
        if profiles.iter().any(|other| other.name() == profile.name()) {
            return Err(at(format!("resource: {} has a profile above; merge the two", profile.name())));
        }
        Fields::new(profile.paths()).map_err(|error| format!("profiles[{index}]: {error}"))?;
        profiles.push(profile);
    }
    Ok(profiles)
}

impl Entry {
    /// What the file leaves out of a kind that is built in is as it is built in.
    fn spec(self) -> ProfileSpec {
        let built_in = [ProfileSpec::batch_job(), ProfileSpec::volcano_job()]
            .into_iter()
            .find(|known| {
                (&known.group, &known.version, &known.resource)
                    == (&self.group, &self.version, &self.resource)
            })
            .unwrap_or_default();
        ProfileSpec {
            group: self.group,
            version: self.version,
            resource: self.resource,
            finished: self.finished.map_or(built_in.finished, Finished::spec),
            ttl: self.ttl.map_or(built_in.ttl, Ttl::spec),
            defaults: self.defaults.into_iter().map(DefaultTtl::spec).collect(),
            min: self.min.map(Seconds::spec).unwrap_or_default(),
            propagation: self.propagation,
            protect_annotation: self.protect_annotation,
        }
    }
}

impl Finished {
    fn spec(self) -> FinishedSpec {
        let Finished { conditions, phase, success, failure, time } = self;
        FinishedSpec { conditions, phase, success, failure, time }
    }
}

impl Ttl {
    fn spec(self) -> TtlSpec {
        TtlSpec { path: self.path, seconds: self.seconds.map(Seconds::spec) }
    }
}

impl DefaultTtl {
    fn spec(self) -> DefaultSpec {
        let DefaultTtl { namespace, seconds, also_controlled } = self;
        DefaultSpec { namespace, seconds: seconds.spec(), also_controlled }
    }
}

impl Seconds {
    fn spec(self) -> SecondsSpec {
        match self {
            Seconds::Both(seconds) => SecondsSpec::both(seconds),
            Seconds::Each(Each { success, failure }) => SecondsSpec { success, failure },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    const README: &str = include_str!("../../../docs/ttl.md");

    fn check(text: &str, expected: &Expect) {
        let said = match parse(text) {
            Ok(profiles) => format!("{profiles:#?}"),
            Err(what) => what,
        };
        assert!(!said.starts_with("profiles") || said.lines().count() == 1);
        expected.assert_eq(&(said + "\n"));
    }

    #[test]
    fn t1_the_examples_of_the_documentation_are_good() {
        let examples: Vec<&str> =
            README.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
        assert!(2 <= examples.len());
        for example in examples {
            assert!(parse(example).is_ok(), "{example}: {:?}", parse(example).err());
        }
    }

    #[test]
    fn t1_what_is_left_out_of_a_kind_that_is_built_in_is_as_it_is_built_in() {
        let only_min = parse(
            "profiles:\n- {group: batch.volcano.sh, version: v1alpha1, resource: jobs, min: 30}\n\
             - {group: batch, version: v1, resource: jobs, propagation: Background}\n",
        );
        let profiles = only_min.unwrap();
        assert_eq!(profiles[0].paths(), Profile::volcano_job().paths());
        assert_eq!(profiles[1].paths(), Profile::batch_job().paths());
    }

    #[test]
    fn r7_what_is_wrong_gets_one_line_with_its_key() {
        let jobs = "profiles:\n- group: batch\n  version: v1\n  resource: jobs\n";
        check(
            "",
            &expect![[r#"
            unexpected end of input at line 1, column 1
        "#]],
        );
        check(
            "profiles: []",
            &expect![[r#"
            profiles: there are 0; name 1 to 100
        "#]],
        );
        check(
            &format!("{jobs}  ttls: 5\n"),
            &expect![[r#"
            unknown field `ttls`, expected one of group, version, resource, finished, ttl, defaults, min, propagation, protectAnnotation at line 5, column 3
        "#]],
        );
        check(
            &format!("{jobs}  ttl: {{seconds: soon}}\n"),
            &expect![[r#"
            expected a whole number of seconds, or {success: N, failure: N}, at line 5, column 18
        "#]],
        );
        check(
            &format!("{jobs}  min: {{succes: 1}}\n"),
            &expect![[r#"
            expected a whole number of seconds, or {success: N, failure: N}, at line 5, column 8
        "#]],
        );
        check(
            &format!("{jobs}  min: -1\n"),
            &expect![[r#"
            profiles[0].min: -1 is not a number of seconds from 0 to 2147483647
        "#]],
        );
        check(
            &format!("{jobs}  propagation: foreground\n"),
            &expect![[r#"
            profiles[0].propagation: "foreground" is none of Foreground, Background, Orphan
        "#]],
        );
        check(
            &format!("{jobs}- group: batch\n  version: v1\n  resource: jobs\n"),
            &expect![[r#"
            profiles[1].resource: jobs.batch has a profile above; merge the two
        "#]],
        );
        check(
            "profiles:\n- group: example.org\n  version: v1\n  resource: reports\n",
            &expect![[r#"
            profiles[0].finished: needs either conditions or phase
        "#]],
        );
        check(
            &format!("{jobs}  ttl: {{path: metadata.resourceVersion}}\n"),
            &expect![[r#"
            profiles[0]: metadata.resourceVersion is read with every object and is no field of its own
        "#]],
        );
    }
}
