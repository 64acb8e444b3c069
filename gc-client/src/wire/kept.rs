//! What is kept of the one object at hand, in memory that is used again for the next.

use std::ops::Range;
use std::time::Duration;

use super::WireError;
use crate::batch::append;
use crate::error::Status;
use crate::fields::Field;
use crate::meta::{MetaRef, OwnerReferenceRef};

/// The most that is kept of one object, in bytes. etcd refuses requests over 1.5 MiB, so that no object with more
/// metadata than this can exist; a body that claims to hold one is hostile or broken.
pub const KEPT_LIMIT: usize = 4 << 20;

/// What one more finalizer or owner reference counts for besides its text, so that a million empty ones are over
/// the limit too.
const ENTRY_BYTES: usize = 64;

/// Memory beyond this is given back after an object that needed it.
const IDLE_BYTES: usize = 16 * 1024;

/// A piece of `Kept::text`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    start: u32,
    length: u32,
}

impl Span {
    fn new(start: usize, length: usize) -> Span {
        // `KEPT_LIMIT` is far below the largest of these numbers.
        Span { start: start as u32, length: length as u32 }
    }

    fn range(self) -> Range<usize> {
        let start = self.start as usize;
        start..start + self.length as usize
    }
}

/// An owner reference, as pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnerSpans {
    pub api_version: Span,
    pub kind: Span,
    pub name: Span,
    pub uid: Span,
    pub controller: Option<bool>,
    pub block_owner_deletion: Option<bool>,
}

/// Object metadata, list metadata, or a Status: whichever came.
#[derive(Debug, Default)]
pub(super) struct Kept {
    text: Vec<u8>,
    pub event_type: Span,
    pub api_version: Span,
    pub kind: Span,
    pub name: Span,
    pub namespace: Span,
    pub uid: Span,
    pub resource_version: Span,
    pub continue_token: Span,
    pub has_metadata: bool,
    pub being_deleted: bool,
    pub initial_events_end: bool,
    finalizers: Vec<Span>,
    owners: Vec<OwnerSpans>,
    pub reason: Span,
    pub message: Span,
    pub code: u16,
    pub details: DetailSpans,
}

/// `details` of a Status, as pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DetailSpans {
    pub name: Span,
    pub kind: Span,
    pub group: Span,
    pub uid: Span,
    pub retry_after_s: u32,
}

/// The object would be over [`KEPT_LIMIT`].
#[derive(Debug)]
pub(super) struct OverLimit;

impl Kept {
    /// Makes room for the next object.
    pub(super) fn clear(&mut self) {
        let (mut text, mut finalizers, mut owners) = (
            std::mem::take(&mut self.text),
            std::mem::take(&mut self.finalizers),
            std::mem::take(&mut self.owners),
        );
        text.clear();
        text.shrink_to(IDLE_BYTES);
        finalizers.clear();
        finalizers.shrink_to(IDLE_BYTES / size_of::<Span>());
        owners.clear();
        owners.shrink_to(IDLE_BYTES / size_of::<OwnerSpans>());
        *self = Kept { text, finalizers, owners, ..Kept::default() };
    }

    pub(super) fn push_finalizer(&mut self, span: Span) -> Result<(), OverLimit> {
        self.room(0)?;
        self.finalizers.push(span);
        Ok(())
    }

    pub(super) fn push_owner(&mut self, owner: OwnerSpans) -> Result<(), OverLimit> {
        self.room(0)?;
        self.owners.push(owner);
        Ok(())
    }

    /// Where a text begins that arrives in pieces.
    pub(super) fn begin_text(&self) -> usize {
        self.text.len()
    }

    /// The next piece of it.
    pub(super) fn add_text(&mut self, bytes: &[u8]) -> Result<(), OverLimit> {
        self.room(bytes.len())?;
        append(&mut self.text, bytes);
        Ok(())
    }

    /// All of it.
    pub(super) fn end_text(&self, start: usize) -> Span {
        Span::new(start, self.text.len().saturating_sub(start))
    }

    /// Lets the closure append exactly `length` bytes, after a check that they fit.
    pub(super) fn append<E>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<Result<Span, E>, OverLimit> {
        self.room(length)?;
        let start = self.text.len();
        Ok(fill(&mut self.text).map(|()| Span::new(start, length)))
    }

    fn room(&self, more: usize) -> Result<(), OverLimit> {
        let entries = self.finalizers.len() + self.owners.len();
        let held = self.text.len() + entries * ENTRY_BYTES;
        if more > KEPT_LIMIT || held + more > KEPT_LIMIT { Err(OverLimit) } else { Ok(()) }
    }

    /// Only the core group's: a custom resource may call its kind Status too.
    pub(super) fn is_status(&self) -> bool {
        self.bytes(self.kind) == b"Status" && self.bytes(self.api_version) == b"v1"
    }

    /// As a server answers who has asked for metadata only.
    pub(super) fn is_metadata_only(&self) -> bool {
        self.bytes(self.kind).starts_with(b"PartialObjectMetadata")
            && self.bytes(self.api_version).starts_with(b"meta.k8s.io/")
    }

    /// The piece as text, or an error at that offset of the body.
    pub(super) fn text(&self, span: Span, offset: u64) -> Result<&str, WireError> {
        std::str::from_utf8(self.bytes(span))
            .map_err(|_| WireError::malformed(offset, "text that is not UTF-8"))
    }

    fn bytes(&self, span: Span) -> &[u8] {
        self.text.get(span.range()).unwrap_or_default()
    }

    pub(super) fn status(&self, offset: u64) -> Result<Status, WireError> {
        let text = |span| self.text(span, offset).map(String::from);
        let status = Status {
            code: self.code,
            reason: text(self.reason)?,
            message: text(self.message)?,
            name: text(self.details.name)?,
            kind: text(self.details.kind)?,
            group: text(self.details.group)?,
            uid: text(self.details.uid)?,
            is_status: self.is_status(),
            retry_after: match self.details.retry_after_s {
                0 => None,
                seconds => Some(Duration::from_secs(u64::from(seconds))),
            },
        };
        Ok(status.fit_to_show())
    }

    /// Lends the metadata and the fields for one call. Nearly every object has at most a few finalizers and owners: those need no
    /// allocation.
    pub(super) fn lend<T>(
        &self,
        offset: u64,
        fields: &[Field],
        call: impl FnOnce(MetaRef<'_>) -> T,
    ) -> Result<T, WireError> {
        const FEW: usize = 4;
        // One look at all of it. Where something that is not lent is no text, or one piece ends in the middle of a
        // character, they are looked at one by one.
        let whole = std::str::from_utf8(&self.text).unwrap_or_default();
        let text = |span: Span| match whole.get(span.range()) {
            Some(text) => Ok(text),
            None => self.text(span, offset),
        };
        let (mut few_finalizers, mut many_finalizers) = ([""; FEW], Vec::new());
        let finalizers = slots(&mut few_finalizers, &mut many_finalizers, self.finalizers.len());
        for (slot, span) in finalizers.iter_mut().zip(&self.finalizers) {
            *slot = text(*span)?;
        }
        let (mut few_owners, mut many_owners) = ([OwnerReferenceRef::default(); FEW], Vec::new());
        let owner_references = slots(&mut few_owners, &mut many_owners, self.owners.len());
        for (slot, owner) in owner_references.iter_mut().zip(&self.owners) {
            *slot = OwnerReferenceRef {
                api_version: text(owner.api_version)?,
                kind: text(owner.kind)?,
                name: text(owner.name)?,
                uid: text(owner.uid)?,
                controller: owner.controller,
                block_owner_deletion: owner.block_owner_deletion,
            };
        }
        Ok(call(MetaRef {
            name: text(self.name)?,
            namespace: text(self.namespace)?,
            uid: text(self.uid)?,
            resource_version: text(self.resource_version)?,
            being_deleted: self.being_deleted,
            finalizers,
            owner_references,
            fields,
        }))
    }
}

/// As many slots as asked for, from the array where they fit.
fn slots<'a, T: Clone + Default>(few: &'a mut [T], many: &'a mut Vec<T>, count: usize) -> &'a mut [T] {
    match few.get_mut(..count) {
        Some(slots) => slots,
        None => {
            many.resize(count, T::default());
            many
        }
    }
}
