//! Splits requests between weighted backends.
//!
//! Envoy picks one of several clusters after selecting the route, and can change headers and the Host per cluster.
//! Anything else (the path, mirrors) requires a route per backend, selected by a random number per request.

use std::sync::Arc;

use sesame_model::{Action, Forward, Mirror, PartsPerMillion, PathRewrite, Target, WeightedTarget};

/// A backend with its own filters.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) target: WeightedTarget,
    pub(super) path_rewrite: Option<PathRewrite>,
    pub(super) mirrors: Vec<Mirror>,
}

/// The actions that split requests between the choices by weight; the last choice takes the rest. An invalid target
/// responds with `status` to its share (HTTPRouteRule.backendRefs).
pub(super) fn actions(
    template: &Forward,
    mut choices: Vec<Choice>,
    status: u16,
) -> Vec<(Option<PartsPerMillion>, Action)> {
    choices.retain(|choice| choice.target.weight > 0);
    if choices
        .iter()
        .all(|choice| choice.target.target == Target::Refused)
    {
        return vec![(None, Action::Respond(status))];
    }
    let alike = choices
        .iter()
        .all(|choice| choice.path_rewrite.is_none() && choice.mirrors.is_empty());
    if alike && choices.len() > 1 {
        let targets = choices.into_iter().map(|choice| choice.target).collect();
        return vec![(
            None,
            Action::Forward(Arc::new(Forward {
                targets,
                ..template.clone()
            })),
        )];
    }
    let total: u64 = choices
        .iter()
        .map(|choice| u64::from(choice.target.weight))
        .sum();
    let last = choices.len() - 1;
    let mut sum = 0u64;
    choices
        .into_iter()
        .enumerate()
        .map(|(position, choice)| {
            sum += u64::from(choice.target.weight);
            let share = u32::try_from((sum * 1_000_000 + total / 2) / total).unwrap_or(1_000_000);
            (
                (position < last).then_some(PartsPerMillion(share)),
                only(template, choice, status),
            )
        })
        .collect()
}

/// The action for a single backend.
fn only(template: &Forward, choice: Choice, status: u16) -> Action {
    if choice.target.target == Target::Refused {
        return Action::Respond(status);
    }
    let mut forward = template.clone();
    forward.path_rewrite = choice.path_rewrite.or(forward.path_rewrite);
    forward.mirrors.extend(choice.mirrors);
    forward.targets = vec![choice.target];
    Action::Forward(Arc::new(forward))
}

#[cfg(test)]
mod tests {
    use sesame_model::{BackendName, ClusterKey, HeaderChanges};

    use super::*;

    fn choice(service: &str, weight: u32, rewrite: Option<&str>) -> Choice {
        let target = match service {
            "" => Target::Refused,
            service => Target::Cluster(ClusterKey {
                namespace: "default".into(),
                backend: BackendName::ServicePort {
                    service: service.into(),
                    port: 80,
                },
                policy: None,
            }),
        };
        Choice {
            target: WeightedTarget {
                target,
                weight,
                request_headers: HeaderChanges::default(),
                response_headers: HeaderChanges::default(),
                host_rewrite: None,
                session: None,
            },
            path_rewrite: rewrite.map(|path| PathRewrite::Full(path.to_owned())),
            mirrors: Vec::new(),
        }
    }

    fn template() -> Forward {
        Forward {
            targets: Vec::new(),
            refused_status: 500,
            path_rewrite: None,
            host_rewrite: None,
            mirrors: Vec::new(),
            timeout: None,
            try_timeout: None,
            retry: None,
            options: None,
        }
    }

    fn shares(choices: Vec<Choice>) -> Vec<Option<u32>> {
        actions(&template(), choices, 500)
            .into_iter()
            .map(|(share, _)| share.map(|share| share.0))
            .collect()
    }

    #[test]
    fn plain_backends_share_one_route() {
        let actions = actions(
            &template(),
            vec![
                choice("a", 70, None),
                choice("b", 30, None),
                choice("c", 0, None),
            ],
            500,
        );
        let [(None, Action::Forward(forward))] = &actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!(
            forward
                .targets
                .iter()
                .map(|target| target.weight)
                .collect::<Vec<_>>(),
            [70, 30]
        );
    }

    #[test]
    fn a_backend_with_a_path_rewrite_gets_its_own_route() {
        assert_eq!(
            shares(vec![
                choice("a", 1, Some("/a")),
                choice("b", 2, None),
                choice("c", 1, None)
            ]),
            [Some(250_000), Some(750_000), None]
        );
        assert_eq!(shares(vec![choice("a", 1, Some("/a"))]), [None]);
        assert_eq!(
            shares(vec![choice("a", 0, Some("/a")), choice("b", 7, Some("/b"))]),
            [None]
        );
    }

    #[test]
    fn without_a_valid_backend_every_request_gets_an_error() {
        for choices in [
            vec![],
            vec![choice("a", 0, None)],
            vec![choice("", 1, None), choice("", 3, None)],
        ] {
            assert_eq!(
                actions(&template(), choices, 500),
                [(None, Action::Respond(500))]
            );
        }
    }

    #[test]
    fn a_refused_backend_keeps_its_share() {
        let actions = actions(
            &template(),
            vec![choice("a", 1, Some("/a")), choice("", 1, None)],
            500,
        );
        assert!(matches!(
            actions[0],
            (Some(PartsPerMillion(500_000)), Action::Forward(_))
        ));
        assert_eq!(actions[1], (None, Action::Respond(500)));
    }
}
