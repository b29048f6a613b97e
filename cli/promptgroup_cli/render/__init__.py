"""What the commands print. Each module turns values into text; none does I/O."""
