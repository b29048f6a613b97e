"""The base of all commands: exit statuses and errors, the argument parser, and bounded readers of JSON and YAML.

Imports nothing heavy, since even `promptgroup --help` loads it.
"""
