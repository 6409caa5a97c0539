# Prometheus with the rules of deploy/prometheus, for places without a registry: Debian's package, which is that of the
# project's own image but for its version. With a registry, prom/prometheus and a mount of deploy/prometheus do the same.
ARG BASE=debian:bookworm-slim
FROM ${BASE}
RUN apt-get -q update \
 && apt-get -q -y install --no-install-recommends prometheus \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/* \
 && install -d -o prometheus -g prometheus /prometheus
COPY deploy/prometheus/prometheus.yml deploy/prometheus/espalier.rules.yml /etc/espalier/
LABEL org.opencontainers.image.title="Prometheus for Espalier" org.opencontainers.image.vendor="The Espalier authors"
USER prometheus
VOLUME /prometheus
EXPOSE 9090
HEALTHCHECK --interval=5s --timeout=5s --start-period=10s --retries=3 \
  CMD ["promtool", "query", "instant", "http://127.0.0.1:9090", "up"]
CMD ["prometheus", "--config.file=/etc/espalier/prometheus.yml", "--storage.tsdb.path=/prometheus", \
     "--web.listen-address=0.0.0.0:9090"]
