"""Trees of files that say what they are: for comparisons of a workspace with what it was."""

from __future__ import annotations

import hashlib

from sandboxd_client import AsyncSandbox

PRINT_TREE = r"""
import hashlib, os, stat
def show(path):
    found = os.lstat(path)
    kind = stat.S_IFMT(found.st_mode)
    content = ""
    if stat.S_ISLNK(found.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(found.st_mode):
        content = hashlib.sha256(open(path, "rb").read()).hexdigest()
    size = found.st_size if stat.S_ISREG(found.st_mode) else 0
    attributes = []
    if not stat.S_ISLNK(found.st_mode):
        attributes = sorted((n, os.getxattr(path, n)) for n in os.listxattr(path))
    holes = stat.S_ISREG(found.st_mode) and found.st_blocks * 512 < found.st_size
    links = found.st_nlink if stat.S_ISREG(found.st_mode) else 0
    print(repr((path, oct(found.st_mode), found.st_uid == os.getuid(), found.st_mtime_ns, size,
                links, content, attributes, holes)))
def walk(top):
    for name in sorted(os.listdir(top)):
        path = os.path.join(top, name)
        if path == b"./project_files":
            continue
        show(path)
        if stat.S_ISDIR(os.lstat(path).st_mode):
            walk(path)
walk(b".")
"""

MAKE_TREE = r"""
set -e
mkdir -p deep/a/b/c "odd
name" empty
echo hello > plain.txt
printf '\000\001\377' > binary
echo twin > deep/a/one; ln deep/a/one deep/two
ln -s ../plain.txt deep/link; ln -s /nowhere/at/all dangling
mkfifo deep/fifo
truncate -s 3M hole; printf middle | dd of=hole bs=1 seek=1500000 conv=notrunc status=none
head -c 5000000 /dev/urandom > large
echo secret > private; chmod 600 private
echo run > program; chmod 755 program
printf x > "$(printf 'not\377utf8')"
touch -d '2001-02-03 04:05:06.123456789' plain.txt deep/a
python3 -c "import os; os.setxattr('plain.txt', 'user.colour', b'blue')" 2>/dev/null || true
"""


async def tree_of(sandbox: AsyncSandbox) -> str:
    """Everything in the workspace, in words: names, modes, times, sizes, links, content."""
    await sandbox.files.write("/tmp/print_tree.py", PRINT_TREE)
    printed = await sandbox.commands.run("python3 /tmp/print_tree.py", timeout=60, check=True)
    return printed.stdout


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
