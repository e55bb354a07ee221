{{/* The name of objects in the release's namespace. */}}
{{- define "sesame.name" -}}
{{ eq .Values.mode "operator" | ternary "sesame-operator" "sesame" }}
{{- end }}

{{/* Selector labels; immutable after installation. */}}
{{- define "sesame.selector" -}}
app.kubernetes.io/name: {{ include "sesame.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of every object in the chart. */}}
{{- define "sesame.labels" -}}
{{ include "sesame.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* A full image reference. Arguments: the image's values, and the default tag. */}}
{{- define "sesame.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 1) }}
{{- end -}}
{{- end }}

{{/* The name of cluster-scoped objects; differs between releases. */}}
{{- define "sesame.clusterName" -}}
{{ .Release.Name }}
{{- end }}

{{- define "sesame.subjects" -}}
- kind: ServiceAccount
  name: {{ include "sesame.name" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}
