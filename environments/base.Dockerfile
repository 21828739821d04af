# A minimal Debian made from its packages, for hosts that reach no image registry. It is made in another Debian image, so the host's distribution
# does not matter and the host needs no tools.
ARG BASE
FROM ${BASE} AS bootstrap
ARG SUITE
LABEL sandboxd.stage=bootstrap
RUN apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends debian-archive-keyring mmdebstrap
COPY bootstrap /tmp/
RUN bash /tmp/bootstrap "$SUITE" /rootfs
FROM scratch
COPY --from=bootstrap /rootfs/ /
CMD ["bash"]
