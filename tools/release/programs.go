package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
	"github.com/deltabridge/deltabridge/tools/internal/modules"
)

// platform is what the manifest for krew says about an archive.
type platform struct {
	OS, Arch string
	Archive  string
	SHA256   string
}

// addPrograms adds an archive and an SBOM for each program.
func (r *release) addPrograms(ctx context.Context) ([]platform, error) {
	dirs, err := os.ReadDir(r.bin)
	if err != nil {
		return nil, err
	}
	var platforms []platform
	for _, dir := range dirs {
		p := platform{Archive: fmt.Sprintf("deltabridge_%s_%s.tar.gz", r.Tag(), dir.Name())}
		p.OS, p.Arch, _ = strings.Cut(dir.Name(), "_")
		parts, err := modules.List(ctx, r.Dir, "./cmd/bridge", "GOOS="+p.OS, "GOARCH="+p.Arch, "CGO_ENABLED=0")
		if err != nil {
			return nil, err
		}
		binary := filepath.Join(r.bin, dir.Name(), "bridge")
		archive, err := r.archive(binary, parts)
		if err != nil {
			return nil, err
		}
		if err := r.add(p.Archive, archive); err != nil {
			return nil, err
		}
		p.SHA256 = r.assets[len(r.assets)-1].SHA256
		platforms = append(platforms, p)
		sbom, err := r.SBOM(binary, p.OS+"/"+p.Arch, parts)
		if err != nil {
			return nil, err
		}
		if err := r.add(strings.TrimSuffix(p.Archive, ".tar.gz")+".cdx.json", sbom); err != nil {
			return nil, err
		}
	}
	return platforms, nil
}

// archive packs a program with its license texts.
func (r *release) archive(binary string, parts []modules.Module) ([]byte, error) {
	files, err := artifact.LicenseFiles(r.Dir, "licenses/", parts)
	if err != nil {
		return nil, err
	}
	program, err := artifact.ReadFile("bridge", binary, 0o755)
	if err != nil {
		return nil, err
	}
	license, err := artifact.ReadFile("LICENSE", filepath.Join(r.Dir, "LICENSE"), 0o644) // krew requires it there
	if err != nil {
		return nil, err
	}
	data, err := artifact.Tar(append(files, program, license), r.Date)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}
