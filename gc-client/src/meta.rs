//! What the client knows of an object and of a kind: metadata only.

use crate::fields::Field;

/// An owner reference as it stands on a dependent.
///
/// The two flags keep the difference between absent and false, so that a patch can write back exactly what was
/// there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerReference {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `ReplicaSet`.
    pub kind: String,
    /// The owner's name.
    pub name: String,
    /// The owner's UID, in the spelling of whoever wrote it.
    pub uid: String,
    /// Whether the owner is the managing controller.
    pub controller: Option<bool>,
    /// Whether the owner, deleted in the foreground, waits for this dependent.
    pub block_owner_deletion: Option<bool>,
}

/// The part of an object's metadata that garbage collection needs, owned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMeta {
    /// The object's own name.
    pub name: String,
    /// Empty for cluster-scoped objects.
    pub namespace: String,
    /// The object's UID.
    pub uid: String,
    /// Opaque; only equality means something to a client, but servers count upwards.
    pub resource_version: String,
    /// Whether `metadata.deletionTimestamp` is set.
    pub being_deleted: bool,
    /// In the order in which the object carries them.
    pub finalizers: Vec<String>,
    /// In the order in which the object carries them.
    pub owner_references: Vec<OwnerReference>,
}

/// The same, borrowed from a decoder's buffer: valid for one call of a sink.
///
/// Owner references and finalizers are slices that the decoder reuses from object to object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaRef<'a> {
    /// The object's own name.
    pub name: &'a str,
    /// Empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// The object's UID.
    pub uid: &'a str,
    /// Opaque; only equality means something to a client, but servers count upwards.
    pub resource_version: &'a str,
    /// Whether `metadata.deletionTimestamp` is set.
    pub being_deleted: bool,
    /// In the order in which the object carries them.
    pub finalizers: &'a [&'a str],
    /// In the order in which the object carries them.
    pub owner_references: &'a [OwnerReferenceRef<'a>],
    /// What was asked for besides the metadata, in the order of [`Fields`](crate::Fields); empty where nothing was.
    pub fields: &'a [Field],
}

/// An owner reference, borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnerReferenceRef<'a> {
    /// For example `apps/v1`.
    pub api_version: &'a str,
    /// For example `ReplicaSet`.
    pub kind: &'a str,
    /// The owner's name.
    pub name: &'a str,
    /// The owner's UID, in the spelling of whoever wrote it.
    pub uid: &'a str,
    /// Whether the owner is the managing controller.
    pub controller: Option<bool>,
    /// Whether the owner, deleted in the foreground, waits for this dependent.
    pub block_owner_deletion: Option<bool>,
}

impl MetaRef<'_> {
    /// Copies the borrowed metadata out of the decoder's buffer, without the fields.
    pub fn to_owned(&self) -> ObjectMeta {
        ObjectMeta {
            name: self.name.into(),
            namespace: self.namespace.into(),
            uid: self.uid.into(),
            resource_version: self.resource_version.into(),
            being_deleted: self.being_deleted,
            finalizers: self.finalizers.iter().map(|f| (*f).into()).collect(),
            owner_references: self.owner_references.iter().map(OwnerReferenceRef::to_owned).collect(),
        }
    }
}

impl OwnerReferenceRef<'_> {
    /// Copies the borrowed reference out of the decoder's buffer.
    pub fn to_owned(&self) -> OwnerReference {
        OwnerReference {
            api_version: self.api_version.into(),
            kind: self.kind.into(),
            name: self.name.into(),
            uid: self.uid.into(),
            controller: self.controller,
            block_owner_deletion: self.block_owner_deletion,
        }
    }
}

/// One served resource, as discovery describes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ApiResource {
    /// Empty for the core group.
    pub group: String,
    /// For example `v1`.
    pub version: String,
    /// The plural of the path, for example `replicasets`.
    pub resource: String,
    /// For example `ReplicaSet`.
    pub kind: String,
    /// Whether its objects live in a namespace.
    pub namespaced: bool,
    /// Whether this is the version that the server prefers for this resource.
    pub preferred: bool,
    /// Whether the resource has the verb `delete`.
    pub can_delete: bool,
    /// Whether the resource has the verb `list`.
    pub can_list: bool,
    /// Whether the resource has the verb `watch`.
    pub can_watch: bool,
}

impl ApiResource {
    /// `v1` for the core group, `group/version` for the others.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// The path of all its objects, of one namespace's, or of one object.
    ///
    /// Namespace and name are escaped, so that a name that somebody put into an owner reference cannot become
    /// another path.
    pub fn path(&self, namespace: &str, name: &str) -> String {
        let mut path = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        if self.namespaced && !namespace.is_empty() {
            path.push_str("/namespaces/");
            escape_into(&mut path, namespace);
        }
        path.push('/');
        path.push_str(&self.resource);
        if !name.is_empty() {
            path.push('/');
            escape_into(&mut path, name);
        }
        path
    }
}

/// Percent-escapes everything that is not unreserved (RFC 3986); a segment of dots only is escaped as well, since
/// servers and proxies would resolve it.
pub(crate) fn escape_into(path: &mut String, segment: &str) {
    let only_dots = segment.bytes().all(|b| b == b'.');
    for byte in segment.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => path.push(char::from(byte)),
            b'.' if !only_dots => path.push('.'),
            _ => path.push_str(&format!("%{byte:02X}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(group: &str, namespaced: bool) -> ApiResource {
        ApiResource {
            group: group.into(),
            version: "v1".into(),
            resource: "things".into(),
            kind: "Thing".into(),
            namespaced,
            preferred: true,
            can_delete: true,
            can_list: true,
            can_watch: true,
        }
    }

    #[test]
    fn paths_of_core_and_named_groups() {
        assert_eq!(resource("", true).path("ns", "a"), "/api/v1/namespaces/ns/things/a");
        assert_eq!(resource("", true).path("", ""), "/api/v1/things");
        assert_eq!(resource("g.io", false).path("ignored", "a.b"), "/apis/g.io/v1/things/a.b");
    }

    #[test]
    fn a_name_from_a_reference_cannot_become_another_path() {
        assert_eq!(
            resource("", true).path("ns", "../secrets/x"),
            "/api/v1/namespaces/ns/things/..%2Fsecrets%2Fx"
        );
        assert_eq!(resource("", true).path("ns", ".."), "/api/v1/namespaces/ns/things/%2E%2E");
        assert_eq!(resource("", true).path("ns", "a?b#c"), "/api/v1/namespaces/ns/things/a%3Fb%23c");
    }
}
