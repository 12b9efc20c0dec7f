package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/pem"
	"io"
	"os"
	"path"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const certificates = "etc/ssl/certs/ca-certificates.crt"

// file is a file of a layer or, if its name ends in a slash, a directory.
type file struct {
	name  string
	mode  int64
	owner int // user and group
	data  []byte
}

func (f file) isFolder() bool { return f.name[len(f.name)-1] == '/' }

// baseFiles returns the files that a static program requires.
func baseFiles() ([]file, error) {
	return []file{
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/sbin/nologin\n" +
			"nonroot:x:65532:65532:nonroot:/" + workingDir + ":/sbin/nologin\n")},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{name: certificates, mode: 0o644, data: authorities()},
		{name: "tmp/", mode: 0o1777},
		{name: workingDir + "/", mode: 0o700, owner: user},
	}, nil
}

// authorities returns the certificates of the public certificate authorities, as PEM.
func authorities() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writing to a buffer cannot fail
		}
	}
	return out.Bytes()
}

func readFile(name, from string, mode int64) ([]file, error) {
	data, err := os.ReadFile(from)
	return []file{{name: name, mode: mode, data: data}}, err
}

// newLayer packs files and their parent directories, which are owned by root.
func newLayer(files []file, date time.Time) (v1.Layer, error) {
	known := map[string]bool{}
	for _, f := range files {
		known[f.name] = true
	}
	for _, f := range files {
		for dir := path.Dir(path.Clean(f.name)); dir != "."; dir = path.Dir(dir) {
			if !known[dir+"/"] {
				known[dir+"/"] = true
				files = append(files, file{name: dir + "/", mode: 0o755})
			}
		}
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)),
			Uid: f.owner, Gid: f.owner, ModTime: date, Format: tar.FormatPAX,
		}
		if f.isFolder() {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}
