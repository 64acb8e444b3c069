//! Steps from text, in the form in which they are printed, so that scripts read like the histories that fail.

use crate::api::Policy;
use crate::differential::model::{Identity, Kind, OTHER_VERSION, Place, Reference, Step, Uid};
use crate::failure::Failure;

/// Bursts of steps, one step a line; `(wait)` ends a burst, and so does the end of the text.
///
/// # Errors
///
/// The line that is no step.
pub fn bursts(text: &str) -> Result<Vec<Vec<Step>>, Failure> {
    let mut bursts = vec![Vec::new()];
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line == "(wait)" {
            bursts.push(Vec::new());
        } else if let Some(burst) = bursts.last_mut() {
            burst.push(step(line).ok_or_else(|| Failure::new(format!("no step: {line}")))?);
        }
    }
    bursts.retain(|burst| !burst.is_empty());
    Ok(bursts)
}

fn step(line: &str) -> Option<Step> {
    let (verb, rest) = line.split_once(' ')?;
    let (object, rest) = rest.trim_start().split_once(' ').unwrap_or((rest.trim_start(), ""));
    if verb == "create" {
        let (identity, number) = created(object, rest)?;
        return Some(Step::Create {
            number,
            identity,
            owners: owners(rest)?,
            finalizers: list(rest, "finalizers"),
        });
    }
    match (verb, object) {
        ("end", _) => return Some(Step::EndNamespace { place: place(object)? }),
        ("kill", "collector") => return Some(Step::Kill),
        ("undefine", "widgets") => return Some(Step::Undefine),
        ("define", "widgets") => return Some(Step::Define),
        _ => {}
    }
    let number = object.strip_prefix('#')?.parse().ok()?;
    Some(match verb {
        "delete" => Step::Delete { number, policy: policy(rest)? },
        "own" => Step::Own { number, owners: owners(rest)? },
        "hold" => Step::Hold { number, finalizer: rest.into() },
        "release" => Step::Release { number, finalizer: rest.into() },
        "touch" => Step::Touch { number },
        _ => return None,
    })
}

/// For example `cm/a#1 @one`.
fn created(object: &str, rest: &str) -> Option<(Identity, u32)> {
    let (kind, name) = object.split_once('/')?;
    let (name, number) = name.split_once('#')?;
    let place = rest.split(' ').next().and_then(place).unwrap_or(Place::Cluster);
    Some((Identity { kind: Kind::from_short(kind)?, place, name: name.into() }, number.parse().ok()?))
}

fn place(text: &str) -> Option<Place> {
    [Place::One, Place::Two, Place::Cluster].into_iter().find(|place| place.to_string() == text)
}

fn policy(text: &str) -> Option<Option<Policy>> {
    Some(match text {
        "" => None,
        "Background" => Some(Policy::Background),
        "Foreground" => Some(Policy::Foreground),
        "Orphan" => Some(Policy::Orphan),
        _ => return None,
    })
}

fn owners(rest: &str) -> Option<Vec<Reference>> {
    list(rest, "owners").iter().map(|text| reference(text)).collect()
}

/// For example `cm/a#1!*` or `Nonsense.v1/a#nobody2`.
fn reference(text: &str) -> Option<Reference> {
    let (kind, rest) = text.split_once('/')?;
    let (name, uid) = rest.split_once('#')?;
    let number = uid.trim_end_matches(['!', '*']);
    let uid_of = match number.strip_prefix("nobody") {
        Some(number) => Uid::Nobody(number.parse().ok()?),
        None => Uid::Object(number.parse().ok()?),
    };
    let (kind, other_version) = kind.split_once('@').map_or((kind, None), |(kind, v)| (kind, Some(v)));
    let (api_version, kind) = match Kind::from_short(kind) {
        Some(kind) => (kind.resource().api_version(), kind.resource().kind),
        None => kind.split_once('.').map(|(kind, version)| (version.to_owned(), kind.to_owned()))?,
    };
    let (block, controller) = (uid.contains('!'), uid.contains('*'));
    let reference = Reference { api_version, kind, name: name.into(), uid: uid_of, block, controller };
    match other_version {
        None => Some(reference),
        Some(OTHER_VERSION) => Some(reference.by_other_version()),
        Some(_) => None,
    }
}

/// The items of `name=[a, b]`; none where it is missing.
fn list(text: &str, name: &str) -> Vec<String> {
    let start = format!("{name}=[");
    let inner = text.split_once(&start).and_then(|(_, rest)| rest.split_once(']')).map(|(inner, _)| inner);
    inner.map(|inner| inner.split(", ").map(str::to_owned).collect()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::generate::Generator;
    use crate::differential::model::Snapshot;

    #[test]
    fn what_is_printed_is_read_again() {
        for seed in 0..200 {
            let steps = Generator::new(seed).burst(&Snapshot::new()).unwrap();
            let text: String = steps.iter().map(|step| format!("{step}\n")).collect();
            assert_eq!(bursts(&text).unwrap(), [steps], "{text}");
        }
        let others = "own     #1 nothing\nhold    #2 history.example/x\n(wait)\nrelease #2 history.example/x\n\
                      own     #1 owners=[widget@v1beta1/a#2!]\nend     @two\nkill    collector\n\
                      undefine widgets\ndefine  widgets";
        let printed: Vec<String> =
            bursts(others).unwrap().iter().flatten().map(|step| step.to_string()).collect();
        assert_eq!(printed.join("\n"), others.replace("(wait)\n", ""));
    }

    #[test]
    fn a_line_that_is_no_step_is_named() {
        assert!(bursts("create cm/a#1 @one\nremove #1").unwrap_err().to_string().contains("remove #1"));
    }
}
