//! Renders the components' configuration files from `templates`.
//!
//! In: the cluster's layout and the folder of its programs. Out: files in its settings folder.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::layout::{self, Layout};

/// Templates by file name.
const TEMPLATES: &[(&str, &str)] = &[
    ("Corefile", include_str!("templates/Corefile")),
    ("audit.yaml", include_str!("templates/audit.yaml")),
    ("cni/pods.conflist", include_str!("templates/pods.conflist")),
    ("containerd.toml", include_str!("templates/containerd.toml")),
    ("kube-proxy.yaml", include_str!("templates/kube-proxy.yaml")),
    ("kubelet.yaml", include_str!("templates/kubelet.yaml")),
    ("objects.yaml", include_str!("templates/objects.yaml")),
    ("refuse.nft", include_str!("templates/refuse.nft")),
    ("resolv.conf", include_str!("templates/resolv.conf")),
    ("scheduler.yaml", include_str!("templates/scheduler.yaml")),
];

/// Writes all files.
pub(super) fn write(layout: &Layout, programs: &Path) -> Result<()> {
    let values = values(layout, programs)?;
    for (name, template) in TEMPLATES {
        let path = layout.settings().join(name);
        let folder = path.parent().unwrap_or(&path);
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(&path, fill(template, &values)))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

type Values = Vec<(&'static str, String)>;

fn values(layout: &Layout, programs: &Path) -> Result<Values> {
    let paths = [
        ("PKI", layout.pki()),
        ("SETTINGS", layout.settings()),
        ("PROGRAMS", programs.to_owned()),
    ];
    let mut values = vec![
        ("NAME", layout.name().to_owned()),
        ("CGROUP", layout.cgroup()),
        ("NODE_ADDRESS", layout::NODE_ADDRESS.to_owned()),
        ("LOAD_BALANCERS", layout::LOAD_BALANCERS.to_owned()),
        ("DNS_SERVICE", layout::DNS_SERVICE.to_owned()),
        ("PODS", layout::PODS.to_owned()),
        ("PAUSE_IMAGE", layout::PAUSE_IMAGE.to_owned()),
    ];
    for (name, path) in paths {
        let path = path.to_str().context("a path is not UTF-8")?;
        // The same text is inserted into YAML, TOML and CoreDNS's format without quotes.
        let plain = |c: char| c.is_alphanumeric() || "/._-+@~".contains(c);
        ensure!(
            path.chars().all(plain),
            "{path:?} contains unsupported characters; set SESAME_CACHE to another folder"
        );
        values.push((name, path.to_owned()));
    }
    Ok(values)
}

fn fill(template: &str, values: &Values) -> String {
    values
        .iter()
        .fold(template.to_owned(), |text, (name, value)| {
            text.replace(&format!("${{{name}}}"), value)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::below(Path::new("/cache/run"), "a").unwrap()
    }

    #[test]
    fn all_placeholders_are_filled() {
        let values = values(&layout(), Path::new("/cache/bin")).unwrap();
        for (name, template) in TEMPLATES {
            assert!(!fill(template, &values).contains("${"), "{name}");
        }
        for (name, _) in values {
            let used = |(_, template): &(&str, &str)| template.contains(&format!("${{{name}}}"));
            assert!(TEMPLATES.iter().any(used), "{name} is unused");
        }
    }

    #[test]
    fn rendered_files_are_valid() {
        let values = values(&layout(), Path::new("/cache/bin")).unwrap();
        for (name, template) in TEMPLATES {
            let text = fill(template, &values);
            match name.rsplit('.').next() {
                Some("yaml") => {
                    let documents = serde_saphyr::from_multiple::<serde_json::Value>(&text);
                    assert!(!documents.unwrap().is_empty(), "{name}");
                }
                Some("toml") => {
                    let table: toml::Table = text.parse().unwrap();
                    assert_eq!(table["root"].as_str(), Some("/var/lib/containerd"));
                }
                Some("conflist") => {
                    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
                    assert_eq!(value["plugins"][0]["type"], "bridge");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn paths_that_need_quotes_are_rejected() {
        assert!(values(&layout(), Path::new("/a b/bin")).is_err());
        assert!(values(&layout(), Path::new("/a\"b/bin")).is_err());
    }
}
