use serde_json::json;
use sesame_api::Kind;

use super::*;

fn object(value: Value) -> Object {
    Object::decode(value).unwrap().unwrap()
}

fn gateway(name: &str, class: &str) -> Object {
    object(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"gatewayClassName": class, "listeners": [
            {"name": "web", "port": 80, "protocol": "HTTP"},
        ]},
    }))
}

fn route(parent: &str) -> Object {
    object(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": "cart", "namespace": "shop"},
        "spec": {"parentRefs": [{"name": parent}], "hostnames": ["cart.example"],
            "rules": [{"backendRefs": [{"name": "cart", "port": 8080}]}]},
    }))
}

fn service() -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "cart", "namespace": "shop"},
        "spec": {"ports": [{"port": 8080}]},
    }))
}

fn shop() -> Vec<Object> {
    vec![
        gateway("edge", "sesame"),
        gateway("other", "another-class"),
        route("edge"),
        service(),
    ]
}

fn edge() -> FleetId {
    FleetId::of_gateway("shop", "edge")
}

#[test]
fn the_builtin_class_serves_routes() {
    let translation = translate(shop(), Options::default());
    assert_eq!(translation.fleets.keys().collect::<Vec<_>>(), [&edge()]);
    let resources = &translation.fleets[&edge()];
    assert_eq!(resources.listeners[0]["name"], "80");
    let socket = &resources.listeners[0]["address"]["socket_address"];
    assert_eq!(socket["address"], "127.0.0.1");
    assert_eq!(socket["port_value"], 80);
    assert_eq!(
        resources.routes[0]["virtual_hosts"][0]["domains"],
        json!(["cart.example"])
    );
    assert_eq!(resources.clusters[0]["name"], "shop/cart:8080");
    assert_eq!(resources.endpoints[0]["cluster_name"], "shop/cart:8080");
    assert!(resources.secrets.is_empty());

    let keys: Vec<String> = translation
        .statuses
        .iter()
        .map(|status| status.key.to_string())
        .collect();
    assert_eq!(keys, ["Gateway/shop/edge", "HTTPRoute/shop/cart"]);
    for condition in translation.statuses[0].status["conditions"]
        .as_array()
        .unwrap()
    {
        assert_eq!(condition["status"], "True", "{condition}");
        assert!(condition.get("lastTransitionTime").is_none());
    }
}

#[test]
fn the_order_of_objects_does_not_matter() {
    let forwards = translate(shop(), Options::default());
    let mut objects = shop();
    objects.reverse();
    assert_eq!(translate(objects, Options::default()), forwards);
}

#[test]
fn a_user_defined_class_replaces_the_builtin_one() {
    let class = |controller: &str| {
        object(json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass",
            "metadata": {"name": "sesame"}, "spec": {"controllerName": controller},
        }))
    };
    let mut objects = shop();
    objects.push(class("example.com/another"));
    assert_eq!(
        translate(objects, Options::default()),
        Translation::default()
    );

    let mut objects = shop();
    objects.push(class("projectsesame.io/gateway-controller"));
    let translation = translate(objects, Options::default());
    assert_eq!(translation.statuses[0].key.kind, Kind::GatewayClass);
    assert_eq!(translation.fleets.len(), 1);
}

#[test]
fn the_port_offset_changes_addresses_but_not_names() {
    let translation = translate(
        shop(),
        Options {
            port_offset: 8000,
            ..Options::default()
        },
    );
    let listener = &translation.fleets[&edge()].listeners[0];
    assert_eq!(listener["name"], "80");
    assert_eq!(listener["address"]["socket_address"]["port_value"], 8080);
}
