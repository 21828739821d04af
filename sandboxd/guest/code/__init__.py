"""What runs code inside a sandbox: a zygote, the contexts that it forks, and their debugger.

Standard library only, for Python 3.9 and later: it runs on the Python of the sandbox's image, not
on the guest's. PID 1 and the daemon import `protocol` and `records`, because all ends share them.
"""
