//! The files of an image.
//!
//! In: files on this machine and texts, each with its path in the image. Out: an image layer, or a folder. Owners,
//! times and unusual modes are normalized, so two machines with the same files produce the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tar::{Builder, EntryType, Header};

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Folder { mode: u32 },
    File { content: Content, mode: u32 },
}

/// The source of a file's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    Path(PathBuf),
    Bytes(Vec<u8>),
}

/// Entries by path in the image, without the leading slash. Folders precede their contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
}

impl Tree {
    /// Adds a folder and its parents.
    pub fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        self.put(path, Node::Folder { mode })
    }

    /// Adds a file from this machine; keeps its executable bit.
    pub fn file(&mut self, path: &str, source: &Path) -> Result<()> {
        let about = fs::metadata(source)
            .with_context(|| format!("cannot read {} for {path}", source.display()))?;
        ensure!(about.is_file(), "{} isn't a file", source.display());
        let mode = if about.permissions().mode() & 0o111 == 0 {
            0o644
        } else {
            0o755
        };
        let content = Content::Path(source.to_owned());
        self.put(path, Node::File { content, mode })
    }

    /// Adds a file with this text.
    pub fn text(&mut self, path: &str, text: &str) -> Result<()> {
        let content = Content::Bytes(text.as_bytes().to_vec());
        let mode = 0o644;
        self.put(path, Node::File { content, mode })
    }

    /// The paths of files, with a leading slash.
    #[cfg(test)]
    pub(super) fn paths(&self) -> Vec<String> {
        self.nodes
            .iter()
            .filter(|(_, node)| !matches!(node, Node::Folder { .. }))
            .map(|(path, _)| format!("/{path}"))
            .collect()
    }

    fn put(&mut self, path: &str, node: Node) -> Result<()> {
        let inside = path
            .strip_prefix('/')
            .with_context(|| format!("the path {path:?} in an image must begin with a slash"))?;
        let plain = |part: &str| !matches!(part, "" | "." | "..");
        ensure!(
            inside.split('/').all(plain),
            "the path {path:?} in an image must not contain `.`, `..` or empty parts"
        );
        for (end, _) in inside.match_indices('/') {
            let above = self
                .nodes
                .entry(inside[..end].to_owned())
                .or_insert(Node::Folder { mode: 0o755 });
            ensure!(
                matches!(above, Node::Folder { .. }),
                "{path:?} is below a file: /{}",
                &inside[..end]
            );
        }
        self.nodes.insert(inside.to_owned(), node);
        Ok(())
    }

    /// Writes the layer: a tar archive owned by root and dated 1970.
    pub(super) fn write_layer(&self, to: impl Write) -> Result<()> {
        let mut tar = Builder::new(to);
        for (path, node) in &self.nodes {
            let unwritable = || format!("cannot add /{path} to the layer");
            let mut header = Header::new_ustar();
            header.set_mtime(0);
            header.set_uid(0);
            header.set_gid(0);
            match node {
                Node::Folder { mode } => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(*mode);
                    header.set_size(0);
                    tar.append_data(&mut header, format!("{path}/"), io::empty())
                }
                Node::File { content, mode } => {
                    // Read in full, so that the size matches even if the file changes.
                    let bytes = content.bytes()?;
                    header.set_mode(*mode);
                    header.set_size(bytes.len() as u64);
                    tar.append_data(&mut header, path, bytes.as_slice())
                }
            }
            .with_context(unwritable)?;
        }
        tar.into_inner()
            .and_then(|mut to| to.flush())
            .context("cannot finish the layer")
    }

    /// Writes the tree into a folder, which must be missing or empty.
    pub(super) fn write_folder(&self, to: &Path) -> Result<()> {
        let unwritable = |path: &Path| format!("cannot write {}", path.display());
        fs::create_dir_all(to).with_context(|| unwritable(to))?;
        let empty = fs::read_dir(to).with_context(|| unwritable(to))?.next();
        ensure!(empty.is_none(), "{} isn't empty", to.display());
        for (path, node) in &self.nodes {
            let path = to.join(path);
            let written = match node {
                Node::Folder { mode } => {
                    fs::create_dir(&path).and_then(|()| set_mode(&path, *mode))
                }
                Node::File { content, mode } => {
                    let bytes = content.bytes()?;
                    fs::write(&path, bytes).and_then(|()| set_mode(&path, *mode))
                }
            };
            written.with_context(|| unwritable(&path))?;
        }
        Ok(())
    }
}

impl Content {
    fn bytes(&self) -> Result<Vec<u8>> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Path(path) => {
                fs::read(path).with_context(|| format!("cannot read {}", path.display()))
            }
        }
    }
}

fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents_are_added_before_their_content() {
        let mut tree = Tree::default();
        tree.text("/a/b/c", "x").unwrap();
        tree.folder("/tmp", 0o1777).unwrap();
        let nodes: Vec<&str> = tree.nodes.keys().map(String::as_str).collect();
        assert_eq!(nodes, ["a", "a/b", "a/b/c", "tmp"]);
        assert_eq!(tree.paths(), ["/a/b/c"]);
    }

    #[test]
    fn paths_outside_the_image_are_rejected() {
        let mut tree = Tree::default();
        for path in ["a", "/a/../b", "/a//b", "/./a", "/", ""] {
            assert!(tree.text(path, "").is_err(), "{path}");
        }
        tree.text("/file", "").unwrap();
        assert!(tree.text("/file/below", "").is_err());
    }

    #[test]
    fn a_folder_has_the_same_files_with_the_same_modes() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "run").unwrap();
        set_mode(&program, 0o700).unwrap();
        let mut tree = Tree::default();
        tree.file("/bin/program", &program).unwrap();
        tree.folder("/tmp", 0o1777).unwrap();

        let out = dir.path().join("out");
        tree.write_folder(&out).unwrap();
        let mode = |path: &str| out.join(path).metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode("bin/program"), 0o755);
        assert_eq!(mode("tmp"), 0o1777);
        assert_eq!(fs::read(out.join("bin/program")).unwrap(), b"run");
        assert!(
            tree.write_folder(&out).is_err(),
            "existing files must not be mixed with the image's"
        );
    }

    #[test]
    fn a_layer_has_fixed_owners_and_times() {
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("source");
        fs::write(&source, "text").unwrap();
        set_mode(&source, 0o600).unwrap();
        let mut tree = Tree::default();
        tree.file("/etc/file", &source).unwrap();
        let mut layer = Vec::new();
        tree.write_layer(&mut layer).unwrap();

        let mut found = Vec::new();
        for entry in tar::Archive::new(layer.as_slice()).entries().unwrap() {
            let entry = entry.unwrap();
            let header = entry.header();
            assert_eq!(header.mtime().unwrap(), 0);
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (0, 0));
            let path = String::from_utf8(entry.path_bytes().to_vec()).unwrap();
            found.push((path, header.mode().unwrap()));
        }
        let expected =
            [("etc/", 0o755), ("etc/file", 0o644)].map(|(path, mode)| (path.to_owned(), mode));
        assert_eq!(found, expected);
    }
}
