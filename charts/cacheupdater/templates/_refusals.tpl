{{/* What the schema cannot say: values that contradict each other. Every line names the fix; all of them are told at once. */}}

{{- define "cacheupdater.refuse" -}}
{{- $said := list }}
{{- range list "moved" "role" "config" "variables" "scaling" "queue" "files" "monitors" }}
{{- range $line := splitList "\n" (include (printf "cacheupdater.%s" (ternary . (printf "refusals.%s" .) (eq . "moved"))) $) }}
{{- if trim $line }}{{ $said = append $said (printf "  - %s" (trim $line)) }}{{ end }}
{{- end }}
{{- end }}
{{- if $said }}
{{- fail (printf "\n\nThese values cannot work:\n%s\n" (join "\n" $said)) }}
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.role" }}
{{- $queue := include "cacheupdater.queue" . }}
{{- if eq .Values.role "collect" }}
{{- include "cacheupdater.refusals.collect" . }}
{{- else if .Values.collect.queue }}
collect.queue: only a collector forwards there; set role: collect, or write config.queue.url
{{- else if .Values.collect.spill.enabled }}
collect.spill: only a collector has a spill; set role: collect, or remove it
{{- end }}
{{- $listens := dig "listen" list (default dict .Values.config) }}
{{- if eq .Values.role "both" }}
{{- if eq $queue "memory" }}
role: both forwards hints to a queue that updaters share, and memory:// is within one process; set config.queue.url to kafka://…, redis://…?stream=… or postgresql+asyncpg://…, or role: update
{{- end }}
{{- if .Values.existingConfigMap }}
role: both needs config, where the chart reads the port of listen; write the configuration there instead of existingConfigMap
{{- else if not $listens }}
role: both collects what arrives at config.listen, and nothing is there; set config.listen: ["tcp://0.0.0.0:7171"], or role: update
{{- else if and (ne $queue "memory") (not (include "cacheupdater.hintsPort" .)) (not .Values.extraContainers) (not (contains "${" (toJson $listens))) }}
config.listen: no other pod could send hints; set config.listen: ["tcp://0.0.0.0:7171"]
{{- end }}
{{- else if and (eq .Values.role "update") $listens (has $queue (list "kafka" "shared" "file")) }}
config.listen: beside a queue that updaters share, these pods would collect hints too; set role: both, or remove listen
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.collect" }}
{{- if or .Values.config .Values.existingConfigMap }}
config: a collector reads no configuration; write collect.queue, collect.listen and collect.only, and remove config and existingConfigMap
{{- end }}
{{- $url := .Values.collect.queue }}
{{- $variable := "$(NAME) there, and name the Secret that has NAME in existingSecret.name" }}
{{- $advice := dict "why" "and everybody who may see the pod could read the password" "variable" $variable "file" (include "cacheupdater.passwordFile" .) }}
{{- $wrong := include "cacheupdater.shared.address" (merge (dict "url" $url "options" (list "acks" "compression")) $advice) | trim }}
{{- if and $url (not (regexMatch "^(kafka|rediss?([+][a-z]+)?|postgres(ql)?([+][a-z]+)?|tcp)://" $url)) (not (hasPrefix "$(" $url)) }}
collect.queue: {{ regexFind "^[a-z0-9+]*(://)?" $url }} is nothing that a pod can share with updaters in other pods; write kafka://host:9092/topic, redis://host:6379/0?stream=hints, postgresql://…, or tcp://host:7171 of an updater
{{- else if contains "${" $url }}
collect.queue: is a variable of the pod, and not of a configuration; write $(NAME) instead of ${NAME}
{{- else if $wrong }}
collect.queue: {{ $wrong }}
{{- else if not (or $url .Values.existingSecret.name .Values.extraEnv .Values.extraEnvFrom) }}
collect.queue: says nothing; write where hints go, or name the Secret with CACHEUPDATER_QUEUE in existingSecret.name
{{- end }}
{{- if not (or (include "cacheupdater.hintsPort" .) .Values.extraContainers) }}
collect.listen: no other pod could send hints; write tcp://0.0.0.0:7171
{{- end }}
{{- if .Values.workers }}
workers: a collector is one process; remove it, and raise replicaCount
{{- end }}
{{- if .Values.autoscaling.keda.enabled }}
autoscaling.keda: measures what updaters have not finished, and a collector finishes nothing; use autoscaling.hpa
{{- end }}
{{- if .Values.loaders.configMap }}
loaders: a collector loads nothing; remove it
{{- end }}
{{- if .Values.test.key }}
test.key: a collector writes no value that a test could wait for; remove it, and name it in the release of the updaters
{{- end }}
{{- $spill := .Values.collect.spill }}
{{- if and .Values.state.persistence.enabled (not $spill.enabled) }}
state.persistence: a collector keeps nothing without a spill; set collect.spill.enabled: true
{{- end }}
{{- $kept := .Values.state.persistence.enabled }}
{{- if and $spill.enabled $kept .Values.podSecurityContext.fsGroup (ne (toString .Values.podSecurityContext.fsGroupChangePolicy) "OnRootMismatch") }}
podSecurityContext.fsGroupChangePolicy: each new pod would open the spill to its group, and the collector refuses a directory that others may enter; set OnRootMismatch
{{- end }}
{{- $volume := ternary .Values.state.persistence.size .Values.state.sizeLimit $kept }}
{{- if and $spill.enabled (lt (mulf 4 (include "cacheupdater.bytes" $volume)) (mulf 5 (include "cacheupdater.bytes" $spill.size))) }}
collect.spill.size: {{ $spill.size }} needs a quarter more on the volume, or the pod would be evicted or its disk full; raise state.{{ ternary "persistence.size" "sizeLimit" $kept }}, which is {{ $volume }}
{{- end }}
{{- end }}

{{/* Of 256MiB, as a collector writes it, and of 1Gi, as Kubernetes does. */}}
{{- define "cacheupdater.bytes" -}}
{{- $unit := regexFind "[kMGT]?i?" (regexReplaceAll "^[0-9.]+" . "") }}
{{- $by := dict "" 1 "k" 1000 "ki" 1024 "M" 1000000 "Mi" 1048576 "G" 1000000000 "Gi" 1073741824 "T" 1000000000000 "Ti" 1099511627776 }}
{{- mulf (float64 (regexFind "^[0-9.]+" .)) (get $by $unit) }}
{{- end }}

{{- define "cacheupdater.refusals.config" }}
{{- $collects := eq .Values.role "collect" }}
{{- if and .Values.config .Values.existingConfigMap }}
config: existingConfigMap is given too; leave one of them out
{{- else if not (or .Values.config .Values.existingConfigMap $collects) }}
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
{{- include "cacheupdater.shared.config" (dict "config" (default dict .Values.config) "secret" "existingSecret.name" "file" (include "cacheupdater.passwordFile" .)) }}
{{- end }}

{{/* For an address of Kafka, which never holds a password itself. */}}
{{- define "cacheupdater.passwordFile" -}}
password_file=/run/secrets/cacheupdater/NAME, and name the Secret that has NAME in existingSecret.name
{{- end }}

{{/* A variable that nothing in the pod can bring: the updater would end with "is not set". A Secret or ConfigMap that is taken as a
whole may bring any name, an image of the user's may have names of its own, and Kubernetes sets HOSTNAME and KUBERNETES_…. */}}
{{- define "cacheupdater.refusals.variables" }}
{{- $secret := and .Values.existingSecret.name .Values.existingSecret.env }}
{{- if not (or $secret .Values.extraEnvFrom (ne .Values.image.repository "cacheupdater/cacheupdater")) }}
{{- $missing := list }}
{{- $text := regexReplaceAll "[$][$]" (toJson .Values.config) "" }}
{{- range $found := regexFindAll "[$][{][A-Za-z_][A-Za-z0-9_]*(:[?][^}]*)?[}]" $text -1 }}
{{- $name := regexFind "[A-Za-z_][A-Za-z0-9_]*" $found }}
{{- $missing = append $missing $name }}
{{- end }}
{{- $known := list "HOSTNAME" "PATH" "HOME" }}
{{- range .Values.extraEnv }}{{ $known = append $known .name }}{{ end }}
{{- range $name := uniq $missing | sortAlpha }}
{{- if not (or (has $name $known) (hasPrefix "KUBERNETES_" $name)) }}
config: nothing brings ${ {{- $name -}} } into the pod; name the Secret that has {{ $name }} in existingSecret.name{{ if $.Values.existingSecret.name }}, with env: true{{ end }}, or write {{ $name }} into extraEnv
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.scaling" }}
{{- $hpa := .Values.autoscaling.hpa }}{{ $keda := .Values.autoscaling.keda }}
{{- $queue := include "cacheupdater.queue" . }}{{ $collects := eq .Values.role "collect" }}
{{- if and $hpa.enabled $keda.enabled }}
autoscaling: hpa and keda would fight over the replicas; enable one of them
{{- end }}
{{- range $name, $one := dict "hpa" $hpa "keda" $keda }}
{{- if $one.enabled }}
{{- if gt (int $one.minReplicas) (int $one.maxReplicas) }}
autoscaling.{{ $name }}.minReplicas: is above maxReplicas; lower it to {{ $one.maxReplicas }} or less
{{- end }}
{{- if and (has $queue (list "memory" "file")) (not $collects) }}
autoscaling.{{ $name }}: a {{ ternary "memory" "sqlite" (eq $queue "memory") }}:// queue belongs to one pod; set config.queue.url to kafka://…, or switch autoscaling off
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
{{- if and $keda.enabled $keda.lag.enabled (not (has $queue (list "memory" "file"))) (not $collects) (or (ne $queue "kafka") (contains "${" $brokers)) }}
autoscaling.keda.lag: brokers and topic must stand in config.queue.url, and there is a variable or nothing; write them there, or scale by hintAge
{{- end }}
{{- $workers := ternary (toString .Values.workers) "1" (regexMatch "^[0-9]+$" (toString .Values.workers)) | int }}
{{- $pods := int .Values.replicaCount }}
{{- $said := "replicaCount" }}
{{- if $hpa.enabled }}{{ $pods = int $hpa.maxReplicas }}{{ $said = "autoscaling.hpa.maxReplicas" }}{{ end }}
{{- if $keda.enabled }}{{ $pods = int $keda.maxReplicas }}{{ $said = "autoscaling.keda.maxReplicas" }}{{ end }}
{{- if and (has $queue (list "kafka" "unknown")) (not $collects) (gt (mul $pods $workers) (int .Values.topic.partitions)) }}
{{ $said }}: {{ mul $pods $workers }} updaters are more than the topic's {{ .Values.topic.partitions }} partitions, and the rest would idle; lower it, or add partitions and say so in topic.partitions
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.queue" }}
{{- $queue := include "cacheupdater.queue" . }}
{{- $url := include "cacheupdater.queueUrl" . }}{{ $collects := eq .Values.role "collect" }}
{{- if and (has $queue (list "memory" "file")) (not $collects) (gt (int .Values.replicaCount) 1) }}
replicaCount: with queue {{ ternary "memory" "sqlite" (eq $queue "memory") }}:// each of {{ .Values.replicaCount }} pods would own every key and spend the whole budget of each source; set it to 1, or set config.queue.url to kafka://…
{{- end }}
{{- if and (eq $queue "memory") (not $collects) }}
{{- if .Values.workers }}
workers: share the partitions of a topic, and a memory:// queue has none to share; remove it, or set config.queue.url to kafka://…
{{- end }}
{{- if and (not (include "cacheupdater.hintsPort" .)) (not .Values.extraContainers) (not (contains "${" (toJson (dig "listen" list (default dict .Values.config))))) }}
config.listen: no other pod could send hints; set config.listen: ["tcp://0.0.0.0:7171"], or config.queue.url to kafka://…
{{- end }}
{{- end }}
{{- if and (eq $queue "kafka") (not $collects) (eq .Values.mode "statefulset") (not (contains "instance=${HOSTNAME}" $url)) }}
mode: a StatefulSet is for pods that keep their partitions by name; add instance=${HOSTNAME} to the options of config.queue.url, or set mode: deployment
{{- end }}
{{- if and (eq $queue "kafka") (not $collects) (eq .Values.mode "deployment") (contains "instance=" $url) }}
config.queue.url: instance= is for pods that keep their names, and those of a Deployment never come back; set mode: statefulset, or remove it
{{- end }}
{{- if and .Values.test.key (contains "+sentinel://" (dig "cache" "url" "" (default dict .Values.config))) }}
test.key: the test reads from one Redis or a cluster; with redis+sentinel:// leave it empty
{{- end }}
{{- if and .Values.test.key (not $collects) (not (include "cacheupdater.hintsPort" .)) (or (has $queue (list "memory" "file")) (hasPrefix "postgres" $url)) }}
test.key: an application cannot send hints straight into this queue, and neither can the test; name a tcp:// address in config.listen, or leave it empty
{{- end }}
{{- end }}

{{- define "cacheupdater.refusals.files" }}
{{- $collects := eq .Values.role "collect" }}
{{- $config := toJson (ternary .Values.collect .Values.config $collects) }}
{{- $said := or .Values.config (and $collects .Values.collect.queue) }}
{{- range $name, $one := .Values.tls }}
{{- if eq (len $one) 2 }}
tls.{{ $name }}: has secret and configMap; leave one of them out
{{- end }}
{{- $known := concat (list "kafka" "redis") (keys (dig "sources" dict (default dict $.Values.config))) }}
{{- if and $said (not (has $name $known)) }}
tls.{{ $name }}: names nothing of the configuration; use one of {{ join ", " (sortAlpha $known) }}
{{- end }}
{{- if and $said (has $name $known) (not (contains (printf "/etc/cacheupdater-tls/%s/" $name) $config)) }}
{{- if and (eq $name "kafka") (eq (include "cacheupdater.queue" $) "kafka") }}
tls.kafka: the brokers would be spoken to in plain text; add ca=/etc/cacheupdater-tls/kafka/ca.crt to the options of {{ ternary "collect.queue" "config.queue.url" $collects }}
{{- else if and (eq $name "redis") (not $collects) }}
tls.redis: Redis would be spoken to without it; write config.cache.url: rediss://…?ssl_ca_certs=/etc/cacheupdater-tls/redis/ca.crt
{{- else }}
tls.{{ $name }}: no address names it; write /etc/cacheupdater-tls/{{ $name }}/… where the configuration wants its file, or remove it
{{- end }}
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
{{- $dashboard := .Values.metrics.dashboard.json }}
{{- if and $dashboard (or (not (regexMatch "^\\s*[{]" $dashboard)) (hasKey (fromJson $dashboard) "Error")) }}
metrics.dashboard.json: is no JSON object; give the file that Grafana exports by --set-file metrics.dashboard.json=FILE
{{- end }}
{{- $feeds := list }}
{{- range dig "sources" dict (default dict .Values.config) }}{{ with .changes }}{{ $feeds = append $feeds . }}{{ end }}{{ end }}
{{- if and .Values.metrics.prometheusRule.feeds.enabled (or (eq .Values.role "collect") (and .Values.config (not $feeds))) }}
metrics.prometheusRule.feeds: no source here has changes, so these alerts would never speak; set enabled: false
{{- end }}
{{- if and (not .Values.serviceAccount.create) (not .Values.serviceAccount.name) }}
serviceAccount: the namespace's default account may have rights that are not for us; set create: true, or name one
{{- end }}
{{- end }}
