package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"slices"
	"text/template"

	"github.com/deltabridge/deltabridge/tools/internal/artifact"
)

// krewTemplate is the manifest of the kubectl plugin, which a person proposes to the krew index.
const krewTemplate = `apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: deltabridge
spec:
  version: {{.version}}
  homepage: {{.source}}
  shortDescription: Inspect and control Deltabridge
  description: |
    Deltabridge streams every change of a cluster to NATS JetStream and Apache Kafka. The plugin is its program: it
    checks configurations (check, doctor), explains what each sink is sent (explain), and shows the events (tail).
  platforms:
{{- range .data}}
    - selector:
        matchLabels: {os: {{.OS}}, arch: {{.Arch}}}
      uri: {{$.source}}/releases/download/{{$.version}}/{{.Archive}}
      sha256: {{.SHA256}}
      bin: bridge
{{- end}}
`

const notesTemplate = `{{.data.changes}}

### Image and chart
{{range .data.oci}}
- ` + "`{{.Name}}@sha256:{{.SHA256}}`" + `
{{- end}}

The commit is {{.commit}}. [Verify the release]({{.source}}/blob/{{.version}}/SECURITY.md#verifying-a-release) before
you use it.
`

// render fills in a template.
func (r *release) render(text string, data any) ([]byte, error) {
	t, err := template.New("").Option("missingkey=error").Parse(text)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, map[string]any{
		"version": r.Version, "commit": r.Commit, "source": artifact.Source, "data": data,
	})
	return out.Bytes(), err
}

// statement is an in-toto statement with SLSA provenance (https://slsa.dev/spec/v1.1/provenance).
type statement struct {
	Type          string    `json:"_type"`
	Subject       []subject `json:"subject"`
	PredicateType string    `json:"predicateType"`
	Predicate     predicate `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name,omitempty"`
	URI    string            `json:"uri,omitempty"`
	Digest map[string]string `json:"digest"`
}

type predicate struct {
	BuildDefinition struct {
		BuildType            string            `json:"buildType"`
		ExternalParameters   map[string]string `json:"externalParameters"`
		InternalParameters   map[string]string `json:"internalParameters"`
		ResolvedDependencies []subject         `json:"resolvedDependencies"`
	} `json:"buildDefinition"`
	RunDetails struct {
		Builder struct {
			ID string `json:"id"`
		} `json:"builder"`
	} `json:"runDetails"`
}

// addProvenance adds the provenance of all assets and OCI artifacts.
func (r *release) addProvenance(ctx context.Context, oci []asset) error {
	goVersion := exec.CommandContext(ctx, "go", "env", "GOVERSION")
	goVersion.Dir = r.Dir
	version, err := output(goVersion)
	if err != nil {
		return err
	}
	howTo := artifact.Source + "/blob/" + r.Version + "/CONTRIBUTING.md#releases"
	s := statement{Type: "https://in-toto.io/Statement/v1", PredicateType: "https://slsa.dev/provenance/v1"}
	for _, a := range slices.Concat(r.assets, oci) {
		s.Subject = append(s.Subject, subject{Name: a.Name, Digest: map[string]string{"sha256": a.SHA256}})
	}
	s.Predicate.RunDetails.Builder.ID = howTo
	definition := &s.Predicate.BuildDefinition
	definition.BuildType = howTo
	definition.ExternalParameters = map[string]string{"repository": artifact.Source, "ref": "refs/tags/" + r.Version}
	definition.InternalParameters = map[string]string{"go": version}
	definition.ResolvedDependencies = []subject{{
		URI:    "git+" + artifact.Source + "@refs/tags/" + r.Version,
		Digest: map[string]string{"gitCommit": r.Commit},
	}}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return r.add("provenance.intoto.json", append(data, '\n'))
}
