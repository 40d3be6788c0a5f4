{{/* Names that this chart does not have and others do, or that it had once: where each is now. */}}
{{- define "cacheupdater.moved" -}}
{{- $moved := dict
  "replicas" "replicaCount"
  "configMap" "existingConfigMap"
  "secret" "existingSecret.name"
  "secretName" "existingSecret.name"
  "env" "extraEnv"
  "envFrom" "extraEnvFrom"
  "volumes" "extraVolumes"
  "volumeMounts" "extraVolumeMounts"
  "sidecars" "extraContainers"
  "persistence" "state.persistence"
  "hpa" "autoscaling.hpa"
  "keda" "autoscaling.keda"
  "pdb" "podDisruptionBudget"
  "podMonitor" "metrics.podMonitor"
  "serviceMonitor" "metrics.serviceMonitor"
  "prometheusRule" "metrics.prometheusRule"
  "containerSecurityContext" "securityContext"
  "extraManifests" "extraObjects" }}
{{- range $old, $new := $moved }}
{{- if hasKey $.Values $old }}
{{ printf "%s: is called %s here; rename it" $old $new }}
{{- end }}
{{- end }}
{{- end }}
