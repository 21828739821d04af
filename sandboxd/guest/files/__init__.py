"""Work on the files of one workspace, one operation at a time.

A worker has a directory, a socket and nothing else: no global state is read or changed, so it runs
in a process of its own inside a sandbox, and as well in a thread of the daemon on a directory that
no command can reach. Its codec is shared with the daemon, as the one of the link is.
"""
