//! Whom a rejection accuses.
//!
//! In: the type and text of a client's rejection, and the names that its response held. Out: the
//! names at fault as far as the text can be trusted, and what it says of them.
//! It must not know: streams or what happens to the accused.
//!
//! Envoy applies the good clusters and listeners of a response and names the bad ones, each with its
//! own message: `Error adding/updating cluster(s) NAME: MESSAGE, NAME: MESSAGE`. For the other types
//! it names none, and may have applied any part of the response. The messages quote what users
//! wrote, so that a name after the first may be there because somebody put it there: only the first
//! is a proof.

use std::borrow::Cow;
use std::sync::Arc;

use crate::resource::ResourceType;

/// Whom a rejection accuses, of the names that the response held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Accused<'a> {
    /// One of them for certain, of which it is said why; perhaps `suspects` too; nobody else, all
    /// others were applied.
    These {
        culprit: usize,
        reason: &'a str,
        suspects: Vec<usize>,
    },
    /// Any of them, and which were applied isn't known.
    Unknown,
}

/// Reads a rejection's text. Costs O(names + text), whatever the text.
pub(crate) fn accused<'a>(ty: ResourceType, message: &'a str, names: &[&Arc<str>]) -> Accused<'a> {
    let Some(list) = list(ty, message) else {
        return Accused::Unknown;
    };
    // The longest name that the list starts with: one name may be the beginning of another.
    let culprit = (0..names.len())
        .filter(|&i| said(list, names[i]).is_some())
        .max_by_key(|&i| names[i].len());
    let Some(culprit) = culprit else {
        return Accused::Unknown;
    };
    let by_name: std::collections::HashMap<&str, usize> = names
        .iter()
        .enumerate()
        .map(|(index, name)| (&***name, index))
        .collect();
    let others: Vec<(usize, usize)> = entries(list)
        .filter_map(|(start, name)| Some((start, *by_name.get(name)?)))
        .filter(|&(_, index)| index != culprit)
        .collect();
    // What is said of others is none of this one's owner's business.
    let end = others.iter().map(|(start, _)| *start).min();
    let own = &list[..end.unwrap_or(list.len())];
    let mut suspects: Vec<usize> = others.into_iter().map(|(_, index)| index).collect();
    suspects.sort_unstable();
    suspects.dedup();
    Accused::These {
        culprit,
        reason: said(own, names[culprit]).unwrap_or(own),
        suspects,
    }
}

/// What a rejection says of the only resource that its response held.
pub(crate) fn reason<'a>(ty: ResourceType, message: &'a str, name: &str) -> &'a str {
    list(ty, message)
        .and_then(|list| said(list, name))
        .unwrap_or(message)
}

/// Where Envoy's own print of a message begins.
const DUMP: &str = "goo.gle/debug";

/// A message without the print of the whole resource that Envoy puts into some: it may be long, it would hide the cause, which
/// stands behind it, and what a Secret holds is nobody's to read.
pub(crate) fn without_dump(message: &str) -> Cow<'_, str> {
    let Some(start) = message.find(DUMP) else {
        return Cow::Borrowed(message);
    };
    let (said, dump) = message.split_at(start);
    // A print ends with its last line, or with its last brace where it is on one line.
    let end = dump.rfind('\n').or_else(|| dump.rfind('}'));
    let cause = end.map_or("", |end| &dump[end + 1..]);
    let cause = cause.trim_start_matches(['}', ':', ' ']);
    Cow::Owned([said.trim_end(), cause].join(" ").trim().to_owned())
}

/// The list of names and messages in a rejection that has one.
fn list(ty: ResourceType, message: &str) -> Option<&str> {
    let marker = match ty {
        ResourceType::Cluster => "Error adding/updating cluster(s) ",
        ResourceType::Listener => "Error adding/updating listener(s) ",
        _ => return None,
    };
    let at = message.find(marker)?;
    Some(&message[at + marker.len()..])
}

/// What a list says of a name, if it begins with it.
fn said<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let message = list.strip_prefix(name)?.strip_prefix(": ")?;
    Some(message.trim_end_matches([',', ' ', '\n']))
}

/// How many `: ` a name may contain and still be found.
const COLONS: usize = 8;

/// All that may be a name in a list of `NAME: MESSAGE`, separated by commas (clusters) or lines
/// (listeners): every text from a separator to one of the next few colons, and where it is.
fn entries(list: &str) -> impl Iterator<Item = (usize, &str)> {
    let commas = list.match_indices(", ").map(|(at, _)| at + 2);
    let lines = list.match_indices('\n').map(|(at, _)| at + 1);
    commas.chain(lines).flat_map(move |start| {
        let entry = &list[start..];
        entry
            .match_indices(": ")
            .take(COLONS)
            .map(move |(end, _)| (start, &entry[..end]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn names(names: &[&str]) -> Vec<Arc<str>> {
        names.iter().map(|name| (*name).into()).collect()
    }

    fn read<'a>(ty: ResourceType, message: &'a str, list: &[&str]) -> Accused<'a> {
        accused(ty, message, &names(list).iter().collect::<Vec<_>>())
    }

    fn these<'a>(culprit: usize, reason: &'a str, suspects: &[usize]) -> Accused<'a> {
        Accused::These {
            culprit,
            reason,
            suspects: suspects.to_vec(),
        }
    }

    #[test]
    fn clusters_are_named_between_commas() {
        let message = "Error adding/updating cluster(s) ns/b: bad thing: worse, ns/d: other";
        assert_eq!(
            read(
                ResourceType::Cluster,
                message,
                &["ns/a", "ns/b", "ns/c", "ns/d"]
            ),
            these(1, "bad thing: worse", &[3])
        );
    }

    #[test]
    fn listeners_are_named_on_lines() {
        let message = "Error adding/updating listener(s) l1: no filter\nl0: address, in use\n";
        assert_eq!(
            read(ResourceType::Listener, message, &["l0", "l1", "l2"]),
            these(1, "no filter", &[0])
        );
    }

    #[test]
    fn the_reason_is_what_is_said_of_the_one() {
        let message = "Error adding/updating listener(s) l1: no, really\n";
        assert_eq!(reason(ResourceType::Listener, message, "l1"), "no, really");
        for (ty, name) in [(ResourceType::Listener, "l"), (ResourceType::Route, "l1")] {
            assert_eq!(reason(ty, message, name), message);
        }
    }

    #[test]
    fn a_name_that_begins_another_is_told_from_it() {
        let message = "Error adding/updating cluster(s) a: b: no";
        assert_eq!(
            read(ResourceType::Cluster, message, &["a", "a: b", "b"]),
            these(1, "no", &[])
        );
    }

    #[test]
    fn no_resource_is_printed_in_a_message() {
        for (message, words) in [
            ("a plain one", "a plain one"),
            (
                "goo.gle/debugproto \nname: \"80\"\nprivate_key {\n  inline: \"secret\"\n}\n: Proto constraint validation failed",
                "Proto constraint validation failed",
            ),
            (
                "Error adding: goo.gle/debugstr name: \"a\" key { inline: \"secret\" }: value too long",
                "Error adding: value too long",
            ),
            ("before goo.gle/debugproto secret", "before"),
        ] {
            assert_eq!(without_dump(message), words);
        }
    }

    #[test]
    fn other_types_and_other_texts_accuse_nobody() {
        let message = "Error adding/updating cluster(s) a: no";
        assert_eq!(read(ResourceType::Route, message, &["a"]), Accused::Unknown);
        for message in ["", "Proto constraint validation failed", "a: no"] {
            assert_eq!(
                read(ResourceType::Cluster, message, &["a"]),
                Accused::Unknown
            );
        }
        let message = "Error adding/updating cluster(s) z: no, a: no";
        assert_eq!(
            read(ResourceType::Cluster, message, &["a"]),
            Accused::Unknown,
            "who names a stranger first is not understood"
        );
    }

    proptest! {
        #[test]
        fn the_first_is_certain_whatever_the_messages_say(
            message in "[a-c:, \n]{0,40}",
            culprit in 0usize..3,
        ) {
            let list = names(&["alpha", "beta", "gamma"]);
            let text = format!(
                "Error adding/updating cluster(s) {}: {message}", list[culprit]
            );
            match accused(ResourceType::Cluster, &text, &list.iter().collect::<Vec<_>>()) {
                Accused::These { culprit: first, suspects, .. } => {
                    prop_assert_eq!((first, suspects), (culprit, vec![]));
                }
                Accused::Unknown => prop_assert!(false),
            }
        }

        #[test]
        fn any_text_is_read(message in ".*") {
            for ty in ResourceType::ALL {
                let text = format!("Error adding/updating cluster(s) {message}");
                let list = names(&["a"]);
                let _: Accused<'_> = accused(ty, &text, &list.iter().collect::<Vec<_>>());
                prop_assert!(text.contains(reason(ty, &text, "a")));
            }
        }
    }
}
