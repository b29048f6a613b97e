"""What was asked of the simulator: scenarios, bursts, the figures of articles, and the gates that results must pass."""
