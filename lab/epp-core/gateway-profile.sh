#!/usr/bin/env bash
# Run the Gateway profile of the Inference Extension's conformance tests with promptgroup-picker as the endpoint picker.
#
#   lab/epp-core/gateway-profile.sh GATEWAY_CLASS PICKER_IMAGE [VERSION]
#
# It needs a cluster (KUBECONFIG) with a gateway that knows InferencePools and the CRDs of Gateway API and of the Inference
# Extension; addresses of Gateways that answer here; Go, and Python with PyYAML. The tests come from the Go module proxy,
# which checks them against the sums that everybody has. docs/how-to/gateways.md says what a run said.
#
#   RUN_TEST=NAME     one test instead of all
#   REPORT=FILE       where to write the suite's report
#   OBJECTS=FILE      more objects for the tests' namespace, such as Istio's DestinationRules
#   ECHO_IMAGE=IMAGE  the tests' echo server, for clusters that reach no gcr.io
set -euo pipefail
class=$1 image=$2 tag=${3:-v1.6.0}
module=sigs.k8s.io/gateway-api-inference-extension
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

copy() { # the tests are a module of their own from v1.5.0 on, and a folder of the whole before
  go mod download -json "$1@$tag" > found.json || { cat found.json >> errors; return 1; }
  cp -r "$(python3 -c 'import json; print(json.load(open("found.json"))["Dir"])')/." "$2"
  chmod -R u+w .
}
if copy "$module/conformance" conformance 2>>errors; then
  tests=$folder/conformance
  (cd "$tests" && go mod edit -dropreplace "$module") # which names the folder above
elif copy "$module" whole 2>>errors; then
  tests=$folder/whole/conformance
else
  cat errors >&2
  exit 1
fi

python3 - "$tests/resources/base.yaml" "$image" "${OBJECTS:-}" "${ECHO_IMAGE:-}" <<'P'
# the tests' own objects, with this picker wherever the reference picker stands
import sys

import yaml

path, image, objects, echo = sys.argv[1:]
things = [each for each in yaml.safe_load_all(open(path)) if each]
changed = 0
for each in things:
    pod = each["spec"]["template"]["spec"] if each["kind"] == "Deployment" else {"containers": []}
    for container in pod["containers"]:
        arguments = container.get("args", [])
        if "--pool-name" in arguments:
            pool = arguments[arguments.index("--pool-name") + 1]
            container |= {"image": image, "imagePullPolicy": "IfNotPresent"}
            container["args"] = [f"--conformance={pool}", "--port=9002", "--health-port=9003"]
            container.pop("volumeMounts", None)
            pod.pop("volumes", None)
            changed += 1
        elif echo and "echo-basic" in container["image"]:
            container |= {"image": echo, "imagePullPolicy": "IfNotPresent"}
if not changed:
    sys.exit(f"{path} has no picker with --pool-name: the tests have changed, look into them")
if objects:
    things += [each for each in yaml.safe_load_all(open(objects)) if each]
with open(path, "w") as file:
    yaml.safe_dump_all(things, file, sort_keys=False)
print(f"{changed} pickers replaced")
P
cd "$tests"
GOFLAGS="-mod=mod ${GOFLAGS:-}" go test -vet=off -timeout 60m . -v -args --gateway-class="$class" --conformance-profiles=Gateway \
  --run-test="${RUN_TEST:-}" --report-output="${REPORT:-$folder/report.yaml}" --organization=promptgroup \
  --project=promptgroup-picker --url=https://github.com/promptgroup/promptgroup --version="${image##*:}" --contact=none
