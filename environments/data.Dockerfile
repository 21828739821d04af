# Python 3.11 with more packages for data, which are in `wheels`: those of data.lock.
ARG BASE
FROM ${BASE}
USER root
COPY wheels/ /usr/lib/python3/dist-packages/
# Compiled once: the file system is read-only at run time, so every start would compile again. Directories that have been compiled are in the base.
RUN cd /usr/lib/python3/dist-packages \
 && find . -type d ! -name __pycache__ ! -exec test -d '{}/__pycache__' ';' -print0 \
      | xargs -0 python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash -l . \
 && python3 -c 'import bs4, lxml, matplotlib.pyplot, numpy, openpyxl, pandas, requests, scipy, seaborn, sklearn, tabulate, xlsxwriter, yaml'
# No window, and no cache of fonts in the workspace.
ENV MPLBACKEND=Agg MPLCONFIGDIR=/tmp/.matplotlib
USER sandboxuser
