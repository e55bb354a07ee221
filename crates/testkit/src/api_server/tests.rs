use std::collections::BTreeMap;
use std::process::Command;

use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, DynamicObject, PostParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};

use super::*;

fn config_map(name: &str) -> ConfigMap {
    let mut object = ConfigMap::default();
    object.metadata.name = Some(name.to_owned());
    object.data = Some(BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    object
}

fn config_maps(client: &Client) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), "default")
}

async fn create(client: &Client, name: &str) -> ConfigMap {
    let params = PostParams::default();
    config_maps(client)
        .create(&params, &config_map(name))
        .await
        .unwrap()
}

#[tokio::test]
async fn users_have_the_rights_granted_to_them() {
    let server = ApiServer::shared().await.unwrap();
    let admin = server.admin().await.unwrap();
    create(&admin, "rights").await;
    let account = server.service_account("default", "reader").await.unwrap();
    let error = config_maps(&account).get("rights").await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("system:serviceaccount:default:reader"),
        "{text}"
    );
    let master = server.client("other", &["x", "system:masters"]).await;
    let found = config_maps(&master.unwrap()).get("rights").await.unwrap();
    assert_eq!(found.data.unwrap()["a"], "b");
}

#[tokio::test]
async fn definitions_are_served() {
    let server = ApiServer::shared().await.unwrap();
    server.install_definitions(Channel::Standard).await.unwrap();
    let kind = GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "HTTPRoute");
    let client = server.admin().await.unwrap();
    let routes: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    routes.list(&Default::default()).await.unwrap();
}

#[tokio::test]
async fn objects_survive_a_restart_but_the_watch_cache_does_not() {
    let server = ApiServer::start().await.unwrap();
    let client = server.admin().await.unwrap();
    let first = create(&client, "first").await;
    create(&client, "second").await;
    server.stop().await.unwrap();
    config_maps(&client).get("first").await.unwrap_err();
    server.resume().await.unwrap();
    assert!(config_maps(&client).get("second").await.is_ok());
    assert_eq!(watch_from(&client, &first).await, 410);
}

#[tokio::test]
async fn compaction_ends_watches_from_earlier_versions() {
    let server = ApiServer::start_with(&["--watch-cache=false"])
        .await
        .unwrap();
    let client = server.admin().await.unwrap();
    let first = create(&client, "first").await;
    create(&client, "second").await;
    // Compaction keeps the latest change, so another must follow.
    create(&client, "third").await;
    assert_eq!(watch_from(&client, &first).await, 0);
    server.compact().await.unwrap();
    assert_eq!(watch_from(&client, &first).await, 410);
}

/// Starts a watch from this object's version. Returns its status code, or 0 if the watch begins with a change.
async fn watch_from(client: &Client, object: &ConfigMap) -> u16 {
    let version = object.resource_version().unwrap();
    let params = WatchParams::default();
    let api = config_maps(client);
    let stream = match api.watch(&params, &version).await {
        Ok(stream) => stream,
        Err(kube::Error::Api(status)) => return status.code,
        Err(error) => panic!("{error}"),
    };
    match stream.boxed().try_next().await.unwrap().unwrap() {
        WatchEvent::Error(error) => error.code,
        WatchEvent::Added(_) | WatchEvent::Modified(_) => 0,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_dropped_server_leaves_no_process_and_no_file() {
    let server = ApiServer::start().await.unwrap();
    let folder = server.folder().to_owned();
    let name = folder.to_str().unwrap().to_owned();
    assert!(folder.join("etcd").exists());
    // The directory is among the arguments of both programs.
    assert!(running(&name).contains("kube-apiserver"));
    drop(server);
    assert!(!folder.exists());
    assert_eq!(running(&name), "");
}

/// The command lines of other processes that contain this text.
fn running(name: &str) -> String {
    let output = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = text.lines().filter(|line| line.contains(name)).collect();
    lines.join("\n")
}
