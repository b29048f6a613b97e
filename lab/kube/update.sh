#!/usr/bin/env bash
# Pins the Kubernetes and etcd releases that a local cluster runs when it builds them itself.
# Kubernetes' own go.mod points its staging modules at folders of its repository; each is published as v0.MINOR.PATCH too.
# usage: update.sh v1.36.3 v3.6.15
set -euo pipefail
cd "$(dirname "$0")"
kubernetes=$1 etcd=$2 staging=v0.${1#v1.}
source=$(go mod download -json "k8s.io/kubernetes@$kubernetes" | python3 -c 'import json, sys; print(json.load(sys.stdin)["GoMod"])')
{
  printf 'module promptgroup.dev/lab/kube\n\n'
  grep -m1 '^go ' "$source"
  grep -m1 '^godebug' "$source" || true
  printf '\nrequire (\n\tk8s.io/kubernetes %s\n\tgo.etcd.io/etcd/server/v3 %s\n)\n\nreplace (\n' "$kubernetes" "$etcd"
  awk '$2 == "=>" && $3 ~ /staging/ {print $1}' "$source" | sort -u | while read -r module; do
    printf '\t%s => %s %s\n' "$module" "$module" "$staging"
  done
  printf ')\n'
} > go.mod
rm -f go.sum
GOFLAGS=-mod=mod go mod tidy
