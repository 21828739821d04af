# Python 3.11, that of Debian 12, with the packages of python.lock, which are in `wheels`.
ARG BASE
FROM ${BASE}
USER root
COPY wheels/ /usr/lib/python3/dist-packages/
# Compiled once: the file system is read-only at run time, so every start would compile again.
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/lib/python3/dist-packages \
 && python3 -c 'import sys; assert sys.version_info[:2] == (3, 11), sys.version' \
 && python3 -c 'import numpy, pandas, requests'
# No threads for which the limit on processes has no room.
ENV OPENBLAS_NUM_THREADS=1
USER sandboxuser
