{{- /*
The updater, or a collector, as a native sidecar: one item for a pod's initContainers, and what belongs to it. The chart that depends on
this one includes four parts (docs/how-to/sidecar.md):

  cacheupdater.sidecar             the container
  cacheupdater.sidecar.mount       the socket, for volumeMounts of the application's container
  cacheupdater.sidecar.volumes     for the pod's volumes
  cacheupdater.sidecar.configmap   the configuration, as an object of its own; a collector has none
*/ -}}

{{- define "cacheupdater.sidecar" -}}
{{- $values := index .Values "cacheupdater-sidecar" -}}
{{- include "cacheupdater.sidecar.refusals" . -}}
{{- $collects := eq $values.role "collect" -}}
{{- $queue := and $collects $values.collect.queue -}}
- name: cacheupdater
  image: {{ include "cacheupdater.sidecar.image" . }}
  imagePullPolicy: {{ $values.image.pullPolicy }}
  restartPolicy: Always
  {{- if $collects }}
  args: {{ include "cacheupdater.sidecar.collectArgs" $values }}
  {{- else }}
  args: [run, --config=/etc/cacheupdater/cacheupdater.yaml, --sidecar, --log-level={{ $values.logLevel }}]
  {{- end }}
  {{- if or $queue $values.extraEnv }}
  env:
    {{- with $values.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- with $queue }}
    - {name: CACHEUPDATER_QUEUE, value: {{ . | quote }}}
    {{- end }}
  {{- end }}
  {{- if or $values.existingSecret $values.extraEnvFrom }}
  envFrom:
    {{- with $values.existingSecret }}
    - secretRef: {name: {{ . }}}
    {{- end }}
    {{- with $values.extraEnvFrom }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  ports:
    - {name: cacheupdater, containerPort: {{ $values.port }}}
  {{- with $values.livenessProbe }}
  livenessProbe:
    httpGet: {path: /livez, port: {{ $values.port }}}
    {{- toYaml . | nindent 4 }}
  {{- end }}
  resources:
    {{- ternary $values.collect.resources $values.resources $collects | toYaml | nindent 4 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: {{ $values.runAsUser }}
    runAsGroup: {{ $values.runAsGroup }}
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  volumeMounts:
    {{- if not $collects }}
    - {name: cacheupdater-config, mountPath: /etc/cacheupdater, readOnly: true}
    {{- end }}
    - {name: cacheupdater-run, mountPath: /run/cacheupdater}
    {{- if or (not $collects) $values.collect.spill }}
    - {name: cacheupdater-state, mountPath: /var/lib/cacheupdater}
    {{- end }}
    - {name: cacheupdater-tmp, mountPath: /tmp}
    {{- with $values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{- /* The spill is a directory that the collector makes, because the volume itself is open to the pod's whole group. */ -}}
{{- define "cacheupdater.sidecar.collectArgs" -}}
{{- $args := list "collect" "--listen" "unix:///run/cacheupdater/hints.sock" -}}
{{- if .collect.only }}{{ $args = concat $args (list "--only") .collect.only }}{{ end -}}
{{- $args = append $args (printf "--admin=0.0.0.0:%d" (int .port)) -}}
{{- if .collect.spill }}{{ $args = append $args "--spill=/var/lib/cacheupdater/spill" }}{{ end -}}
{{- append $args (printf "--log-level=%s" .logLevel) | toJson -}}
{{- end }}

{{- /* Read-only: a socket can be connected to all the same, and nothing else can be put there. */ -}}
{{- define "cacheupdater.sidecar.mount" -}}
- {name: cacheupdater-run, mountPath: /run/cacheupdater, readOnly: true}
{{- end }}

{{- /* Kubernetes evicts a pod whose emptyDir outgrows its limit, so these are beyond what an updater ever writes: a state
file has at most 256 MiB, and while it is replaced there are three. */ -}}
{{- define "cacheupdater.sidecar.volumes" -}}
{{- $values := index .Values "cacheupdater-sidecar" -}}
{{- $collects := eq $values.role "collect" -}}
{{- if not $collects -}}
- name: cacheupdater-config
  configMap: {name: {{ $values.existingConfigMap | default (include "cacheupdater.sidecar.name" .) }}}
{{ end -}}
- name: cacheupdater-run
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- if or (not $collects) $values.collect.spill }}
- name: cacheupdater-state
  emptyDir: {sizeLimit: 1Gi}
{{- end }}
- name: cacheupdater-tmp
  emptyDir: {sizeLimit: 64Mi}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cacheupdater.sidecar.configmap" -}}
{{- $values := index .Values "cacheupdater-sidecar" -}}
{{- if not (or $values.existingConfigMap (eq $values.role "collect")) -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "cacheupdater.sidecar.name" . }}
  labels:
    app.kubernetes.io/name: cacheupdater
    app.kubernetes.io/component: sidecar
    app.kubernetes.io/instance: {{ .Release.Name }}
    app.kubernetes.io/managed-by: {{ .Release.Service }}
data:
  cacheupdater.yaml: |
    {{- include "cacheupdater.sidecar.config" . | nindent 4 }}
{{- end }}
{{- end }}

{{- /* For an annotation of the pod: a configuration that a running updater cannot take over rolls the pod out. That is every
setting but those of sources, defaults and namespaces, and the names of the variables, which a container gets at its start. */ -}}
{{- define "cacheupdater.sidecar.checksum" -}}
{{- $file := include "cacheupdater.sidecar.config" . -}}
{{- $variables := regexFindAll "\\$\\{[A-Za-z0-9_]+" $file -1 | uniq | sortAlpha -}}
{{- list (omit (fromYaml $file) "sources" "defaults" "namespaces") $variables | toJson | sha256sum -}}
{{- end }}

{{- define "cacheupdater.sidecar.name" -}}
{{- printf "%s-cacheupdater" .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "cacheupdater.sidecar.image" -}}
{{- $image := (index .Values "cacheupdater-sidecar").image -}}
{{- if $image.digest -}}
{{ printf "%s@%s" $image.repository $image.digest | quote }}
{{- else -}}
{{ printf "%s:%s" $image.repository ($image.tag | default (index .Subcharts "cacheupdater-sidecar").Chart.AppVersion) | quote }}
{{- end -}}
{{- end }}

{{- /* The configuration with what every sidecar must say. A fleet's name begins with a letter, a namespace's may not. */ -}}
{{- define "cacheupdater.sidecar.config" -}}
{{- $values := index .Values "cacheupdater-sidecar" -}}
{{- $fleet := $values.fleet | default (printf "in-%s-%s" .Release.Namespace .Release.Name | replace "." "-" | trunc 63) -}}
{{- $filled := dict
  "version" 1
  "fleet" $fleet
  "listen" (list "unix:///run/cacheupdater/hints.sock")
  "admin" (dict "listen" (printf "0.0.0.0:%d" (int $values.port)))
  "state" "/var/lib/cacheupdater/learned" -}}
{{- toYaml (merge (deepCopy ($values.config | default dict)) $filled) -}}
{{- end }}

{{- /* Each says what to write instead. The same holds in the container: `run --sidecar` refuses what is refused here. */ -}}
{{- define "cacheupdater.sidecar.refusals" -}}
{{- $values := index .Values "cacheupdater-sidecar" -}}
{{- $config := $values.config | default dict -}}
{{- $kubernetes := .Capabilities.KubeVersion.Version -}}
{{- /* Helm does not ask a dependency for its kubeVersion. */ -}}
{{- if not (semverCompare ">=1.29.0-0" $kubernetes) -}}
{{- fail (printf "cacheupdater-sidecar: Kubernetes %s would wait for the sidecar's end before it starts the application; use 1.29 or newer. Without a cluster, helm template and helm lint assume a version: name yours by --kube-version" $kubernetes) -}}
{{- end -}}
{{- if eq $values.role "collect" -}}
{{- include "cacheupdater.sidecar.collectRefusals" $values -}}
{{- else if or $values.collect.queue $values.collect.spill $values.collect.only -}}
{{- fail "cacheupdater-sidecar: collect is for a collector; set role: collect, or remove it" -}}
{{- end -}}
{{- if and $config $values.existingConfigMap -}}
{{- fail "cacheupdater-sidecar: config and existingConfigMap are both said; keep one of them" -}}
{{- end -}}
{{- if not (or $config $values.existingConfigMap (eq $values.role "collect")) -}}
{{- fail "cacheupdater-sidecar: config is empty; write what is to be kept fresh (docs/reference/config.md), or name an existingConfigMap" -}}
{{- end -}}
{{- if and (hasKey $config "fleet") $values.fleet -}}
{{- fail "cacheupdater-sidecar: fleet is said twice, in the values and in config; keep one of them" -}}
{{- end -}}
{{- if and (hasKey $config "fleet") (not $config.fleet) -}}
{{- fail "cacheupdater-sidecar: config.fleet is empty, and each of N sidecars would spend every budget and quota whole; remove it for a fleet of this release, or write a name" -}}
{{- end -}}
{{- $queue := dig "queue" "url" "memory://" $config -}}
{{- if ne $queue "memory://" -}}
{{- fail (printf "cacheupdater-sidecar: config.queue.url is %s…, and a sidecar takes hints from its pod's socket; remove queue, or install the chart cacheupdater for the updaters of a topic" (regexFind "^[a-z0-9+]*://" $queue)) -}}
{{- end -}}
{{- with include "cacheupdater.shared.config" (dict "config" $config "secret" "existingSecret" "file" (include "cacheupdater.sidecar.passwordFile" .)) | trim -}}
{{- fail (printf "cacheupdater-sidecar: %s" (index (splitList "\n" .) 0)) -}}
{{- end -}}
{{- if and (hasKey $config "listen") (not (has "unix:///run/cacheupdater/hints.sock" $config.listen)) -}}
{{- fail "cacheupdater-sidecar: config.listen leaves out unix:///run/cacheupdater/hints.sock, the socket that the application's container shares; add it, or remove listen" -}}
{{- end -}}
{{- $admin := dig "admin" "listen" "" $config -}}
{{- if and $admin (or (not (hasSuffix (printf ":%d" (int $values.port)) $admin)) (hasPrefix "127." $admin) (hasPrefix "localhost" $admin)) -}}
{{- fail (printf "cacheupdater-sidecar: config.admin.listen is %s, where the kubelet's probe cannot ask; write 0.0.0.0:%d, or remove listen" $admin (int $values.port)) -}}
{{- end -}}
{{- end }}

{{- /* For an address of Kafka, which never holds a password itself. */ -}}
{{- define "cacheupdater.sidecar.passwordFile" -}}
password_file=FILE, and mount the Secret that has FILE by extraVolumes and extraVolumeMounts
{{- end }}

{{- define "cacheupdater.sidecar.collectRefusals" -}}
{{- if or .config .existingConfigMap .fleet -}}
{{- fail "cacheupdater-sidecar: a collector reads no configuration and has no budget to share; write collect.queue and collect.only, and remove config, existingConfigMap and fleet" -}}
{{- end -}}
{{- $url := .collect.queue -}}
{{- if and $url (not (regexMatch "^(kafka|rediss?([+][a-z]+)?|postgres(ql)?([+][a-z]+)?|tcp)://" $url)) (not (hasPrefix "$(" $url)) -}}
{{- fail (printf "cacheupdater-sidecar: collect.queue is %s…, which updaters in other pods do not share; write kafka://host:9092/topic, redis://host:6379/0?stream=hints, postgresql://…, or tcp://host:7171 of an updater" (regexFind "^[a-z0-9+]*(://)?" $url)) -}}
{{- end -}}
{{- if contains "${" $url -}}
{{- fail "cacheupdater-sidecar: collect.queue is a variable of the pod, and not of a configuration; write $(NAME) instead of ${NAME}" -}}
{{- end -}}
{{- $variable := "$(NAME) there, and name the Secret that has NAME in existingSecret" -}}
{{- $advice := dict "why" "and everybody who may see the pod could read the password" "variable" $variable "file" (include "cacheupdater.sidecar.passwordFile" .) -}}
{{- with include "cacheupdater.shared.address" (merge (dict "url" $url "options" (list "acks" "compression")) $advice) | trim -}}
{{- fail (printf "cacheupdater-sidecar: collect.queue: %s" .) -}}
{{- end -}}
{{- if not (or $url .existingSecret .extraEnv .extraEnvFrom) -}}
{{- fail "cacheupdater-sidecar: collect.queue says nothing; write where hints go, or name the Secret with CACHEUPDATER_QUEUE in existingSecret" -}}
{{- end -}}
{{- end }}
