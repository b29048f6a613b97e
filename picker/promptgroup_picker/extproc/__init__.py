"""The endpoint-picker protocol: one request's messages from a gateway, and what they are answered with.

Proposal 004 of the Gateway API Inference Extension, over `envoy.service.ext_proc.v3.ExternalProcessor`.

It may not import `settings`, `tls`, `health`, `pool` or `server`.
"""
