# Further tools of all environments but the default one.
ARG BASE
FROM ${BASE}
USER root
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends curl git vim-tiny wget \
 && ln -s /usr/bin/vim.tiny /usr/local/bin/vim \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/cache/debconf/*-old /var/log/apt /var/log/*.log \
 && find / -xdev -perm /6000 -exec chmod a-s {} +
USER sandboxuser
