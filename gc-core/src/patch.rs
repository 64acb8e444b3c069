//! The bodies of patches (D12, D13). Every one names the object's UID, so that a patch can never hit another object
//! that took over the name.

use serde_json::{Map, Value, json};

use crate::{LiveObject, OwnerReference};

/// Strategic merge: removes the references to these owners, by UID. With a version it applies to that version only.
pub(crate) fn strategic_remove(uid: &str, resource_version: Option<&str>, owners: &[&str]) -> String {
    let gone: Vec<Value> = owners.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
    let mut metadata = json!({"uid": uid, "ownerReferences": gone});
    if let Some(version) = resource_version {
        metadata["resourceVersion"] = version.into();
    }
    json!({ "metadata": metadata }).to_string()
}

/// Strategic merge: makes those of these references non-blocking that are to be (D3, D9).
pub(crate) fn strategic_unblock(live: &LiveObject, which: impl Fn(&OwnerReference) -> bool) -> String {
    let unblocked: Vec<Value> =
        live.owner_references.iter().filter(|r| which(r)).map(|r| reference(&unblocked(r))).collect();
    json!({"metadata": {
        "uid": live.uid,
        "resourceVersion": live.resource_version,
        "ownerReferences": unblocked,
    }})
    .to_string()
}

/// JSON merge: these references, and no others, at this version.
pub(crate) fn merge_references(live: &LiveObject, remain: &[OwnerReference]) -> String {
    let remain: Vec<Value> = remain.iter().map(reference).collect();
    json!({"metadata": {
        "uid": live.uid,
        "resourceVersion": live.resource_version,
        "ownerReferences": remain,
    }})
    .to_string()
}

/// JSON merge: all finalizers but one, in their order, at this version (D13).
pub(crate) fn merge_finalizers(live: &LiveObject, gone: &str) -> String {
    let remain: Vec<&String> = live.finalizers.iter().filter(|f| *f != gone).collect();
    json!({"metadata": {
        "uid": live.uid,
        "resourceVersion": live.resource_version,
        "finalizers": remain,
    }})
    .to_string()
}

/// The same reference, non-blocking.
pub(crate) fn unblocked(reference: &OwnerReference) -> OwnerReference {
    let mut unblocked = reference.clone();
    if unblocked.blocks() {
        unblocked.block_owner_deletion = Some(false);
    }
    unblocked
}

/// A reference as JSON, absent flags left absent.
pub(crate) fn reference(reference: &OwnerReference) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".into(), reference.api_version.as_str().into());
    object.insert("kind".into(), reference.kind.as_str().into());
    object.insert("name".into(), reference.name.as_str().into());
    object.insert("uid".into(), reference.uid.as_str().into());
    if let Some(controller) = reference.controller {
        object.insert("controller".into(), controller.into());
    }
    if let Some(block) = reference.block_owner_deletion {
        object.insert("blockOwnerDeletion".into(), block.into());
    }
    Value::Object(object)
}

/// Whether two references have the same UID: a strategic merge patch cannot tell them apart.
pub(crate) fn has_duplicate_uids(live: &LiveObject) -> bool {
    let mut uids: Vec<&str> = live.owner_references.iter().map(|r| r.uid.as_str()).collect();
    uids.sort_unstable();
    uids.windows(2).any(|pair| pair[0] == pair[1])
}
