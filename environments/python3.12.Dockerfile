# Python 3.12, from the image of the Python project or copied from the host; Debian has none. `layer` has the copy, or nothing.
ARG BASE
FROM ${BASE}
USER root
COPY layer/ /
# Packages are attached to sessions, so their directory is empty. Modules whose libraries are not here are removed: an error at import is clearer.
RUN ldconfig \
 && mkdir -p /usr/local/lib/python3.12/site-packages \
 && find /usr/local/lib/python3.12/site-packages -mindepth 1 -delete \
 && ln -sf python3.12 /usr/local/bin/python3 && ln -sf python3.12 /usr/local/bin/python \
 && for module in /usr/local/lib/python3.12/lib-dynload/*.so; do ! ldd "$module" | grep -q 'not found' || rm "$module"; done \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/local/lib/python3.12 \
 && python3 -c 'import sys; assert sys.version_info[:2] == (3, 12), sys.version' \
 && python3 -c 'import asyncio, bz2, ctypes, decimal, hashlib, json, lzma, multiprocessing, sqlite3, ssl, subprocess, unittest, venv, zlib, zoneinfo'
USER sandboxuser
