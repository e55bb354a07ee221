//! A list in which some items are ours and some are others'.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::json;

/// Whose an item is.
pub(super) enum Place {
    /// Somebody else's: it stays as it is, where it is.
    Foreign,
    /// Ours, and what it should be: an index into what we want.
    Wanted(usize),
    /// Ours, and nobody wants it any more.
    Unwanted,
}

/// A list as it should be.
pub(super) struct List<'a> {
    /// The items as text; borrowed ones are as they were.
    pub items: Vec<Cow<'a, str>>,
    /// Whether anything differs from what was there.
    pub changed: bool,
    /// How many of ours found no room, since others fill the list.
    pub left_out: usize,
}

impl List<'_> {
    /// The list as text, if it differs from what was there.
    pub(super) fn text_if_changed(&self) -> Option<String> {
        self.changed.then(|| json::list(&self.items))
    }
}

/// Puts `wanted` items of ours into a list.
///
/// Items keep their places, so that a list which says the same in another order counts as right. New items go to the end, while
/// there are fewer than `limit`. `place` tells whose an item is; `write` gives the text of a wanted item, or `None` if the
/// one that is there is right.
pub(super) fn merged<'a>(
    live: Vec<&'a RawValue>,
    wanted: usize,
    limit: usize,
    place: impl Fn(&'a RawValue) -> Place,
    mut write: impl FnMut(Option<&'a RawValue>, usize) -> Option<String>,
) -> List<'a> {
    let mut list = List {
        items: Vec::with_capacity(live.len() + wanted),
        changed: false,
        left_out: 0,
    };
    let mut there = vec![false; wanted];
    for raw in live {
        match place(raw) {
            Place::Foreign => list.items.push(Cow::Borrowed(raw.get())),
            Place::Wanted(index) if !there[index] => {
                there[index] = true;
                let item = match write(Some(raw), index) {
                    None => Cow::Borrowed(raw.get()),
                    Some(text) => {
                        list.changed = true;
                        Cow::Owned(text)
                    }
                };
                list.items.push(item);
            }
            // Unwanted, or there twice.
            _ => list.changed = true,
        }
    }
    for index in (0..wanted).filter(|index| !there[*index]) {
        if list.items.len() >= limit {
            list.left_out += 1;
            continue;
        }
        if let Some(text) = write(None, index) {
            list.changed = true;
            list.items.push(Cow::Owned(text));
        }
    }
    list
}
