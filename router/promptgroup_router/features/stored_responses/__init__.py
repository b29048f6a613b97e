"""Leads requests to the replica that stores the response which they continue, read, cancel or delete."""
