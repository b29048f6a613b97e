"""What every other folder uses: settings, errors with their HTTP status, logs, metrics."""
