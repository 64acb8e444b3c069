//! The helpers for controller authors (spec P1), as a controller uses them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use gc_core::OwnerReference;
use gc_core::owner::{
    Owner, Problem, is_controlled_by, is_owned_by, new_owner_ref, set_controller_reference,
    set_owner_reference, validate,
};

const OWNER: Owner<'_> =
    Owner { api_version: "apps/v1", kind: "ReplicaSet", namespace: "a", name: "rs", uid: "u-rs" };

/// Owners that have something in common with [`OWNER`] and are others all the same.
fn strangers() -> [Owner<'static>; 4] {
    [
        Owner { api_version: "extensions/v1", ..OWNER },
        Owner { kind: "Deployment", ..OWNER },
        Owner { name: "other", ..OWNER },
        Owner { uid: "u-other", ..OWNER },
    ]
}

#[test]
fn p1_another_group_kind_name_or_uid_is_another_owner() {
    for stranger in strangers() {
        let mut references = vec![new_owner_ref(&OWNER)];
        set_owner_reference(&mut references, &stranger, "a").unwrap();
        assert_eq!(references, [new_owner_ref(&OWNER), new_owner_ref(&stranger)]);
    }
}

#[test]
fn p1_another_group_kind_name_or_uid_is_another_controller() {
    for stranger in strangers() {
        let mut references = Vec::new();
        set_controller_reference(&mut references, &OWNER, "a").unwrap();
        set_controller_reference(&mut references, &stranger, "a").unwrap_err();
        assert_eq!(references.len(), 1);
    }
}

#[test]
fn p1_who_controls_owns_and_who_owns_need_not_control() {
    let mut references = Vec::new();
    set_controller_reference(&mut references, &OWNER, "a").unwrap();
    set_owner_reference(&mut references, &Owner { uid: "u-plain", ..OWNER }, "a").unwrap();
    let asked = ["u-rs", "u-plain", "u-nobody"];
    assert_eq!(asked.map(|uid| is_controlled_by(&references, uid)), [true, false, false]);
    assert_eq!(asked.map(|uid| is_owned_by(&references, uid)), [true, true, false]);
}

#[test]
fn p1_only_the_events_of_kubernetes_cannot_own() {
    let problems = |api_version: &str, kind: &str| {
        let reference = OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: "n".into(),
            uid: "u".into(),
            ..OwnerReference::default()
        };
        validate(&[reference], "ns", |_, _| Some(true))
    };
    for api_version in ["v1", "events.k8s.io/v1"] {
        assert_eq!(problems(api_version, "Event"), [Problem::EventAsOwner { place: 0 }]);
    }
    assert_eq!(problems("calendar.example.com/v1", "Event"), []);
    assert_eq!(problems("v1", "ConfigMap"), []);
}
