"""A Kubernetes cluster of plain processes: the real control plane, and an agent that runs pods as processes.

No privilege, container runtime or virtual network is needed. What differs from a cluster of machines:

- an *image* is an argv prefix that takes the pod's address (`images`);
- a pod's address is one of 127.64.0.0/10, so that two pods can listen on one port; EndpointSlices refuse such
  addresses, so Services have no data plane: pods are reached by address;
- a process has no mount namespace: mount paths in its command line and environment are rewritten
  (`nodeagent.environment`); a program that has such a path built in does not find it;
- nothing is confined: users, security contexts, resource limits and network policies are accepted and not enforced;
- SIGTERM goes to a container's whole process group;
- `kubectl logs` works; `exec`, `attach` and `port-forward` do not: the processes are on this machine.
"""
