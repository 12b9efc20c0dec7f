package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
)

// checkProvenance checks that the statement has all other assets, image and chart, and says what they were built from.
func checkProvenance(t *testing.T, r *release, sums, oci map[string]string) {
	t.Helper()
	want := maps.Clone(sums)
	delete(want, "provenance.intoto.json")
	for name, sum := range oci {
		want["ghcr.io/deltabridge/"+name+":"+r.Tag()] = sum
	}
	// With the names in the specification, and not with the types that wrote it.
	var s struct {
		Type          string `json:"_type"`
		PredicateType string `json:"predicateType"`
		Subject       []struct {
			Name   string            `json:"name"`
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
		Predicate struct {
			BuildDefinition struct {
				BuildType            string         `json:"buildType"`
				ExternalParameters   map[string]any `json:"externalParameters"`
				InternalParameters   map[string]any `json:"internalParameters"`
				ResolvedDependencies []struct {
					URI    string            `json:"uri"`
					Digest map[string]string `json:"digest"`
				} `json:"resolvedDependencies"`
			} `json:"buildDefinition"`
			RunDetails struct {
				Builder struct {
					ID string `json:"id"`
				} `json:"builder"`
			} `json:"runDetails"`
		} `json:"predicate"`
	}
	decoder := json.NewDecoder(bytes.NewReader(read(t, r.out+"/assets/provenance.intoto.json")))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		t.Fatal(err)
	}
	definition := s.Predicate.BuildDefinition
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" ||
		definition.BuildType == "" || s.Predicate.RunDetails.Builder.ID == "" ||
		definition.ExternalParameters["ref"] != "refs/tags/"+r.Version || definition.InternalParameters["go"] != runtime.Version() ||
		len(definition.ResolvedDependencies) != 1 || definition.ResolvedDependencies[0].Digest["gitCommit"] != r.Commit {
		t.Errorf("%+v", s)
	}
	for _, subject := range s.Subject {
		if sum, ok := want[subject.Name]; !ok || subject.Digest["sha256"] != sum {
			t.Errorf("%s: %v, want %s", subject.Name, subject.Digest, sum)
		}
		delete(want, subject.Name)
	}
	if len(want) > 0 {
		t.Errorf("not in the provenance: %v", want)
	}
}

func checkNotes(t *testing.T, r *release, oci map[string]string) {
	t.Helper()
	notes := string(read(t, r.out+"/notes.md"))
	for _, want := range []string{
		"- See [upgrading](" + artifact.Source + "/blob/" + r.Version + "/docs/operations.md#upgrading), or [this](https://example.com/a).\n",
		r.Commit, "ghcr.io/deltabridge/deltabridge:" + r.Tag() + "@sha256:" + oci["deltabridge"],
		"ghcr.io/deltabridge/charts/deltabridge:" + r.Tag() + "@sha256:" + oci["charts/deltabridge"],
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not contain %q", want)
		}
	}
	if strings.Contains(notes, "Nothing yet") || strings.Contains(notes, "\n## ") {
		t.Error("the notes contain other sections of CHANGELOG.md")
	}
}

// checkPublished checks that the registry has the image and the chart, which Helm can pull, and what was asked of the
// programs that sign and announce.
func checkPublished(t *testing.T, r *release, host string, oci map[string]string, calls string) {
	t.Helper()
	for path, digest := range oci {
		ref, err := name.NewTag(host + "/" + path + ":" + r.Tag())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := remote.Head(ref, remote.WithContext(t.Context())); err != nil || got.Digest.Hex != digest {
			t.Errorf("the registry has %+v, %v for %s, want %s", got, err, ref, digest)
		}
	}
	pulled := t.TempDir()
	pull := exec.CommandContext(t.Context(), r.helm, "pull", "oci://"+host+"/charts/deltabridge", "--version", r.Tag(),
		"--plain-http", "--destination", pulled)
	if _, err := output(pull); err != nil {
		t.Fatal(err)
	}
	chart := "deltabridge-" + r.Tag() + ".tgz"
	if !bytes.Equal(read(t, filepath.Join(pulled, chart)), read(t, r.out+"/assets/"+chart)) {
		t.Error("Helm pulls another chart")
	}
	rendered, err := output(exec.CommandContext(t.Context(), r.helm, "template", "d", filepath.Join(pulled, chart),
		"--values", filepath.Join(r.Dir, chartDir, "examples", "jetstream.yaml")))
	if err != nil || !strings.Contains(rendered, "ghcr.io/deltabridge/deltabridge:"+r.Tag()) {
		t.Errorf("the chart does not install the image: %v", err)
	}
	assets, err := filepath.Glob(r.out + "/assets/*")
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range assets {
		assets[i] = "bin/release/assets/" + filepath.Base(path)
	}
	const bundle = "bin/release/checksums.txt.sigstore.json"
	want := []string{
		"gh release view " + r.Version,
		"cosign sign --yes " + host + "/deltabridge@sha256:" + oci["deltabridge"] + " " +
			host + "/charts/deltabridge@sha256:" + oci["charts/deltabridge"],
		"cosign sign-blob --yes --bundle " + bundle + " bin/release/assets/checksums.txt",
		"gh release create " + r.Version + " --verify-tag --title " + r.Version + " --notes-file bin/release/notes.md " +
			strings.Join(assets, " ") + " " + bundle,
	}
	if got := strings.Split(strings.TrimSpace(string(read(t, calls))), "\n"); !slices.Equal(got, want) {
		t.Errorf("called\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
