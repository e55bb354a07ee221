// Holds a pod's namespaces open.
module projectsesame.io/cluster/pause

go 1.24
