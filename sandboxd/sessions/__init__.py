"""Sessions: a thread's hold on a sandbox, from open to end."""
