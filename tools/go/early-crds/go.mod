// Brings the definition of XListenerSet, which later releases of the Gateway API lack; nothing is built of it.
module projectsesame.io/cluster/early-crds

go 1.26.0

require sigs.k8s.io/gateway-api v1.4.0
