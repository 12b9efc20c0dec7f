package main

import (
	"context"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
	"github.com/deltabridge/deltabridge/tools/internal/modules"
)

const (
	program    = "usr/bin/bridge"
	licenses   = "usr/share/licenses/"
	workingDir = "var/lib/deltabridge"
	// user is the customary user ID of images that do not run as root. The chart sets the same ID.
	user      = 65532
	userGroup = "65532:65532"
	sbomType  = "application/vnd.cyclonedx+json"
)

// image builds the image for one architecture.
func (r *release) image(ctx context.Context, arch string) (platformImage, error) {
	binary := filepath.Join(r.bin, "linux_"+arch, "bridge")
	parts, err := modules.List(ctx, r.Dir, "./cmd/bridge", "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
	if err != nil {
		return platformImage{}, err
	}
	sbom, err := r.SBOM(binary, "linux/"+arch, parts)
	if err != nil {
		return platformImage{}, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = mutate.ConfigFile(image, r.config(arch)); err != nil {
		return platformImage{}, err
	}
	for _, part := range []struct {
		what  string
		files func() ([]artifact.File, error)
	}{
		{"user, folders, certificates", baseFiles},
		{"license texts", func() ([]artifact.File, error) { return artifact.LicenseFiles(r.Dir, licenses, parts) }},
		{"program", func() ([]artifact.File, error) {
			file, err := artifact.ReadFile(program, binary, 0o755)
			return []artifact.File{file}, err
		}},
	} {
		files, err := part.files()
		if err != nil {
			return platformImage{}, err
		}
		layer, err := newLayer(files, r.Date)
		if err != nil {
			return platformImage{}, err
		}
		history := v1.History{Created: v1.Time{Time: r.Date}, CreatedBy: "tools/image", Comment: part.what}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: history}); err != nil {
			return platformImage{}, err
		}
	}
	image = mutate.Annotations(image, r.about()).(v1.Image)
	return platformImage{image, arch, sbom}, nil
}

func (r *release) config(arch string) *v1.ConfigFile {
	return &v1.ConfigFile{
		OS: "linux", Architecture: arch, Created: v1.Time{Time: r.Date},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: userGroup, WorkingDir: "/" + workingDir, Labels: r.about(),
			Entrypoint: []string{"/" + program}, Cmd: []string{"run"},
			Env: []string{"PATH=/usr/bin", "HOME=/" + workingDir},
		},
	}
}

// index returns an index of the images and their SBOMs.
func (r *release) index(images []platformImage) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	var sboms []mutate.IndexAddendum
	for _, image := range images {
		platform := &v1.Platform{OS: "linux", Architecture: image.arch}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: platform}})
		sbom, err := r.sbomOf(image)
		if err != nil {
			return nil, err
		}
		// Container runtimes skip platforms that they do not know, so they never try to run an SBOM.
		unknown := &v1.Platform{OS: "unknown", Architecture: "unknown"}
		sboms = append(
			sboms,
			mutate.IndexAddendum{Add: sbom, Descriptor: v1.Descriptor{Platform: unknown, ArtifactType: sbomType}},
		)
	}
	index = mutate.AppendManifests(index, sboms...)
	return mutate.Annotations(index, r.about()).(v1.ImageIndex), nil
}

// sbomOf returns the SBOM of an image as an artifact whose subject is that image.
func (r *release) sbomOf(of platformImage) (v1.Image, error) {
	digest, err := of.Digest()
	if err != nil {
		return nil, err
	}
	size, err := of.Size()
	if err != nil {
		return nil, err
	}
	mediaType, err := of.MediaType()
	if err != nil {
		return nil, err
	}
	sbom, err := mutate.AppendLayers(
		mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		static.NewLayer(of.sbom, sbomType),
	)
	if err != nil {
		return nil, err
	}
	if sbom, err = mutate.CreatedAt(sbom, v1.Time{Time: r.Date}); err != nil {
		return nil, err
	}
	sbom = mutate.ConfigMediaType(sbom, sbomType)
	subject := v1.Descriptor{MediaType: mediaType, Digest: digest, Size: size}
	return mutate.Subject(sbom, subject).(v1.Image), nil
}
