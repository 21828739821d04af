"""Workers for the files of a workspace, each of which does one operation.

A worker has a directory and a socket, and reads or changes no global state. So it runs both as a
process inside a sandbox and as a thread of the daemon, on a directory that no command can change.
The daemon shares its codec.
"""
