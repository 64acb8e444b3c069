//! Writes metadata as an API server writes it in protobuf: for servers in tests and for anything else that must
//! speak to a client which asks for `application/vnd.kubernetes.protobuf`.
//!
//! The bytes are those of kube-apiserver 1.36: the same field order, and empty strings written out, because a
//! decoder that only ever met tidier bytes would be tested against the wrong thing.
//!
//! # Example
//!
//! ```
//! use gc_client::encode::{EncodeMeta, partial_object_metadata, watch_frame};
//!
//! let pod = EncodeMeta { name: "web-0", namespace: "shop", uid: "u-1", resource_version: "7", ..EncodeMeta::default() };
//! let object = partial_object_metadata(&pod);
//! assert_eq!(&object[..4], b"k8s\0");
//! let frame = watch_frame("ADDED", &object);
//! assert_eq!(frame.len(), 4 + u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize);
//! ```

use crate::error::Status;
use crate::meta::OwnerReferenceRef;

/// What stands before every enveloped object: `k8s` and the encoding style 0
/// (apimachinery `pkg/runtime/serializer/protobuf`).
pub(crate) const MAGIC: [u8; 4] = *b"k8s\0";

/// One object's metadata, to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct EncodeMeta<'a> {
    /// Of the object itself, for example `apps/v1`; written by [`full_object`] only.
    pub api_version: &'a str,
    /// Of the object itself, for example `ReplicaSet`; written by [`full_object`] only.
    pub kind: &'a str,
    /// The object's own name.
    pub name: &'a str,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// The object's UID.
    pub uid: &'a str,
    /// The object's version.
    pub resource_version: &'a str,
    /// Counts changes of the desired state; 0 where a kind has none.
    pub generation: i64,
    /// Seconds since 1970; 0 writes the zero time, as bookmarks carry it.
    pub creation_unix_s: i64,
    /// Seconds since 1970 of `deletionTimestamp`.
    pub deletion_unix_s: Option<i64>,
    /// `deletionGracePeriodSeconds`.
    pub deletion_grace_period_s: Option<i64>,
    /// Key and value, in the order in which they are written (a server sorts them by key).
    pub labels: &'a [(&'a str, &'a str)],
    /// Key and value, in the order in which they are written (a server sorts them by key).
    pub annotations: &'a [(&'a str, &'a str)],
    /// In order.
    pub owner_references: &'a [OwnerReferenceRef<'a>],
    /// In order.
    pub finalizers: &'a [&'a str],
    /// In order; about half of the metadata of a real object.
    pub managed_fields: &'a [EncodeManagedFields<'a>],
}

/// One entry of `managedFields`.
#[derive(Clone, Copy, Debug, Default)]
pub struct EncodeManagedFields<'a> {
    /// For example `kubectl-client-side-apply`.
    pub manager: &'a str,
    /// `Apply` or `Update`.
    pub operation: &'a str,
    /// The version in which the fields are named.
    pub api_version: &'a str,
    /// Seconds since 1970.
    pub time_unix_s: i64,
    /// The set of fields, in JSON.
    pub fields_v1: &'a [u8],
    /// For example `status`; mostly empty.
    pub subresource: &'a str,
}

/// A `PartialObjectMetadata` with magic and envelope, as a GET answers it.
pub fn partial_object_metadata(meta: &EncodeMeta<'_>) -> Vec<u8> {
    envelope("meta.k8s.io/v1", "PartialObjectMetadata", |w| w.message(1, |w| w.object_meta(meta)))
}

/// A full object with magic and envelope, as a server answers that does not know metadata-only requests: the
/// metadata in field 1, which all kinds share, and `rest` behind it, fields of the kind that are already encoded.
pub fn full_object(meta: &EncodeMeta<'_>, rest: &[u8]) -> Vec<u8> {
    envelope(meta.api_version, meta.kind, |w| {
        w.message(1, |w| w.object_meta(meta));
        w.0.extend_from_slice(rest);
    })
}

/// A `PartialObjectMetadataList` with magic and envelope. An empty `continue_token` says that this is the last page.
pub fn partial_object_metadata_list(
    items: &[EncodeMeta<'_>],
    resource_version: &str,
    continue_token: &str,
    remaining_item_count: Option<i64>,
) -> Vec<u8> {
    envelope("meta.k8s.io/v1", "PartialObjectMetadataList", |w| {
        w.message(1, |w| {
            w.string(1, "");
            w.string(2, resource_version);
            w.string(3, continue_token);
            if let Some(count) = remaining_item_count {
                w.int(4, count);
            }
        });
        for item in items {
            w.message(2, |w| w.message(1, |w| w.object_meta(item)));
        }
    })
}

/// A `v1` Status with magic and envelope: the object of an `ERROR` event. Written are `code`, `reason`, `message`,
/// `retry_after` (whole seconds) and what stands in `details`, which is left out when all of it is empty.
pub fn status(status: &Status) -> Vec<u8> {
    let retry_after_s = status.retry_after.map_or(0, |d| i64::try_from(d.as_secs()).unwrap_or(i64::MAX));
    let has_details = retry_after_s != 0
        || [&status.name, &status.kind, &status.group, &status.uid].iter().any(|field| !field.is_empty());
    envelope("v1", "Status", |w| {
        w.message(1, |w| {
            for field in 1..=3 {
                w.string(field, "");
            }
        });
        w.string(2, if status.code < 400 { "Success" } else { "Failure" });
        w.string(3, &status.message);
        w.string(4, &status.reason);
        if has_details {
            w.message(5, |w| {
                w.string(1, &status.name);
                w.string(2, &status.group);
                w.string(3, &status.kind);
                w.int(5, retry_after_s);
                w.string(6, &status.uid);
            });
        }
        w.int(6, i64::from(status.code));
    })
}

/// One frame of a watch: a 4-byte big-endian length, then a `WatchEvent` *without* an envelope, whose object is
/// enveloped.
///
/// `event_type` is `ADDED`, `MODIFIED`, `DELETED`, `BOOKMARK` or `ERROR`; `object` is what one of the other
/// functions gave. Objects of 4 GiB and more do not fit into a frame; nothing that is made here comes near.
pub fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut w = Writer(vec![0; 4]);
    w.string(1, event_type);
    w.message(2, |w| w.bytes(1, object));
    let length = u32::try_from(w.0.len() - 4).unwrap_or(u32::MAX);
    w.0[..4].copy_from_slice(&length.to_be_bytes());
    w.0
}

/// Magic, then `Unknown{typeMeta, raw, contentEncoding, contentType}`.
fn envelope(api_version: &str, kind: &str, raw: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut w = Writer(MAGIC.to_vec());
    w.message(1, |w| {
        w.string(1, api_version);
        w.string(2, kind);
    });
    w.message(2, raw);
    w.string(3, "");
    w.string(4, "");
    w.0
}

/// Protobuf, written forwards into one buffer.
struct Writer(Vec<u8>);

impl Writer {
    fn object_meta(&mut self, meta: &EncodeMeta<'_>) {
        self.string(1, meta.name);
        self.string(2, "");
        self.string(3, meta.namespace);
        self.string(4, "");
        self.string(5, meta.uid);
        self.string(6, meta.resource_version);
        self.int(7, meta.generation);
        self.message(8, |w| w.time(meta.creation_unix_s));
        if let Some(unix_s) = meta.deletion_unix_s {
            self.message(9, |w| w.time(unix_s));
        }
        if let Some(period_s) = meta.deletion_grace_period_s {
            self.int(10, period_s);
        }
        for (field, pairs) in [(11, meta.labels), (12, meta.annotations)] {
            for (key, value) in pairs {
                self.message(field, |w| {
                    w.string(1, key);
                    w.string(2, value);
                });
            }
        }
        for reference in meta.owner_references {
            self.message(13, |w| w.owner_reference(reference));
        }
        for finalizer in meta.finalizers {
            self.string(14, finalizer);
        }
        for entry in meta.managed_fields {
            self.message(17, |w| w.managed_fields(entry));
        }
    }

    fn owner_reference(&mut self, reference: &OwnerReferenceRef<'_>) {
        self.string(1, reference.kind);
        self.string(3, reference.name);
        self.string(4, reference.uid);
        self.string(5, reference.api_version);
        if let Some(controller) = reference.controller {
            self.int(6, i64::from(controller));
        }
        if let Some(block) = reference.block_owner_deletion {
            self.int(7, i64::from(block));
        }
    }

    fn managed_fields(&mut self, entry: &EncodeManagedFields<'_>) {
        self.string(1, entry.manager);
        self.string(2, entry.operation);
        self.string(3, entry.api_version);
        self.message(4, |w| w.time(entry.time_unix_s));
        self.string(6, "FieldsV1");
        self.message(7, |w| w.bytes(1, entry.fields_v1));
        self.string(8, entry.subresource);
    }

    fn time(&mut self, unix_s: i64) {
        if unix_s != 0 {
            self.int(1, unix_s);
            self.int(2, 0);
        }
    }

    fn string(&mut self, field: u64, value: &str) {
        self.bytes(field, value.as_bytes());
    }

    fn bytes(&mut self, field: u64, value: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
    }

    /// Negative numbers take ten bytes, as protobuf has it for `int64`.
    fn int(&mut self, field: u64, value: i64) {
        self.varint(field << 3);
        self.varint(value.cast_unsigned());
    }

    /// Writes the content first and moves it up by the size of its length, which is cheaper than a buffer for each
    /// level and shorter than measuring everything beforehand.
    fn message(&mut self, field: u64, content: impl FnOnce(&mut Writer)) {
        self.varint(field << 3 | 2);
        let start = self.0.len();
        content(self);
        let mut length = Writer(Vec::with_capacity(10));
        length.varint((self.0.len() - start) as u64);
        self.0.splice(start..start, length.0);
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The expected bytes in these tests were written by apimachinery v0.36.3 itself.
    fn check(bytes: &[u8], expected: &str) {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, expected);
    }

    #[test]
    fn an_object_is_written_byte_for_byte_as_the_reference_does() {
        let owners = [
            OwnerReferenceRef {
                api_version: "v1",
                kind: "ConfigMap",
                name: "owner",
                uid: "o",
                controller: Some(true),
                block_owner_deletion: Some(false),
            },
            OwnerReferenceRef {
                api_version: "apps/v1",
                kind: "Deployment",
                name: "d",
                uid: "p",
                controller: None,
                block_owner_deletion: None,
            },
        ];
        let managed_fields = [EncodeManagedFields {
            manager: "kubectl",
            operation: "Update",
            api_version: "v1",
            time_unix_s: 1_700_000_050,
            fields_v1: br#"{"f:data":{}}"#,
            subresource: "",
        }];
        let object = partial_object_metadata(&EncodeMeta {
            name: "child",
            namespace: "ns",
            uid: "c",
            resource_version: "42",
            generation: 3,
            creation_unix_s: 1_700_000_000,
            deletion_unix_s: Some(1_700_000_100),
            deletion_grace_period_s: Some(30),
            labels: &[("app", "x")],
            annotations: &[("note", "y")],
            owner_references: &owners,
            finalizers: &["article.example/hold", "foregroundDeletion"],
            managed_fields: &managed_fields,
            ..EncodeMeta::default()
        });
        check(
            &object,
            "6b3873000a270a0e6d6574612e6b38732e696f2f763112155061727469616c4f626a6563744d6574616461746112eb010ae8010a\
             056368696c6412001a026e7322002a016332023432380342080880e2cfaa0610004a0808e4e2cfaa061000501e5a080a03617070\
             12017862090a046e6f74651201796a1d0a09436f6e6669674d61701a056f776e657222016f2a027631300138006a1b0a0a446570\
             6c6f796d656e741a01642201702a07617070732f7631721461727469636c652e6578616d706c652f686f6c647212666f72656772\
             6f756e6444656c6574696f6e8a013c0a076b75626563746c12065570646174651a027631220808b2e2cfaa06100032084669656c\
             647356313a0f0a0d7b22663a64617461223a7b7d7d42001a002200",
        );
    }

    #[test]
    fn a_list_is_written_byte_for_byte_as_the_reference_does() {
        let items = [EncodeMeta { name: "a", uid: "u", ..EncodeMeta::default() }];
        check(
            &partial_object_metadata_list(&items, "99", "tok", Some(7)),
            "6b3873000a2b0a0e6d6574612e6b38732e696f2f763112195061727469616c4f626a6563744d657461646174614c697374122\
             50a0d0a00120239391a03746f6b200712140a120a016112001a0022002a01753200380042001a002200",
        );
    }

    #[test]
    fn a_watch_frame_holds_an_enveloped_object_in_an_event_without_envelope() {
        let expired = Status {
            code: 410,
            reason: "Expired".into(),
            message: "too old".into(),
            name: "n".into(),
            kind: "k".into(),
            group: "g".into(),
            uid: "u".into(),
            is_status: true,
            retry_after: Some(Duration::from_secs(2)),
        };
        check(
            &watch_frame("ERROR", &status(&expired)),
            "000000590a054552524f5212500a4e6b3873000a0c0a027631120653746174757312360a060a0012001a0012074661696c757265\
             1a07746f6f206f6c642207457870697265642a0e0a016e1201671a016b2802320175309a031a002200",
        );
    }
}
