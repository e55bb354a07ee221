//! The tasks of a run, and why it ended by itself.
//!
//! In: tasks, and the thread that translates. Out: the first reason why the run can't go on. It must not know what they do.

use std::future::Future;
use std::io;

use sesame_sources::{files, kube};
use sesame_xds as xds;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Why a run ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The translating thread is gone: a defect, which has been printed.
    #[error("translation has failed; please report what is printed above")]
    Owner,
    /// The files can't be read any more.
    #[error(transparent)]
    Files(#[from] files::WatchError),
    /// The API server can't be watched.
    #[error(transparent)]
    Kube(#[from] kube::WatchError),
    /// Envoys can't be served any more.
    #[error(transparent)]
    Xds(#[from] xds::ServeError),
    /// Sesame's own pages can't be served any more.
    #[error("Sesame's own pages can't be served any more: {0}")]
    Admin(io::Error),
    /// A task of ours ended or panicked: a defect, which has been printed.
    #[error("a part of Sesame has failed; please report what is printed above")]
    Task,
}

/// What runs.
#[derive(Debug)]
pub(crate) struct Running {
    tasks: Tasks,
    /// True when the owner's thread has ended as it should; closed before that if it panicked.
    owner: watch::Receiver<bool>,
}

/// Tasks that end only if they must, with the reason.
pub(crate) type Tasks = JoinSet<Result<(), RunError>>;

impl Running {
    pub(crate) fn new(tasks: Tasks, owner: watch::Receiver<bool>) -> Self {
        Self { tasks, owner }
    }

    /// Completes if something that everything depends on has failed. Cancel safe.
    pub(crate) async fn failed(&mut self) -> RunError {
        let owner = &mut self.owner;
        let panicked = async {
            // One that ended as it should did so because a task had failed, or all is about to end.
            if owner.wait_for(|ended| *ended).await.is_ok() {
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
                () = &mut panicked => return RunError::Owner,
            }
        }
    }

    /// Waits until every task has ended by itself.
    pub(crate) async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }

    /// Ends all tasks where they are.
    pub(crate) async fn shutdown(mut self) {
        self.tasks.shutdown().await;
    }

    #[cfg(test)]
    pub(crate) fn owner(&self) -> watch::Receiver<bool> {
        self.owner.clone()
    }
}

/// Adds a task that has no reason to give.
pub(crate) fn spawn(tasks: &mut Tasks, task: impl Future<Output = ()> + Send + 'static) {
    tasks.spawn(async move {
        task.await;
        Ok(())
    });
}
