"""The base of all commands: exit statuses and errors, their flags and texts, and bounded readers of JSON and YAML.

Imports nothing heavy, since even `promptgroup --help` loads it.
"""
