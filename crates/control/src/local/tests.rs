use tokio::sync::oneshot;

use super::*;

#[test]
fn clusters_outlast_connections_that_drain() {
    for (drain, grace) in [
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
        assert_eq!(config.limits.removal_delay, Duration::from_millis(grace));
    }
}

/// A run without objects whose source is `reading`.
async fn start<F>(reading: impl FnOnce(mpsc::Sender<Message>) -> F) -> Local
where
    F: Future<Output = Result<(), RunError>> + Send + 'static,
{
    let config = LocalConfig::new(FilesConfig::new([PathBuf::from("unread")]), "unused");
    Local::start_reading(config, reading).await.unwrap().0
}

#[tokio::test]
async fn a_source_that_fails_is_the_reason_though_translation_ends_with_it() {
    let (go, gone) = oneshot::channel::<()>();
    let mut local = start(|owner| async move {
        drop(owner);
        let _ = gone.await;
        Err(RunError::Admin(io::Error::other("like this")))
    })
    .await;
    // The thread ends before the source returns its error.
    local
        .running
        .owner()
        .wait_for(|ended| *ended)
        .await
        .unwrap();
    go.send(()).unwrap();
    let error = local.failed().await;
    assert!(matches!(error, RunError::Admin(_)), "{error:?}");
    local.shutdown().await;
}

#[tokio::test]
async fn a_panic_of_translation_is_told_as_often_as_asked() {
    let mut local = start(|owner| async move {
        let panic = Message::Inspect(Box::new(|_| panic!("on purpose")));
        let _ = owner.send(panic).await;
        owner.closed().await;
        Ok(())
    })
    .await;
    for _ in 0..2 {
        let error = local.failed().await;
        assert!(matches!(error, RunError::Owner), "{error:?}");
    }
    local.shutdown().await;
}
