{{/* The pod's template, the same for both kinds of workload. */}}

{{- define "cacheupdater.env" -}}
{{- if or .Values.existingSecret.name .Values.extraEnvFrom }}
{{- if or .Values.extraEnvFrom .Values.existingSecret.env }}
envFrom:
  {{- if and .Values.existingSecret.name .Values.existingSecret.env }}
  - secretRef:
      name: {{ .Values.existingSecret.name }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "cacheupdater.mounts" -}}
{{- if ne .Values.role "collect" }}
- name: config
  mountPath: /etc/cacheupdater
  readOnly: true
{{- end }}
- name: tmp
  mountPath: /tmp
{{- if and .Values.existingSecret.name .Values.existingSecret.files }}
- name: secret
  mountPath: /run/secrets/cacheupdater
  readOnly: true
{{- end }}
{{- range $name, $one := .Values.tls }}
- name: tls-{{ $name | lower | replace "_" "-" }}
  mountPath: /etc/cacheupdater-tls/{{ $name }}
  readOnly: true
{{- end }}
{{- if .Values.loaders.configMap }}
- name: loaders
  mountPath: /app
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "cacheupdater.volumes" -}}
{{- if ne .Values.role "collect" }}
- name: config
  configMap:
    name: {{ include "cacheupdater.configMap" . }}
{{- end }}
- name: tmp
  emptyDir:
    sizeLimit: {{ .Values.tmp.sizeLimit }}
{{- if and .Values.existingSecret.name .Values.existingSecret.files }}
- name: secret
  secret:
    secretName: {{ .Values.existingSecret.name }}
    defaultMode: 288  # 0440
{{- end }}
{{- range $name, $one := .Values.tls }}
- name: tls-{{ $name | lower | replace "_" "-" }}
  {{- if $one.secret }}
  secret:
    secretName: {{ $one.secret }}
    defaultMode: 288  # 0440
  {{- else }}
  configMap:
    name: {{ $one.configMap }}
  {{- end }}
{{- end }}
{{- if .Values.loaders.configMap }}
- name: loaders
  configMap:
    name: {{ .Values.loaders.configMap }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What every pod of ours has: the updater's and the test's. */}}
{{- define "cacheupdater.podBase" -}}
serviceAccountName: {{ include "cacheupdater.serviceAccount" . }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}

{{- define "cacheupdater.args" -}}
{{- if eq .Values.role "collect" }}
- collect
- --listen
{{- range .Values.collect.listen }}
- {{ . | quote }}
{{- end }}
{{- with .Values.collect.only }}
- --only
{{- range . }}
- {{ . | quote }}
{{- end }}
{{- end }}
- --admin=0.0.0.0:9090
{{- with .Values.collect.spill }}
{{- if .enabled }}
- --spill=/var/lib/cacheupdater/spill # made by the collector: the volume itself is open to its whole group
- --spill-size={{ .size }}
{{- with .keep }}
- --spill-keep
{{- range $kind, $time := . }}
- {{ $kind }}={{ $time }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- else }}
- run
- --config=/etc/cacheupdater/cacheupdater.yaml
{{- end }}
- --log-level={{ .Values.logLevel }}
{{- if .Values.workers }}
- --workers={{ .Values.workers }}
{{- end }}
{{- end }}

{{/* Whether the pod has the volume of `state`: a collector without a spill writes nothing. */}}
{{- define "cacheupdater.hasState" -}}
{{- if or (ne .Values.role "collect") .Values.collect.spill.enabled }}yes{{ end }}
{{- end }}

{{- define "cacheupdater.podTemplate" -}}
metadata:
  labels:
    {{- include "cacheupdater.labels" . | nindent 4 }}
    app.kubernetes.io/component: {{ include "cacheupdater.component" . }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- if and (not .Values.existingConfigMap) (ne .Values.role "collect") }}
    checksum/config: {{ include "cacheupdater.fixed" . | sha256sum }}
    {{- end }}
    kubectl.kubernetes.io/default-container: cacheupdater
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  {{- include "cacheupdater.podBase" . | nindent 2 }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.initContainers }}
  initContainers:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  containers:
    - name: cacheupdater
      image: {{ include "cacheupdater.image" . }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        {{- include "cacheupdater.args" . | trim | nindent 8 }}
      ports:
        - name: admin
          containerPort: 9090
        {{- range $at, $port := splitList " " (trim (include "cacheupdater.hintsPort" .)) }}
        {{- if $port }}
        - name: hints{{ if $at }}-{{ $at }}{{ end }}
          containerPort: {{ $port }}
        {{- end }}
        {{- end }}
      {{- with trim (include "cacheupdater.env" .) }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- $queue := and (eq .Values.role "collect") .Values.collect.queue }}
      {{- if or $queue .Values.extraEnv }}
      env:
        {{- with .Values.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
        {{- with $queue }}
        - name: CACHEUPDATER_QUEUE
          value: {{ . | quote }}
        {{- end }}
      {{- end }}
      livenessProbe:
        {{- toYaml .Values.livenessProbe | nindent 8 }}
      startupProbe:
        {{- toYaml .Values.startupProbe | nindent 8 }}
      readinessProbe:
        {{- toYaml .Values.readinessProbe | nindent 8 }}
      resources:
        {{- ternary .Values.collect.resources .Values.resources (eq .Values.role "collect") | toYaml | nindent 8 }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "cacheupdater.mounts" . | trim | nindent 8 }}
        - name: run
          mountPath: /run/cacheupdater
        {{- if include "cacheupdater.hasState" . }}
        - name: state
          mountPath: /var/lib/cacheupdater
        {{- end }}
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "cacheupdater.volumes" . | trim | nindent 4 }}
    - name: run
      emptyDir:
        medium: Memory
        sizeLimit: 1Mi
    {{- if and (include "cacheupdater.hasState" .) (not .Values.state.persistence.enabled) }}
    - name: state
      emptyDir:
        sizeLimit: {{ .Values.state.sizeLimit }}
    {{- end }}
  {{- with .Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range . }}
    - {{ toYaml . | nindent 6 | trim }}
      {{- if not .labelSelector }}
      labelSelector:
        matchLabels:
          {{- include "cacheupdater.podSelector" $ | nindent 10 }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
{{- end }}
