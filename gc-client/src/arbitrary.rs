//! What properties are tried with.

use proptest::prelude::*;
use serde_json::Value;

use crate::meta::{ObjectMeta, OwnerReference, OwnerReferenceRef};

/// An object with texts of that kind. It has a UID: without one, every object of its list would have to be without one.
pub(crate) fn object(text: &BoxedStrategy<String>) -> impl Strategy<Value = ObjectMeta> + use<> {
    let t = || text.clone();
    let lists = (prop::collection::vec(t(), 0..7), prop::collection::vec(owner(text), 0..7));
    let uid = t().prop_map(|uid| format!("u{uid}"));
    ((t(), t(), uid, t(), any::<bool>()), lists).prop_map(
        |((name, namespace, uid, resource_version, being_deleted), (finalizers, owner_references))| {
            ObjectMeta { name, namespace, uid, resource_version, being_deleted, finalizers, owner_references }
        },
    )
}

fn owner(text: &BoxedStrategy<String>) -> impl Strategy<Value = OwnerReference> + use<> {
    let t = || text.clone();
    (t(), t(), t(), t(), any::<Option<bool>>(), any::<Option<bool>>()).prop_map(
        |(api_version, kind, name, uid, controller, block_owner_deletion)| OwnerReference {
            api_version,
            kind,
            name,
            uid,
            controller,
            block_owner_deletion,
        },
    )
}

/// An owner reference as decoders lend it.
pub(crate) fn lend(owner: &OwnerReference) -> OwnerReferenceRef<'_> {
    OwnerReferenceRef {
        api_version: &owner.api_version,
        kind: &owner.kind,
        name: &owner.name,
        uid: &owner.uid,
        controller: owner.controller,
        block_owner_deletion: owner.block_owner_deletion,
    }
}

/// A small value of any shape, with keys of that pattern.
pub(crate) fn json(keys: &'static str) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        // Halves, since serde_json rounds the last digit as it likes.
        any::<i32>().prop_map(|halves| Value::from(f64::from(halves) / 2.0)),
        any::<String>().prop_map(Value::from),
        "[ -~\"\\\\\u{0}-\u{20}é]{0,20}".prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(keys, inner, 0..5)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
