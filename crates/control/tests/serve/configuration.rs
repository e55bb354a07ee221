//! The SesameConfiguration of an instance.

use std::fs;

use serde_json::{Value, json};
use sesame_api::{LoggingLevel, Object, SesameConfiguration};
use sesame_control::files::{self, FilesConfig};
use sesame_control::serve::{ContourCompat, Serve, await_configuration};
use sesame_control::{Mode, Settings, configured_settings};
use sesame_xds::ResourceType::Listener;

use crate::rig::{Rig, condition};

fn settings(of: &SesameConfiguration) -> Settings {
    configured_settings(&Settings::new(Mode::Managed), of).unwrap()
}

impl Rig {
    /// Starts a replica of Sesame that waits for its SesameConfiguration.
    async fn configured_replica(&self, name: &str, configuration: &str) -> Serve {
        let kubeconfig = self.path("kubeconfig");
        let started = Settings::new(Mode::Managed);
        let name_of = self.name(configuration);
        let found = await_configuration(Some(&kubeconfig), &name_of, &started, None).await;
        let settings = settings(&found.unwrap());
        self.start(name, ContourCompat::Off, settings, None).await
    }

    /// Starts a replica of Sesame with the SesameConfiguration in a file.
    async fn replica_with_file(&self, name: &str, file: &str) -> Serve {
        let path = self.path(file);
        let objects = files::load(&FilesConfig::new([&path])).objects;
        let [Object::SesameConfiguration(found)] = &objects[..] else {
            panic!("{objects:?}");
        };
        self.start(name, ContourCompat::Off, settings(found), Some(path))
            .await
    }

    async fn configuration(&self, spec: Value) {
        let object = json!({"metadata": {"name": "own"}, "spec": spec});
        self.apply("sesameconfigurations", object).await;
    }

    /// Waits until the configuration's status has observed the last change and has these conditions.
    async fn until_configured(&self, accepted: &str, programmed: &str) {
        self.until("the configuration has its status", async || {
            let object = self.get("sesameconfigurations", "own").await;
            let status = &object["status"];
            let generation = &object["metadata"]["generation"];
            status["conditions"][0]["observedGeneration"] == *generation
                && condition(status, "Accepted") == accepted
                && condition(status, "Programmed") == programmed
        })
        .await;
    }

    async fn proxy_of_class(&self, name: &str, class: &str) {
        let spec = json!({
            "ingressClassName": class,
            "virtualhost": {"fqdn": format!("{name}.example.com")},
            "routes": [{"services": [{"name": "shop", "port": 80}]}],
        });
        let object = json!({"metadata": {"name": name}, "spec": spec});
        self.apply("httpproxies", object).await;
    }

    async fn is_valid(&self, proxy: &str) -> bool {
        let proxy = self.get("httpproxies", proxy).await;
        proxy["status"]["currentStatus"] == "valid"
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_waits_for_its_configuration_and_follows_it() {
    let rig = Rig::new().await;
    rig.service("shop").await;
    rig.gateway("web").await;
    rig.proxy_of_class("ours", "sesame").await;
    rig.proxy_of_class("other", "other").await;
    let (replica, ()) = tokio::join!(rig.configured_replica("one", "own"), async {
        // An invalid configuration is ignored.
        let invalid = json!({"envoy": {"resources": {"limits": {"cpu": "much"}}}});
        rig.configuration(invalid).await;
        rig.configuration(json!({"envoy": {}})).await;
    });
    rig.until_configured("True", "True").await;
    rig.until("the HTTPProxy is valid", async || {
        rig.is_valid("ours").await
    })
    .await;
    // Without the section, no Gateway is served.
    let gateway = rig.get("gateways", "web").await;
    assert_eq!(
        condition(&gateway["status"], "Accepted"),
        "Unknown",
        "{gateway}"
    );
    assert!(!rig.is_valid("other").await);
    let envoy = rig.default_envoy(&replica).await;
    let listens = async |port: &str| {
        envoy
            .until(|state| {
                let names = state.names(Listener);
                names.len() == 1 && names.iter().any(|name| name.contains(port))
            })
            .await
            .unwrap();
    };
    listens("80").await;

    let controller = "projectsesame.io/gateway-controller";
    let mut spec = json!({
        "envoy": {},
        "gateway": {"controllerName": controller},
        "ingress": {"classNames": ["sesame", "other"]},
        "defaultPorts": {"http": 8081},
        "logging": {"level": "debug"},
    });
    let mut logging = replica.logging();
    assert_eq!(logging.borrow_and_update().level, None);
    rig.configuration(spec.clone()).await;
    rig.until_configured("True", "True").await;
    logging.changed().await.unwrap();
    assert_eq!(logging.borrow().level, Some(LoggingLevel::Debug));
    rig.until("the other class is served", async || {
        rig.is_valid("other").await
    })
    .await;
    rig.until("the Gateway is accepted", async || {
        let gateway = rig.get("gateways", "web").await;
        condition(&gateway["status"], "Accepted") == "True"
    })
    .await;
    listens("8081").await;

    // An invalid version changes nothing.
    spec["envoy"] = json!({"resources": {"limits": {"cpu": "much"}}});
    spec["defaultPorts"] = json!({"http": 9000});
    rig.configuration(spec.clone()).await;
    rig.until_configured("False", "False").await;
    listens("8081").await;

    // Neither does its removal.
    rig.delete("sesameconfigurations", "own").await;
    rig.proxy_of_class("more", "other").await;
    rig.until("the other class is still served", async || {
        rig.is_valid("more").await
    })
    .await;
    listens("8081").await;

    // Later versions apply again. Settings that can't change at run time are reported.
    rig.configuration(json!({"gateway": {"controllerName": controller}}))
        .await;
    rig.until_configured("True", "False").await;
    listens("80").await;
    replica.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_follows_the_file_with_its_configuration() {
    const FILE: &str = "sesame.yaml";
    let configuration = |class: &str| {
        json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "SesameConfiguration",
            "metadata": {"name": "file"},
            "spec": {"envoy": {}, "ingress": {"classNames": [class]}},
        })
        .to_string()
    };
    let rig = Rig::new().await;
    rig.service("shop").await;
    rig.proxy_of_class("ours", "ours").await;
    rig.proxy_of_class("other", "other").await;
    let write = |text: &str| fs::write(rig.path(FILE), text).unwrap();
    write(&configuration("ours"));
    let replica = rig.replica_with_file("one", FILE).await;
    rig.until("the first class is served", async || {
        rig.is_valid("ours").await
    })
    .await;
    assert!(!rig.is_valid("other").await);
    // An invalid version changes nothing.
    write("kind: [");
    rig.proxy_of_class("more", "ours").await;
    rig.until("the first class is still served", async || {
        rig.is_valid("more").await
    })
    .await;
    write(&configuration("other"));
    rig.until("the other class is served", async || {
        rig.is_valid("other").await
    })
    .await;
    replica.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoys_are_upgraded_once_all_replicas_run_the_release() {
    const RELEASE: &str = "projectsesame.io/release";
    let rig = Rig::new().await;
    rig.gateway("web").await;
    let labels = json!({"app": "sesame"});
    let template = json!({
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "sesame", "image": "sesame:test"}]},
    });
    let spec = json!({"replicas": 1, "selector": {"matchLabels": labels}, "template": template});
    let own = json!({"metadata": {"name": "sesame"}, "spec": spec});
    rig.apply("deployments", own).await;
    let controller = "projectsesame.io/gateway-controller";
    rig.configuration(json!({"envoy": {}, "gateway": {"controllerName": controller}}))
        .await;
    let replica = rig
        .configured_replica("sesame-5d9c7bd7b8-x2x7v", "own")
        .await;
    let upgraded = async |expected: &str| {
        rig.until("the status has the progress", async || {
            let configuration = rig.get("sesameconfigurations", "own").await;
            condition(&configuration["status"], "EnvoysUpgraded") == expected
        })
        .await;
    };
    let release = async || {
        let owned = rig.owned("web").await;
        let name = owned
            .iter()
            .find_map(|one| one.strip_prefix("deployments/"))?;
        let deployment = rig.get("deployments", name).await;
        let release = deployment["metadata"]["annotations"][RELEASE].as_str()?;
        Some((name.to_owned(), release.to_owned()))
    };
    // The first Envoys don't wait.
    rig.until("the Gateway has a Deployment", async || {
        release().await.is_some()
    })
    .await;
    upgraded("True").await;
    let (name, current) = release().await.unwrap();
    let other = json!({"metadata": {"name": name, "annotations": {RELEASE: "0"}}});
    rig.apply("deployments", other).await;
    upgraded("False").await;
    assert_eq!(release().await.unwrap().1, "0");
    let status = json!({"status": {
        "observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1,
    }});
    rig.status("deployments", "sesame", status).await;
    rig.until("the Deployment is upgraded", async || {
        release().await.unwrap().1 == current
    })
    .await;
    upgraded("True").await;
    replica.shutdown().await;
}
