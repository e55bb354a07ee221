//! Merges lists that contain our items and other controllers' items.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json;

/// The owner of a live item.
pub(super) enum ItemOwner {
    /// Another controller. The item stays unchanged and in place.
    Foreign,
    /// Ours: the desired item with this index.
    Ours(usize),
    /// Ours, but no longer desired.
    Stale,
}

/// A merged list.
pub(super) struct List<'a> {
    /// The items as JSON; unchanged ones are borrowed.
    pub items: Vec<Cow<'a, str>>,
    /// Whether the list differs from the live one.
    pub changed: bool,
    /// Number of our items beyond the limit.
    pub omitted: usize,
}

impl List<'_> {
    /// The list as JSON, if it has changed.
    pub(super) fn text_if_changed(&self) -> Option<String> {
        self.changed.then(|| json::list(&self.items))
    }
}

/// Merges our items into a list. `desired` is the number of our items.
///
/// Live items keep their positions, so order alone is never a difference. New items are appended up to `limit`. `write`
/// returns the JSON of a desired item, or `None` if it equals the live one.
pub(super) fn merge<'a>(
    live: Vec<&'a RawValue>,
    desired: usize,
    limit: usize,
    owner: impl Fn(&'a RawValue) -> ItemOwner,
    mut write: impl FnMut(Option<&'a RawValue>, usize) -> Option<String>,
) -> List<'a> {
    let mut list = List {
        items: Vec::with_capacity(live.len() + desired),
        changed: false,
        omitted: 0,
    };
    let mut present = vec![false; desired];
    for raw in live {
        match owner(raw) {
            ItemOwner::Foreign => list.items.push(Cow::Borrowed(raw.get())),
            ItemOwner::Ours(index) if !present[index] => {
                present[index] = true;
                let item = match write(Some(raw), index) {
                    None => Cow::Borrowed(raw.get()),
                    Some(text) => {
                        list.changed = true;
                        Cow::Owned(text)
                    }
                };
                list.items.push(item);
            }
            // Stale, or a duplicate.
            _ => list.changed = true,
        }
    }
    for index in (0..desired).filter(|index| !present[*index]) {
        if list.items.len() >= limit {
            list.omitted += 1;
            continue;
        }
        if let Some(text) = write(None, index) {
            list.changed = true;
            list.items.push(Cow::Owned(text));
        }
    }
    list
}
