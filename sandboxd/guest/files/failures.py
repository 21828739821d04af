"""Errors of the kernel as failures that are reported to the daemon."""

import errno

from .codec import Failure

_FAILURES = {
    errno.ENOENT: Failure.NOT_FOUND,
    errno.EEXIST: Failure.EXISTS,
    errno.EISDIR: Failure.NOT_A_FILE,
    errno.ENXIO: Failure.NOT_A_FILE,
    errno.ENOTDIR: Failure.NOT_A_DIRECTORY,
    errno.ENOTEMPTY: Failure.NOT_EMPTY,
    errno.ELOOP: Failure.OUTSIDE,
    errno.EROFS: Failure.READ_ONLY,
    errno.EXDEV: Failure.OTHER_FILESYSTEM,
    errno.EBUSY: Failure.PROTECTED,
    errno.EACCES: Failure.NOT_PERMITTED,
    errno.EPERM: Failure.NOT_PERMITTED,
    errno.EFBIG: Failure.TOO_LARGE,
    errno.ENOSPC: Failure.FULL,
    errno.EDQUOT: Failure.FULL,
    errno.ENAMETOOLONG: Failure.NAME_TOO_LONG,
    errno.ESRCH: Failure.NOT_FOUND,  # the process whose entry in /proc it was
    errno.EIO: Failure.UNSUPPORTED,
    errno.EINVAL: Failure.UNSUPPORTED,
    errno.EOPNOTSUPP: Failure.UNSUPPORTED,
}


def failure_of(error: OSError) -> Failure:
    return _FAILURES.get(error.errno or 0, Failure.BROKEN)
