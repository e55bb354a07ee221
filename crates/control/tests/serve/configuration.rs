//! The SesameConfiguration of an instance.

use serde_json::{Value, json};
use sesame_xds::ResourceType::Listener;

use crate::rig::{Rig, condition};

impl Rig {
    async fn configuration(&self, spec: Value) {
        let object = json!({"metadata": {"name": "own"}, "spec": spec});
        self.apply("sesameconfigurations", object).await;
    }

    /// Waits until the status of the configuration observes the last change, with these conditions.
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
        // An invalid one doesn't count.
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
    });
    rig.configuration(spec.clone()).await;
    rig.until_configured("True", "True").await;
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

    // Later versions apply again. What the instance can't change while it runs is reported.
    rig.configuration(json!({"gateway": {"controllerName": controller}}))
        .await;
    rig.until_configured("True", "False").await;
    listens("80").await;
    replica.shutdown().await;
}
