//! Whole objects as JSON over `gc_client`, which itself knows metadata only.

use gc_client::{ApiResource, Client, Config, Method, Options, Request, Response};
use serde_json::{Value, json};

use crate::failure::{Doing, Failure};

/// A connection to one server with one user's rights.
#[derive(Clone)]
pub struct Api {
    client: Client,
}

/// What is to happen to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The object goes at once, its dependents afterwards.
    Background,
    /// The object goes after its blocking dependents.
    Foreground,
    /// The dependents stay and lose their references.
    Orphan,
}

impl From<Client> for Api {
    fn from(client: Client) -> Api {
        Api { client }
    }
}

impl Api {
    /// Connects with the first context of a kubeconfig.
    ///
    /// # Errors
    ///
    /// When the kubeconfig is unusable.
    pub fn connect(config: &Config) -> Result<Api, Failure> {
        Ok(Api { client: Client::new(config, &Options::default())? })
    }

    /// The client below, for what takes one.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The object or list, or nothing when the server says that it does not exist.
    ///
    /// # Errors
    ///
    /// Any other answer than success and `NotFound`.
    pub fn get(&self, path: &str) -> Result<Option<Value>, Failure> {
        self.call(Method::Get, path, "", None)
    }

    /// The body of a path that answers with plain text, for example `/metrics`.
    ///
    /// # Errors
    ///
    /// Any other answer than success.
    pub fn text(&self, path: &str) -> Result<String, Failure> {
        let response = self.send(Method::Get, path, "*/*", "", b"")?;
        if response.code == 200 {
            return Ok(String::from_utf8_lossy(&response.body).into_owned());
        }
        Err(Failure::new(format!("GET {path}: {}", response.code)))
    }

    /// Creates the object and gives it back as stored.
    ///
    /// # Errors
    ///
    /// Any other answer than success.
    pub fn create(&self, path: &str, object: &Value) -> Result<Value, Failure> {
        let created = self.call(Method::Post, path, "application/json", Some(object))?;
        created.ok_or_else(|| Failure::new(format!("POST {path}: not found")))
    }

    /// Changes the object by a JSON merge patch; nothing when it does not exist.
    ///
    /// # Errors
    ///
    /// Any other answer than success and `NotFound`.
    pub fn merge_patch(&self, path: &str, patch: &Value) -> Result<Option<Value>, Failure> {
        self.call(Method::Patch, path, "application/merge-patch+json", Some(patch))
    }

    /// Asks for the deletion; whether it existed.
    ///
    /// # Errors
    ///
    /// Any other answer than success and `NotFound`.
    pub fn delete(&self, path: &str, policy: Policy) -> Result<bool, Failure> {
        let options = json!({
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": format!("{policy:?}"),
            // Pods of a test have nothing to finish.
            "gracePeriodSeconds": 0,
        });
        self.delete_with(path, &options)
    }

    /// Asks for the deletion with any `meta/v1` DeleteOptions; whether it existed.
    ///
    /// # Errors
    ///
    /// Any other answer than success and `NotFound`.
    pub fn delete_with(&self, path: &str, options: &Value) -> Result<bool, Failure> {
        Ok(self.call(Method::Delete, path, "application/json", Some(options))?.is_some())
    }

    /// Creates each object of a file of manifests; those that exist already are left as they are.
    ///
    /// # Errors
    ///
    /// When the file is no YAML, holds a kind that `find` does not know, or the server refuses an object.
    pub fn create_manifests(
        &self,
        manifests: &str,
        find: impl Fn(&str, &str) -> Option<ApiResource>,
    ) -> Result<(), Failure> {
        let objects: Vec<Value> =
            serde_saphyr::from_multiple(manifests).doing(|| "cannot read the manifests".into())?;
        for object in objects {
            let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let (api_version, kind) = (text("/apiVersion"), text("/kind"));
            let resource = find(api_version, kind)
                .ok_or_else(|| Failure::new(format!("no resource known for {api_version} {kind}")))?;
            let [namespace, name] = [text("/metadata/namespace"), text("/metadata/name")];
            if self.get(&resource.path(namespace, name))?.is_none() {
                self.create(&resource.path(namespace, ""), &object)?;
            }
        }
        Ok(())
    }

    fn call(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Option<Value>, Failure> {
        let bytes = body.map(Value::to_string).unwrap_or_default();
        let response = self.send(method, path, "application/json", content_type, bytes.as_bytes())?;
        let value: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        match response.code {
            200..=299 => Ok(Some(value)),
            404 if value["reason"] == "NotFound" => Ok(None),
            code => {
                let said = String::from_utf8_lossy(&response.body);
                let message = value["message"].as_str().unwrap_or(&said);
                Err(Failure::new(format!("{method} {path}: {code}: {message}")))
            }
        }
    }

    fn send(
        &self,
        method: Method,
        path: &str,
        accept: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<Response, Failure> {
        let request = Request { method, path, accept, content_type, body };
        self.client.send(&request).map_err(Failure::from)
    }
}
