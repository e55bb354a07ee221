//! Every Rust file belongs to a crate: a file without a `mod` declaration is never compiled.
//!
//! In: the files and the roots of all targets. Out: files that can't be reached from any root.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::Member;
use super::{Problem, Source};

pub(super) fn check(sources: &[Source], members: &[Member]) -> Vec<Problem> {
    let files: BTreeMap<&str, &Source> = sources
        .iter()
        .filter(|source| source.is_rust())
        .map(|source| (source.path.as_str(), source))
        .collect();
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut waiting: Vec<(String, bool)> = members
        .iter()
        .flat_map(|member| member.roots.iter().cloned().map(|root| (root, true)))
        .collect();
    while let Some((path, is_root)) = waiting.pop() {
        let Some(source) = files.get(path.as_str()) else {
            continue;
        };
        if reached.insert(path) {
            let names = module_declarations(source);
            waiting.extend(
                names
                    .into_iter()
                    .map(|name| (name.path(source, is_root), false)),
            );
        }
    }
    files
        .into_keys()
        .filter(|path| !reached.contains(*path))
        .map(|path| {
            Problem::file(
                path,
                "no `mod` declares this file, so it is not part of any crate",
            )
        })
        .collect()
}

/// A `mod name;` declaration.
#[derive(Debug, PartialEq)]
struct ModuleDeclaration<'a> {
    name: &'a str,
    /// The value of its `path` attribute.
    path_attribute: Option<&'a str>,
}

impl ModuleDeclaration<'_> {
    /// The file of the module.
    fn path(&self, parent: &Source, parent_is_root: bool) -> String {
        let (folder, file) = parent.path.rsplit_once('/').unwrap_or(("", &parent.path));
        match self.path_attribute {
            Some(path) => format!("{folder}/{path}"),
            None if parent_is_root => format!("{folder}/{}.rs", self.name),
            None => format!("{folder}/{}/{}.rs", file.trim_end_matches(".rs"), self.name),
        }
    }
}

/// The `mod name;` declarations in a file, each on a separate line, as formatted by rustfmt. Those inside inline
/// modules are treated as if they were outside; the repository has none.
fn module_declarations(source: &Source) -> Vec<ModuleDeclaration<'_>> {
    let mut found = Vec::new();
    let mut path_attribute = None;
    for line in source.text.lines().map(str::trim) {
        if let Some(value) = line.strip_prefix("#[path = \"") {
            path_attribute = value.strip_suffix("\"]");
        } else if let Some(name) = declared(line) {
            found.push(ModuleDeclaration {
                name,
                path_attribute: path_attribute.take(),
            });
        } else if !line.starts_with("#[") && !line.starts_with("//") {
            path_attribute = None;
        }
    }
    found
}

/// The name in `mod name;` with an optional visibility.
fn declared(line: &str) -> Option<&str> {
    let item = match line.strip_prefix("pub") {
        None => line,
        Some(rest) => match rest.strip_prefix('(') {
            None => rest.trim_start(),
            Some(scope) => scope.split_once(')')?.1.trim_start(),
        },
    };
    let name = item.strip_prefix("mod ")?.strip_suffix(';')?;
    let is_name = name.chars().all(|c| c.is_alphanumeric() || c == '_');
    is_name.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unreached(files: &[(&str, &str)], roots: &[&str]) -> Vec<String> {
        let sources: Vec<Source> = files
            .iter()
            .map(|&(path, text)| Source {
                path: path.to_owned(),
                text: text.to_owned(),
            })
            .collect();
        let member = Member {
            package: "sesame-a".to_owned(),
            folder: "crates/a".to_owned(),
            roots: roots.iter().map(|&root| root.to_owned()).collect(),
            dependencies: Vec::new(),
        };
        let problems = check(&sources, &[member]);
        problems.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn files_reachable_from_a_root_are_accepted() {
        let files = [
            (
                "a/src/lib.rs",
                "mod one;\npub(crate) mod two;\n// mod old;\n",
            ),
            ("a/src/one.rs", "#[cfg(test)]\nmod tests;\npub mod deep;\n"),
            ("a/src/one/tests.rs", ""),
            (
                "a/src/one/deep.rs",
                "#[path = \"elsewhere/x.rs\"]\nmod x;\n",
            ),
            ("a/src/one/elsewhere/x.rs", ""),
            ("a/src/two.rs", "mod inline {}\n"),
            ("a/tests/t.rs", "mod common;\n"),
            ("a/tests/common.rs", ""),
        ];
        assert_eq!(
            unreached(&files, &["a/src/lib.rs", "a/tests/t.rs"]),
            [""; 0]
        );
    }

    #[test]
    fn orphans_are_found() {
        let files = [
            ("a/src/lib.rs", "// mod old;\nmod one;\n"),
            ("a/src/old.rs", ""),
            ("a/src/one.rs", ""),
            ("a/src/two/one.rs", ""),
        ];
        assert_eq!(
            unreached(&files, &["a/src/lib.rs"]),
            ["a/src/old.rs", "a/src/two/one.rs"]
        );
    }
}
