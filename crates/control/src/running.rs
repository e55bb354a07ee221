//! The tasks of a run, and why it failed.
//!
//! In: tasks and the translator thread. Out: the first failure. It must not depend on what the tasks do.

use std::future::Future;

use sesame_sources::{files, kube};
use sesame_xds as xds;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The translator thread panicked: a bug. The panic has been printed.
    #[error("the translator thread panicked; please report the panic printed above")]
    Translator,
    /// The files can no longer be read.
    #[error(transparent)]
    Files(#[from] files::WatchError),
    /// The API server can't be watched.
    #[error(transparent)]
    Kube(#[from] kube::WatchError),
    /// Envoys can no longer be served.
    #[error(transparent)]
    Xds(#[from] xds::ServeError),
    /// A task ended unexpectedly or panicked: a bug.
    #[error("an internal task ended unexpectedly; please report the output above")]
    Task,
}

/// The tasks of a run.
#[derive(Debug)]
pub(crate) struct Running {
    tasks: Tasks,
    /// Becomes true when the translator thread ends normally; closes without becoming true if it panics.
    translator: watch::Receiver<bool>,
}

/// Tasks that run until shutdown or failure.
pub(crate) type Tasks = JoinSet<Result<(), RunError>>;

impl Running {
    pub(crate) fn new(tasks: Tasks, translator: watch::Receiver<bool>) -> Self {
        Self { tasks, translator }
    }

    /// Completes when the run can't continue, with the reason. Cancel safe.
    pub(crate) async fn failed(&mut self) -> RunError {
        let translator = &mut self.translator;
        let panicked = async {
            // The thread ends normally after a task has failed, or at shutdown.
            if translator.wait_for(|ended| *ended).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        tokio::pin!(panicked);
        loop {
            tokio::select! {
                biased;
                Some(ended) = self.tasks.join_next() => match ended {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => return error,
                    Err(_) => return RunError::Task,
                },
                () = &mut panicked => return RunError::Translator,
            }
        }
    }

    /// Waits until every task has ended on its own.
    pub(crate) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Aborts all tasks.
    pub(crate) async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }

    #[cfg(test)]
    pub(crate) fn translator(&self) -> watch::Receiver<bool> {
        self.translator.clone()
    }
}

/// Adds a task without a result.
pub(crate) fn spawn(tasks: &mut Tasks, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async move {
        task.await;
        Ok(())
    });
}
