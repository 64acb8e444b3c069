//! A drawing of the graph in Graphviz's language, with the attributes that the reference gives.

use std::collections::BTreeSet;
use std::fmt::{self, Write};

use hashbrown::HashSet;

use crate::graph::Graph;
use crate::store::{ABSENT, BEING_DELETED, DELETING_DEPENDENTS, NONE, VIRTUAL};
use crate::uid::Uid;

impl Graph {
    /// The graph as a DOT drawing, edges from dependents to owners. All of it when no UID is given, without the
    /// nodes that have neither owners nor dependents; else the parts that are connected with these UIDs, upwards
    /// or downwards. Owners that are absent are drawn, and marked `missing`.
    pub fn dot(&self, around: &[Uid]) -> String {
        let mut indexes: Vec<u32> =
            if around.is_empty() { self.store.indexes().collect() } else { self.connected(around) };
        indexes.retain(|&index| {
            let node = self.store.node(index);
            node.first_dependent != NONE || node.first_reference != NONE
        });
        indexes.sort_by_cached_key(|&index| self.store.to_uid(index));
        let mut dot = String::from("strict digraph full {\n");
        // Writing to a String does not fail.
        let _ = self.write_dot(&indexes, &mut dot);
        dot.push_str("}\n");
        dot
    }

    /// All nodes that are connected with these, in either direction.
    fn connected(&self, around: &[Uid]) -> Vec<u32> {
        let mut found: Vec<u32> = Vec::new();
        let mut known = HashSet::new();
        let mut add = |index: u32, found: &mut Vec<u32>| {
            if index != NONE && known.insert(index) {
                found.push(index);
            }
        };
        for uid in around {
            add(self.store.find(uid.as_ref()).unwrap_or(NONE), &mut found);
        }
        let mut at = 0;
        while let Some(&index) = found.get(at) {
            self.store.references(index).for_each(|edge| add(self.store.edge(edge).owner, &mut found));
            self.store.dependents(index).for_each(|edge| add(self.store.edge(edge).dependent, &mut found));
            at += 1;
        }
        found
    }

    fn write_dot(&self, indexes: &[u32], dot: &mut String) -> fmt::Result {
        if !indexes.is_empty() {
            dot.push_str("  // Node definitions.\n");
        }
        for &index in indexes {
            self.write_dot_node(index, dot)?;
        }
        let mut title = Some("  // Edge definitions.\n");
        for &index in indexes {
            let owners = self.store.references(index).map(|edge| self.store.edge(edge).owner);
            let owners: BTreeSet<Uid> =
                owners.filter(|&owner| owner != NONE).map(|owner| self.store.to_uid(owner)).collect();
            for owner in owners {
                dot.push_str(title.take().unwrap_or_default());
                let dependent = self.store.to_uid(index).to_string();
                writeln!(dot, "  {} -> {};", Quoted(&dependent), Quoted(&owner.to_string()))?;
            }
        }
        Ok(())
    }

    fn write_dot_node(&self, index: u32, dot: &mut String) -> fmt::Result {
        let store = &self.store;
        let uid = store.to_uid(index).to_string();
        let kind = store.kind(index);
        let (group, version) = kind.api_version.split_once('/').unwrap_or(("", &kind.api_version));
        let (namespace, name) = (store.namespace(index), store.name(index));
        let is = |flag| store.is(index, flag);
        let marks = [
            ("missing", is(ABSENT)),
            ("beingDeleted", is(BEING_DELETED)),
            ("deletingDependents", is(DELETING_DEPENDENTS)),
            ("virtual", is(VIRTUAL)),
        ];
        let dotted_group = if group.is_empty() { String::new() } else { format!(".{group}") };
        let mut label =
            format!("uid={uid}\nnamespace={namespace}\n{}.{version}{dotted_group}/{name}\n", kind.kind);
        let conditions: Vec<&str> = marks.iter().filter(|(_, is)| *is).map(|(mark, _)| *mark).collect();
        if !conditions.is_empty() {
            writeln!(label, "{}", conditions.join(","))?;
        }
        let texts = [
            ("label", &*label),
            ("group", group),
            ("version", version),
            ("kind", &kind.kind),
            ("namespace", namespace),
            ("name", name),
            ("uid", &uid),
        ];
        writeln!(dot, "  {} [", Quoted(&uid))?;
        for (key, value) in texts {
            writeln!(dot, "    {key}={}", Quoted(value))?;
        }
        for (mark, is) in marks {
            writeln!(dot, "    {mark}=\"{is}\"")?;
        }
        writeln!(dot, "  ];")
    }
}

/// A text as a quoted DOT identifier. Control characters other than a line break have no meaning in a drawing and
/// would let a name reach the reader's terminal; they become replacement characters.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for character in self.0.chars() {
            match character {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                '\n' => f.write_str("\\n")?,
                _ if character.is_control() => f.write_char(char::REPLACEMENT_CHARACTER)?,
                _ => f.write_char(character)?,
            }
        }
        f.write_char('"')
    }
}
