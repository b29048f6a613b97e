{{- define "promptgroup.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Namespaces that get routers, as JSON. */}}
{{- define "promptgroup.routerNamespaces" -}}
{{- if not .Values.router.enabled }}[]
{{- else if .Values.operator.namespaced }}{{ list .Release.Namespace | toJson }}
{{- else }}{{ .Values.router.namespaces | toJson }}
{{- end }}
{{- end }}

{{/* Namespaces that get pickers, as JSON. */}}
{{- define "promptgroup.pickerNamespaces" -}}
{{- if not .Values.picker.enabled }}[]
{{- else if .Values.operator.namespaced }}{{ list .Release.Namespace | toJson }}
{{- else }}{{ .Values.picker.namespaces | default .Values.router.namespaces | toJson }}
{{- end }}
{{- end }}

{{/* Namespaces of groups: those that get routers, pickers or both, as JSON. */}}
{{- define "promptgroup.groupNamespaces" -}}
{{- $routers := include "promptgroup.routerNamespaces" . | fromJsonArray }}
{{- $pickers := include "promptgroup.pickerNamespaces" . | fromJsonArray }}
{{- concat $routers $pickers | uniq | toJson }}
{{- end }}

{{/* Namespaces that get any of the programs, as JSON. */}}
{{- define "promptgroup.namespaces" -}}
{{- concat (list .Release.Namespace) (include "promptgroup.groupNamespaces" . | fromJsonArray) | uniq | toJson }}
{{- end }}

{{/* Whether the chart creates those namespaces: not where the release's own is all there is. Empty is no. */}}
{{- define "promptgroup.createNamespaces" -}}
{{- if and .Values.router.createNamespaces (not .Values.operator.namespaced) }}true{{ end }}
{{- end }}
