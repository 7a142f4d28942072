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

{{/*
What a revision copies of the installation: the arguments of its control plane, the namespaces of its mesh and its pull secrets.
Without access to the cluster, as with `helm template`, there are no arguments, and the others are those of the values.
*/}}
{{- define "headgate.installation" -}}
{{- $installation := dict "namespaces" .Values.namespaces "imagePullSecrets" .Values.imagePullSecrets -}}
{{- if lookup "v1" "Namespace" "" "kube-system" -}}
{{- $deployment := lookup "apps/v1" "Deployment" "headgate-system" "headgate" -}}
{{- if not $deployment -}}
{{- fail (printf "headgate is not installed on this cluster; install it without the value revision, and then the revision %s" .Values.revision) -}}
{{- end -}}
{{- if eq .Release.Name (index ($deployment.metadata.annotations | default dict) "meta.helm.sh/release-name" | default "") -}}
{{- fail (printf "the release %s is the installation, which would be deleted; install the revision %s as another release" .Release.Name .Values.revision) -}}
{{- end -}}
{{- $pod := $deployment.spec.template.spec -}}
{{- $_ := set $installation "namespaces" list -}}
{{- $_ := set $installation "imagePullSecrets" ($pod.imagePullSecrets | default list) -}}
{{- range $pod.containers -}}
{{- if eq .name "headgate" -}}
{{- $_ := set $installation "arguments" .args -}}
{{- range .args -}}
{{- if hasPrefix "--namespaces=" . -}}
{{- $_ := set $installation "namespaces" (trimPrefix "--namespaces=" . | splitList "," | compact) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toYaml $installation -}}
{{- end -}}
