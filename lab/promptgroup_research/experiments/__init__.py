"""The experiments: scenarios, bursts, the figures of articles, and the gates that results must pass."""
