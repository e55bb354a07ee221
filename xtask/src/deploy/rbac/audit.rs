//! Reads a user's requests from audit logs.
//!
//! In: files of JSON lines (`audit.k8s.io/v1`, level `Metadata` or above). Out: distinct requests.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

/// The attributes of a request that matter for authorization.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Request {
    /// `None` for cluster-scoped resources and for requests to all namespaces.
    pub(super) namespace: Option<String>,
    pub(super) group: String,
    /// Includes a subresource after a slash.
    pub(super) resource: String,
    pub(super) verb: String,
    /// `None` for requests to several objects, or to one without a name.
    pub(super) name: Option<String>,
    /// Whether it was allowed.
    pub(super) allowed: bool,
}

/// The requests of some users from several files, except those without a resource (`/version`, `/apis`), which every
/// account may make.
pub(super) fn requests(files: &[PathBuf], of: impl Fn(&str) -> bool) -> Result<BTreeSet<Request>> {
    let mut requests = BTreeSet::new();
    for file in files {
        let place = || format!("cannot read {}", file.display());
        let lines = BufReader::new(File::open(file).with_context(place)?).lines();
        for (number, line) in (1..).zip(lines) {
            let line = line.with_context(place)?;
            if line.trim().is_empty() {
                continue;
            }
            let event: Value = serde_json::from_str(&line)
                .with_context(|| format!("{}:{number} isn't an audit event", file.display()))?;
            let user = event["user"]["username"].as_str();
            if user.is_some_and(&of) {
                requests.extend(read(&event));
            }
        }
    }
    Ok(requests)
}

/// The requests that an event records; empty for unfinished events.
fn read(event: &Value) -> Vec<Request> {
    let decision = event["annotations"]["authorization.k8s.io/decision"].as_str();
    let Some(decision) = decision else {
        return Vec::new();
    };
    let about = &event["objectRef"];
    let text = |value: &Value| {
        value
            .as_str()
            .filter(|text| !text.is_empty())
            .map(str::to_owned)
    };
    let (Some(mut resource), Some(verb)) = (text(&about["resource"]), text(&event["verb"])) else {
        return Vec::new();
    };
    if let Some(sub) = text(&about["subresource"]) {
        resource = format!("{resource}/{sub}");
    }
    let request = Request {
        namespace: text(&about["namespace"]),
        group: text(&about["apiGroup"]).unwrap_or_default(),
        resource,
        verb,
        name: text(&about["name"]),
        allowed: decision == "allow",
    };
    // A patch that creates its object (server-side apply) is authorized twice but logged once.
    let created = request.verb == "patch" && event["responseStatus"]["code"] == 201;
    let second = created.then(|| Request {
        verb: "create".to_owned(),
        ..request.clone()
    });
    second.into_iter().chain([request]).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const USER: &str = "system:serviceaccount:sesame-system:sesame";

    fn event(verb: &str, about: &Value, code: u16, decision: &str) -> Value {
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "stage": "ResponseComplete",
            "verb": verb, "user": {"username": USER}, "objectRef": about, "responseStatus": {"code": code},
            "annotations": {"authorization.k8s.io/decision": decision, "authorization.k8s.io/reason": ""},
        })
    }

    #[test]
    fn a_subresource_is_a_separate_resource() {
        let about = json!({"resource": "gateways", "namespace": "a", "name": "web", "apiGroup": "gateway.networking.k8s.io", "subresource": "status"});
        let expected = Request {
            namespace: Some("a".to_owned()),
            group: "gateway.networking.k8s.io".to_owned(),
            resource: "gateways/status".to_owned(),
            verb: "patch".to_owned(),
            name: Some("web".to_owned()),
            allowed: true,
        };
        assert_eq!(read(&event("patch", &about, 200, "allow")), [expected]);
    }

    #[test]
    fn a_patch_that_creates_its_object_is_also_a_create() {
        let about = json!({"resource": "services", "namespace": "a", "name": "web"});
        let verbs: Vec<String> = read(&event("patch", &about, 201, "allow"))
            .into_iter()
            .map(|request| request.verb)
            .collect();
        assert_eq!(verbs, ["create", "patch"]);
    }

    #[test]
    fn unfinished_and_non_resource_requests_are_ignored() {
        let about = json!({"resource": "services"});
        assert_eq!(read(&event("get", &Value::Null, 200, "allow")), []);
        let mut early = event("list", &about, 200, "allow");
        early["annotations"] = Value::Null;
        assert_eq!(read(&early), [], "not yet authorized");
    }

    #[test]
    fn rejected_requests_are_marked() {
        let about = json!({"resource": "pods"});
        assert!(!read(&event("list", &about, 403, "forbid"))[0].allowed);
    }

    #[test]
    fn invalid_lines_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("audit.log");
        let good = event("list", &json!({"resource": "services"}), 200, "allow");
        std::fs::write(&file, format!("{good}\n\n{good}\n")).unwrap();
        assert_eq!(
            requests(std::slice::from_ref(&file), |user| user == USER)
                .unwrap()
                .len(),
            1
        );
        let others = requests(std::slice::from_ref(&file), |user| user != USER);
        assert!(others.unwrap().is_empty());
        std::fs::write(&file, format!("{good}\n{{\n")).unwrap();
        let error = requests(&[file], |user| user == USER).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("audit.log:2 isn't an audit event"),
            "{error}"
        );
    }
}
