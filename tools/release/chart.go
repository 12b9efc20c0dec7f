package main

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"log" //nolint:depguard // the registry requires one
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// addChart packs the chart and writes it as an OCI layout, whose digest it returns. Both are made by Helm, which takes
// the times from the files.
func (r *release) addChart(ctx context.Context) (v1.Hash, error) {
	work, err := os.MkdirTemp("", "release")
	if err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(work)
	source := filepath.Join(work, "deltabridge")
	if err := os.CopyFS(source, os.DirFS(filepath.Join(r.Dir, chartDir))); err != nil {
		return v1.Hash{}, err
	}
	err = filepath.WalkDir(source, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(path, r.Date, r.Date)
	})
	if err != nil {
		return v1.Hash{}, err
	}
	if _, err := output(exec.CommandContext(ctx, r.helm, "package", source, "--destination", work)); err != nil {
		return v1.Hash{}, err
	}
	packed := filepath.Join(work, "deltabridge-"+r.Tag()+".tgz")
	data, err := os.ReadFile(packed)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := r.add(filepath.Base(packed), data); err != nil {
		return v1.Hash{}, err
	}
	if err := os.Chtimes(packed, r.Date, r.Date); err != nil {
		return v1.Hash{}, err
	}
	return r.writeChartLayout(ctx, packed)
}

// writeChartLayout lets Helm push a chart to a registry in this process, and writes what the registry was sent.
func (r *release) writeChartLayout(ctx context.Context, packed string) (v1.Hash, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // returns at once
	if err != nil {
		return v1.Hash{}, err
	}
	server := &http.Server{
		Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = server.Serve(listener) }() // until Close
	defer server.Close()
	charts := listener.Addr().String() + "/charts"
	push := exec.CommandContext(ctx, r.helm, "push", packed, "oci://"+charts, "--plain-http")
	push.Env = append(os.Environ(), "TZ=UTC") // the time in the manifest is a local one
	if _, err := output(push); err != nil {
		return v1.Hash{}, err
	}
	ref, err := name.NewTag(charts + "/deltabridge:" + r.Tag())
	if err != nil {
		return v1.Hash{}, err
	}
	chart, err := remote.Image(ref, remote.WithContext(ctx))
	if err != nil {
		return v1.Hash{}, err
	}
	path, err := layout.Write(filepath.Join(r.out, "chart"), empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := path.AppendImage(chart); err != nil {
		return v1.Hash{}, err
	}
	return chart.Digest()
}

// layoutDigest returns the digest of the only entry of an OCI layout.
func layoutDigest(path string) (v1.Hash, error) {
	index, err := layout.ImageIndexFromPath(path)
	if err != nil {
		return v1.Hash{}, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	if len(manifest.Manifests) != 1 {
		return v1.Hash{}, fmt.Errorf("%s has %d entries, want one", path, len(manifest.Manifests))
	}
	return manifest.Manifests[0].Digest, nil
}
