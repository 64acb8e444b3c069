//! OwnerReference helpers for controller authors (P1): what controller-runtime's `controllerutil` and apimachinery's
//! `meta/v1` give to Go programs.
//!
//! ```
//! use gc_core::owner::{Owner, controller_of, is_controlled_by, set_controller_reference};
//!
//! let owner = Owner { api_version: "apps/v1", kind: "ReplicaSet", namespace: "shop", name: "web-1", uid: "u-1" };
//! let mut references = Vec::new();
//! set_controller_reference(&mut references, &owner, "shop").unwrap();
//! assert_eq!(controller_of(&references).unwrap().name, "web-1");
//! assert!(is_controlled_by(&references, "u-1"));
//! ```

use std::fmt;

use serde_json::{Value, json};

use crate::patch;
pub use crate::request::OwnerReference;

/// The object that is to own another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner<'a> {
    /// For example `apps/v1`.
    pub api_version: &'a str,
    /// For example `ReplicaSet`.
    pub kind: &'a str,
    /// Empty for a cluster-scoped owner.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
}

/// Why a reference cannot be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerError {
    /// Another controller manages the dependent already; a dependent has at most one.
    AlreadyControlled {
        /// The present controller, `Kind name`.
        by: String,
    },
    /// The owner lives in another namespace. Owners are looked up in the dependent's own namespace, so such a
    /// dependent would be taken for garbage and deleted.
    OtherNamespace {
        /// The owner's namespace.
        owner: String,
        /// The dependent's namespace.
        dependent: String,
    },
    /// The dependent is cluster-scoped and the owner is not: such a dependent is never collected.
    NamespacedOwner {
        /// The owner's namespace.
        owner: String,
    },
}

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OwnerError::AlreadyControlled { by } => write!(f, "{by} is already its controller"),
            OwnerError::OtherNamespace { owner, dependent } => write!(
                f,
                "the owner is in namespace {owner:?}, the dependent in {dependent:?}: owners are looked up in the dependent's namespace, so it would be deleted"
            ),
            OwnerError::NamespacedOwner { owner } => write!(
                f,
                "a cluster-scoped dependent cannot have an owner in a namespace ({owner:?}): it would never be collected"
            ),
        }
    }
}

impl std::error::Error for OwnerError {}

/// A reference to the managing controller: `controller` and `blockOwnerDeletion` are true.
pub fn new_controller_ref(owner: &Owner<'_>) -> OwnerReference {
    OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..new_owner_ref(owner) }
}

/// A plain reference: neither flag is set.
pub fn new_owner_ref(owner: &Owner<'_>) -> OwnerReference {
    OwnerReference {
        api_version: owner.api_version.into(),
        kind: owner.kind.into(),
        name: owner.name.into(),
        uid: owner.uid.into(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// Makes `owner` the controller of a dependent in `namespace` (empty: cluster-scoped). A reference that it has already
/// is brought up to date: the version of its apiVersion does not count (controller-runtime#699).
///
/// # Errors
/// [`OwnerError`] when there is another controller or the namespaces cannot match; the list is unchanged then.
pub fn set_controller_reference(
    references: &mut Vec<OwnerReference>,
    owner: &Owner<'_>,
    namespace: &str,
) -> Result<(), OwnerError> {
    check_namespace(owner, namespace)?;
    let new = new_controller_ref(owner);
    if let Some(present) = controller_of(references).filter(|present| !same_owner(present, &new)) {
        return Err(OwnerError::AlreadyControlled { by: format!("{} {}", present.kind, present.name) });
    }
    upsert(references, new);
    Ok(())
}

/// Adds a plain reference, or brings one to the same owner up to date, its flags as they are.
///
/// # Errors
/// [`OwnerError`] when the namespaces cannot match; the list is unchanged then.
pub fn set_owner_reference(
    references: &mut Vec<OwnerReference>,
    owner: &Owner<'_>,
    namespace: &str,
) -> Result<(), OwnerError> {
    check_namespace(owner, namespace)?;
    let mut new = new_owner_ref(owner);
    if let Some(present) = references.iter().find(|present| same_owner(present, &new)) {
        new.controller = present.controller;
        new.block_owner_deletion = present.block_owner_deletion;
    }
    upsert(references, new);
    Ok(())
}

/// The managing controller's reference.
pub fn controller_of(references: &[OwnerReference]) -> Option<&OwnerReference> {
    references.iter().find(|reference| reference.controller == Some(true))
}

/// Whether the object with this UID is the managing controller.
pub fn is_controlled_by(references: &[OwnerReference], uid: &str) -> bool {
    controller_of(references).is_some_and(|reference| reference.uid == uid)
}

/// Whether the object with this UID is an owner.
pub fn is_owned_by(references: &[OwnerReference], uid: &str) -> bool {
    references.iter().any(|reference| reference.uid == uid)
}

/// What is wrong with a list of references.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// The field of the reference at this place is empty.
    Empty {
        /// Which reference.
        place: usize,
        /// Which field, as it is called in YAML.
        field: &'static str,
    },
    /// More than one reference has `controller: true`.
    SecondController {
        /// The second one.
        place: usize,
    },
    /// The same owner is named twice.
    Duplicate {
        /// The second mention.
        place: usize,
    },
    /// Kubernetes events cannot own anything.
    EventAsOwner {
        /// Which reference.
        place: usize,
    },
    /// A cluster-scoped dependent names an owner of a namespaced kind.
    NamespacedOwner {
        /// Which reference.
        place: usize,
    },
}

/// Checks a list as the API server does, and for what it lets pass but no collector can resolve. `is_namespaced`
/// says whether a kind is namespaced (from discovery), `None` when it is unknown.
pub fn validate(
    references: &[OwnerReference],
    dependent_namespace: &str,
    is_namespaced: impl Fn(&str, &str) -> Option<bool>,
) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = hashbrown::HashSet::new();
    let mut controlled = false;
    for (place, reference) in references.iter().enumerate() {
        let OwnerReference { api_version, kind, name, uid, .. } = reference;
        for (field, value) in [("apiVersion", api_version), ("kind", kind), ("name", name), ("uid", uid)] {
            if value.is_empty() {
                problems.push(Problem::Empty { place, field });
            }
        }
        if reference.controller == Some(true) && std::mem::replace(&mut controlled, true) {
            problems.push(Problem::SecondController { place });
        }
        if !seen.insert(uid.as_str()) {
            problems.push(Problem::Duplicate { place });
        }
        if kind == "Event" && matches!(group_of(api_version), "" | "events.k8s.io") {
            problems.push(Problem::EventAsOwner { place });
        }
        if dependent_namespace.is_empty() && is_namespaced(api_version, kind) == Some(true) {
            problems.push(Problem::NamespacedOwner { place });
        }
    }
    problems
}

/// A strategic merge patch by which a controller adopts an object; it applies only to the object with `uid`.
pub fn adopt_patch(uid: &str, owner: &Owner<'_>) -> Value {
    json!({"metadata": {"uid": uid, "ownerReferences": [patch::reference(&new_controller_ref(owner))]}})
}

/// A strategic merge patch by which an owner releases an object; it applies only to the object with `uid`.
pub fn release_patch(uid: &str, owner_uid: &str) -> Value {
    json!({"metadata": {"uid": uid, "ownerReferences": [{"$patch": "delete", "uid": owner_uid}]}})
}

fn check_namespace(owner: &Owner<'_>, namespace: &str) -> Result<(), OwnerError> {
    if owner.namespace.is_empty() || owner.namespace == namespace {
        return Ok(());
    }
    let (owner, dependent) = (owner.namespace.to_owned(), namespace.to_owned());
    Err(if dependent.is_empty() {
        OwnerError::NamespacedOwner { owner }
    } else {
        OwnerError::OtherNamespace { owner, dependent }
    })
}

fn upsert(references: &mut Vec<OwnerReference>, new: OwnerReference) {
    match references.iter_mut().find(|present| same_owner(present, &new)) {
        Some(present) => *present = new,
        None => references.push(new),
    }
}

/// The same owner by group, kind, name and UID; the version does not count.
fn same_owner(a: &OwnerReference, b: &OwnerReference) -> bool {
    group_of(&a.api_version) == group_of(&b.api_version)
        && a.kind == b.kind
        && a.name == b.name
        && a.uid == b.uid
}

fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner<'_> =
        Owner { api_version: "apps/v1", kind: "ReplicaSet", namespace: "a", name: "rs", uid: "u-rs" };

    #[test]
    fn p1_a_controller_reference_has_both_flags_and_an_owner_reference_neither() {
        let controller = new_controller_ref(&OWNER);
        assert_eq!((controller.controller, controller.block_owner_deletion), (Some(true), Some(true)));
        let owner = new_owner_ref(&OWNER);
        assert_eq!((owner.controller, owner.block_owner_deletion), (None, None));
    }

    #[test]
    fn p1_a_second_controller_is_refused_and_named() {
        let mut references = Vec::new();
        set_controller_reference(&mut references, &OWNER, "a").unwrap();
        let other = Owner { name: "other", uid: "u-other", ..OWNER };
        let error = set_controller_reference(&mut references, &other, "a").unwrap_err();
        assert_eq!(error.to_string(), "ReplicaSet rs is already its controller");
        assert_eq!(references.len(), 1);
        set_owner_reference(&mut references, &other, "a").unwrap();
        assert!(is_owned_by(&references, "u-other") && !is_controlled_by(&references, "u-other"));
    }

    #[test]
    fn controller_runtime_699_another_version_is_the_same_owner() {
        let mut references = Vec::new();
        set_controller_reference(&mut references, &OWNER, "a").unwrap();
        set_controller_reference(&mut references, &Owner { api_version: "apps/v2", ..OWNER }, "a").unwrap();
        assert_eq!(references.len(), 1);
        assert_eq!(references[0].api_version, "apps/v2");
    }

    #[test]
    fn controller_runtime_675_namespaces_must_match() {
        let mut references = Vec::new();
        let other = set_controller_reference(&mut references, &OWNER, "b").unwrap_err();
        assert!(matches!(other, OwnerError::OtherNamespace { .. }));
        let cluster = set_owner_reference(&mut references, &OWNER, "").unwrap_err();
        assert!(matches!(cluster, OwnerError::NamespacedOwner { .. }));
        assert!(references.is_empty());
        set_owner_reference(&mut references, &Owner { namespace: "", ..OWNER }, "b").unwrap();
    }

    #[test]
    fn p1_validation_names_every_problem() {
        let good = new_controller_ref(&OWNER);
        let references = vec![
            good.clone(),
            OwnerReference { name: String::new(), uid: "x".into(), ..good.clone() },
            good.clone(),
            OwnerReference { api_version: "v1".into(), kind: "Event".into(), uid: "e".into(), ..good },
        ];
        let problems = validate(&references, "", |_, kind| Some(kind == "ReplicaSet"));
        assert_eq!(
            problems,
            vec![
                Problem::NamespacedOwner { place: 0 },
                Problem::Empty { place: 1, field: "name" },
                Problem::SecondController { place: 1 },
                Problem::NamespacedOwner { place: 1 },
                Problem::SecondController { place: 2 },
                Problem::Duplicate { place: 2 },
                Problem::NamespacedOwner { place: 2 },
                Problem::SecondController { place: 3 },
                Problem::EventAsOwner { place: 3 },
            ]
        );
    }

    #[test]
    fn p1_patches_carry_the_guard() {
        assert_eq!(
            release_patch("u-dep", "u-rs").to_string(),
            r#"{"metadata":{"ownerReferences":[{"$patch":"delete","uid":"u-rs"}],"uid":"u-dep"}}"#
        );
        assert_eq!(adopt_patch("u-dep", &OWNER)["metadata"]["uid"], "u-dep");
        assert_eq!(adopt_patch("u-dep", &OWNER)["metadata"]["ownerReferences"][0]["controller"], true);
    }
}
