package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
)

// release is a release that is being packed.
type release struct {
	artifact.Build

	bin   string // directory that contains OS_ARCH/bridge
	image string // output of tools/image
	helm  string // path of the program
	out   string

	assets []asset
}

// asset is a file that is uploaded.
type asset struct {
	Name   string
	SHA256 string // in hexadecimal
}

func main() {
	var r release
	r.Flags(flag.CommandLine)
	flag.StringVar(&r.bin, "bin", "", "`directory` with OS_ARCH/bridge for each platform")
	flag.StringVar(&r.image, "image", "", "`directory` that tools/image has written")
	flag.StringVar(&r.helm, "helm", "helm", "`path` of Helm")
	flag.StringVar(&r.out, "out", "", "output `directory`: assets, chart and notes.md in it are replaced")
	checkOnly := flag.Bool("check", false, "only check what can prevent the release")
	flag.Parse()
	ctx := context.Background()
	notes, err := r.check(ctx)
	switch {
	case err != nil:
		err = fmt.Errorf("cannot release %s: %w", r.Version, err)
	case *checkOnly:
	case r.bin == "" || r.image == "" || r.out == "":
		err = errors.New("-bin, -image and -out are required")
	default:
		err = r.pack(ctx, notes)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// pack writes the output.
func (r *release) pack(ctx context.Context, changes string) error {
	for _, name := range []string{"assets", "chart"} {
		if err := os.RemoveAll(filepath.Join(r.out, name)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(r.out, "assets"), 0o755); err != nil { //nolint:gosec // for everybody to read
		return err
	}
	platforms, err := r.addPrograms(ctx)
	if err != nil {
		return err
	}
	chart, err := r.addChart(ctx)
	if err != nil {
		return err
	}
	image, err := layoutDigest(filepath.Join(r.image, "layout"))
	if err != nil {
		return err
	}
	oci := []asset{
		{artifact.Registry + "/deltabridge:" + r.Tag(), image.Hex},
		{artifact.Registry + "/charts/deltabridge:" + r.Tag(), chart.Hex},
	}
	krew, err := r.render(krewTemplate, platforms)
	if err != nil {
		return err
	}
	if err := r.add("deltabridge.krew.yaml", krew); err != nil {
		return err
	}
	if err := r.addProvenance(ctx, oci); err != nil {
		return err
	}
	var sums bytes.Buffer
	for _, a := range r.assets {
		fmt.Fprintf(&sums, "%s  %s\n", a.SHA256, a.Name)
	}
	if err := r.add("checksums.txt", sums.Bytes()); err != nil {
		return err
	}
	// The page of a release is not in the repository.
	files := artifact.Source + "/blob/" + r.Version + "/"
	changes = regexp.MustCompile(`\]\(([\w./-]+[)#])`).ReplaceAllString(changes, "]("+files+"$1")
	notes, err := r.render(notesTemplate, map[string]any{"changes": changes, "oci": oci})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "notes.md"), notes, 0o644) //nolint:gosec // for everybody to read
}

// add writes a file to upload.
func (r *release) add(name string, data []byte) error {
	r.assets = append(r.assets, asset{name, fmt.Sprintf("%x", sha256.Sum256(data))})
	return os.WriteFile(filepath.Join(r.out, "assets", name), data, 0o644) //nolint:gosec // for everybody to read
}
