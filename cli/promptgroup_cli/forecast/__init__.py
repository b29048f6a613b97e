"""Predicts the replicas that a group needs before any load can be observed. Does no I/O.

model_config  computes the numbers that a model stores per token, from its config
kv            computes bytes of a token and tokens of a replica
catalogue     lists well-known models
gpus          lists memory, arithmetic and bandwidth of GPUs
estimate      estimates the speed and capacity of a replica, where nothing is measured
forecast      predicts hit rate, utilization and latency of replicas
preview       predicts the operator's decision under that forecast
"""
