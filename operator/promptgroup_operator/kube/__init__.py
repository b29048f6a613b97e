"""The Kubernetes API: reads, watches, writes, and the Lease by which one operator leads.

client-go's words are used where it has one: store, work queue, resync, leader election.

It may not import `load`, `passes` or `handlers`.
"""
