"""The peers' policies, as their sources or documents have them, and the oracle."""
