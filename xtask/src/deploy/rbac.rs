//! Compares Sesame's permissions with its requests.
//!
//! In: manifests and an API server's audit log (level `Metadata`). Out: unused permissions, and requests without a
//! permission.

mod audit;
mod verdict;

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

pub(crate) use self::verdict::Verdict;

/// The namespace of Sesame's service account in the manifests.
const NAMESPACE: &str = "sesame-system";

/// The names of Sesame's service account: that of an instance, and the operator's. Manifests have one of them.
const ACCOUNTS: [&str; 2] = ["sesame", "sesame-operator"];

/// The prefix of a service account's user name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Options of `cargo xtask deploy rbac`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Audit log of an API server, as JSON lines; can be repeated
    #[arg(long, value_name = "FILE", required = true)]
    audit: Vec<PathBuf>,
    /// Resource that wasn't available in that run, for example `udproutes.gateway.networking.k8s.io` without its CRD
    #[arg(long, value_name = "RESOURCE.GROUP")]
    without: Vec<String>,
    /// Manifests with roles and bindings [default: deploy/manifests]
    #[arg(long, value_name = "FILE")]
    manifests: Option<PathBuf>,
}

/// Prints the differences.
pub(super) fn run(args: &Args) -> Result<()> {
    let manifests = args.manifests.clone().unwrap_or_else(super::manifests);
    let verdict = compare(&manifests, &args.audit, &args.without)?;
    println!("{verdict}");
    if !verdict.fits() {
        bail!("Sesame's permissions don't match its requests");
    }
    Ok(())
}

/// Compares Sesame's permissions in the manifests with audit logs. Ignores permissions for the resources in `without`
/// (`RESOURCE.GROUP`).
pub(crate) fn compare(manifests: &Path, audit: &[PathBuf], without: &[String]) -> Result<Verdict> {
    let text = fs::read_to_string(manifests)
        .with_context(|| format!("cannot read {}", manifests.display()))?;
    let objects =
        super::objects(&text).with_context(|| format!("cannot parse {}", manifests.display()))?;
    let mut granted = granted(&objects);
    granted.retain(|right| {
        let resource = right.resource.split('/').next().unwrap_or_default();
        !without.contains(&format!("{resource}.{}", right.group))
    });
    of_account(&objects, &granted, audit)
        .with_context(|| format!("cannot check {}", manifests.display()))
}

/// Compares Sesame's permissions in rendered manifests with audit logs.
pub(crate) fn compare_rendered(objects: &[Value], audit: &[PathBuf]) -> Result<Verdict> {
    of_account(objects, &granted(objects), audit)
}

/// Like [`compare_rendered`], but a permission also counts as used if Sesame used its verb for other objects of the resource.
pub(crate) fn compare_verbs(objects: &[Value], audit: &[PathBuf]) -> Result<Verdict> {
    let verbs = granted(objects).into_iter().map(|right| Right {
        place: Place::Everywhere,
        name: None,
        ..right
    });
    of_account(objects, &verbs.collect(), audit)
}

fn of_account(objects: &[Value], granted: &BTreeSet<Right>, audit: &[PathBuf]) -> Result<Verdict> {
    ensure!(!granted.is_empty(), "Sesame has no permissions");
    let subjects = objects
        .iter()
        .filter_map(|object| object["subjects"].as_array());
    let mut names = subjects
        .flatten()
        .filter_map(|subject| subject["name"].as_str());
    let account = names.find(|name| ACCOUNTS.contains(name));
    let account = account.context("the manifests have no binding to Sesame")?;
    let account = format!("{SERVICE_ACCOUNT}{NAMESPACE}:{account}");
    let requests = audit::requests(audit, |user| user == account)?;
    Ok(verdict::of(granted, &requests))
}

/// The scope of a permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    /// All namespaces and cluster-scoped resources.
    Everywhere,
    Namespace(String),
}

/// A permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Right {
    pub(super) place: Place,
    /// Empty for the core group.
    pub(super) group: String,
    /// Includes a subresource after a slash.
    pub(super) resource: String,
    pub(super) verb: String,
    /// Name of the object; `None` for any.
    pub(super) name: Option<String>,
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        if let Some(name) = &self.name {
            write!(f, " {name:?}")?;
        }
        match &self.place {
            Place::Everywhere => Ok(()),
            Place::Namespace(namespace) => write!(f, " in {namespace}"),
        }
    }
}

/// A role and its bindings to Sesame's service account.
pub(super) struct Role<'a> {
    /// The ClusterRole or Role.
    pub(super) object: &'a Value,
    pub(super) places: BTreeSet<Place>,
}

impl Role<'_> {
    /// Its rules.
    pub(super) fn rules(&self) -> impl Iterator<Item = &Value> {
        self.object["rules"].as_array().into_iter().flatten()
    }

    /// The permissions granted by its rules in a scope, in order.
    pub(super) fn rights(&self, place: &Place) -> Vec<Right> {
        let mut rights = Vec::new();
        for rule in self.rules() {
            let names = texts(&rule["resourceNames"]);
            let names: Vec<Option<&str>> = match names.as_slice() {
                [] => vec![None],
                names => names.iter().copied().map(Some).collect(),
            };
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        rights.extend(names.iter().map(|name| Right {
                            place: place.clone(),
                            group: group.to_owned(),
                            resource: resource.to_owned(),
                            verb: verb.to_owned(),
                            name: name.map(str::to_owned),
                        }));
                    }
                }
            }
        }
        rights
    }
}

/// All roles among the objects.
pub(super) fn roles(objects: &[Value]) -> Vec<Role<'_>> {
    let is_role = |object: &&Value| object["kind"] == "ClusterRole" || object["kind"] == "Role";
    objects
        .iter()
        .filter(is_role)
        .map(|object| Role {
            object,
            places: objects
                .iter()
                .filter_map(|binding| place(binding, object))
                .collect(),
        })
        .collect()
}

/// The scope in which a binding grants a role to Sesame's service account; `None` for other objects, roles and
/// accounts.
fn place(binding: &Value, role: &Value) -> Option<Place> {
    let namespace = binding["metadata"]["namespace"].as_str();
    let place = match binding["kind"].as_str()? {
        "ClusterRoleBinding" => Place::Everywhere,
        "RoleBinding" => Place::Namespace(namespace?.to_owned()),
        _ => return None,
    };
    let to = &binding["roleRef"];
    let about = &role["metadata"];
    let ours = to["kind"] == role["kind"]
        && to["name"] == about["name"]
        && (role["kind"] == "ClusterRole" || about["namespace"].as_str() == namespace);
    let mut subjects = binding["subjects"].as_array()?.iter();
    let account = subjects.any(|subject| {
        subject["kind"] == "ServiceAccount"
            && subject["namespace"] == NAMESPACE
            && subject["name"]
                .as_str()
                .is_some_and(|name| ACCOUNTS.contains(&name))
    });
    (ours && account).then_some(place)
}

/// All permissions of Sesame's service account.
pub(super) fn granted(objects: &[Value]) -> BTreeSet<Right> {
    let roles = roles(objects);
    let rights = roles
        .iter()
        .flat_map(|role| role.places.iter().map(|place| role.rights(place)));
    rights.flatten().collect()
}

fn texts(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[cfg(test)]
mod tests;
