# Python 3.11, that of Debian 12.
ARG BASE
FROM ${BASE}
RUN python3 -c 'import sys; assert sys.version_info[:2] == (3, 11), sys.version'
