# Python 3.13, that of Debian 13.
ARG BASE
FROM ${BASE}
RUN python3 -c 'import sys; assert sys.version_info[:2] == (3, 13), sys.version'
