//! What the users of a scenario do, and what must be there in the end: families of objects, each made and deleted in a
//! fixed way, so that the end does not depend on when anything happens.

use gc_client::ApiResource;

use crate::api::Policy;
use crate::kinds;
use crate::random::Random;

/// The kinds that take part. ConfigMaps and Secrets, since nothing else in a cluster acts on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `v1`, namespaced.
    ConfigMap,
    /// `v1`, namespaced.
    Secret,
    /// A custom resource, namespaced.
    Widget,
    /// Cluster-scoped, and harmless without a binding.
    ClusterRole,
}

/// Every kind.
pub const KINDS: [Kind; 4] = [Kind::ConfigMap, Kind::Secret, Kind::Widget, Kind::ClusterRole];

impl Kind {
    /// Its resource.
    pub fn resource(self) -> ApiResource {
        match self {
            Kind::ConfigMap => kinds::config_map(),
            Kind::Secret => kinds::namespaced("", "v1", "secrets", "Secret"),
            Kind::Widget => kinds::namespaced("gc-chaos.example", "v1", "widgets", "Widget"),
            Kind::ClusterRole => kinds::cluster_role(),
        }
    }
}

/// Who an object names as its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Another object of the family, by its place in it.
    Member {
        /// The place.
        index: usize,
        /// `blockOwnerDeletion`.
        blocks: bool,
    },
    /// A ConfigMap that never existed.
    Nobody,
    /// An object of a kind that no server knows.
    OfUnknownKind,
}

/// One object.
#[derive(Clone, Debug)]
pub struct Member {
    /// What it is.
    pub kind: Kind,
    /// Its name, which tells the family and the place in it.
    pub name: String,
    /// The owners that it is created with.
    pub owners: Vec<Owner>,
    /// Those that it has in the end; nothing when it is gone by then.
    pub in_the_end: Option<Vec<Owner>>,
    /// How a user deletes it, once the whole family has been created.
    pub deleted: Option<Policy>,
}

/// Objects that refer to each other and to nobody else. Owners come before their dependents.
pub type Family = Vec<Member>;

/// As many families as it takes to have that many objects, in an order that is chosen at random.
pub fn families(random: &mut Random, objects: usize, prefix: &str) -> Vec<Family> {
    let mut families = Vec::new();
    let mut planned = 0;
    while planned < objects {
        let name = format!("{prefix}-{}", families.len());
        // The first ones are one of each, so that a small scenario has all.
        let kind = if families.len() < MAKERS.len() {
            families.len()
        } else {
            usize::try_from(random.below(MAKERS.len() as u64)).unwrap_or_default()
        };
        let mut maker = Maker { random, name, family: Vec::new() };
        MAKERS[kind](&mut maker);
        planned += maker.family.len();
        families.push(maker.family);
    }
    families
}

const MAKERS: [fn(&mut Maker<'_>); 8] = [
    |maker| maker.background_tree(),
    |maker| maker.foreground_tree(),
    |maker| maker.orphans(),
    |maker| maker.chain(),
    |maker| maker.two_owners(),
    |maker| maker.untouched(),
    |maker| maker.cluster_scoped_owner(),
    |maker| maker.owner_never_existed(),
];

struct Maker<'r> {
    random: &'r mut Random,
    name: String,
    family: Family,
}

impl Maker<'_> {
    /// Every object goes with the root.
    fn background_tree(&mut self) {
        self.tree(Policy::Background, false);
    }

    /// The same, the leaves first.
    fn foreground_tree(&mut self) {
        self.tree(Policy::Foreground, true);
    }

    fn tree(&mut self, policy: Policy, blocks: bool) {
        let root = self.add(Kind::ConfigMap, &[], None);
        self.family[root].deleted = Some(policy);
        for _ in 0..3 {
            let middle = self.below(root, blocks);
            for _ in 0..6 {
                self.below(middle, blocks);
            }
        }
    }

    /// The owner goes, its dependents stay without it, and theirs stay with them.
    fn orphans(&mut self) {
        let root = self.add(Kind::ConfigMap, &[], None);
        self.family[root].deleted = Some(Policy::Orphan);
        for _ in 0..8 {
            let kind = self.any();
            let child = self.add(kind, &[member(root, true)], Some(&[]));
            let kind = self.any();
            self.add(kind, &[member(child, false)], Some(&[member(child, false)]));
        }
    }

    /// Eight, one below the other.
    fn chain(&mut self) {
        let mut last = self.add(Kind::Widget, &[], None);
        self.family[last].deleted =
            Some(if self.random.below(2) == 0 { Policy::Background } else { Policy::Foreground });
        for _ in 0..8 {
            last = self.below(last, true);
        }
    }

    /// One owner goes, and with it nothing that has another one.
    fn two_owners(&mut self) {
        let goes = self.add(Kind::ConfigMap, &[], None);
        self.family[goes].deleted =
            Some(if self.random.below(2) == 0 { Policy::Background } else { Policy::Foreground });
        let stays = self.add(Kind::Secret, &[], Some(&[]));
        for _ in 0..6 {
            let kind = self.any();
            self.add(kind, &[member(goes, true), member(stays, true)], Some(&[member(stays, true)]));
            self.below(goes, true);
        }
    }

    /// Nobody deletes anything here.
    fn untouched(&mut self) {
        let alone = self.add(Kind::ConfigMap, &[], Some(&[]));
        for _ in 0..3 {
            let kind = self.any();
            self.add(kind, &[member(alone, true)], Some(&[member(alone, true)]));
        }
        for _ in 0..2 {
            let kind = self.any();
            self.add(kind, &[Owner::OfUnknownKind], Some(&[Owner::OfUnknownKind]));
        }
    }

    /// Namespaced objects that belong to one without a namespace.
    fn cluster_scoped_owner(&mut self) {
        let root = self.add(Kind::ClusterRole, &[], None);
        self.family[root].deleted = Some(Policy::Background);
        for _ in 0..6 {
            self.below(root, true);
        }
    }

    /// Garbage from its first moment.
    fn owner_never_existed(&mut self) {
        for _ in 0..3 {
            let kind = self.any();
            let child = self.add(kind, &[Owner::Nobody], None);
            self.below(child, false);
        }
    }

    fn below(&mut self, owner: usize, blocks: bool) -> usize {
        let kind = self.any();
        self.add(kind, &[member(owner, blocks)], None)
    }

    /// A namespaced kind.
    fn any(&mut self) -> Kind {
        match self.random.below(3) {
            0 => Kind::ConfigMap,
            1 => Kind::Secret,
            _ => Kind::Widget,
        }
    }

    fn add(&mut self, kind: Kind, owners: &[Owner], in_the_end: Option<&[Owner]>) -> usize {
        let index = self.family.len();
        self.family.push(Member {
            kind,
            name: format!("{}-{index}", self.name),
            owners: owners.to_vec(),
            in_the_end: in_the_end.map(<[Owner]>::to_vec),
            deleted: None,
        });
        index
    }
}

fn member(index: usize, blocks: bool) -> Owner {
    Owner::Member { index, blocks }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What must be there in the end, from the references and deletions alone.
    fn in_the_end(family: &Family) -> Vec<bool> {
        let mut lives = Vec::new();
        for member in family {
            let solid = |owner: &Owner| match owner {
                Owner::Member { index, .. } => lives[*index],
                Owner::Nobody => false,
                // Never taken for absent.
                Owner::OfUnknownKind => true,
            };
            let orphaned = |owner: &Owner| matches!(owner, Owner::Member { index, .. } if family[*index].deleted == Some(Policy::Orphan));
            let is_kept = member.owners.is_empty()
                || member.owners.iter().any(solid)
                || member.owners.iter().any(orphaned);
            lives.push(member.deleted.is_none() && is_kept);
        }
        lives
    }

    #[test]
    fn what_a_family_says_of_its_end_follows_from_its_references() {
        let families = families(&mut Random::new(7), 3_000, "f");
        assert!(families.iter().map(Vec::len).sum::<usize>() >= 3_000);
        for family in &families {
            let said: Vec<bool> = family.iter().map(|member| member.in_the_end.is_some()).collect();
            assert_eq!(said, in_the_end(family), "{family:#?}");
            for member in family {
                let owners = member.in_the_end.iter().flatten();
                owners.for_each(|owner| assert!(member.owners.contains(owner), "{member:?}"));
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_families() {
        let text = |seed| format!("{:?}", families(&mut Random::new(seed), 500, "f"));
        assert_eq!(text(7), text(7));
        assert_ne!(text(7), text(8));
    }
}
