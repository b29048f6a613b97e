"""An Envoy in a namespace, set up as gateways set theirs up for an InferencePool: a picker, and a list of endpoints.

What a gateway's controller does is done here once, by hand: a Service with the pool's selector finds the endpoints, as
Istio has one for each InferencePool, and the picker's own Service finds the pickers.
"""

import json
from typing import Any

from harness.cluster import Cluster, load, shell
from harness.images import REGISTRY, ROOT, Images
from harness.install import ROLLOUT, SMALL, overlay
from promptgroup_local.kubectl import Kubectl

DUPLEX, HELD = 8080, 8081
"""Ports: with bodies in full duplex, as the protocol of pickers asks for; and with bodies that Envoy holds until the
picker has answered, so that it can do without one at any moment."""
NAME = "gateway"
ENDPOINTS = 3
"""Endpoints that the picker names for a request."""
_EXTENSIONS = "type.googleapis.com/envoy.extensions"
_LABELS = {"app": NAME}
_SHOWN = {"request_header_mode": "SEND", "response_header_mode": "SEND"}
_BODIES = {
    DUPLEX: {
        **_SHOWN,
        "request_body_mode": "FULL_DUPLEX_STREAMED",
        "request_trailer_mode": "SEND",
        "response_body_mode": "FULL_DUPLEX_STREAMED",
        "response_trailer_mode": "SEND",
    },
    HELD: {**_SHOWN, "request_body_mode": "BUFFERED", "response_body_mode": "NONE"},
}


def url(kubectl: Kubectl, port: int = DUPLEX) -> str:
    """Base URL for clients."""
    return f"http://{NAME}.{kubectl.namespace}:{port}"


def images_of_gateways(cluster: Cluster) -> Images:
    """Build the picker and an Envoy, and put them on the nodes."""
    tags = {}
    for image, options in {
        "picker": ("--target=picker",),
        NAME: ("--file", str(ROOT / "e2e/gateway.Dockerfile")),
    }.items():
        made = f"{REGISTRY}/{image}:e2e"
        shell("docker", "build", "--quiet", *options, "--tag", made, str(ROOT))
        [identity] = shell("docker", "image", "inspect", "--format={{.Id}}", made).split()
        tags[image] = f"e2e-{identity.removeprefix('sha256:')[:12]}"
        shell("docker", "tag", made, f"{REGISTRY}/{image}:{tags[image]}")
    images = Images(tags)
    load(cluster, images.names)
    return images


def install_pickers(kubectl: Kubectl, images: Images) -> None:
    """Apply pickers to a namespace, and wait until they run."""
    add = {"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": f"--endpoints={ENDPOINTS}"}
    named = {"target": {"kind": "Deployment"}, "patch": json.dumps([add])}
    with overlay("manifests/picker", images, namespace=kubectl.namespace, patches=[SMALL, named]) as folder:
        kubectl.run("apply", "--server-side", "-k", folder)
    kubectl.run("rollout", "status", "deployment/promptgroup-picker", ROLLOUT)


def install_gateway(kubectl: Kubectl, images: Images, pool: str) -> None:
    """Put an Envoy before an InferencePool, and wait until it runs."""
    inferencepool = kubectl.get("inferencepool", pool)
    assert inferencepool is not None
    [target] = inferencepool["spec"]["targetPorts"]
    kubectl.apply(
        _service("gateway-endpoints", inferencepool["spec"]["selector"]["matchLabels"], {"http": target["number"]}),
        _service("gateway-pickers", {"app.kubernetes.io/name": "promptgroup-picker"}, {"grpc": 9002}),
        _service(NAME, _LABELS, {"duplex": DUPLEX, "held": HELD}, headless=False),
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": NAME},
            "data": {"envoy.json": json.dumps(_configuration(kubectl.namespace, target["number"]))},
        },
        _deployment(images),
        _admitted_by_engines(),
    )
    kubectl.run("rollout", "status", f"deployment/{NAME}", ROLLOUT)


def _service(name: str, selector: dict[str, str], ports: dict[str, int], *, headless: bool = True) -> dict[str, Any]:
    spec: dict[str, Any] = {"selector": selector, "ports": [{"name": key, "port": port} for key, port in ports.items()]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": spec | ({"clusterIP": "None"} if headless else {}),
    }


def _admitted_by_engines() -> dict[str, Any]:
    """The policy that docs/how-to/gateways.md asks for, where the gateway is in the engines' namespace."""
    ingress = {"from": [{"podSelector": {"matchLabels": _LABELS}}], "ports": [{"port": "http", "protocol": "TCP"}]}
    engines = {"matchExpressions": [{"key": "promptgroup.dev/group", "operator": "Exists"}]}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "gateway-to-engines"},
        "spec": {"podSelector": engines, "ingress": [ingress]},
    }


def _deployment(images: Images) -> dict[str, Any]:
    container = {
        "name": NAME,
        "image": images.name(NAME),
        "args": ["-c", "/etc/envoy/envoy.json", "--concurrency", "1", "--log-level", "warning"],
        "ports": [{"containerPort": DUPLEX}, {"containerPort": HELD}],
        "readinessProbe": {"tcpSocket": {"port": DUPLEX}, "periodSeconds": 1},
        "resources": {"requests": {"cpu": "50m"}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/envoy"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    pod = {
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
    labels = {**_LABELS, "gateway.networking.k8s.io/gateway-name": NAME}  # pickers let in pods with it
    template = {"metadata": {"labels": labels}, "spec": pod}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": NAME},
        "spec": {"replicas": 1, "selector": {"matchLabels": _LABELS}, "template": template},
    }


def _configuration(namespace: str, engine_port: int) -> dict[str, Any]:
    http2 = f"{_EXTENSIONS}.upstreams.http.v3.HttpProtocolOptions"
    pickers = {
        **_cluster("pickers", f"gateway-pickers.{namespace}.svc.cluster.local", 9002),
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "1s",
                "no_traffic_interval": "1s",
                "unhealthy_threshold": 1,
                "healthy_threshold": 1,
                "grpc_health_check": {"service_name": "envoy.service.ext_proc.v3.ExternalProcessor"},
            }
        ],
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": http2,
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        # the picker's certificate is one that it made for itself
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {"@type": f"{_EXTENSIONS}.transport_sockets.tls.v3.UpstreamTlsContext"},
        },
    }
    endpoints = _cluster("endpoints", f"gateway-endpoints.{namespace}.svc.cluster.local", engine_port)
    return {
        "static_resources": {
            "listeners": [_listener(port, mode) for port, mode in _BODIES.items()],
            "clusters": [{**endpoints, "load_balancing_policy": _named_first()}, pickers],
        }
    }


def _cluster(name: str, host: str, port: int) -> dict[str, Any]:
    address = {"socket_address": {"address": host, "port_value": port}}
    return {
        "name": name,
        "type": "STRICT_DNS",
        "dns_lookup_family": "V4_ONLY",
        "dns_refresh_rate": "1s",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": address}}]}],
        },
    }


def _named_first() -> dict[str, Any]:
    """The endpoints that the picker names, in their order; without a picker any."""
    policies = f"{_EXTENSIONS}.load_balancing_policies"
    any_of_them = {
        "name": "envoy.load_balancing_policies.round_robin",
        "typed_config": {"@type": f"{policies}.round_robin.v3.RoundRobin"},
    }
    named = {"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}}
    override = {
        "@type": f"{policies}.override_host.v3.OverrideHost",
        "override_host_sources": [named],
        "fallback_policy": {"policies": [{"typed_extension_config": any_of_them}]},
    }
    policy = {"name": "envoy.load_balancing_policies.override_host", "typed_config": override}
    return {"policies": [{"typed_extension_config": policy}]}


def _listener(port: int, mode: dict[str, str]) -> dict[str, Any]:
    picker = {
        "@type": f"{_EXTENSIONS}.filters.http.ext_proc.v3.ExternalProcessor",
        "grpc_service": {"envoy_grpc": {"cluster_name": "pickers", "authority": "localhost"}},
        "failure_mode_allow": True,
        "message_timeout": "10s",
        "processing_mode": mode,
        "response_attributes": ["upstream.address"],
        "metadata_options": {"receiving_namespaces": {"untyped": ["envoy.lb"]}},
    }
    router = {"@type": f"{_EXTENSIONS}.filters.http.router.v3.Router"}
    route = {
        "cluster": "endpoints",
        "timeout": "600s",
        "retry_policy": {"retry_on": "connect-failure,refused-stream,reset", "num_retries": 3},
    }
    hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": route}]}]
    manager = {
        "@type": f"{_EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": str(port),
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [
            {"name": "envoy.filters.http.ext_proc", "typed_config": picker},
            {"name": "envoy.filters.http.router", "typed_config": router},
        ],
    }
    chain = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    return {
        "name": str(port),
        "address": {"socket_address": {"address": "0.0.0.0", "port_value": port}},
        "filter_chains": [{"filters": chain}],
        "per_connection_buffer_limit_bytes": 2**25,
    }
