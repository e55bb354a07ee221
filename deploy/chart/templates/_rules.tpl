{{/* Rules for cluster-scoped objects. */}}
{{- define "sesame.rules.cluster" -}}
# Discovery of the installed CRDs and their versions.
- apiGroups: [apiextensions.k8s.io]
  resources: [customresourcedefinitions]
  verbs: [list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses]
  verbs: [get, list, patch, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses/status]
  verbs: [patch]
{{- if and .Values.envoy.publishThroughGateways (ne .Values.mode "unmanaged") }}
# Classes of the Gateways in front of Envoys.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses]
  verbs: [create, delete]
{{- end }}
- apiGroups: [networking.k8s.io]
  resources: [ingressclasses]
  verbs: [list, watch]
# CA certificates that Gateways and policies reference.
- apiGroups: [certificates.k8s.io]
  resources: [clustertrustbundles]
  verbs: [list, watch]
# Namespace labels, for selectors in `allowedRoutes`.
- apiGroups: [""]
  resources: [namespaces]
  {{- with .Values.watchNamespaces }}
  resourceNames:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  verbs: [list, watch]
{{- end }}

{{/* Rules for reading namespaced objects, and for writing their statuses and Events. */}}
{{- define "sesame.rules.objects" -}}
- apiGroups: [gateway.networking.k8s.io]
  resources:
    - backendtlspolicies
    - gateways
    - grpcroutes
    - httproutes
    - listenersets
    - tcproutes
    - tlsroutes
    - udproutes
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackends, xbackendtrafficpolicies, xlistenersets, xtelemetrypolicies]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xtelemetrypolicies/status]
  verbs: [patch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [referencegrants]
  verbs: [list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources:
    - backendtlspolicies/status
    - gateways/status
    - grpcroutes/status
    - httproutes/status
    - listenersets/status
    - tcproutes/status
    - tlsroutes/status
    - udproutes/status
  verbs: [patch]
- apiGroups: [gateway.networking.x-k8s.io]
  resources: [xbackends/status, xbackendtrafficpolicies/status, xlistenersets/status]
  verbs: [patch]
- apiGroups: [networking.k8s.io]
  resources: [ingresses]
  verbs: [get, list, watch]
- apiGroups: [networking.k8s.io]
  resources: [ingresses/status]
  verbs: [patch]
- apiGroups: [projectsesame.io]
  resources: [tlscertificatedelegations]
  verbs: [list, watch]
- apiGroups: [projectsesame.io]
  resources: [extensionservices, httpproxies, sesameconfigurations]
  verbs: [get, list, watch]
- apiGroups: [projectsesame.io]
  resources: [extensionservices/status, httpproxies/status, sesameconfigurations/status]
  verbs: [patch]
{{- if ne .Values.contourCompat "off" }}
- apiGroups: [projectcontour.io]
  resources: [extensionservices, httpproxies, tlscertificatedelegations]
  verbs: [list, watch]
{{- end }}
{{- if eq .Values.contourCompat "write" }}
- apiGroups: [projectcontour.io]
  resources: [extensionservices, httpproxies]
  verbs: [get]
- apiGroups: [projectcontour.io]
  resources: [extensionservices/status, httpproxies/status]
  verbs: [patch]
{{- end }}
# Backends, and the objects that Gateways, policies and HTTPProxies reference: certificates, CA bundles, parameters.
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [get, list, watch]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [list, watch]
{{ include "sesame.rules.events" . }}
{{- end }}

{{- define "sesame.rules.events" -}}
# Events about objects.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end }}

{{/* Rules for writing the Services of XBackends; `sesame.rules.fleets` includes them. */}}
{{- define "sesame.rules.services" -}}
- apiGroups: [""]
  resources: [services]
  verbs: [create, delete, patch]
{{- end }}

{{/* Rules for managed Envoys, which run in their Gateways' namespaces, and for the default fleet's in Sesame's namespace; `sesame.rules.objects` grants the remaining verbs. */}}
{{- define "sesame.rules.fleets" -}}
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [""]
  resources: [configmaps]
  verbs: [create, delete, patch]
- apiGroups: [""]
  resources: [services]
  verbs: [create, delete, get, patch]
# Envoy certificates.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create, delete, update]
- apiGroups: [apps]
  resources: [daemonsets, deployments]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, delete, get, list, patch, watch]
{{- if .Values.envoy.publishThroughGateways }}
# Gateways in front of Envoys.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, tcproutes, udproutes]
  verbs: [create, delete, patch]
{{- end }}
{{- end }}

{{/* Rules for Sesame's own namespace. */}}
{{- define "sesame.rules.own" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [sesame-leader]
  verbs: [get, update]
{{- $managed := eq .Values.mode "managed" }}
{{- $own := eq .Values.envoy.namespace "Sesame" }}
{{- $unwatched := and .Values.watchNamespaces (not (has .Release.Namespace .Values.watchNamespaces)) }}
{{- if and $managed (or $own $unwatched) }}
# {{ $own | ternary "All fleets" "The default fleet" }}, and the certificates of the xDS server.
{{ include "sesame.rules.fleets" . }}
{{- if $unwatched }}
- apiGroups: [""]
  resources: [services]
  verbs: [list, watch]
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [get, list, watch]
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, tcproutes, udproutes]
  verbs: [{{ if .Values.envoy.publishThroughGateways }}get, {{ end }}list, watch]
{{- end }}
{{- else if or .Values.watchNamespaces (not $managed) }}
# Not needed for managed Envoys in all namespaces: the ClusterRole already covers these Secrets.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [secrets]
  resourceNames:
    - sesame-ca
    - sesame-xds
    {{- if ne .Values.mode "managed" }}
    - sesame-envoy
    {{- end }}
  verbs: [delete, get, list, update, watch]
{{- end }}
{{- end }}

{{/* Rules for the operator. */}}
{{- define "sesame.rules.operator" -}}
- apiGroups: [projectsesame.io]
  resources: [sesameconfigurations]
  verbs: [list, patch, watch]
- apiGroups: [projectsesame.io]
  resources: [sesameconfigurations/status]
  verbs: [patch]
# Instances.
- apiGroups: [""]
  resources: [serviceaccounts, services]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [create, delete, get, list, patch, watch]
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterrolebindings, rolebindings]
  verbs: [create, delete, get, list, patch, watch]
# The API server rejects bindings to other roles.
- apiGroups: [rbac.authorization.k8s.io]
  resources: [clusterroles]
  resourceNames:
    - sesame-instance-cluster
    - sesame-instance-events
    - sesame-instance-fleets
    - sesame-instance-objects
    - sesame-instance-own
    - sesame-instance-services
  verbs: [bind]
# A removal waits until the pods of Sesame are gone.
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
# The Envoys and certificates of a removed instance.
- apiGroups: [""]
  resources: [configmaps, secrets]
  verbs: [delete, list]
- apiGroups: [apps]
  resources: [daemonsets]
  verbs: [delete, list]
- apiGroups: [autoscaling]
  resources: [horizontalpodautoscalers]
  verbs: [delete, list]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [delete]
# Their finalizers.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gatewayclasses]
  verbs: [{{ if .Values.envoy.publishThroughGateways }}delete, {{ end }}list, patch]
# Those of its Envoys, if they are published through Gateways.
- apiGroups: [gateway.networking.k8s.io]
  resources: [gateways, tcproutes, udproutes]
  verbs: [{{ if .Values.envoy.publishThroughGateways }}delete, {{ end }}list]
{{- end }}
