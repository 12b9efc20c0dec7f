package main

import (
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
)

const certificates = "etc/ssl/certs/ca-certificates.crt"

// baseFiles returns the files that a static program requires.
func baseFiles() ([]artifact.File, error) {
	return []artifact.File{
		{Name: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/:/sbin/nologin\n" +
			"nonroot:x:65532:65532:nonroot:/" + workingDir + ":/sbin/nologin\n")},
		{Name: "etc/group", Mode: 0o644, Data: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{Name: certificates, Mode: 0o644, Data: authorities()},
		{Name: "tmp/", Mode: 0o1777},
		{Name: workingDir + "/", Mode: 0o700, Owner: user},
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

// newLayer packs files and their parent directories, which are owned by root.
func newLayer(files []artifact.File, date time.Time) (v1.Layer, error) {
	data, err := artifact.Tar(files, date)
	if err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.DefaultCompression), tarball.WithCompressedCaching)
}
