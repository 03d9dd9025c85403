# cloob for the CPU, from the Debian packages of `make deb`:  docker build -f packaging/containers/cpu.dockerfile -t cloob .
FROM debian:bookworm-slim
COPY dist/*.deb /deb/
RUN apt-get update \
 && apt-get install -y --no-install-recommends /deb/cloob_*.deb libheif1 libtiff6 libmicrohttpd12 libcurl4 \
    ca-certificates \
 && rm -rf /deb /var/lib/apt/lists/*
USER cloob
ENV HF_HOME=/models CLOOB_CACHE=/tmp/cloob
EXPOSE 8000
ENTRYPOINT ["cloob"]
CMD ["serve", "--help"]
