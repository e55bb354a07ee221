{{/* What things of Sesame are selected by. It never changes. */}}
{{- define "sesame.selector" -}}
app.kubernetes.io/name: sesame
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Labels of all that the chart makes. */}}
{{- define "sesame.labels" -}}
{{ include "sesame.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{/* A whole image name; arguments: the image's values, the tag where they have none. */}}
{{- define "sesame.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (index . 1) }}
{{- end -}}
{{- end }}

{{/* Names of things that have no namespace: another release has others. */}}
{{- define "sesame.clusterName" -}}
{{ .Release.Name }}
{{- end }}

{{- define "sesame.subjects" -}}
- kind: ServiceAccount
  name: sesame
  namespace: {{ .Release.Namespace }}
{{- end }}
