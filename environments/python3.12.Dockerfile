# Python 3.12, from the image of the Python project or copied from the host; Debian has none. `python` has the copy, or nothing, and `wheels`
# the packages of python.lock.
ARG BASE
FROM ${BASE}
USER root
COPY python/ /
COPY wheels/ /usr/local/lib/python3.12/dist-packages/
# Packages of sessions are attached to site-packages, so that is empty; ours are in a directory that comes after it, as Debian has it. Modules whose
# libraries are not here are removed: an error at import is clearer.
RUN ldconfig \
 && mkdir -p /usr/local/lib/python3.12/site-packages \
 && find /usr/local/lib/python3.12/site-packages -mindepth 1 -delete \
 && ln -sf python3.12 /usr/local/bin/python3 && ln -sf python3.12 /usr/local/bin/python \
 && printf '%s\n' 'import sys' 'if sys.prefix == sys.base_prefix:' '    sys.path.append("/usr/local/lib/python3.12/dist-packages")' \
      >/usr/local/lib/python3.12/sitecustomize.py \
 && for module in /usr/local/lib/python3.12/lib-dynload/*.so; do ! ldd "$module" | grep -q 'not found' || rm "$module"; done \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/local/lib/python3.12 \
 && python3 -c 'import sys; assert sys.version_info[:2] == (3, 12), sys.version' \
 && python3 -c 'import asyncio, bz2, ctypes, decimal, hashlib, json, lzma, multiprocessing, sqlite3, ssl, subprocess, unittest, venv, zlib, zoneinfo' \
 && python3 -c 'import numpy, pandas, requests'
# No threads for which the limit on processes has no room.
ENV OPENBLAS_NUM_THREADS=1
USER sandboxuser
