//! Route tables: each domain with its routes, in order of precedence.

use serde_json::{Value, json};

use super::{Constants, Fields, filters, pairs};
use crate::yaml::Node;

/// Tables by name, without the virtual hosts that are also in `theirs`.
pub(super) fn all(
    own: &[Value],
    theirs: &[Value],
    constants: &mut Constants,
) -> Vec<(String, Node)> {
    let mut out = Vec::new();
    for table in own {
        let name = &table["name"];
        let other = theirs.iter().find(|other| other["name"] == *name);
        let node = one(table.clone(), other, constants);
        if !node.is_empty() || other.is_none() {
            out.push((name.as_str().unwrap_or_default().to_owned(), node));
        }
    }
    out
}

fn one(table: Value, other: Option<&Value>, constants: &mut Constants) -> Node {
    let mut fields = Fields::of(table);
    fields.take("name");
    let known = other.and_then(|other| other["virtual_hosts"].as_array());
    let mut out = Vec::new();
    for host in fields.list("virtual_hosts") {
        if !known.is_some_and(|known| known.contains(&host)) {
            out.push(virtual_host(host, constants));
        }
    }
    let options = fields.take_all(&[
        "ignore_port_in_host_matching",
        "most_specific_header_mutations_wins",
        "request_headers_to_remove",
    ]);
    let constant = match options.get("request_headers_to_remove") {
        Some(_) => "route table with TLS",
        None => "route table",
    };
    if !constants.is(constant, &options) {
        out.push(("options".to_owned(), Node::from(options)));
    }
    if let Some(filters) = fields.take("typed_per_filter_config")
        && !constants.is("filters of a route table", &filters)
    {
        out.push(("filters".to_owned(), Node::from(filters)));
    }
    fields.rest(&mut out);
    Node::Map(out)
}

/// Routes by domain. A domain without routes responds with 404.
fn virtual_host(host: Value, constants: &mut Constants) -> (String, Node) {
    let mut fields = Fields::of(host);
    let name = fields.text("name");
    let mut out = Vec::new();
    let domains = Value::Array(fields.list("domains"));
    let mut routes = fields.list("routes");
    if let Some((listener, fallback)) = routes.first().and_then(listener) {
        out.push(("listener".to_owned(), Node::text(listener)));
        if fallback {
            out.push(("fallback".to_owned(), Node::from(json!(true))));
        }
        routes.remove(0);
    }
    let routes = routes.into_iter().map(|each| route(each, constants));
    let routes: Vec<Node> = routes.collect();
    if domains != serde_json::json!([name]) {
        out.push(("domains".to_owned(), Node::from(domains)));
    }
    if let Some(configs) = fields.take("typed_per_filter_config") {
        out.extend(filters::of_host(configs, constants));
    }
    fields.rest(&mut out);
    if out.is_empty() {
        return (name, Node::List(routes));
    }
    out.push(("routes".to_owned(), Node::List(routes)));
    (name, Node::Map(out))
}

/// If this route answers other listeners' requests with 421: the listener that it exempts, and whether it also exempts
/// connections with the fallback certificate.
fn listener(route: &Value) -> Option<(String, bool)> {
    let exact = "/match/headers/0/string_match/exact";
    let listener = route.pointer(exact)?.as_str()?.to_owned();
    let misdirected = |listeners: &[&str]| {
        let headers = listeners.iter().map(|listener| {
            json!({
                "name": "x-sesame-listener",
                "string_match": {"exact": listener},
                "invert_match": true,
            })
        });
        json!({
            "match": {"prefix": "/", "headers": headers.collect::<Vec<_>>()},
            "direct_response": {"status": 421},
        })
    };
    if *route == misdirected(&[&listener]) {
        return Some((listener, false));
    }
    (*route == misdirected(&[&listener, "*"])).then_some((listener, true))
}

fn route(route: Value, constants: &mut Constants) -> Node {
    let mut fields = Fields::of(route);
    let mut out = Vec::new();
    if let Some(matches) = fields.take("match") {
        out.push(("match".to_owned(), matching(matches)));
    }
    if let Some(action) = fields.take("route") {
        out.push(("route".to_owned(), forward(action, constants)));
    }
    for direction in ["request", "response"] {
        headers(&mut fields, direction, &mut out);
    }
    if let Some(configs) = fields.take("typed_per_filter_config") {
        out.extend(filters::of_route(configs, constants));
    }
    fields.rest(&mut out);
    Node::Map(out)
}

fn matching(matches: Value) -> Node {
    let mut fields = Fields::of(matches);
    let mut out = Vec::new();
    for path in ["path", "path_separated_prefix", "prefix"] {
        if let Some(value) = fields.take(path) {
            out.push((path.to_owned(), Node::from(value)));
        }
    }
    if let Some(regex) = fields.take("safe_regex") {
        out.push(("regex".to_owned(), short_regex(regex)));
    }
    for (list, name) in [("headers", "headers"), ("query_parameters", "query")] {
        let conditions = fields
            .list(list)
            .into_iter()
            .map(condition)
            .collect::<Vec<_>>();
        if !conditions.is_empty() {
            out.push((name.to_owned(), pairs(conditions)));
        }
    }
    if let Some(mut fraction) = fields.take("runtime_fraction") {
        let value = fraction["default_value"].take();
        let millionths = match value["denominator"].as_str() {
            Some("MILLION") => value["numerator"].as_u64(),
            _ => None,
        };
        let node = match millionths {
            Some(millionths) => Node::text(format!("{millionths} of 1000000")),
            None => Node::from(value),
        };
        out.push(("share".to_owned(), node));
    }
    fields.rest(&mut out);
    Node::Map(out)
}

/// A header or query parameter match, by name.
fn condition(condition: Value) -> (String, Node) {
    let mut fields = Fields::of(condition);
    let name = fields.text("name");
    let value = fields.take("string_match");
    if !fields.0.is_empty() {
        let mut out: Vec<(String, Node)> = Vec::new();
        out.extend(value.map(|value| ("string_match".to_owned(), Node::from(value))));
        fields.rest(&mut out);
        return (name, Node::Map(out));
    }
    (name, value.map_or(Node::Map(Vec::new()), string))
}

/// A string for an exact match, `{regex: …}` for a regular expression.
fn string(matcher: Value) -> Node {
    let whole = Node::from(matcher.clone());
    let mut fields = Fields::of(matcher);
    let exact = fields.take("exact");
    let regex = fields.take("safe_regex");
    match (exact, regex, fields.0.is_empty()) {
        (Some(exact), None, true) => Node::from(exact),
        (None, Some(regex), true) => Node::Map(vec![("regex".to_owned(), short_regex(regex))]),
        _ => whole,
    }
}

fn short_regex(regex: Value) -> Node {
    match regex.as_object() {
        Some(fields) if fields.len() == 1 && fields.contains_key("regex") => {
            Node::from(regex["regex"].clone())
        }
        _ => Node::from(regex),
    }
}

fn forward(action: Value, constants: &mut Constants) -> Node {
    let mut fields = Fields::of(action);
    let mut out = Vec::new();
    if let Some(cluster) = fields.take("cluster") {
        out.push(("cluster".to_owned(), Node::from(cluster)));
    }
    if let Some(weighted) = fields.take("weighted_clusters") {
        let mut weighted = Fields::of(weighted);
        let clusters = weighted.list("clusters").into_iter().map(|cluster| {
            let mut fields = Fields::of(cluster);
            let mut out = Vec::new();
            out.push(("name".to_owned(), Node::text(fields.text("name"))));
            out.extend(
                fields
                    .take("weight")
                    .map(|weight| ("weight".to_owned(), Node::from(weight))),
            );
            for direction in ["request", "response"] {
                headers(&mut fields, direction, &mut out);
            }
            if let Some(configs) = fields.take("typed_per_filter_config") {
                out.extend(filters::of_route(configs, constants));
            }
            fields.rest(&mut out);
            Node::Map(out)
        });
        out.push((
            "weighted_clusters".to_owned(),
            Node::List(clusters.collect()),
        ));
        weighted.rest(&mut out);
    }
    // Envoy defaults to 15 s, so "no timeout" is explicit.
    match fields.take("timeout") {
        Some(Value::String(timeout)) if timeout == "0s" => {}
        Some(timeout) => out.push(("timeout".to_owned(), Node::from(timeout))),
        None => out.push(("timeout".to_owned(), Node::text("(Envoy's default)"))),
    }
    if let Some(retry) = fields.take("retry_policy") {
        let mut retry = Fields::of(retry);
        let hosts = retry.take_all(&["retry_host_predicate", "host_selection_retry_max_attempts"]);
        let mut node = Vec::new();
        let on = retry.take("retry_on");
        let retries = on.is_some() || hosts != serde_json::json!({});
        if retries && !constants.is("hosts of retries", &hosts) {
            node.push(("hosts".to_owned(), Node::from(hosts)));
        }
        node.extend(on.map(|on| ("retry_on".to_owned(), Node::from(on))));
        retry.rest(&mut node);
        out.push(("retry_policy".to_owned(), Node::Map(node)));
    }
    fields.rest(&mut out);
    Node::Map(out)
}

/// `set`, `add` and `remove` for one direction.
fn headers(fields: &mut Fields, direction: &str, out: &mut Vec<(String, Node)>) {
    let mut changes = Vec::new();
    let mut by_action: Vec<(&str, Vec<(String, Node)>)> = vec![("set", vec![]), ("add", vec![])];
    for option in fields.list(&format!("{direction}_headers_to_add")) {
        let whole = option.clone();
        let mut option = Fields::of(option);
        let mut header = Fields::of(option.take("header").expect("an option has a header"));
        let name = header.text("key");
        let value = header.take("value").unwrap_or_else(|| "".into());
        let action = option.take("append_action");
        let place = match action.as_ref().and_then(Value::as_str) {
            Some("OVERWRITE_IF_EXISTS_OR_ADD") => 0,
            _ => 1,
        };
        // Appending is Envoy's default.
        let usual = place == 0 || action.is_none();
        let node = match usual && option.0.is_empty() && header.0.is_empty() {
            true => Node::from(value),
            false => Node::from(whole),
        };
        by_action[place].1.push((name, node));
    }
    for (name, list) in by_action {
        if !list.is_empty() {
            changes.push((name.to_owned(), pairs(list)));
        }
    }
    let removed = fields.list(&format!("{direction}_headers_to_remove"));
    if !removed.is_empty() {
        changes.push(("remove".to_owned(), Node::from(Value::Array(removed))));
    }
    if !changes.is_empty() {
        out.push((format!("{direction}_headers"), Node::Map(changes)));
    }
}
