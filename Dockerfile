# The image for those who build with a container engine. `make image` needs none, and its image is the one that is
# tested: byte for byte the same for the same commit, with SBOMs.
#
#   docker buildx build --platform linux/amd64,linux/arm64 \
#     --build-arg VERSION="$(git describe --tags --always)" --build-arg COMMIT="$(git rev-parse HEAD)" \
#     --build-arg DATE="$(git log -1 --format=%cI)" -t deltabridge .
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG TARGETOS TARGETARCH VERSION=dev COMMIT=unknown DATE=unknown
RUN GOOS=$TARGETOS GOARCH=$TARGETARCH make build VERSION="$VERSION" COMMIT="$COMMIT" DATE="$DATE"

FROM gcr.io/distroless/static:nonroot
ARG VERSION=dev COMMIT=unknown DATE=unknown
LABEL org.opencontainers.image.title=deltabridge \
      org.opencontainers.image.version=$VERSION \
      org.opencontainers.image.revision=$COMMIT \
      org.opencontainers.image.created=$DATE \
      org.opencontainers.image.source=https://github.com/deltabridge/deltabridge \
      org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /src/LICENSE /src/THIRD_PARTY.md /usr/share/licenses/deltabridge/
COPY --from=build /src/bin/bridge /usr/bin/bridge
USER 65532:65532
WORKDIR /home/nonroot
ENTRYPOINT ["/usr/bin/bridge"]
CMD ["run"]
