# Node.js 20 with npm, TypeScript and tsx, whose packages are in `npm`.
ARG BASE
FROM ${BASE}
USER root
COPY npm/ /
# Packages are attached to sessions at /node_modules, where both `require` and `import` find them.
RUN modules=../lib/node_modules \
 && ln -s "$modules/npm/bin/npm-cli.js" /usr/local/bin/npm && ln -s "$modules/npm/bin/npx-cli.js" /usr/local/bin/npx \
 && ln -s "$modules/typescript/bin/tsc" /usr/local/bin/tsc && ln -s "$modules/typescript/bin/tsserver" /usr/local/bin/tsserver \
 && ln -s "$modules/tsx/dist/cli.mjs" /usr/local/bin/tsx \
 && mkdir /node_modules \
 && case $(node --version) in v20.*) ;; *) exit 1 ;; esac \
 && npm --version && tsc --version && tsx --eval 'const built: boolean = true' && rm -r /tmp/tsx-*
# No question at a prompt, no request for news of npm, no cache in the workspace.
ENV NPM_CONFIG_UPDATE_NOTIFIER=false NPM_CONFIG_FUND=false NPM_CONFIG_CACHE=/tmp/.npm
USER sandboxuser
