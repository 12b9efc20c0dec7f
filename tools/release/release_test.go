package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"log" //nolint:depguard // the registry requires one
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-containerregistry/pkg/registry"
	"go.yaml.in/yaml/v3"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
	"github.com/deltabridge/deltabridge/tools/internal/testtree"
)

// A dry run of a release: the next version is built from a copy of the project, uploaded to a registry in this process,
// and signed and announced by programs that only write down what they are asked. What is packed twice is the same.
func TestRelease(t *testing.T) {
	r := project(t)
	server := httptest.NewServer(
		registry.New(registry.Logger(log.New(io.Discard, "", 0)), registry.WithReferrersSupport(true)),
	)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	platforms := []string{"darwin_amd64", "darwin_arm64", "linux_amd64", "linux_arm64"}
	args := []string{"-C", r.Dir, "publish", "REGISTRY=" + host}
	programs := filepath.Join(t.TempDir(), "bin")
	writeProgram(t, programs, "cosign", `#!/bin/sh
echo "cosign $*" >>"$CALLS"`)
	writeProgram(t, programs, "gh", `#!/bin/sh
echo "gh $*" >>"$CALLS"; [ "$2" != view ] || [ -e "$CALLS.published" ]`)
	calls := filepath.Join(programs, "calls")
	publish := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "make", args...)
		cmd.Env = append(os.Environ(), "MAKEFLAGS=", "PATH="+programs+":"+os.Getenv("PATH"), "CALLS="+calls)
		return cmd.CombinedOutput()
	}
	if out, err := publish(args...); err != nil {
		t.Fatalf("make publish: %v\n%s", err, out)
	}
	r.out, r.image, r.bin = r.Dir+"/bin/release", r.Dir+"/bin/release/image", r.Dir+"/bin/release/image.bin"

	sums := checkSums(t, r)
	image, err := layoutDigest(r.image + "/layout")
	if err != nil {
		t.Fatal(err)
	}
	chart, err := layoutDigest(r.out + "/chart")
	if err != nil {
		t.Fatal(err)
	}
	oci := map[string]string{"deltabridge": image.Hex, "charts/deltabridge": chart.Hex}
	t.Run("programs", func(t *testing.T) { checkPrograms(t, r, platforms, sums) })
	t.Run("krew", func(t *testing.T) { checkKrew(t, r, platforms, sums) })
	t.Run("provenance", func(t *testing.T) { checkProvenance(t, r, sums, oci) })
	t.Run("notes", func(t *testing.T) { checkNotes(t, r, oci) })
	t.Run("published", func(t *testing.T) { checkPublished(t, r, host, oci, calls) })
	t.Run("only once", func(t *testing.T) {
		write(t, calls+".published", "")
		if out, err := publish(append(args, "-o", "release")...); err == nil ||
			!strings.Contains(string(out), r.Version+" is already published") {
			t.Errorf("make publish again: %v\n%s", err, out)
		}
	})
	t.Run("reproducible", func(t *testing.T) {
		again := &release{Build: r.Build, bin: r.bin, image: r.image, helm: r.helm, out: t.TempDir()}
		if err := os.Chtimes(filepath.Join(r.Dir, chartDir, "Chart.yaml"), time.Time{}, time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		changes, err := again.check(t.Context())
		if err == nil {
			err = again.pack(t.Context(), changes)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range []string{"assets", "chart"} {
			testtree.Compare(t, 5, filepath.Join(r.out, dir), filepath.Join(again.out, dir))
		}
	})
}

// project returns a copy of the project in which the next version is tagged: the one in Chart.yaml.
func project(t *testing.T) *release {
	t.Helper()
	r := &release{Build: artifact.Build{Dir: t.TempDir(), Date: time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC)}}
	testtree.Copy(t, "../..", r.Dir)
	chart, err := os.ReadFile(filepath.Join(r.Dir, chartDir, "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	r.Version = "v" + string(regexp.MustCompile(`(?m)^version: (.*)$`).FindSubmatch(chart)[1])
	// Whatever CHANGELOG.md contains: it can already have this section, or nothing that is not released.
	edit(t, r, "CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- Nothing yet.\n\n## "+r.Tag()+
		" - 2026-01-02\n\n- See [upgrading](docs/operations.md#upgrading), or [this](https://example.com/a).\n\n## Earlier\n")
	schemas := filepath.Join(r.Dir, "docs", "schemas")
	stored := filepath.Join(schemas, "testdata", "released", "v1")
	if err := errors.Join(os.RemoveAll(stored), os.CopyFS(stored, os.DirFS(filepath.Join(schemas, "v1")))); err != nil {
		t.Fatal(err)
	}
	git(t, r.Dir, "init", "--quiet")
	commit(t, r, r.Version)
	if _, err := output(exec.CommandContext(t.Context(), "make", "-s", "-C", "../..", "bin/tools/helm")); err != nil {
		t.Fatal(err)
	}
	helm, err := os.ReadFile("../../bin/tools/helm")
	if err != nil {
		t.Fatal(err)
	}
	r.helm = writeProgram(t, filepath.Join(r.Dir, "bin", "tools"), "helm", string(helm))
	return r
}

func writeProgram(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	write(t, path, content)
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// checkSums checks that checksums.txt has all other assets, and returns it.
func checkSums(t *testing.T, r *release) map[string]string {
	t.Helper()
	listed, sums := read(t, r.out+"/assets/checksums.txt"), map[string]string{}
	for line := range strings.Lines(string(listed)) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		sums[name] = sum
	}
	files, err := os.ReadDir(r.out + "/assets")
	if err != nil || len(files) != len(sums)+1 || len(sums) < 8 {
		t.Errorf("%d files, %d checksums: %v", len(files), len(sums), err)
	}
	for name, sum := range sums {
		if got := fmt.Sprintf("%x", sha256.Sum256(read(t, r.out+"/assets/"+name))); got != sum {
			t.Errorf("checksum of %s: %s, want %s", name, sum, got)
		}
	}
	return sums
}

// checkPrograms checks that there are an archive and an SBOM of the program for each platform, and no other.
func checkPrograms(t *testing.T, r *release, platforms []string, sums map[string]string) {
	t.Helper()
	for name := range sums {
		known := slices.ContainsFunc(platforms, func(p string) bool { return strings.Contains(name, p) })
		if strings.HasSuffix(name, ".tar.gz") && !known {
			t.Errorf("%s: for which platform?", name)
		}
	}
	for _, platform := range platforms {
		base := fmt.Sprintf("%s/assets/deltabridge_%s_%s", r.out, r.Tag(), platform)
		files := untar(t, read(t, base+".tar.gz"))
		for _, name := range []string{"LICENSE", "licenses/std/LICENSE", "licenses/k8s.io/client-go/LICENSE"} {
			if len(files[name]) == 0 {
				t.Errorf("%s: no %s", platform, name)
			}
		}
		info, err := buildinfo.Read(bytes.NewReader(files["bridge"]))
		if err != nil {
			t.Fatalf("%s: %v", platform, err)
		}
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		if got := settings["GOOS"] + "_" + settings["GOARCH"]; got != platform || settings["CGO_ENABLED"] != "0" {
			t.Errorf("the program for %s is for %s: %v", platform, got, settings)
		}
		var bom cyclonedx.BOM
		sbom := bytes.NewReader(read(t, base+".cdx.json"))
		if err := cyclonedx.NewBOMDecoder(sbom, cyclonedx.BOMFileFormatJSON).Decode(&bom); err != nil {
			t.Fatal(err)
		}
		if bom.Metadata.Component.Version != r.Version || len(*bom.Components) != len(info.Deps)+1 || len(info.Deps) < 50 {
			t.Errorf("%s: SBOM of %s with %d components for %d modules and std", platform,
				bom.Metadata.Component.Version, len(*bom.Components), len(info.Deps))
		}
		if platform != runtime.GOOS+"_"+runtime.GOARCH {
			continue
		}
		program := writeProgram(t, t.TempDir(), "bridge", string(files["bridge"]))
		said, err := output(exec.CommandContext(t.Context(), program, "version"))
		if want := "bridge " + r.Version + " (commit " + r.Commit + ", built 2026-01-02T02:04:05+00:00"; err != nil ||
			!strings.HasPrefix(said, want) {
			t.Errorf("bridge version: %q, %v, want %q", said, err, want)
		}
	}
}

// untar returns the files of an archive. The program must be executable.
func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	unzip, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(unzip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if h.Name == "bridge" && h.Mode != 0o755 {
			t.Errorf("mode of bridge: %o", h.Mode)
		}
	}
}

// checkKrew checks that the manifest offers each archive.
func checkKrew(t *testing.T, r *release, platforms []string, sums map[string]string) {
	t.Helper()
	var m struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       struct {
			Version, Homepage, Description string
			ShortDescription               string `yaml:"shortDescription"`
			Platforms                      []struct {
				Selector struct {
					MatchLabels struct{ OS, Arch string } `yaml:"matchLabels"`
				}
				URI, SHA256, Bin string
			}
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(read(t, r.out+"/assets/deltabridge.krew.yaml")))
	decoder.KnownFields(true)
	if err := decoder.Decode(&m); err != nil {
		t.Fatal(err)
	}
	if m.APIVersion != "krew.googlecontainertools.github.com/v1alpha2" || m.Kind != "Plugin" ||
		m.Metadata.Name != "deltabridge" || m.Spec.Version != r.Version || len(m.Spec.ShortDescription) > 50 {
		t.Errorf("%+v", m)
	}
	var got []string
	for _, p := range m.Spec.Platforms {
		archive, found := strings.CutPrefix(p.URI, artifact.Source+"/releases/download/"+r.Version+"/")
		if !found || sums[archive] == "" || sums[archive] != p.SHA256 || p.Bin != "bridge" {
			t.Errorf("%+v, want the checksum %s", p, sums[archive])
		}
		platform := p.Selector.MatchLabels.OS + "_" + p.Selector.MatchLabels.Arch
		if !strings.Contains(archive, platform) {
			t.Errorf("%s is for %s", archive, platform)
		}
		got = append(got, platform)
	}
	if !slices.Equal(got, platforms) {
		t.Errorf("platforms %v, want %v", got, platforms)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
