package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

const (
	source  = "https://github.com/deltabridge/deltabridge"
	license = "Apache-2.0"
)

// release describes the release from which images are built.
type release struct {
	dir     string // directory of the project
	bin     string // directory that contains GOARCH/bridge
	version string
	commit  string
	date    time.Time
}

func main() {
	var (
		r         release
		out, date string
	)
	flag.StringVar(&r.dir, "dir", ".", "`directory` of the project")
	flag.StringVar(&r.bin, "bin", "", "`directory` with amd64/bridge and arm64/bridge")
	flag.StringVar(&r.version, "version", "dev", "version of the program")
	flag.StringVar(&r.commit, "commit", "unknown", "commit of the program")
	flag.StringVar(&date, "date", "", "date of the commit, in RFC 3339 format")
	flag.StringVar(&out, "out", "", "output `directory`, which is replaced")
	flag.Parse()
	err := errors.New("-bin and -out are required")
	if out != "" && r.bin != "" {
		r.date, err = parseDate(date)
	}
	if err == nil {
		err = r.build(context.Background(), out)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// parseDate parses the date of a commit. Without a date, it returns the start of Unix time.
func parseDate(text string) (time.Time, error) {
	if text == "" || text == "unknown" {
		return time.Unix(0, 0).UTC(), nil
	}
	date, err := time.Parse(time.RFC3339, text)
	return date.UTC(), err
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
	return path.AppendIndex(
		index,
		layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version}),
	)
}

// about returns the labels and annotations of images, with their names in the OCI image specification.
func (r *release) about() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":       "deltabridge",
		"org.opencontainers.image.description": "Streams every change of a Kubernetes cluster to NATS JetStream and Apache Kafka",
		"org.opencontainers.image.version":     r.version,
		"org.opencontainers.image.revision":    r.commit,
		"org.opencontainers.image.created":     r.date.Format(time.RFC3339),
		"org.opencontainers.image.source":      source,
		"org.opencontainers.image.licenses":    license,
	}
}

// platformImage is the image for one architecture.
type platformImage struct {
	v1.Image

	arch string
	sbom []byte // CycloneDX as JSON
}
