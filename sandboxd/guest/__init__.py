"""The program that is PID 1 inside every sandbox.

Standard library only, and nothing of the daemon: it runs on its own Python inside any image. The
daemon imports `frames` from here, because both ends speak the same codec.
"""
