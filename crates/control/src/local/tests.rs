use sesame_testkit::client::{Request, Response, send};
use tokio::sync::oneshot;

use super::*;

#[test]
fn clusters_are_kept_while_connections_drain() {
    for (drain, removal_delay) in [
        (0, 2000),
        (1, 2000),
        (1000, 2000),
        (4200, 6000),
        (5000, 6000),
    ] {
        let config = xds_config(&LocalConfig {
            drain: Duration::from_millis(drain),
            ..LocalConfig::new(FilesConfig::new(Vec::<PathBuf>::new()), "unused")
        });
        assert_eq!(
            config.limits.removal_delay,
            Duration::from_millis(removal_delay)
        );
    }
}

/// Starts a run with this source.
async fn start<F>(source: impl FnOnce(mpsc::Sender<Message>) -> F) -> Local
where
    F: Future<Output = Result<(), RunError>> + Send + 'static,
{
    let mut config = LocalConfig::new(FilesConfig::new([PathBuf::from("unused")]), "unused");
    config.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    Local::start_with(config, source).await.unwrap().0
}

#[tokio::test]
async fn a_failed_source_is_reported_even_if_the_translator_ends_first() {
    let (fail, wait) = oneshot::channel::<()>();
    let mut local = start(|translator| async move {
        drop(translator);
        let _ = wait.await;
        Err(RunError::Task)
    })
    .await;
    // The thread ends before the source returns its error.
    local
        .running
        .translator()
        .wait_for(|ended| *ended)
        .await
        .unwrap();
    fail.send(()).unwrap();
    let error = local.failed().await;
    assert!(matches!(error, RunError::Task), "{error:?}");
    local.shutdown().await;
}

#[tokio::test]
async fn a_translator_panic_is_reported_by_every_call() {
    let mut local = start(|translator| async move {
        let panic = Message::Inspect(Box::new(|_| panic!("on purpose")));
        let _ = translator.send(panic).await;
        translator.closed().await;
        Ok(())
    })
    .await;
    for _ in 0..2 {
        let error = local.failed().await;
        assert!(matches!(error, RunError::Translator), "{error:?}");
    }
    local.shutdown().await;
}

/// The response of `/healthz` once the translator has this fault; within 10 s.
async fn unhealthy(fault: impl FnOnce() + Send + 'static) -> String {
    let (fail, wait) = oneshot::channel::<()>();
    let local = start(|translator| async move {
        let _ = wait.await;
        let fault = Message::Inspect(Box::new(|_| fault()));
        let _ = translator.send(fault).await;
        translator.closed().await;
        Ok(())
    })
    .await;
    let healthz = async || -> Response {
        let request = Request::get("localhost", "/healthz");
        send(local.admin().unwrap(), &request).await.unwrap()
    };
    assert_eq!(healthz().await.status, 200);
    fail.send(()).unwrap();
    let failed = async {
        loop {
            let response = healthz().await;
            if response.status == 503 {
                return response;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let response = tokio::time::timeout(Duration::from_secs(10), failed).await;
    let text = response.unwrap().body;
    local.shutdown().await;
    String::from_utf8(text.to_vec()).unwrap()
}

#[tokio::test]
async fn healthz_fails_once_the_translator_has_panicked() {
    let text = unhealthy(|| panic!("on purpose")).await;
    assert_eq!(text, "the translator thread has ended\n");
}

#[tokio::test]
async fn healthz_fails_while_the_translator_hangs() {
    let text = unhealthy(|| std::thread::sleep(Duration::from_secs(12))).await;
    assert_eq!(text, "the translator thread has not responded for 8 s\n");
}
