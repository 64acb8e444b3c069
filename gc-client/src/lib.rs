//! A blocking Kubernetes client for metadata: configuration, discovery, lists, watches, reads, patches, deletes.
