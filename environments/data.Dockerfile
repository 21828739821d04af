# Python 3.11 with packages for data, which are in `layer`: those of data.lock.
ARG BASE
FROM ${BASE}
USER root
COPY layer/ /usr/lib/python3/dist-packages/
# Compiled once: the file system is read-only at run time, so every start would compile again.
RUN python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /usr/lib/python3/dist-packages \
 && python3 -c 'import bs4, lxml, matplotlib.pyplot, numpy, openpyxl, pandas, requests, scipy, seaborn, sklearn, tabulate, xlsxwriter, yaml'
# No window, no cache of fonts in the workspace, and no threads for which the limit on processes has no room.
ENV MPLBACKEND=Agg MPLCONFIGDIR=/tmp/.matplotlib OPENBLAS_NUM_THREADS=1
USER sandboxuser
