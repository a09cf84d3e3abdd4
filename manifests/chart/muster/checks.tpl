{{- /* What the schema cannot say. */}}
{{- if ne .Release.Namespace "muster-system" }}
{{- fail (printf "namespace %s: Muster runs in muster-system, which its roles and policies name: add --namespace muster-system" .Release.Namespace) }}
{{- end }}
{{- if ne .Values.version .Chart.Version }}
{{- fail (printf "version: these values, with the digests of their images, are of %s, and the chart is of %s: upgrade with --reset-then-reuse-values, not --reuse-values, and keep version and digests out of values of your own" .Values.version .Chart.Version) }}
{{- end }}
{{- if and .Values.checkers.enabled (has .Values.profile (list "observe" "health")) }}
{{- fail (printf "checkers.enabled: profile %s tests no nodes: set profile to burn-in or jobs, or checkers.enabled to false" .Values.profile) }}
{{- end }}
{{- if and (eq .Values.profile "burn-in") (not .Values.checkers.enabled) }}
{{- fail "checkers.enabled: profile burn-in is for checkers: set it to true" }}
{{- end }}
{{- /* Without an API server (helm template) nothing is looked up. */}}
{{- $needed := get (dict "observe" "nodehealths" "health" "repairrequests" "burn-in" "repairrequests" "jobs" "trainingjobs") .Values.profile | printf "%s.muster.dev" }}
{{- if and (lookup "v1" "Namespace" "" "kube-system") (not (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $needed)) }}
{{- fail (printf "the definitions of Muster are missing: install the chart muster-definitions first, with profile %s" .Values.profile) }}
{{- end }}
