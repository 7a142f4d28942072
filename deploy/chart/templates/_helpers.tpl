{{/* The image of the control plane and of the sidecars. */}}
{{- define "headgate.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The names of the pull secrets, separated by commas. */}}
{{- define "headgate.pullSecrets" -}}
{{- $names := list -}}
{{- range .Values.imagePullSecrets -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- join "," $names -}}
{{- end -}}

{{/*
The annotations of the CustomResourceDefinition with this name. If another mesh has installed it, one of them has its
content, which `headgate uninstall` restores.
*/}}
{{- define "headgate.annotationsOfDefinition" -}}
helm.sh/resource-policy: keep
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" . }}
{{- $labels := .metadata.labels | default dict }}
{{- $adopted := index (.metadata.annotations | default dict) "headgate.dev/adopted" }}
{{- if $adopted }}
headgate.dev/adopted: {{ $adopted | toJson }}
{{- else if ne (index $labels "app.kubernetes.io/name" | default "") "headgate" }}
headgate.dev/adopted: {{ dict "labels" $labels "spec" .spec | toJson | toJson }}
{{- end }}
{{- end }}
{{- end -}}
