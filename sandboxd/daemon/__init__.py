"""The process: composition root, start and stop, signals, watchdog, logs."""
