{{/* Names, labels, the image, and what can be read of the configuration. */}}

{{- define "cacheupdater.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "cacheupdater.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "cacheupdater.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "cacheupdater.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "cacheupdater.selector" -}}
app.kubernetes.io/name: {{ include "cacheupdater.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "cacheupdater.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "cacheupdater.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cacheupdater.component" -}}
{{- if eq .Values.role "collect" }}collector{{ else }}updater{{ end }}
{{- end }}

{{/* Of the objects that only one component has: the updater's own selector leaves the test's pod out. */}}
{{- define "cacheupdater.podSelector" -}}
{{ include "cacheupdater.selector" . }}
app.kubernetes.io/component: {{ include "cacheupdater.component" . }}
{{- end }}

{{- define "cacheupdater.image" -}}
{{- $where := printf "%s/%s" .Values.image.registry .Values.image.repository | trimPrefix "/" }}
{{- if .Values.image.digest }}
{{- printf "%s@%s" $where .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" $where (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{- define "cacheupdater.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "cacheupdater.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "cacheupdater.configMap" -}}
{{- default (include "cacheupdater.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{/* The file, with the address that probes and Prometheus ask. */}}
{{- define "cacheupdater.config" -}}
{{- $config := deepCopy (default dict .Values.config) }}
{{- $admin := merge (deepCopy (default dict $config.admin)) (dict "listen" "0.0.0.0:9090") }}
{{- toYaml (set $config "admin" $admin) }}
{{- end }}

{{/* What a running updater cannot take over from a changed file: every setting but those of sources, defaults and namespaces,
and the names of the variables, which a container gets when it starts. */}}
{{- define "cacheupdater.fixed" -}}
{{- $file := include "cacheupdater.config" . }}
{{- $variables := regexFindAll "\\$\\{[A-Za-z0-9_]+" $file -1 | uniq | sortAlpha }}
{{- list (omit (fromYaml $file) "sources" "defaults" "namespaces") $variables | toJson }}
{{- end }}

{{/* The URL of the queue; empty where nothing here says it. */}}
{{- define "cacheupdater.queueUrl" -}}
{{- if eq .Values.role "collect" }}{{ .Values.collect.queue }}
{{- else if .Values.config }}{{ dig "queue" "url" "memory://" .Values.config }}
{{- end }}
{{- end }}

{{/* memory, file (of SQLite, in one pod), kafka, shared (any other), or unknown where nothing or only a variable says it. */}}
{{- define "cacheupdater.queue" -}}
{{- $url := include "cacheupdater.queueUrl" . }}
{{- if or (not $url) (regexMatch "^[$][{(]" $url) }}unknown
{{- else if hasPrefix "memory://" $url }}memory
{{- else if hasPrefix "sqlite://" $url }}file
{{- else if hasPrefix "kafka://" $url }}kafka
{{- else }}shared
{{- end }}
{{- end }}

{{/* JSON of the addresses that the pods listen on for hints. */}}
{{- define "cacheupdater.listen" -}}
{{- if eq .Values.role "collect" }}{{ toJson .Values.collect.listen }}
{{- else }}{{ toJson (dig "listen" list (default dict .Values.config)) }}
{{- end }}
{{- end }}

{{/* The port of `listen` that other pods can reach, if there is one. */}}
{{- define "cacheupdater.hintsPort" -}}
{{- range $each := include "cacheupdater.listen" . | fromJsonArray }}
{{- $port := regexFind "[0-9]+$" $each }}
{{- if and (hasPrefix "tcp://" $each) $port (not (regexMatch "^tcp://(127[.]|localhost:|\\[::1\\])" $each)) }}{{ $port }} {{ end }}
{{- end }}
{{- end }}

{{/* JSON of the ports that the configuration names, and of the settings whose port only the environment knows. */}}
{{- define "cacheupdater.addresses" -}}
{{- $ports := list }}{{ $unread := list }}
{{- $collects := eq .Values.role "collect" }}
{{- $urls := dict "queue.url" (dig "queue" "url" "memory://" (default dict .Values.config)) "cache.url" (dig "cache" "url" "" (default dict .Values.config)) }}
{{- if $collects }}{{ $urls = dict "collect.queue" .Values.collect.queue }}{{ end }}
{{- range $name, $source := dig "sources" dict (default dict .Values.config) }}
{{- $_ := set $urls (printf "sources.%s.url" $name) (default "" $source.url) }}
{{- if kindIs "map" $source.changes }}
{{- with $source.changes.debezium }}{{ $_ := set $urls (printf "sources.%s.changes.debezium.url" $name) (default "" .url) }}{{ end }}
{{- end }}
{{- end }}
{{- $default := dict "redis" 6379 "rediss" 6379 "postgresql" 5432 "mysql" 3306 "mariadb" 3306 "kafka" 9092 }}
{{- range $place, $url := $urls }}
{{- $plain := regexReplaceAll "\\$(\\{[^}]*\\}|\\([^)]*\\))" $url "VARIABLE" }}
{{- $scheme := index (splitList "://" $plain) 0 }}
{{- if not (contains "://" $plain) }}
{{- $unread = append $unread $place }}
{{- else if not (regexMatch "^(memory|unix|sqlite)" $scheme) }}
{{- $rest := regexReplaceAll "^[a-z0-9+]*://" $plain "" }}
{{- $hosts := regexFind "^[^/?]*" (regexReplaceAll "^[^/?]*@" $rest "") }}
{{- range $host := splitList "," $hosts }}
{{- $port := trimPrefix ":" (regexFind ":[0-9]+$" $host) }}
{{- if $port }}
{{- $ports = append $ports (int $port) }}
{{- else if or (eq $host "VARIABLE") (hasSuffix ":VARIABLE" $host) }}
{{- $unread = append $unread $place }}
{{- else if hasSuffix "+sentinel" $scheme }}
{{- $ports = append $ports 26379 }}
{{- else }}
{{- $ports = append $ports (int (get $default (index (splitList "+" $scheme) 0))) }}
{{- end }}
{{- end }}
{{- if hasSuffix "+sentinel" $scheme }}
{{- $ports = append $ports 6379 }}
{{- end }}
{{- end }}
{{- end }}
{{- if not (or .Values.config $collects) }}{{ $unread = list "existingConfigMap" }}{{ end }}
{{- range .Values.networkPolicy.ports }}{{ $ports = append $ports (int .) }}{{ end }}
{{- $known := or (not $unread) (gt (len .Values.networkPolicy.ports) 0) }}
{{- dict "ports" (uniq $ports) "unread" (uniq $unread) "known" $known | toJson }}
{{- end }}

{{- define "cacheupdater.ownedByWorkload" -}}
{{- if eq .Values.mode "statefulset" }}StatefulSet{{ else }}Deployment{{ end }}
{{- end }}
