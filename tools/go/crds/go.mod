// Brings the Gateway API's definitions; nothing is built of it.
module projectsesame.io/cluster/crds

go 1.26.0

require sigs.k8s.io/gateway-api v1.7.0
