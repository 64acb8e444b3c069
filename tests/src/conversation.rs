//! Conversations with a real kube-apiserver.

/// Each file of `tests/wire/`, with its name.
pub const RECORDED: &[(&str, &str)] = &[
    ("cluster-custom", include_str!("../tests/wire/cluster-custom.txt")),
    ("create", include_str!("../tests/wire/create.txt")),
    ("custom", include_str!("../tests/wire/custom.txt")),
    ("delete", include_str!("../tests/wire/delete.txt")),
    ("discovery", include_str!("../tests/wire/discovery.txt")),
    ("list", include_str!("../tests/wire/list.txt")),
    ("namespace", include_str!("../tests/wire/namespace.txt")),
    ("owners", include_str!("../tests/wire/owners.txt")),
    ("update", include_str!("../tests/wire/update.txt")),
];
