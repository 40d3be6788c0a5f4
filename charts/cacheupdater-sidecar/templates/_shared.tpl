{{/* What both charts refuse in a configuration and in the address of a queue. `make chart-docs` copies this file from the chart
cacheupdater into the library cacheupdater-sidecar, because neither chart depends on the other. Edit the file of the chart cacheupdater.
No sentence repeats a part of an address: it may be a password, and pipelines keep what Helm prints. */}}

{{/* What is wrong with an address, or nothing. `options` are those of a kafka:// address beside TLS and SASL. `why` says who would
read a password, `variable` and `file` say what to write instead of it. Only the pod knows its variables, so they are taken to be right;
the default of a variable is text like any other. */}}
{{- define "cacheupdater.shared.address" -}}
{{- $default := regexReplaceAll "[$][{][A-Za-z_][A-Za-z0-9_]*:-([^}]*)[}]" .url "${1}" }}
{{- $clear := regexReplaceAll "[$]([{][A-Za-z_][A-Za-z0-9_]*(:[?][^}]*)?[}]|[(][A-Za-z0-9_.-]+[)])" $default "" }}
{{- $option := "[?&][A-Za-z_]*(password|passwd|pwd|secret|token)=" }}
{{- if not (hasPrefix "kafka://" .url) }}
{{- if regexMatch (printf "(^[^:]*:.+@|%s[^&])" $option) (regexReplaceAll "^[a-z0-9+]*://" $clear "") }}
holds a password, {{ .why }}; write {{ .variable }}
{{- end }}
{{- else }}
{{- $plain := trimPrefix "kafka://" (regexReplaceAll "[$]([{][^}]*[}]|[(][^)]*[)])" .url "VARIABLE") }}
{{- $servers := regexFind "^[^/?]*" $plain }}
{{- $said := regexReplaceAll "^[?]" (regexFind "[?].*" $plain) "&" }}
{{- $known := concat (list "ca" "cert" "key" "tls" "sasl" "username" "password_file" "token_file") .options }}
{{- $portless := false }}{{ $unknown := false }}
{{- range splitList "," $servers }}
{{- if not (regexMatch "VARIABLE|^([[][0-9A-Fa-f:.]+[]]|[A-Za-z0-9._-]+):[0-9]{1,5}$" .) }}{{ $portless = true }}{{ end }}
{{- end }}
{{- range compact (splitList "&" $said) }}
{{- $name := index (splitList "=" .) 0 }}
{{- if not (or (contains "VARIABLE" $name) (has $name $known)) }}{{ $unknown = true }}{{ end }}
{{- end }}
{{- if or (contains "@" $servers) (regexMatch $option .url) }}
holds a user or a password, and an address of Kafka may only name a file that holds it; write ?sasl=SCRAM-SHA-512&username=…&{{ .file }}
{{- else if $portless }}
names a broker without its port, or not as host:port; write kafka://host:9092,host:9092
{{- else if $unknown }}
has an unknown option; there are {{ join ", " (sortAlpha $known) }}
{{- else if and (regexMatch "(?i)&sasl=plain(&|$)" $said) (not (regexMatch "&(tls=(true|VARIABLE)|ca=|cert=|VARIABLE)" $said)) }}
has sasl=PLAIN without TLS, which would send the password as it is; add tls=true or ca=FILE
{{- end }}
{{- end }}
{{- end }}

{{/* One line for each mistake in `config`. `secret` is the value that names the Secret, `file` says how a password is read from one. */}}
{{- define "cacheupdater.shared.config" }}
{{- $sources := ternary .config.sources dict (kindIs "map" .config.sources) }}
{{- $urls := dict }}
{{- range $name, $one := pick .config "cache" "queue" }}
{{- if kindIs "map" $one }}{{ $_ := set $urls (printf "%s.url" $name) $one.url }}{{ end }}
{{- end }}
{{- range $name, $one := $sources }}
{{- if kindIs "map" $one }}
{{- $_ := set $urls (printf "sources.%s.url" $name) $one.url }}
{{- $feed := ternary $one.changes dict (kindIs "map" $one.changes) }}
{{- with $feed.debezium }}{{ $_ := set $urls (printf "sources.%s.changes.debezium.url" $name) .url }}{{ end }}
{{- end }}
{{- end }}
{{- $variable := printf "${NAME} there, and name the Secret that has NAME in %s" .secret }}
{{- $advice := dict "why" "and a ConfigMap is no secret" "variable" $variable "file" .file }}
{{- range $place, $url := $urls }}
{{- $options := ternary (list "group" "session_timeout" "instance") list (eq $place "queue.url") }}
{{- with include "cacheupdater.shared.address" (merge (dict "url" (toString (default "" $url)) "options" $options) $advice) | trim }}
config.{{ $place }}: {{ . }}
{{- end }}
{{- end }}
{{- range $name, $one := ternary .config.namespaces dict (kindIs "map" .config.namespaces) }}
{{- $load := and (kindIs "map" $one) $one.load }}
{{- $source := and (kindIs "map" $load) $load.source | default "" | toString }}
{{- if and $source (not (hasKey $sources $source)) (not (contains "$" $source)) }}
config.namespaces.{{ $name }}.load.source: no source is called {{ $source | quote }}; use one of {{ join ", " (sortAlpha (keys $sources)) }}, or write it into config.sources
{{- end }}
{{- end }}
{{- end }}
