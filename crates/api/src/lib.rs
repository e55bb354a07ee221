//! Kubernetes objects as Sesame reads them.
