#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod api;
#[cfg(test)]
mod arbitrary;
mod auth;
mod batch;
mod config;
mod discovery;
pub mod encode;
mod error;
mod fields;
mod gate;
mod http;
mod kubeconfig;
mod meta;
mod proxy;
mod secret;
mod session;
mod tls;
mod turn;
#[doc(hidden)]
pub mod untrusted;
mod watch;
pub mod wire;

pub use api::{DeleteOptions, ObjectFields, PatchType, Propagation};
pub use batch::MetaBatch;
pub use config::{Config, ConfigError};
#[doc(hidden)]
pub use discovery::discover_with;
pub use discovery::{Discovery, discover};
pub use error::{Error, Status};
pub use fields::{FIELD_BYTES_MAX, FIELD_DEPTH_MAX, FIELD_KEYS_MAX, FIELDS_MAX, Field, Fields, FieldsError};
pub use http::{Client, Method, Options, Request, Response, Stream};
pub use meta::{ApiResource, MetaRef, ObjectMeta, OwnerReference, OwnerReferenceRef};
#[doc(hidden)]
pub use watch::list_watch;
pub use watch::{Reflector, ReflectorOptions, WatchEvent};
