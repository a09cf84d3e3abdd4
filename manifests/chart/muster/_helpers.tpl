{{/* The reference of an image: include "muster.image" (list $ "operator"). */}}
{{- define "muster.image" -}}
{{- $version := (index . 0).Chart.AppVersion -}}
{{- $images := (index . 0).Values.images -}}
{{- $name := index . 1 -}}
{{- $image := index $images $name | default dict -}}
{{- if and (eq $name "uninstall") (not (or $image.repository $image.digest $image.tag)) -}}
{{- $name = "operator" -}}
{{- $image = $images.operator -}}
{{- end -}}
{{- $field := printf "images.%s" $name -}}
{{- if contains "://" $images.registry -}}
{{- fail (printf "images.registry: %s is a URL: leave the part before and with :// out, e.g. registry.example.org" $images.registry) -}}
{{- end -}}
{{- if hasSuffix "/" $images.registry -}}
{{- fail (printf "images.registry: %s ends with a slash: leave it out" $images.registry) -}}
{{- end -}}
{{- if not (regexMatch "^[^/[:space:]]+(/[a-z0-9._-]+)*$" $images.registry) -}}
{{- fail (printf "images.registry: %q is no host with a path: small letters, without spaces and without a tag, e.g. registry.example.org/muster" $images.registry) -}}
{{- end -}}
{{- if not $image.repository -}}
{{- fail (printf "%s.repository is empty: name the image, without its registry" $field) -}}
{{- end -}}
{{- if contains "@" $image.repository -}}
{{- fail (printf "%s.repository: %s has a digest: set %s.digest, and leave @ and what follows out" $field $image.repository $field) -}}
{{- end -}}
{{- if regexMatch ":[^/]*$" $image.repository -}}
{{- fail (printf "%s.repository: %s has a tag: set %s.tag and an empty digest, and leave : and what follows out" $field $image.repository $field) -}}
{{- end -}}
{{- if or (regexMatch "^([^/]*[.:][^/]*|localhost)/" $image.repository) (not (regexMatch "^[a-z0-9._-]+(/[a-z0-9._-]+)*$" $image.repository)) -}}
{{- fail (printf "%s.repository: %q is no name behind a registry: small letters, without its registry, which images.registry names for all, e.g. operator" $field $image.repository) -}}
{{- end -}}
{{- if and $image.digest $image.tag -}}
{{- fail (printf "%s has a digest and a tag: leave tag out to pull by digest, or set digest to \"\" to pull by tag" $field) -}}
{{- else if $image.digest -}}
{{- if not (regexMatch "^sha256:[0-9a-f]{64}$" $image.digest) -}}
{{- fail (printf "%s.digest: %s is no digest, which is sha256: and 64 hexadecimal digits" $field $image.digest) -}}
{{- end -}}
{{- printf "%s/%s:%s@%s" $images.registry $image.repository $version $image.digest -}}
{{- else if eq (default "" $image.tag) "latest" -}}
{{- fail (printf "%s.tag: latest is another image tomorrow: set the digest, or the tag of a version" $field) -}}
{{- else if $image.tag -}}
{{- printf "%s/%s:%s" $images.registry $image.repository $image.tag -}}
{{- else -}}
{{- fail (printf "%s has neither digest nor tag: set the digest that your registry shows for the image" $field) -}}
{{- end -}}
{{- end -}}
