{{/* What the schema cannot say: values that contradict each other. Every line names the fix; all of them are told at once. */}}

{{- define "cacheupdater.refuse" -}}
{{- $said := list }}
{{- range list "moved" "config" "scaling" "queue" "files" "monitors" }}
{{- range $line := splitList "\n" (include (printf "cacheupdater.%s" (ternary . (printf "refusals.%s" .) (eq . "moved"))) $) }}
{{- if trim $line }}{{ $said = append $said (printf "  - %s" (trim $line)) }}{{ end }}
{{- end }}
{{- end }}
{{- if $said }}
{{- fail (printf "\n\nThese values cannot work:\n%s\n" (join "\n" $said)) }}
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.config" }}
{{- if and .Values.config .Values.existingConfigMap }}
config: existingConfigMap is given too; leave one of them out
{{- else if not (or .Values.config .Values.existingConfigMap) }}
config: says nothing; write the configuration there (docs/reference/config.md), or name a ConfigMap in existingConfigMap
{{- end }}
{{- $listen := dig "admin" "listen" "0.0.0.0:9090" (default dict .Values.config) }}
{{- if and (ne $listen "0.0.0.0:9090") (ne $listen "[::]:9090") }}
config.admin.listen: must be 0.0.0.0:9090 or [::]:9090, where the probes ask; remove it, the chart sets it
{{- end }}
{{- $state := dig "state" "" (default dict .Values.config) }}
{{- if and $state (not (hasPrefix "/var/lib/cacheupdater/" $state)) (not (contains "${" $state)) }}
config.state: the root file system is read-only; write a file under /var/lib/cacheupdater/
{{- end }}
{{- if .Values.state.persistence.enabled }}
{{- if ne .Values.mode "statefulset" }}
state.persistence: each updater needs a file of its own, and pods of a Deployment would share one; set mode: statefulset
{{- end }}
{{- if and .Values.config (not $state) }}
state.persistence: nothing is kept without a file; set config.state: /var/lib/cacheupdater/learned
{{- end }}
{{- end }}
{{- range $name, $one := dig "namespaces" dict (default dict .Values.config) }}
{{- if and (dig "load" "python" "" $one) (not $.Values.loaders.configMap) (not $.Values.extraVolumeMounts) (eq $.Values.image.repository "cacheupdater/cacheupdater") }}
config.namespaces.{{ $name }}.load.python: nothing is on /app; name loaders.configMap, mount a volume, or use an image of yours that holds it
{{- end }}
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.scaling" }}
{{- $hpa := .Values.autoscaling.hpa }}{{ $keda := .Values.autoscaling.keda }}
{{- $queue := include "cacheupdater.queue" . }}
{{- if and $hpa.enabled $keda.enabled }}
autoscaling: hpa and keda would fight over the replicas; enable one of them
{{- end }}
{{- range $name, $one := dict "hpa" $hpa "keda" $keda }}
{{- if $one.enabled }}
{{- if gt (int $one.minReplicas) (int $one.maxReplicas) }}
autoscaling.{{ $name }}.minReplicas: is above maxReplicas; lower it to {{ $one.maxReplicas }} or less
{{- end }}
{{- if eq $queue "memory" }}
autoscaling.{{ $name }}: a memory:// queue belongs to one pod; set config.queue.url to kafka://…, or switch autoscaling off
{{- end }}
{{- end }}
{{- end }}
{{- if and $keda.enabled (not $keda.lag.enabled) (not $keda.hintAge.enabled) }}
autoscaling.keda: has nothing to scale by; enable lag or hintAge
{{- end }}
{{- if and $keda.enabled $keda.hintAge.enabled (not $keda.hintAge.serverAddress) }}
autoscaling.keda.hintAge.serverAddress: is empty; name your Prometheus, such as http://prometheus.monitoring:9090
{{- end }}
{{- $brokers := index (splitList "?" (dig "queue" "url" "" (default dict .Values.config))) 0 }}
{{- if and $keda.enabled $keda.lag.enabled (ne $queue "memory") (or (ne $queue "kafka") (contains "${" $brokers)) }}
autoscaling.keda.lag: brokers and topic must stand in config.queue.url, and there is a variable or nothing; write them there, or scale by hintAge
{{- end }}
{{- $workers := ternary (toString .Values.workers) "1" (regexMatch "^[0-9]+$" (toString .Values.workers)) | int }}
{{- $pods := int .Values.replicaCount }}
{{- $said := "replicaCount" }}
{{- if $hpa.enabled }}{{ $pods = int $hpa.maxReplicas }}{{ $said = "autoscaling.hpa.maxReplicas" }}{{ end }}
{{- if $keda.enabled }}{{ $pods = int $keda.maxReplicas }}{{ $said = "autoscaling.keda.maxReplicas" }}{{ end }}
{{- if and (ne $queue "memory") (gt (mul $pods $workers) (int .Values.topic.partitions)) }}
{{ $said }}: {{ mul $pods $workers }} updaters are more than the topic's {{ .Values.topic.partitions }} partitions, and the rest would idle; lower it, or add partitions and say so in topic.partitions
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.queue" }}
{{- $queue := include "cacheupdater.queue" . }}
{{- $url := dig "queue" "url" "memory://" (default dict .Values.config) }}
{{- if eq $queue "memory" }}
{{- if gt (int .Values.replicaCount) 1 }}
replicaCount: with queue memory:// each of {{ .Values.replicaCount }} pods would own every key and spend the whole budget of each source; set it to 1, or set config.queue.url to kafka://…
{{- end }}
{{- if .Values.workers }}
workers: share the partitions of a topic, and a memory:// queue has none to share; remove it, or set config.queue.url to kafka://…
{{- end }}
{{- if and (not (include "cacheupdater.hintsPort" .)) (not .Values.extraContainers) (not (contains "${" (toJson (dig "listen" list (default dict .Values.config))))) }}
config.listen: no other pod could send hints; set config.listen: ["tcp://0.0.0.0:7171"], or config.queue.url to kafka://…
{{- end }}
{{- end }}
{{- if and (eq $queue "kafka") (eq .Values.mode "statefulset") (not (contains "instance=${HOSTNAME}" $url)) }}
mode: a StatefulSet is for pods that keep their partitions by name; add instance=${HOSTNAME} to the options of config.queue.url, or set mode: deployment
{{- end }}
{{- if and (eq $queue "kafka") (eq .Values.mode "deployment") (contains "instance=" $url) }}
config.queue.url: instance= is for pods that keep their names, and those of a Deployment never come back; set mode: statefulset, or remove it
{{- end }}
{{- if and .Values.test.key (contains "+sentinel://" (dig "cache" "url" "" (default dict .Values.config))) }}
test.key: the test reads from one Redis or a cluster; with redis+sentinel:// leave it empty
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.files" }}
{{- $config := toJson .Values.config }}
{{- range $name, $one := .Values.tls }}
{{- if eq (len $one) 2 }}
tls.{{ $name }}: has secret and configMap; leave one of them out
{{- end }}
{{- $known := concat (list "kafka" "redis") (keys (dig "sources" dict (default dict $.Values.config))) }}
{{- if and $.Values.config (not (has $name $known)) }}
tls.{{ $name }}: names nothing of the configuration; use one of {{ join ", " (sortAlpha $known) }}
{{- end }}
{{- if and $.Values.config (has $name $known) (not (contains (printf "/etc/cacheupdater-tls/%s/" $name) $config)) }}
{{- if and (eq $name "kafka") (eq (include "cacheupdater.queue" $) "kafka") }}
tls.kafka: the brokers would be spoken to in plain text; add ca=/etc/cacheupdater-tls/kafka/ca.crt to the options of config.queue.url
{{- else if eq $name "redis" }}
tls.redis: Redis would be spoken to without it; write config.cache.url: rediss://…?ssl_ca_certs=/etc/cacheupdater-tls/redis/ca.crt
{{- else }}
tls.{{ $name }}: no address names it; write /etc/cacheupdater-tls/{{ $name }}/… where the configuration wants its file, or remove it
{{- end }}
{{- end }}
{{- end }}
{{- $urls := dict "cache" (dig "cache" "url" "" (default dict .Values.config)) }}
{{- range $name, $source := dig "sources" dict (default dict .Values.config) }}
{{- $_ := set $urls (printf "sources.%s" $name) (default "" $source.url) }}
{{- end }}
{{- range $place, $url := $urls }}
{{- if regexMatch "(://[^/?@:]*:[^@$]+@|[?&](password|sentinel_password)=[^$&])" $url }}
config.{{ $place }}.url: holds a password, and a ConfigMap is no secret; write ${NAME} there, and name the Secret that has NAME in existingSecret.name
{{- end }}
{{- end }}
{{- $plain := dig "cache" "url" "" (default dict .Values.config) }}
{{- if and (regexMatch "^redis(\\+[a-z]+)?://" $plain) (contains "ssl_" $plain) }}
config.cache.url: has options of TLS and a scheme without it; write {{ regexReplaceAll "^redis" (index (splitList "://" $plain) 0) "rediss" }}://
{{- end }}
{{- range $found := regexFindAll "/etc/cacheupdater-tls/[a-zA-Z0-9_-]+/" $config -1 | uniq }}
{{- $name := trimSuffix "/" (trimPrefix "/etc/cacheupdater-tls/" $found) }}
{{- if not (hasKey $.Values.tls $name) }}
config: names {{ $found }}, and nothing is mounted there; set tls.{{ $name }}: {secret: …}
{{- end }}
{{- end }}
{{- if and (contains "/run/secrets/cacheupdater/" $config) (or (not .Values.existingSecret.name) (not .Values.existingSecret.files)) }}
config: names files under /run/secrets/cacheupdater/; set existingSecret.name, with files: true
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.monitors" }}
{{- range $name := list "metricsFrom" "hintsFrom" }}
{{- if not (get $.Values.networkPolicy $name) }}
networkPolicy.{{ $name }}: names nobody, which a NetworkPolicy takes for everybody; name a peer, such as namespaceSelector: {}
{{- end }}
{{- end }}
{{- if and .Values.metrics.podMonitor.enabled .Values.metrics.serviceMonitor.enabled }}
metrics: podMonitor and serviceMonitor would count everything twice; enable one of them
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
serviceAccount: the namespace's default account may have rights that are not for us; set create: true, or name one
{{- end }}
{{- end }}
