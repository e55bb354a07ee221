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
        let config = xds_config(Duration::from_millis(drain));
        assert_eq!(config.limits.removal_grace, Duration::from_millis(grace));
    }
}
