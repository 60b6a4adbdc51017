# The image of Gleaner: one program, no shell, no root, nothing written outside the database.
#
#   docker build -t gleaner .
#   docker run -p 127.0.0.1:8080:8080 -e DATABASE_URL=… -e GLEANER_ADMIN_KEY=… gleaner
#
# Only features that every builder has: no `# syntax=`, no `RUN --mount`.

FROM rust:1.95-bookworm AS build
WORKDIR /src

# The dependencies, in a layer that lasts until Cargo.toml or Cargo.lock changes. The stubs are cleaned away with all
# that was built of them: cargo goes by file times, and the checkout may be older than this layer. Tests and benchmarks
# that Cargo.toml names are not here, and cargo would miss them.
COPY Cargo.toml Cargo.lock ./
RUN sed -i -E '/^\[\[(test|bench)\]\]/,/^$/d' Cargo.toml \
 && mkdir src && touch src/lib.rs && echo 'fn main() {}' >src/main.rs \
 && cargo build --release --locked \
 && cargo clean --release --package gleaner

# The program. It holds the migrations.
COPY migrations migrations
COPY src src
RUN cargo build --release --locked

FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /src/target/release/gleaner /usr/local/bin/gleaner

# Inside a container loopback reaches nobody, so the service listens on every address; it then refuses to start without
# a key. Which addresses of the host lead here is decided where the port is published.
ENV GLEANER_BIND=0.0.0.0:8080 \
    GLEANER_LOG_FORMAT=json
EXPOSE 8080
USER 65532:65532
# SIGTERM: finish the requests under way (ten seconds at most), commit what waits, exit 0.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=5s --timeout=5s --start-period=60s --retries=3 CMD ["gleaner", "healthcheck"]
ENTRYPOINT ["gleaner"]

# Given by who releases: --build-arg VERSION=0.1.0 --build-arg REVISION="$(git rev-parse HEAD)"
ARG VERSION=unreleased
ARG REVISION=unknown
LABEL org.opencontainers.image.title="gleaner" \
      org.opencontainers.image.description="Records what coding agents do and serves what can be learned from it." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
