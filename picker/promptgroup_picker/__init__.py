"""The picker chooses a replica for each request of a gateway: an endpoint picker of Gateway API's Inference Extension.

It decides as the router does, by the router's own code, and relays nothing: gateways speak Envoy's external processing
(ext_proc) to it. `lint-imports` enforces the order of its folders in `pyproject.toml`.
"""
