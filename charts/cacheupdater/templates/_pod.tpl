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
- name: config
  mountPath: /etc/cacheupdater
  readOnly: true
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
- name: config
  configMap:
    name: {{ include "cacheupdater.configMap" . }}
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

{{- define "cacheupdater.podTemplate" -}}
metadata:
  labels:
    {{- include "cacheupdater.labels" . | nindent 4 }}
    app.kubernetes.io/component: updater
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  annotations:
    {{- if not .Values.existingConfigMap }}
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
        - run
        - --config=/etc/cacheupdater/cacheupdater.yaml
        - --log-level={{ .Values.logLevel }}
        {{- if .Values.workers }}
        - --workers={{ .Values.workers }}
        {{- end }}
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
      {{- with .Values.extraEnv }}
      env:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      livenessProbe:
        {{- toYaml .Values.livenessProbe | nindent 8 }}
      startupProbe:
        {{- toYaml .Values.startupProbe | nindent 8 }}
      readinessProbe:
        {{- toYaml .Values.readinessProbe | nindent 8 }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      securityContext:
        {{- toYaml .Values.securityContext | nindent 8 }}
      volumeMounts:
        {{- include "cacheupdater.mounts" . | nindent 8 }}
        - name: run
          mountPath: /run/cacheupdater
        - name: state
          mountPath: /var/lib/cacheupdater
    {{- with .Values.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "cacheupdater.volumes" . | nindent 4 }}
    - name: run
      emptyDir:
        medium: Memory
        sizeLimit: 1Mi
    {{- if not .Values.state.persistence.enabled }}
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
