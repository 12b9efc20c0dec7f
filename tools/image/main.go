package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
)

// release describes the release from which images are built.
type release struct {
	artifact.Build

	bin string // directory that contains linux_GOARCH/bridge
}

func main() {
	var r release
	r.Flags(flag.CommandLine)
	flag.StringVar(&r.bin, "bin", "", "`directory` with linux_amd64/bridge and linux_arm64/bridge")
	out := flag.String("out", "", "output `directory`, which is replaced")
	flag.Parse()
	err := errors.New("-bin and -out are required")
	if *out != "" && r.bin != "" {
		err = r.build(context.Background(), *out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// architectures returns the values of GOARCH for which images are built.
func architectures() []string { return []string{"amd64", "arm64"} }

// build writes the image layout and the SBOMs.
func (r *release) build(ctx context.Context, out string) error {
	if err := os.RemoveAll(out); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(out, "sbom"), 0o755); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	var images []platformImage
	for _, arch := range architectures() {
		image, err := r.image(ctx, arch)
		if err != nil {
			return fmt.Errorf("image for %s: %w", arch, err)
		}
		images = append(images, image)
		name := filepath.Join(out, "sbom", "linux-"+arch+".cdx.json")
		if err := os.WriteFile(name, image.sbom, 0o644); err != nil { //nolint:gosec // for everybody to read
			return err
		}
	}
	index, err := r.index(images)
	if err != nil {
		return err
	}
	path, err := layout.Write(filepath.Join(out, "layout"), empty.Index)
	if err != nil {
		return err
	}
	return path.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.Tag(),
		// The name with which containerd imports the image: that in the chart.
		"io.containerd.image.name": artifact.Registry + "/deltabridge:" + r.Tag(),
	}))
}

// about returns the labels and annotations of images, with their names in the OCI image specification.
func (r *release) about() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "deltabridge",
		"org.opencontainers.image.description": "Streams every change of a Kubernetes cluster to NATS JetStream and Apache Kafka",
		"org.opencontainers.image.version":     r.Version,
		"org.opencontainers.image.revision":    r.Commit,
		"org.opencontainers.image.created":     r.Date.Format(time.RFC3339),
		"org.opencontainers.image.source":      artifact.Source,
		"org.opencontainers.image.licenses":    artifact.License,
	}
}

// platformImage is the image for one architecture.
type platformImage struct {
	v1.Image

	arch string
	sbom []byte // CycloneDX as JSON
}
