//! Finds the resources that a NACK names.
//!
//! Envoy applies the valid clusters and listeners in a response and names the invalid ones, each with its own message:
//! `Error adding/updating cluster(s) NAME: MESSAGE, NAME: MESSAGE`. For other types it doesn't name any, and may have
//! applied any part of the response. Messages quote user input, which may contain resource names, so only the first
//! name is reliable.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use crate::resource::ResourceType;

/// The resources that a NACK names, as indexes into the response's names. Envoy applied the other resources.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Blame<'a> {
    /// The resource that is certainly invalid, and why.
    pub(crate) culprit: usize,
    pub(crate) reason: &'a str,
    /// Resources that may be invalid too.
    pub(crate) suspects: Vec<usize>,
}

/// Parses the message of a NACK. `None` means that any resource may be invalid, and any may have been applied. Costs
/// O(names + message).
pub(crate) fn blame<'a>(
    ty: ResourceType,
    message: &'a str,
    names: &[&Arc<str>],
) -> Option<Blame<'a>> {
    let list = error_list(ty, message)?;
    // Take the longest matching name: one name may be a prefix of another.
    let culprit = (0..names.len())
        .filter(|&i| message_for(list, names[i]).is_some())
        .max_by_key(|&i| names[i].len())?;
    let by_name: HashMap<&str, usize> = names
        .iter()
        .enumerate()
        .map(|(index, name)| (&***name, index))
        .collect();
    let others: Vec<(usize, usize)> = possible_names(list)
        .filter_map(|(start, name)| Some((start, *by_name.get(name)?)))
        .filter(|&(_, index)| index != culprit)
        .collect();
    // Messages for other resources may concern another user's objects.
    let end = others.iter().map(|(start, _)| *start).min();
    let own = &list[..end.unwrap_or(list.len())];
    let mut suspects: Vec<usize> = others.into_iter().map(|(_, index)| index).collect();
    suspects.sort_unstable();
    suspects.dedup();
    Some(Blame {
        culprit,
        reason: message_for(own, names[culprit]).unwrap_or(own),
        suspects,
    })
}

/// The error in a NACK for a response with a single resource.
pub(crate) fn reason<'a>(ty: ResourceType, message: &'a str, name: &str) -> &'a str {
    error_list(ty, message)
        .and_then(|list| message_for(list, name))
        .unwrap_or(message)
}

/// Marks the start of a protobuf dump in Envoy's messages.
const DUMP: &str = "goo.gle/debug";

/// Removes the resource dump that Envoy adds to some messages. The dump hides the cause, which follows it, and may
/// contain private keys.
pub(crate) fn without_dump(message: &str) -> Cow<'_, str> {
    let Some(start) = message.find(DUMP) else {
        return Cow::Borrowed(message);
    };
    let (error, dump) = message.split_at(start);
    // A dump ends with its last line, or with its last brace if it is on one line.
    let end = dump.rfind('\n').or_else(|| dump.rfind('}'));
    let cause = end.map_or("", |end| &dump[end + 1..]);
    let cause = cause.trim_start_matches(['}', ':', ' ']);
    Cow::Owned([error.trim_end(), cause].join(" ").trim().to_owned())
}

/// The `NAME: MESSAGE` list in a NACK, if any.
fn error_list(ty: ResourceType, message: &str) -> Option<&str> {
    let marker = match ty {
        ResourceType::Cluster => "Error adding/updating cluster(s) ",
        ResourceType::Listener => "Error adding/updating listener(s) ",
        _ => return None,
    };
    let at = message.find(marker)?;
    Some(&message[at + marker.len()..])
}

/// The message for a name at the start of a list.
fn message_for<'a>(list: &'a str, name: &str) -> Option<&'a str> {
    let message = list.strip_prefix(name)?.strip_prefix(": ")?;
    Some(message.trim_end_matches([',', ' ', '\n']))
}

/// Names that contain `: ` more often than this are not found.
const MAX_COLONS: usize = 8;

/// All parts of a list that may be names, with their positions: from a separator (comma for clusters, newline for
/// listeners) to one of the next few colons.
fn possible_names(list: &str) -> impl Iterator<Item = (usize, &str)> {
    let commas = list.match_indices(", ").map(|(at, _)| at + 2);
    let lines = list.match_indices('\n').map(|(at, _)| at + 1);
    commas.chain(lines).flat_map(move |start| {
        let entry = &list[start..];
        entry
            .match_indices(": ")
            .take(MAX_COLONS)
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

    fn read<'a>(ty: ResourceType, message: &'a str, list: &[&str]) -> Option<Blame<'a>> {
        blame(ty, message, &names(list).iter().collect::<Vec<_>>())
    }

    fn blamed<'a>(culprit: usize, reason: &'a str, suspects: &[usize]) -> Option<Blame<'a>> {
        let suspects = suspects.to_vec();
        Some(Blame {
            culprit,
            reason,
            suspects,
        })
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
            blamed(1, "bad thing: worse", &[3])
        );
    }

    #[test]
    fn listeners_are_named_one_per_line() {
        let message = "Error adding/updating listener(s) l1: no filter\nl0: address, in use\n";
        assert_eq!(
            read(ResourceType::Listener, message, &["l0", "l1", "l2"]),
            blamed(1, "no filter", &[0])
        );
    }

    #[test]
    fn the_reason_is_the_message_of_the_resource() {
        let message = "Error adding/updating listener(s) l1: no, really\n";
        assert_eq!(reason(ResourceType::Listener, message, "l1"), "no, really");
        for (ty, name) in [(ResourceType::Listener, "l"), (ResourceType::Route, "l1")] {
            assert_eq!(reason(ty, message, name), message);
        }
    }

    #[test]
    fn a_name_that_is_a_prefix_of_another_is_not_blamed() {
        let message = "Error adding/updating cluster(s) a: b: no";
        assert_eq!(
            read(ResourceType::Cluster, message, &["a", "a: b", "b"]),
            blamed(1, "no", &[])
        );
    }

    #[test]
    fn resource_dumps_are_removed_from_messages() {
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
    fn other_types_and_other_messages_blame_no_resource() {
        let message = "Error adding/updating cluster(s) a: no";
        assert_eq!(read(ResourceType::Route, message, &["a"]), None);
        for message in ["", "Proto constraint validation failed", "a: no"] {
            assert_eq!(read(ResourceType::Cluster, message, &["a"]), None);
        }
        let message = "Error adding/updating cluster(s) z: no, a: no";
        assert_eq!(
            read(ResourceType::Cluster, message, &["a"]),
            None,
            "the first name is not in the response"
        );
    }

    proptest! {
        #[test]
        fn the_first_name_is_the_culprit_whatever_the_messages_contain(
            message in "[a-c:, \n]{0,40}",
            culprit in 0usize..3,
        ) {
            let list = names(&["alpha", "beta", "gamma"]);
            let text = format!(
                "Error adding/updating cluster(s) {}: {message}", list[culprit]
            );
            let blame = blame(ResourceType::Cluster, &text, &list.iter().collect::<Vec<_>>());
            let blame = blame.unwrap();
            prop_assert_eq!((blame.culprit, blame.suspects), (culprit, vec![]));
        }

        #[test]
        fn any_message_is_parsed(message in ".*") {
            for ty in ResourceType::ALL {
                let text = format!("Error adding/updating cluster(s) {message}");
                let list = names(&["a"]);
                let _: Option<Blame<'_>> = blame(ty, &text, &list.iter().collect::<Vec<_>>());
                prop_assert!(text.contains(reason(ty, &text, "a")));
            }
        }
    }
}
