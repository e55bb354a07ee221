//! Kubernetes objects to the model and to statuses.
