"""Predicts what a group needs before there is anything to observe. Does no I/O.

model_config  computes what a model keeps of a token, from its config
kv            computes bytes of a token and tokens of a replica
catalogue     knows well-known models
gpus          knows what GPUs have
estimate      estimates what a replica can do, where nothing is measured
forecast      predicts what replicas will do
preview       shows what the operator would decide if it observed that
"""
