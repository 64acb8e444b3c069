//! Reads objects that are sent in protobuf, as typed clients do (`kubectl create configmap` for one).
//!
//! Every kind has its metadata in field 1, and that is what is read; of ConfigMaps and Secrets also the data. The
//! rest of a spec needs every kind's schema and is left out.

use serde_json::{Map, Value, json};

/// Magic of the envelope.
const MAGIC: &[u8] = b"k8s\0";

/// One field of a message.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The object in an envelope; none when the bytes are no such thing.
pub(crate) fn decode_object(bytes: &[u8]) -> Option<Value> {
    let (type_meta, raw) = envelope(bytes)?;
    let (api_version, kind) = texts(type_meta, 1, 2)?;
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {}});
    let mut data = Map::new();
    for (tag, field) in fields(raw)? {
        match (tag, field) {
            (1, Field::Bytes(bytes)) => object["metadata"] = metadata(bytes)?,
            (2, Field::Bytes(bytes)) if kind == "ConfigMap" => {
                let (key, value) = texts(bytes, 1, 2)?;
                data.insert(key, value.into());
            }
            _ => {}
        }
    }
    if !data.is_empty() {
        object["data"] = data.into();
    }
    Some(object)
}

/// `DeleteOptions` in an envelope.
pub(crate) fn decode_delete_options(bytes: &[u8]) -> Option<Value> {
    let (type_meta, raw) = envelope(bytes)?;
    let (_, kind) = texts(type_meta, 1, 2)?;
    let mut options = json!({"kind": kind});
    for (tag, field) in fields(raw)? {
        match (tag, field) {
            (1, Field::Number(seconds)) => options["gracePeriodSeconds"] = seconds.into(),
            (2, Field::Bytes(bytes)) => {
                let (uid, version) = texts(bytes, 1, 2)?;
                let mut preconditions = Map::new();
                for (key, value) in [("uid", uid), ("resourceVersion", version)] {
                    if !value.is_empty() {
                        preconditions.insert(key.into(), value.into());
                    }
                }
                options["preconditions"] = preconditions.into();
            }
            (3, Field::Number(orphan)) => options["orphanDependents"] = (orphan != 0).into(),
            (4, Field::Bytes(policy)) => options["propagationPolicy"] = text(policy)?.into(),
            (5, Field::Bytes(dry_run)) => options["dryRun"] = json!([text(dry_run)?]),
            _ => {}
        }
    }
    Some(options)
}

fn envelope(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut type_meta: &[u8] = &[];
    let mut raw: &[u8] = &[];
    for (tag, field) in fields(bytes.strip_prefix(MAGIC)?)? {
        match (tag, field) {
            (1, Field::Bytes(bytes)) => type_meta = bytes,
            (2, Field::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    Some((type_meta, raw))
}

fn metadata(bytes: &[u8]) -> Option<Value> {
    let mut map = Map::new();
    let (mut labels, mut annotations) = (Map::new(), Map::new());
    let (mut owners, mut finalizers) = (Vec::new(), Vec::new());
    for (tag, field) in fields(bytes)? {
        let Field::Bytes(bytes) = field else { continue };
        match tag {
            1 => put(&mut map, "name", bytes)?,
            2 => put(&mut map, "generateName", bytes)?,
            3 => put(&mut map, "namespace", bytes)?,
            5 => put(&mut map, "uid", bytes)?,
            6 => put(&mut map, "resourceVersion", bytes)?,
            11 | 12 => {
                let (key, value) = texts(bytes, 1, 2)?;
                let target = if tag == 11 { &mut labels } else { &mut annotations };
                target.insert(key, value.into());
            }
            13 => owners.push(owner_reference(bytes)?),
            14 => finalizers.push(text(bytes)?),
            _ => {}
        }
    }
    map.insert("labels".into(), labels.into());
    map.insert("annotations".into(), annotations.into());
    map.insert("ownerReferences".into(), owners.into());
    map.insert("finalizers".into(), finalizers.into());
    Some(map.into())
}

fn owner_reference(bytes: &[u8]) -> Option<Value> {
    let mut map = Map::new();
    for (tag, field) in fields(bytes)? {
        match (tag, field) {
            (1, Field::Bytes(bytes)) => put(&mut map, "kind", bytes)?,
            (3, Field::Bytes(bytes)) => put(&mut map, "name", bytes)?,
            (4, Field::Bytes(bytes)) => put(&mut map, "uid", bytes)?,
            (5, Field::Bytes(bytes)) => put(&mut map, "apiVersion", bytes)?,
            (6, Field::Number(n)) => {
                map.insert("controller".into(), (n != 0).into());
            }
            (7, Field::Number(n)) => {
                map.insert("blockOwnerDeletion".into(), (n != 0).into());
            }
            _ => {}
        }
    }
    Some(map.into())
}

fn put(map: &mut Map<String, Value>, key: &str, bytes: &[u8]) -> Option<()> {
    map.insert(key.into(), text(bytes)?.into());
    Some(())
}

/// Two texts of a message; empty when absent.
fn texts(bytes: &[u8], first: u64, second: u64) -> Option<(String, String)> {
    let mut out = (String::new(), String::new());
    for (tag, field) in fields(bytes)? {
        match field {
            Field::Bytes(bytes) if tag == first => out.0 = text(bytes)?,
            Field::Bytes(bytes) if tag == second => out.1 = text(bytes)?,
            _ => {}
        }
    }
    Some(out)
}

fn text(bytes: &[u8]) -> Option<String> {
    String::from_utf8(bytes.to_vec()).ok()
}

fn fields(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => Field::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = varint(&mut bytes)?;
                Field::Bytes(take(&mut bytes, length)?)
            }
            5 => Field::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        out.push((key >> 3, field));
    }
    Some(out)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn take<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gc_client::OwnerReferenceRef;
    use gc_client::encode::{EncodeMeta, full_object};

    #[test]
    fn metadata_comes_back_and_truncations_give_nothing() {
        let owners = [OwnerReferenceRef {
            api_version: "v1",
            kind: "Pod",
            name: "p",
            uid: "u",
            block_owner_deletion: Some(true),
            ..OwnerReferenceRef::default()
        }];
        let meta = EncodeMeta {
            api_version: "v1",
            kind: "Secret",
            name: "a",
            namespace: "ns",
            labels: &[("k", "v")],
            owner_references: &owners,
            finalizers: &["x.y/z"],
            ..EncodeMeta::default()
        };
        let bytes = full_object(&meta, &[]);
        let object = decode_object(&bytes).unwrap();
        assert_eq!((&object["kind"], &object["metadata"]["name"]), (&json!("Secret"), &json!("a")));
        assert_eq!(object["metadata"]["labels"], json!({"k": "v"}));
        assert_eq!(object["metadata"]["finalizers"], json!(["x.y/z"]));
        let owner = &object["metadata"]["ownerReferences"][0];
        assert_eq!((&owner["uid"], &owner["blockOwnerDeletion"]), (&json!("u"), &json!(true)));
        // The envelope ends with two empty fields of two bytes each, which are not missed.
        for end in 0..bytes.len() - 4 {
            assert_ne!(decode_object(&bytes[..end]), Some(object.clone()), "{end}");
        }
    }
}
