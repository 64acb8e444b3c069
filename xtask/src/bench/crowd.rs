//! Millions of objects that nobody stores: made up page by page while the daemon lists them, as a server writes them.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use gc_client::OwnerReferenceRef;
use gc_client::encode::{EncodeManagedFields, EncodeMeta, partial_object_metadata_list};
use serde_json::json;

use crate::bench::load;
use crate::failure::Failure;
use crate::made_up::{Asked, MadeUp, Then, head, whole};

/// One in so many is an owner, and owns those up to the next.
const FAMILY: u64 = 21;
/// Families are spread over so many namespaces.
const NAMESPACES: u64 = 200;
/// A page when the client does not say, as a server sends the whole list.
const WHOLE: u64 = u64::MAX;

/// In what the server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// As API servers prefer it.
    Protobuf,
    /// As aggregated servers may only have it.
    Json,
}

/// The server.
pub struct Crowd {
    made_up: MadeUp,
    shared: Arc<Shared>,
}

struct Shared {
    objects: u64,
    format: Format,
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
    sent_bytes: AtomicU64,
    is_watched: AtomicBool,
}

impl Crowd {
    /// Starts one with so many objects.
    ///
    /// # Errors
    ///
    /// When there is no port or no thread.
    pub fn start(objects: u64, format: Format) -> Result<Crowd, Failure> {
        let (labels, annotations) = (load::labels(), load::annotations());
        let shared = Arc::new(Shared {
            objects,
            format,
            labels,
            annotations,
            sent_bytes: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
        });
        let answering = shared.clone();
        Ok(Crowd { made_up: MadeUp::start(move |asked| answering.answer(asked))?, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.made_up.address
    }

    /// Whether somebody has read the list to its end, and watches.
    pub fn is_watched(&self) -> bool {
        self.shared.is_watched.load(Ordering::Relaxed)
    }

    /// Bytes of lists.
    pub fn sent_bytes(&self) -> u64 {
        self.shared.sent_bytes.load(Ordering::Relaxed)
    }
}

/// One object.
struct Made {
    name: String,
    namespace: String,
    uid: String,
    resource_version: String,
    /// Name and UID.
    owner: Option<(String, String)>,
}

impl Made {
    fn new(number: u64) -> Made {
        let owner = number - number % FAMILY;
        let is_owner = owner == number;
        Made {
            name: name(number, is_owner),
            namespace: format!("team-{}", number / FAMILY % NAMESPACES),
            uid: uid(number),
            resource_version: (1_000_000 + number).to_string(),
            owner: (!is_owner).then(|| (name(owner, true), uid(owner))),
        }
    }
}

fn name(number: u64, is_owner: bool) -> String {
    format!("{}-{number}", if is_owner { "owner" } else { "dependent" })
}

/// As different from the next one as a random UID is.
fn uid(number: u64) -> String {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let (a, b) = (mixed >> 32, mixed & 0xffff);
    format!("{a:08x}-{b:04x}-4000-8000-{number:012x}")
}

impl Shared {
    fn answer(&self, Asked { query, writer }: Asked<'_, '_>) -> io::Result<Then> {
        let content_type = match self.format {
            Format::Protobuf => "application/vnd.kubernetes.protobuf",
            Format::Json => "application/json",
        };
        let field =
            |name: &str| query.split('&').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        if field("watch") == Some("true") {
            self.is_watched.store(true, Ordering::Relaxed);
            let of_watch = match self.format {
                Format::Protobuf => "application/vnd.kubernetes.protobuf;stream=watch",
                Format::Json => content_type,
            };
            head(writer, of_watch)?;
            return Ok(Then::Silence);
        }
        let number = |name: &str| field(name).and_then(|value| value.parse::<u64>().ok());
        let (from, limit) = (number("continue").unwrap_or(0), number("limit").unwrap_or(WHOLE));
        let to = self.objects.min(from.saturating_add(limit));
        let next = if to < self.objects { to.to_string() } else { String::new() };
        let made: Vec<Made> = (from..to).map(Made::new).collect();
        let body = match self.format {
            Format::Protobuf => self.protobuf(&made, &next),
            Format::Json => self.json(&made, &next),
        };
        self.sent_bytes.fetch_add(body.len() as u64, Ordering::Relaxed);
        whole(writer, content_type, &body)?;
        Ok(Then::Next)
    }

    fn protobuf(&self, made: &[Made], next: &str) -> Vec<u8> {
        let [labels, annotations] = [&self.labels, &self.annotations]
            .map(|pairs| pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>());
        let managed = [EncodeManagedFields {
            manager: "helm",
            operation: "Update",
            api_version: "v1",
            time_unix_s: 1_767_225_600,
            fields_v1: load::MANAGED_FIELDS.as_bytes(),
            subresource: "",
        }];
        let owners: Vec<Option<[OwnerReferenceRef<'_>; 1]>> = made
            .iter()
            .map(|made| {
                let (name, uid) = made.owner.as_ref()?;
                Some([OwnerReferenceRef {
                    api_version: "v1",
                    kind: "ConfigMap",
                    name,
                    uid,
                    controller: Some(true),
                    block_owner_deletion: Some(true),
                }])
            })
            .collect();
        let items: Vec<EncodeMeta<'_>> = made
            .iter()
            .zip(&owners)
            .map(|(made, owners)| EncodeMeta {
                name: &made.name,
                namespace: &made.namespace,
                uid: &made.uid,
                resource_version: &made.resource_version,
                creation_unix_s: 1_767_225_600,
                labels: &labels,
                annotations: &annotations,
                owner_references: owners.as_ref().map_or(&[], |owners| owners.as_slice()),
                managed_fields: &managed,
                ..EncodeMeta::default()
            })
            .collect();
        partial_object_metadata_list(&items, "9000000", next, None)
    }

    fn json(&self, made: &[Made], next: &str) -> Vec<u8> {
        let object = |pairs: &[(String, String)]| {
            let map: serde_json::Map<_, _> = pairs.iter().map(|(k, v)| (k.clone(), json!(v))).collect();
            serde_json::Value::Object(map).to_string()
        };
        let (labels, annotations) = (object(&self.labels), object(&self.annotations));
        let fields = load::MANAGED_FIELDS;
        let mut text = format!(
            r#"{{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{{"resourceVersion":"9000000","continue":"{next}"}},"items":["#
        );
        for (number, made) in made.iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            let Made { name, namespace, uid, resource_version, owner } = made;
            let owners = owner.as_ref().map_or_else(String::new, |(name, uid)| {
                format!(
                    r#""ownerReferences":[{{"apiVersion":"v1","kind":"ConfigMap","name":"{name}","uid":"{uid}","controller":true,"blockOwnerDeletion":true}}],"#
                )
            });
            // Writing to a string does not fail.
            let _ = write!(
                text,
                r#"{comma}{{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{resource_version}","creationTimestamp":"2026-01-01T00:00:00Z","labels":{labels},"annotations":{annotations},{owners}"managedFields":[{{"manager":"helm","operation":"Update","apiVersion":"v1","time":"2026-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{fields}}}]}}}}"#
            );
        }
        text += "]}";
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use gc_client::wire;

    use super::*;

    fn shared(objects: u64, format: Format) -> Shared {
        let (labels, annotations) = (load::labels(), load::annotations());
        let (sent_bytes, is_watched) = (AtomicU64::new(0), AtomicBool::new(false));
        Shared { objects, format, labels, annotations, sent_bytes, is_watched }
    }

    #[test]
    fn both_formats_say_the_same_and_as_much_as_real_objects() {
        let made: Vec<Made> = (0..50).map(Made::new).collect();
        let read = |format: wire::Format, body: &[u8]| {
            let mut all = Vec::new();
            let end = wire::read_list(format, body, &mut |meta| {
                all.push(meta.to_owned());
                ControlFlow::Continue(())
            });
            (all, end.unwrap())
        };
        let protobuf = shared(50, Format::Protobuf).protobuf(&made, "50");
        let json = shared(50, Format::Json).json(&made, "50");
        let (from_protobuf, end) = read(wire::Format::Protobuf, &protobuf);
        assert_eq!(
            (&from_protobuf, &end),
            (&read(wire::Format::Json, &json).0, &read(wire::Format::Json, &json).1)
        );
        assert_eq!((from_protobuf.len(), end.continue_token.as_str()), (50, "50"));
        assert_eq!(from_protobuf[22].owner_references[0].uid, from_protobuf[21].uid);
        let each = [protobuf.len() / 50, json.len() / 50];
        assert!(each.iter().all(|bytes| (1_200..2_500).contains(bytes)), "{each:?} bytes an object");
    }

    #[test]
    fn uids_differ() {
        let all: std::collections::BTreeSet<String> = (0..10_000).map(uid).collect();
        assert_eq!(all.len(), 10_000);
        assert!(all.iter().all(|uid| uid.len() == 36));
    }
}
