//! A blocking Kubernetes client for metadata: configuration, discovery, lists, watches, reads, patches, deletes.

#![forbid(unsafe_code)]

pub mod encode;
mod error;
mod meta;

pub use error::{Error, Status};
pub use meta::{ApiResource, MetaRef, ObjectMeta, OwnerReference, OwnerReferenceRef};
