//! Translates HTTPProxies into rules, hosts and listeners for the default fleet.
//!
//! In: HTTPProxies, and the objects that they refer to. Out: a [`Contribution`], and statuses. A changed HTTPProxy
//! costs only the trees of the roots that include it: its own routes are read once, into a fragment, and only the rules
//! of these roots are rebuilt. Walking a tree doesn't read routes, so the statuses of other HTTPProxies don't change.

mod access;
pub(crate) mod authorization;
mod balancing;
mod class;
mod clients;
mod conditions;
mod cookies;
mod cors;
pub(crate) mod default_headers;
pub(crate) mod extensions;
mod fallback;
mod findings;
mod fragment;
pub(crate) mod global_rate;
mod headers;
mod health;
mod host;
mod includes;
mod jwt;
mod operators;
mod policies;
mod redirect;
mod rewrite;
mod route;
mod rules;
mod secrets;
mod services;
mod status;
mod tcp;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_api::{Kind, LoadBalancerStatus, ObjectKey, ObjectStatus};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{CertificateKey, ClusterKey, TrustBundle, TrustBundleKey};

use self::conditions::Conditions;
use self::findings::{About, Finding};
use self::fragment::{Fragment, References};
use self::host::{Host, HostTls, Root};
use self::includes::Tree;
use self::tcp::TcpTargets;
use crate::inputs::Inputs;
use crate::shared::connections::Backends;
use crate::shared::contour;
use crate::shared::default_fleet::{self, Contribution, Sources};
use crate::shared::held;
use crate::shared::host_findings::HostFindings;
use crate::shared::hosts::{AttachedHost, Attachments};
use crate::shared::jwks::JwksEntry;
use crate::shared::overlaps;
use crate::shared::ports::Terminations;
use crate::shared::scans;
use crate::shared::wildcard_budget;

/// Our HTTPProxies, indexed by the objects that they refer to.
#[derive(Clone, Copy)]
pub(crate) struct Read {
    /// HTTPProxies of our class.
    ours: Table<ObjectKey, References>,
    /// HTTPProxies by the clusters of their backends.
    pub(crate) by_backend: Index<ObjectKey, References, ClusterKey>,
    /// HTTPProxies by the certificates that they use, including the fallback certificate.
    pub(crate) by_secret: Index<ObjectKey, References, CertificateKey>,
    /// HTTPProxies by the Secrets of their CA bundles.
    pub(crate) by_authority: Index<ObjectKey, References, ObjectKey>,
    /// HTTPProxies by the Secrets of their CRLs.
    pub(crate) by_revoked: Index<ObjectKey, References, CertificateKey>,
    /// HTTPProxies by the JWKS that they read from Secrets.
    pub(crate) by_jwks: Index<ObjectKey, References, JwksEntry>,
}

/// An HTTPProxy in the tree of a root: `(HTTPProxy, root)`.
type Inclusion = (ObjectKey, ObjectKey);

/// How a root includes an HTTPProxy.
#[derive(Clone, Debug, Default, PartialEq)]
struct Included {
    /// The conditions of each inclusion.
    visits: Vec<Arc<Conditions>>,
    /// Findings about the HTTPProxy's own inclusions.
    findings: BTreeSet<Finding>,
}

/// The contribution, and the tables that statuses are derived from.
#[derive(Clone, Copy)]
pub(crate) struct Stages {
    pub(crate) contribution: Contribution,
    /// CA bundles with CRLs.
    pub(crate) trust_bundles: Table<TrustBundleKey, TrustBundle>,
    ours: Table<ObjectKey, References>,
    fragments: Table<ObjectKey, Fragment>,
    /// The root of each host.
    owners: Table<Arc<str>, ObjectKey>,
    roots: Table<ObjectKey, Root>,
    hosts: Table<ObjectKey, Host>,
    by_included: Index<Inclusion, Included, ObjectKey>,
    /// Findings by the affected HTTPProxy, separately for each root.
    by_affected: Index<Inclusion, Vec<Finding>, ObjectKey>,
    /// The HTTPProxies that are left out, by root.
    left_out: Index<ObjectKey, BTreeSet<ObjectKey>, ObjectKey>,
}

/// Declares our class's HTTPProxies and their references.
pub(crate) fn read(b: &mut Builder, inputs: &Inputs) -> Read {
    let inputs = *inputs;
    let ours = b.derive(
        "our http_proxies",
        inputs.http_proxies,
        move |reader, key: &ObjectKey| {
            if contour::is_superseded(reader, inputs.http_proxies, key) {
                return None;
            }
            let proxy = reader.get(inputs.http_proxies, key)?;
            let settings = reader.get(inputs.settings, &())?;
            let ours = class::is_ours(&settings, &proxy);
            ours.then(|| fragment::references(reader, inputs, &settings, &proxy))
        },
    );
    Read {
        ours,
        by_backend: b.index(ours, "http_proxies by backend", |_, of| {
            of.clusters.to_vec()
        }),
        by_secret: b.index(ours, "http_proxies by secret", |_, of| {
            let secrets = [&of.certificate, &of.fallback].into_iter().flatten();
            BTreeSet::from_iter(secrets.cloned()).into_iter().collect()
        }),
        by_authority: b.index(ours, "http_proxies by authority", |_, of| {
            let authorities = of.clusters.iter().filter_map(services::authorities);
            let authorities = authorities.chain(of.clients.as_ref().map(secrets::object));
            BTreeSet::from_iter(authorities).into_iter().collect()
        }),
        by_revoked: b.index(ours, "http_proxies by revoked", |_, of| {
            Vec::from_iter(of.revoked.clone())
        }),
        by_jwks: b.index(ours, "http_proxies by jwks", |_, of| {
            BTreeSet::from_iter(of.jwks.iter().cloned())
                .into_iter()
                .collect()
        }),
    }
}

/// Declares the stages.
pub(crate) fn stages(b: &mut Builder, inputs: &Inputs, read: Read, sources: Sources) -> Stages {
    let (inputs, ours) = (*inputs, read.ours);
    let (proxies, settings) = (inputs.http_proxies, inputs.settings);
    let fragments = b.derive("http_proxy", ours, move |reader, key: &ObjectKey| {
        let proxy = reader.get(proxies, key)?;
        let references = reader.get(ours, key)?;
        Some(fragment::read(
            reader,
            (inputs, sources),
            &proxy,
            &references,
        ))
    });
    let links = b.derive(
        "http_proxy includes",
        ours,
        move |reader, key: &ObjectKey| {
            let proxy = reader.get(proxies, key)?;
            Some(includes::links(&proxy, &mut findings::Findings::default()))
        },
    );
    let roots = b.derive("http_proxy root", ours, move |reader, key: &ObjectKey| {
        let settings = reader.get(settings, &())?;
        host::root(&settings, &*reader.get(proxies, key)?)
    });
    let by_fqdn = b.index(roots, "http_proxies by host", |_, root: &Root| {
        vec![Arc::clone(&root.fqdn)]
    });
    let owners = b.derive("http_proxy of host", by_fqdn, move |reader, fqdn| {
        let candidates = reader.by(by_fqdn, fqdn);
        let oldest = candidates
            .into_iter()
            .min_by(|(_, a), (_, b)| a.seniority.cmp(&b.seniority));
        oldest.map(|(key, _)| key)
    });
    let fallbacks = fallback::certificates(b, ours, sources);
    let hosts = b.derive("http_proxy host", roots, move |reader, key: &ObjectKey| {
        let root = reader.get(roots, key)?;
        let owner = reader.get(owners, &root.fqdn)?;
        let proxy = reader.get(proxies, key)?;
        (*owner == *key)
            .then(|| host::read(reader, (inputs, sources), fallbacks, &proxy, &root))
            .flatten()
    });
    let trees = b.derive("http_proxy tree", hosts, move |reader, key: &ObjectKey| {
        let each = rules::bytes_of_host(&*reader.get(hosts, key)?);
        Some(includes::tree(reader, links, key, each))
    });
    let included = b.derive_many(
        "included http_proxy",
        trees,
        move |reader, root: &ObjectKey| {
            let tree = reader.get(trees, root);
            tree.map_or_else(Vec::new, |tree| inclusions(&tree, root))
        },
    );
    let by_included = b.index(included, "included http_proxies", |(proxy, _), _| {
        vec![proxy.clone()]
    });
    let left_out = b.derive(
        "http_proxy of many roots",
        by_included,
        move |reader, key: &ObjectKey| {
            includes::roots::left_out(reader, by_included, links, roots, key)
        },
    );
    let is_left_out = move |reader: &mut Reader<'_>, (proxy, root): &Inclusion| {
        let roots = reader.get(left_out, proxy);
        roots.is_some_and(|roots| roots.contains(root))
    };
    let placed = b.derive(
        "http_proxy routes",
        included,
        move |reader, key: &Inclusion| {
            let included = reader.get(included, key)?;
            let fragment = reader.get(fragments, &key.0)?;
            let host = reader.get(hosts, &key.1)?;
            let https = reader.get(settings, &())?.ingress.ports.https;
            let visits = &included.visits;
            Some(match is_left_out(reader, key) {
                true => rules::dead_ends(visits, &host, https),
                false => rules::of_included(&fragment, visits, &host, https),
            })
        },
    );
    let affected = b.derive(
        "http_proxy with errors",
        included,
        move |reader, key: &Inclusion| {
            let included = reader.get(included, key)?;
            let fragment = reader.get(fragments, &key.0)?;
            let host = reader.get(hosts, &key.1)?;
            let placed = reader.get(placed, key)?;
            let (routes, visits) = (&fragment.routes, &included.visits);
            let mut findings = rules::findings(routes, (&key.1, &host), visits, &placed);
            findings.extend(included.findings.iter().cloned());
            if is_left_out(reader, key) {
                findings.push(rules::left_out(&key.1));
            }
            (!findings.is_empty()).then_some(findings)
        },
    );
    let placed_by_root = b.index(placed, "http_proxy routes by root", |(_, root), _| {
        vec![root.clone()]
    });
    let points = b.derive(
        "http_proxy points",
        hosts,
        move |reader, key: &ObjectKey| {
            let settings = reader.get(settings, &())?;
            let point = reader.get(hosts, key)?.listener(&settings, key)?;
            Some(default_fleet::attach_points(&settings, vec![point]))
        },
    );
    let terminations = b.derive(
        "http_proxy terminations",
        hosts,
        move |reader, key: &ObjectKey| {
            let host = reader.get(hosts, key)?;
            let termination = Arc::clone(host.termination()?);
            Some(Terminations::from([(Arc::clone(&host.fqdn), termination)]))
        },
    );
    let fallback = fallback::listener(b, inputs, hosts);
    let contribution = Contribution {
        users: default_fleet::users(b, "users by http_proxy", ours),
        points: b.union("http_proxy listeners", [points, fallback.points]),
        terminations: b.union(
            "http_proxy tls settings",
            [terminations, fallback.terminations],
        ),
        rules: b.derive("http_proxy rules", trees, move |reader, key: &ObjectKey| {
            let tree = reader.get(trees, key)?;
            let (root, host) = (reader.get(roots, key)?, reader.get(hosts, key)?);
            let https = reader.get(settings, &())?.ingress.ports.https;
            let root = (key, &*root);
            Some(rules::rules(
                reader,
                placed_by_root,
                &tree,
                root,
                &host,
                https,
            ))
        }),
        attachments: b.derive(
            "http_proxy attachments",
            hosts,
            move |reader, key: &ObjectKey| {
                let settings = reader.get(settings, &())?;
                let host = reader.get(hosts, key)?;
                let plain = reader.get(sources.listener, &());
                let tls = host.listener(&settings, key);
                let listeners = plain.into_iter().chain(tls.map(|point| point.listener));
                let attached = listeners.map(|listener| AttachedHost {
                    listener,
                    domain: Arc::clone(&host.fqdn),
                    original: Arc::clone(&host.fqdn),
                });
                let mut hosts = attached.collect::<Vec<_>>();
                let protocols = host.protocols_of_gateways();
                let object = (Kind::HTTPProxy, &key.namespace);
                hosts.extend(
                    sources
                        .gateways
                        .hosts(reader, object, &host.fqdn, protocols),
                );
                Some(Attachments {
                    parents: Vec::new(),
                    hosts,
                    oversized: false,
                    limited: false,
                })
            },
        ),
        backends: b.derive(
            "http_proxy connections",
            trees,
            move |reader, key: &ObjectKey| {
                let tree = reader.get(trees, key)?;
                let (root, host) = (reader.get(roots, key)?, reader.get(hosts, key)?);
                let closed = host.refused || host.tls == HostTls::Invalid;
                let targets = match &tree.tcp {
                    None if host.tls != HostTls::Invalid => return None,
                    Some(Some(owner)) if !closed => {
                        let fragment = reader.get(fragments, owner);
                        fragment.and_then(|fragment| fragment.tcp.clone())
                    }
                    _ => None,
                };
                let TcpTargets {
                    targets,
                    passthrough,
                } = targets.unwrap_or_else(TcpTargets::closed);
                Some(Backends {
                    seniority: root.seniority.clone(),
                    targets,
                    passthrough,
                    unresolved: None,
                })
            },
        ),
    };
    Stages {
        contribution,
        trust_bundles: clients::trust_bundles(b, hosts, sources),
        ours,
        fragments,
        owners,
        roots,
        hosts,
        by_included,
        by_affected: b.index(affected, "http_proxies with errors", |(proxy, _), _| {
            vec![proxy.clone()]
        }),
        left_out: b.index(left_out, "left out http_proxies by root", |_, roots| {
            roots.iter().cloned().collect()
        }),
    }
}

/// Groups the visits and the findings of a tree by HTTPProxy.
fn inclusions(tree: &Tree, root: &ObjectKey) -> Vec<(Inclusion, Included)> {
    let mut included: BTreeMap<&ObjectKey, Included> = BTreeMap::new();
    for visit in &tree.visits {
        let entry = included.entry(&visit.proxy).or_default();
        entry.visits.push(Arc::clone(&visit.conditions));
    }
    for key in &tree.tcp_visits {
        included.entry(key).or_default();
    }
    for (key, findings) in &tree.findings {
        included.entry(key).or_default().findings = findings.clone();
    }
    let rows = included.into_iter();
    rows.map(|(key, row)| ((key.clone(), root.clone()), row))
        .collect()
}

/// Declares the statuses.
pub(crate) fn statuses(
    b: &mut Builder,
    inputs: &Inputs,
    stages: Stages,
    hosts: HostFindings,
    addresses: Table<(), LoadBalancerStatus>,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    let served = b.derive(
        "http_proxy status",
        stages.ours,
        move |reader, key: &ObjectKey| status_of(reader, &inputs, stages, hosts, addresses, key),
    );
    let superseded = contour::statuses(
        b,
        ("contour's http_proxies", "superseded http_proxy"),
        inputs.http_proxies,
        |proxy| ObjectStatus::HttpProxy(status::superseded(proxy)),
    );
    b.union("http_proxy statuses", [served, superseded])
}

fn status_of(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    stages: Stages,
    hosts: HostFindings,
    addresses: Table<(), LoadBalancerStatus>,
    key: &ObjectKey,
) -> Option<ObjectStatus> {
    debug_assert!(key.kind.is_http_proxy());
    let proxy = reader.get(inputs.http_proxies, key)?;
    let fragment = reader.get(stages.fragments, key)?;
    let mut findings = fragment.findings.to_vec();
    let mut load_balancer = None;
    let root = proxy.spec.virtual_host.is_some();
    if root {
        let fqdn = reader.get(stages.roots, key);
        let owner = fqdn.and_then(|root| reader.get(stages.owners, &root.fqdn));
        let settings = reader.get(inputs.settings, &())?;
        findings.extend(host::obstacle(&settings, &proxy, owner.as_deref()));
        if let Some(host) = reader.get(stages.hosts, key) {
            findings.extend(host.findings.iter().cloned());
            let addresses = reader.get(addresses, &());
            load_balancer = addresses.map(|addresses| LoadBalancerStatus::clone(&addresses));
        }
        for message in overlaps::messages(reader, hosts.overlaps, key) {
            findings.push(Finding::warning(About::OVERLAP, "spec", message));
        }
        for (_, message) in scans::messages(reader, hosts.refusals, key) {
            findings.push(Finding::error(About::CONDITIONS, "spec", message));
        }
        for message in wildcard_budget::messages(reader, hosts.left_out, key) {
            findings.push(Finding::error(About::HOST, "spec", message));
        }
        if let Some(message) = held::message(reader, hosts.held, key) {
            findings.push(Finding::error(About::HOST, "spec", message));
        }
        let left_out = reader.by(stages.left_out, key);
        findings.extend(
            left_out
                .iter()
                .map(|(included, _)| rules::without(included)),
        );
    }
    for of_root in reader.values_by(stages.by_affected, key) {
        findings.extend(of_root.iter().cloned());
    }
    let orphaned = !root && reader.count(stages.by_included, key) == 0;
    let status = status::status(&proxy, findings, orphaned, load_balancer);
    Some(ObjectStatus::HttpProxy(status))
}
