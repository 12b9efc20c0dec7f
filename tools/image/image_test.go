package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // the registry wants one
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
	"github.com/deltabridge/deltabridge/tools/internal/testtree"
)

const (
	testVersion = "v1.2.3-test"
	testCommit  = "0123456789012345678901234567890123456789"
	testDate    = "2026-01-02T03:04:05+01:00"
)

// projectImage is the image of the project, made once for all tests.
var projectImage = sync.OnceValues(func() (string, error) {
	out := filepath.Join(scratch, "image")
	return out, makeImage("../..", out)
})

// scratch is a folder for all tests, which TestMain removes.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "image"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// makeImage runs make in a copy of the project.
func makeImage(dir, out string) error {
	cmd := exec.Command("make", "-s", "-C", dir, "image", "IMAGE="+out,
		"VERSION="+testVersion, "COMMIT="+testCommit, "DATE="+testDate)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("make image: %w\n%s", err, said)
	}
	return nil
}

// The image has what it should, for both architectures, and its program runs without root and without anything else.
func TestImage(t *testing.T) {
	out, err := projectImage()
	if err != nil {
		t.Fatal(err)
	}
	outer, err := layout.ImageIndexFromPath(filepath.Join(out, "layout"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := outer.IndexManifest()
	if err != nil || len(list.Manifests) != 1 {
		t.Fatalf("layout: %+v, %v", list, err)
	}
	checkNames(t, list.Manifests[0].Annotations)
	index, err := outer.ImageIndex(list.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	checkAbout(t, "index", manifest.Annotations)
	checkPush(t, index, manifest)
	images := map[string]v1.Descriptor{}
	sboms := map[string]bool{} // by the digest of their subject
	for _, m := range manifest.Manifests {
		if m.Platform.OS == "linux" {
			images[m.Platform.Architecture] = m
			continue
		}
		sbom, err := index.Image(m.Digest)
		if err != nil {
			t.Fatal(err)
		}
		sboms[checkSBOM(t, sbom)] = true
	}
	if len(images) != 2 || len(sboms) != 2 {
		t.Fatalf("images %v, SBOMs of %v", images, sboms)
	}
	for _, arch := range architectures() {
		t.Run(arch, func(t *testing.T) {
			image, err := index.Image(images[arch].Digest)
			if err != nil {
				t.Fatal(err)
			}
			if !sboms[images[arch].Digest.String()] {
				t.Error("no SBOM")
			}
			checkImage(t, image, arch)
		})
	}
	if os.Getenv("DELTABRIDGE_TEST_LONG") != "" {
		t.Run("Reproducible", testReproducible)
	}
}

// checkNames checks the names of the image in the layout: container runtimes import it under the name in the chart.
func checkNames(t *testing.T, annotations map[string]string) {
	t.Helper()
	values, err := os.ReadFile("../../charts/deltabridge/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tag := strings.TrimPrefix(testVersion, "v")
	repository, imported := strings.CutSuffix(annotations["io.containerd.image.name"], ":"+tag)
	if !imported || !bytes.Contains(values, []byte("\n  repository: "+repository+"\n")) ||
		annotations["org.opencontainers.image.ref.name"] != tag {
		t.Errorf("names in the layout: %v", annotations)
	}
}

// checkPush sends the index to a registry and asks it for the images as a container engine does.
func checkPush(t *testing.T, index v1.ImageIndex, manifest *v1.IndexManifest) {
	t.Helper()
	// The registry verifies the digests of the blobs, and unpack those of what is in them.
	if err := validate.Index(index, validate.Fast); err != nil {
		t.Error(err)
	}
	server := httptest.NewServer(
		registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)),
	)
	defer server.Close()
	ref, err := name.NewTag(strings.TrimPrefix(server.URL, "http://") + "/deltabridge:test")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index, remote.WithContext(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		if m.Platform.OS != "linux" {
			continue
		}
		image, err := remote.Image(ref, remote.WithPlatform(*m.Platform), remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if digest, err := image.Digest(); err != nil || digest != m.Digest {
			t.Errorf("the registry has %s for %s: %v, want %s", digest, m.Platform, err, m.Digest)
		}
		referrers, err := remote.Referrers(ref.Digest(m.Digest.String()), remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		if list, err := referrers.IndexManifest(); err != nil || len(list.Manifests) != 1 ||
			list.Manifests[0].ArtifactType != sbomType {
			t.Errorf("SBOM of %s: %+v, %v", m.Platform, list, err)
		}
	}
}

func checkImage(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	checkAbout(t, "manifest", manifest.Annotations)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	checkAbout(t, "labels", config.Config.Labels)
	if config.Architecture != arch || config.OS != "linux" || config.Config.User != "65532:65532" ||
		config.Created.Year() != 2026 {
		t.Errorf("config %+v", config)
	}
	root := unpack(t, image)
	checkProgram(t, filepath.Join(root, program), arch)
	if pem, err := os.ReadFile(
		filepath.Join(root, certificates),
	); err != nil ||
		bytes.Count(pem, []byte("BEGIN CERTIFICATE")) < 100 {
		t.Errorf("certificates: %v, %d bytes", err, len(pem))
	}
	for _, name := range []string{"deltabridge/LICENSE", "std/LICENSE", "k8s.io/client-go/LICENSE", "github.com/nats-io/nats.go/LICENSE"} {
		if _, err := os.Stat(filepath.Join(root, "usr/share/licenses", name)); err != nil {
			t.Error(err)
		}
	}
	if arch != runtime.GOARCH || runtime.GOOS != "linux" {
		return
	}
	// Root can go into the image and give up its rights there, as a container engine does; anybody else can only run
	// the program where it lies.
	cmd := exec.CommandContext(t.Context(), filepath.Join(root, program), "version")
	cmd.Env = config.Config.Env
	if os.Getuid() == 0 {
		cmd.Path, cmd.Dir = config.Config.Entrypoint[0], config.Config.WorkingDir
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: user, Gid: user}}
	}
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("bridge version: %v\n%s", err, said)
	}
	for _, want := range []string{testVersion, testCommit, testDate, "linux/" + arch} {
		if !strings.Contains(string(said), want) {
			t.Errorf("bridge version says %q, without %s", said, want)
		}
	}
}

// checkProgram says what is wrong with an executable that has to run where there is nothing else.
func checkProgram(t *testing.T, path, arch string) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; f.Machine != want {
		t.Errorf("machine %v, want %v", f.Machine, want)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("not static: it has %v", p.Type)
		}
	}
}

func checkAbout(t *testing.T, what string, got map[string]string) {
	t.Helper()
	for name, want := range map[string]string{
		"version": testVersion, "revision": testCommit, "created": "2026-01-02T02:04:05Z", "source": artifact.Source, "licenses": artifact.License,
	} {
		if got := got["org.opencontainers.image."+name]; got != want {
			t.Errorf("%s: %s is %q, want %q", what, name, got, want)
		}
	}
}

// checkSBOM returns the digest of the image that it is about.
func checkSBOM(t *testing.T, artifact v1.Image) string {
	t.Helper()
	manifest, err := artifact.Manifest()
	if err != nil || manifest.Subject == nil || len(manifest.Layers) != 1 {
		t.Fatalf("SBOM: %+v, %v", manifest, err)
	}
	layer, err := artifact.LayerByDigest(manifest.Layers[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	content, err := layer.Compressed() // as it is: the media type says that it is JSON
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	var bom cyclonedx.BOM
	if err := cyclonedx.NewBOMDecoder(content, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"std", "k8s.io/client-go", "github.com/nats-io/nats.go"} {
		i := slices.IndexFunc(*bom.Components, func(c cyclonedx.Component) bool { return c.Name == want })
		if i < 0 || (*bom.Components)[i].Version == "" || len(*(*bom.Components)[i].Licenses) == 0 {
			t.Errorf("SBOM has no %s with a version and a license", want)
		}
	}
	return manifest.Subject.Digest.String()
}

func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { // the program's user has to get there
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil || len(layers) == 0 || len(layers) != len(config.RootFS.DiffIDs) {
		t.Fatalf("%d layers and %v: %v", len(layers), config.RootFS.DiffIDs, err)
	}
	for n, layer := range layers {
		if id := unpackLayer(t, layer, root); id != config.RootFS.DiffIDs[n] {
			t.Errorf("layer %d: %s, but the configuration has %s", n, id, config.RootFS.DiffIDs[n])
		}
	}
	return root
}

// unpackLayer unpacks a layer into root, and returns the digest of its content.
func unpackLayer(t *testing.T, layer v1.Layer, root string) v1.Hash {
	t.Helper()
	content, err := layer.Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	digest := sha256.New()
	all := io.TeeReader(content, digest)
	for r := tar.NewReader(all); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			if _, err := io.Copy(io.Discard, all); err != nil { // what follows the last file
				t.Fatal(err)
			}
			return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(digest.Sum(nil))}
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(root, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, h.FileInfo().Mode())
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, data, h.FileInfo().Mode())
			}
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(path, h.Uid, h.Gid)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Built in two folders, the image is the same, byte for byte. Both builds share Go's cache, which leaves out the time
// that compiling takes: `make reproducible` does not.
func testReproducible(t *testing.T) {
	first, err := projectImage()
	if err != nil {
		t.Fatal(err)
	}
	elsewhere, second := filepath.Join(t.TempDir(), "a", "longer", "path"), filepath.Join(t.TempDir(), "image")
	testtree.Copy(t, "../..", elsewhere)
	if err := makeImage(elsewhere, second); err != nil {
		t.Fatal(err)
	}
	testtree.Compare(t, 10, first, second)
}

// The program in an image whose licenses are not known can't be described.
func TestUnknownLicense(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b := &artifact.Build{Version: testVersion}
	if sbom, err := b.SBOM(self, "linux/"+runtime.GOARCH, nil); err == nil || sbom != nil {
		t.Errorf("SBOM %s, error %v", sbom, err)
	}
}
