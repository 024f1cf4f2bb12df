{{- define "amdgpu.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "amdgpu.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 53 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- (contains $name .Release.Name | ternary .Release.Name (printf "%s-%s" .Release.Name $name)) | trunc 53 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "amdgpu.selector" -}}
app.kubernetes.io/name: {{ include "amdgpu.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "amdgpu.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
{{ include "amdgpu.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "amdgpu.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end -}}

{{- define "amdgpu.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (.Values.serviceAccount.create | ternary (include "amdgpu.fullname" .) "default") -}}
{{- end -}}

{{/* Where windows come from. Only profile profiling may start or take in any. */}}
{{- define "amdgpu.preset" -}}
{{- eq .Values.profile "profiling" | ternary .Values.profiling.preset "off" -}}
{{- end -}}

{{/* Not empty where the profiler opens devices. */}}
{{- define "amdgpu.devices" -}}
{{- if has (include "amdgpu.preset" .) (list "counters" "canary" "attach") }}yes{{ end -}}
{{- end -}}

{{/* The folder on the node for state and spool; empty: an emptyDir. */}}
{{- define "amdgpu.state" -}}
{{- .Values.state.hostPath | default (eq .Values.profile "profiling" | ternary "/var/lib/amdgpu-exporter" "") -}}
{{- end -}}

{{/* What the schema cannot say: values that are right alone and wrong together. One line each. */}}
{{- define "amdgpu.check" -}}
{{- if include "amdgpu.devices" . -}}
{{- $d := .Values.profiling.devices -}}
{{- if and (not $d.resource) (not $d.privileged) -}}
{{- fail (printf "profiling.preset %s opens /dev/kfd and /dev/dri: name the device plugin resource that hands them out in profiling.devices.resource, or set profiling.devices.privileged to true" .Values.profiling.preset) -}}
{{- end -}}
{{- if and $d.resource $d.privileged -}}
{{- fail "profiling.devices: resource and privileged are both set; a privileged container needs no resource, leave one of them out" -}}
{{- end -}}
{{- else if .Values.profiling.devices.privileged -}}
{{- fail (printf "profiling.devices.privileged is set, but profile %s with preset %s opens no device; leave it false" .Values.profile (include "amdgpu.preset" .)) -}}
{{- end -}}
{{- $windows := .Values.config.windows | default dict -}}
{{- if and (eq (include "amdgpu.preset" .) "canary") (not $windows.command) -}}
{{- fail "profiling.preset canary profiles a command, and config.windows.command names none" -}}
{{- end -}}
{{- if and (eq (include "amdgpu.preset" .) "attach") (not $windows.allow) -}}
{{- fail "profiling.preset attach attaches to the processes listed in config.windows.allow, and it lists none" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled -}}
{{- fail "serviceMonitor.enabled and podMonitor.enabled: every pod would be scraped twice; choose one" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.tlsConfig (ne .Values.web.scheme "https") -}}
{{- fail "serviceMonitor.tlsConfig is set, but web.scheme is http; set it to https" -}}
{{- end -}}
{{- with .Values.nodeHealth -}}
{{- if and .label (not .condition) -}}
{{- fail "nodeHealth.label is set, but nodeHealth.condition is not; the label comes with it" -}}
{{- end -}}
{{- if and .condition .plugin -}}
{{- fail "nodeHealth.condition and nodeHealth.plugin would both set the condition; choose one" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.attribution.podLabels (dig "textfile" "folder" "" .Values.config) -}}
{{- fail "attribution.podLabels writes into a textfile folder of its own, and config.textfile.folder names another; leave one of them out" -}}
{{- end -}}
{{- if and .Values.nodeHealth.condition .Values.web.secret -}}
{{- fail "nodeHealth.condition asks the daemon over plain HTTP, which web.secret may forbid; use nodeHealth.plugin with your own address, or leave one out" -}}
{{- end -}}
{{- if and (eq .Values.web.scheme "https") (not .Values.web.secret) -}}
{{- fail "web.scheme is https, but web.secret names no Secret with web.yml and certificates" -}}
{{- end -}}
{{- end -}}

{{/* The security context of a container that needs nothing. */}}
{{- define "amdgpu.bare" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
privileged: false
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* A duration in milliseconds. */}}
{{- define "amdgpu.ms" -}}
{{- $number := regexFind "^[0-9.]+" . | float64 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- mulf $number (get (dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000) $unit) | printf "%.0f" -}}
{{- end -}}

{{/* A duration in seconds, as PromQL compares it. */}}
{{- define "amdgpu.seconds" -}}
{{- include "amdgpu.ms" . | float64 | mulf 0.001 | printf "%g" -}}
{{- end -}}

{{/* A multiple of a duration, in the largest unit that divides it. */}}
{{- define "amdgpu.times" -}}
{{- $ms := mul (include "amdgpu.ms" .text | int64) .times -}}
{{- $done := "" -}}
{{- range list (list "d" 86400000) (list "h" 3600000) (list "m" 60000) (list "s" 1000) (list "ms" 1) -}}
{{- if and (not $done) (eq (mod $ms (index . 1)) 0) -}}
{{- $done = printf "%d%s" (div $ms (index . 1)) (index . 0) -}}
{{- end -}}
{{- end -}}
{{- $done -}}
{{- end -}}

{{/* A number as PromQL reads it, without an exponent where it is whole. */}}
{{- define "amdgpu.number" -}}
{{- if kindIs "string" . }}{{ . }}{{ else if eq (float64 .) (floor .) }}{{ printf "%.0f" (float64 .) }}{{ else }}{{ printf "%g" (float64 .) }}{{ end -}}
{{- end -}}

{{/* One rule group with the numbers of the values put in; .text holds marks, .numbers the values, by name. */}}
{{- define "amdgpu.filled" -}}
{{- $text := .text -}}
{{- $numbers := .numbers -}}
{{- range $mark := regexFindAll "<<[^<>]+>>" .text -1 | uniq -}}
{{- $parts := splitList ":" (trimAll "<>" $mark) -}}
{{- $path := splitList "." (index $parts 1) -}}
{{- $value := get (get $numbers (index $path 0)) (index $path 1) -}}
{{- $kind := index $parts 0 -}}
{{- if eq $kind "seconds" -}}
{{- $value = include "amdgpu.seconds" $value -}}
{{- else if hasPrefix "times" $kind -}}
{{- $value = include "amdgpu.times" (dict "text" $value "times" (trimPrefix "times" $kind | int64)) -}}
{{- else -}}
{{- $value = include "amdgpu.number" $value -}}
{{- end -}}
{{- $text = replace $mark $value $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}
