{{- define "headrace.name" -}}
{{- if eq .Release.Name .Chart.Name }}{{ .Chart.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "headrace.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "headrace.labels" -}}
{{ include "headrace.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* Pods that answer clients: of a group over several machines, the leader alone. */ -}}
{{- define "headrace.servers" -}}
{{ include "headrace.selector" . }}
{{- if .Values.multiNode.enabled }}
leaderworkerset.sigs.k8s.io/worker-index: "0"
{{- end }}
{{- end }}

{{- define "headrace.secret" -}}
{{- .Values.secrets.existing | default (include "headrace.name" .) }}
{{- end }}

{{- define "headrace.account" -}}
{{- .Values.serviceAccount.name | default (ternary (include "headrace.name" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "headrace.probe" -}}
httpGet:
  path: {{ .path }}
  port: http
  {{- if .root.Values.tls.secretName }}
  scheme: HTTPS
  {{- end }}
{{- end }}

{{- /* The pod template, of (root, worker): a worker is a machine of a group that has no router. */ -}}
{{- define "headrace.pod" -}}
{{- $v := .root.Values }}
metadata:
  labels:
    {{- include "headrace.labels" .root | nindent 4 }}
    {{- with $v.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if and $v.inferencePool.enabled (not .worker) }}
    # The picker reads vLLM's names of /metrics, which are served.
    inference.networking.k8s.io/engine-type: vllm
    {{- end }}
  {{- if or $v.podAnnotations (and $v.monitoring.annotations (not .worker)) }}
  annotations:
    {{- with $v.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if and $v.monitoring.annotations (not .worker) }}
    prometheus.io/scrape: "true"
    prometheus.io/port: "3000"
    prometheus.io/path: /metrics
    {{- if $v.tls.secretName }}
    prometheus.io/scheme: https
    {{- end }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "headrace.account" .root }}
  automountServiceAccountToken: false
  # Else a Service named like an option becomes that option's variable.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add $v.drain.sleepSeconds $v.drain.finishSeconds 20 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: {{ $v.user }}
    fsGroup: {{ $v.user }}
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with $v.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $v.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- if and $v.gpu.enabled $v.gpu.runtimeClassName }}
  runtimeClassName: {{ $v.gpu.runtimeClassName }}
  {{- end }}
  {{- with $v.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if or $v.tolerations $v.gpu.enabled }}
  tolerations:
    {{- with $v.tolerations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- if $v.gpu.enabled }}
    - {key: {{ $v.gpu.resource }}, operator: Exists, effect: NoSchedule}
    {{- end }}
  {{- end }}
  {{- with $v.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $v.spread }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "headrace.selector" .root | nindent 10 }}
  {{- end }}
  containers:
    - name: server
      image: {{ printf "%s:%s" $v.image.repository ($v.image.tag | default .root.Chart.AppVersion) | quote }}
      imagePullPolicy: {{ $v.image.pullPolicy }}
      args:
        # A pod's HOSTNAME is its name, not an address.
        - --hostname=0.0.0.0
        - --json-output
        - --graceful-termination-timeout={{ $v.drain.finishSeconds }}
        - --startup-timeout={{ $v.startupSeconds }}
        - --device={{ ternary "cuda" "cpu" $v.gpu.enabled }}
        {{- with $v.args }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      env:
        {{- if $v.multiNode.enabled }}
        # The operator sets the three that these are made of.
        - {name: NNODES, value: $(LWS_GROUP_SIZE)}
        - {name: NODE_RANK, value: $(LWS_WORKER_INDEX)}
        - {name: MASTER_ADDR, value: $(LWS_LEADER_ADDRESS)}
        - {name: CLUSTER_SECRET_FILE, value: /etc/headrace/cluster/secret}
        {{- end }}
        - {name: NUM_SHARD, value: {{ mul $v.shards (ternary $v.multiNode.size 1 $v.multiNode.enabled) | quote }}}
        {{- with $v.model.id }}
        - {name: MODEL_ID, value: {{ . | quote }}}
        {{- end }}
        {{- with $v.model.revision }}
        - {name: REVISION, value: {{ . | quote }}}
        {{- end }}
        {{- with $v.model.servedName }}
        - {name: SERVED_MODEL_NAME, value: {{ . | quote }}}
        {{- end }}
        {{- if not .worker }}
        - name: API_KEY
          valueFrom: {secretKeyRef: {name: {{ include "headrace.secret" .root }}, key: api-key, optional: true}}
        {{- end }}
        - name: HF_TOKEN
          valueFrom: {secretKeyRef: {name: {{ include "headrace.secret" .root }}, key: hf-token, optional: true}}
        {{- if and $v.tls.secretName (not .worker) }}
        - {name: TLS_CERT, value: /etc/headrace/tls/tls.crt}
        - {name: TLS_KEY, value: /etc/headrace/tls/tls.key}
        {{- end }}
        {{- with $v.env }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        {{- if not .worker }}
        - {name: http, containerPort: 3000}
        {{- end }}
        {{- if $v.multiNode.enabled }}
        - {name: ranks, containerPort: 29500}
        {{- end }}
      {{- if not .worker }}
      # While the model is loaded only the first counts.
      startupProbe:
        {{- include "headrace.probe" (dict "root" .root "path" "/startupz") | nindent 8 }}
        periodSeconds: 2
        failureThreshold: {{ div (add $v.startupSeconds 1) 2 }}
      readinessProbe:
        {{- include "headrace.probe" (dict "root" .root "path" "/readyz") | nindent 8 }}
        periodSeconds: 1
        timeoutSeconds: 2
        failureThreshold: 2
      # The process alone: a pod that drains, or whose model is busy, is not killed for it.
      livenessProbe:
        {{- include "headrace.probe" (dict "root" .root "path" "/livez") | nindent 8 }}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      lifecycle:
        preStop: # until every balancer knows; the image has no shell
          sleep: {seconds: {{ $v.drain.sleepSeconds }}}
      {{- else }}
      lifecycle:
        preStop: # its ranks are needed until the leader's requests have ended; it ends with the leader
          sleep: {seconds: {{ add $v.drain.sleepSeconds $v.drain.finishSeconds }}}
      {{- end }}
      resources:
        {{- $r := deepCopy $v.resources }}
        {{- if $v.gpu.enabled }}
        {{- $_ := set $r "limits" (merge (dict $v.gpu.resource (toString $v.shards)) ($r.limits | default dict)) }}
        {{- end }}
        {{- toYaml $r | nindent 8 }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      # The last line of the log says why it ended.
      terminationMessagePolicy: FallbackToLogsOnError
      volumeMounts:
        - {name: shm, mountPath: /dev/shm}
        - {name: tmp, mountPath: /tmp}
        - {name: data, mountPath: /data}
        {{- if and $v.tls.secretName (not .worker) }}
        - {name: tls, mountPath: /etc/headrace/tls, readOnly: true}
        {{- end }}
        {{- if $v.multiNode.enabled }}
        - {name: cluster, mountPath: /etc/headrace/cluster, readOnly: true}
        {{- end }}
        {{- with $v.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - name: shm # the ranks of a pod exchange partial sums here
      emptyDir: {medium: Memory, sizeLimit: {{ $v.gpu.sharedMemory }}}
    - name: tmp # the shards' sockets
      emptyDir: {medium: Memory, sizeLimit: 16Mi}
    - name: data # the hub's cache
      {{- if eq $v.cache.kind "emptyDir" }}
      emptyDir: {sizeLimit: {{ $v.cache.size }}}
      {{- else }}
      persistentVolumeClaim:
        claimName: {{ ternary $v.cache.existingClaim (printf "%s-cache" (include "headrace.name" .root)) (eq $v.cache.kind "existingClaim") }}
      {{- end }}
    {{- if and $v.tls.secretName (not .worker) }}
    - name: tls
      secret: {secretName: {{ $v.tls.secretName }}}
    {{- end }}
    {{- if $v.multiNode.enabled }}
    - name: cluster # other users may not read it
      secret: {secretName: {{ required "multiNode.clusterSecret: ranks prove themselves by a secret" $v.multiNode.clusterSecret }}, defaultMode: 0440}
    {{- end }}
    {{- with $v.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
