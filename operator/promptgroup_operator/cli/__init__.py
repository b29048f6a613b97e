"""What people run at a terminal: `promptgroup COMMAND`. One module a command; each adds its flags and runs."""
