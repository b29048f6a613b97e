#!/usr/bin/env bash
# Run the Gateway profile of the Inference Extension's conformance tests with promptgroup-picker as the endpoint picker.
#
#   epp-core/gateway-profile.sh GATEWAY_CLASS PICKER_IMAGE [TAG]
#
# It needs a cluster (KUBECONFIG) whose gateway knows InferencePools, with the CRDs of Gateway API and of the Inference
# Extension; that cluster's access to gcr.io for the tests' echo server; Go, and Python with PyYAML here. The tests come from
# the Go module proxy, which checks them against the sums that everybody has.
#
# Nobody has run it as a whole. What was run is the picker's test mode behind a real Envoy
# (tests/integration/test_gateway.py) and the change of base.yaml below.
set -euo pipefail
class=$1 image=$2 tag=${3:-v1.2.0}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
found=$(cd "$folder" && go mod download -json "sigs.k8s.io/gateway-api-inference-extension@$tag")
cp -r "$(python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])' <<< "$found")/." "$folder"
chmod -R u+w "$folder"
python3 - "$folder/conformance/resources/base.yaml" "$image" <<'P'
# the tests' own objects, with this picker wherever the reference picker stands
import sys

import yaml

path, image = sys.argv[1:]
things = [each for each in yaml.safe_load_all(open(path)) if each]
changed = 0
for each in things:
    pod = each["spec"]["template"]["spec"] if each["kind"] == "Deployment" else {"containers": []}
    for container in pod["containers"]:
        if "--pool-name" not in container.get("args", ()):
            continue
        container |= {"image": image, "imagePullPolicy": "IfNotPresent"}
        container["args"] = ["--conformance", "--port=9002", "--health-port=9003"]
        container.pop("volumeMounts", None)
        pod.pop("volumes", None)
        changed += 1
if not changed:
    sys.exit(f"{path} has no picker with --pool-name: the tests have changed, look into them")
with open(path, "w") as file:
    yaml.safe_dump_all(things, file, sort_keys=False)
print(f"{changed} pickers replaced")
P
cd "$folder"
go test -timeout 30m ./conformance -v -args --gateway-class="$class" --conformance-profiles=Gateway \
  --run-test="${RUN_TEST:-GatewayFollowingEPPRouting}"
