package chart

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const schemaFile = chartDir + "/values.schema.json"

// values.schema.json is values.schema.base.json with what `bridge schema` prints as the schema of config.
func TestSchemaIsCurrent(t *testing.T) {
	base, err := os.ReadFile(chartDir + "/values.schema.base.json")
	if err != nil {
		t.Fatal(err)
	}
	printed, _, err := command(t, tools.bridge, "schema")
	if err != nil {
		t.Fatal(err)
	}
	var schema, config map[string]any
	if err := json.Unmarshal(base, &schema); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(printed), &config); err != nil {
		t.Fatal(err)
	}
	delete(config, "$schema") // the outer one holds for both
	schema["properties"].(map[string]any)["config"] = config
	want, err := json.MarshalIndent(schema, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not up to date: run make chart (-want +got):\n%s", schemaFile, diff)
	}
}

// Every key that the schema knows is in values.yaml, where it is documented.
func TestSchemaKeysAreDocumented(t *testing.T) {
	var schema map[string]any
	var values map[string]any
	for file, into := range map[string]*map[string]any{chartDir + "/values.schema.base.json": &schema, chartDir + "/values.yaml": &values} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(data, into); err != nil {
			t.Fatal(err)
		}
	}
	for key, property := range schema["properties"].(map[string]any) {
		value, ok := values[key]
		if !ok {
			t.Errorf("values.yaml has no %s", key)
		}
		inner, ok := property.(map[string]any)["properties"].(map[string]any)
		if !ok || key == "resources" {
			continue
		}
		for name := range inner {
			if _, ok := value.(map[string]any)[name]; !ok {
				t.Errorf("values.yaml has no %s.%s", key, name)
			}
		}
	}
}

// Misspelt and ill-typed values are refused, and the message names the place.
func TestSchemaRefuses(t *testing.T) {
	for values, want := range map[string]string{
		"persistance: {enabled: true}":                                       "persistance",
		"persistence: {sise: 8Gi}":                                           "sise",
		"persistence: {enabled: 'yes'}":                                      "/persistence/enabled",
		"persistence: {size: 8GB}":                                           "/persistence/size",
		"persistence: {whenDeleted: Keep}":                                   "/persistence/whenDeleted",
		"image: {digest: 'sha256:123'}":                                      "/image/digest",
		"image: {pullPolicy: Sometimes}":                                     "/image/pullPolicy",
		"resources: {limit: {memory: 1Gi}}":                                  "limit",
		"resources: {limits: {memory: 1 GB}}":                                "/resources/limits/memory",
		"prometheusRule: {alerts: {DeltabridgeLag: {thresholds: 1}}}":        "thresholds",
		"prometheusRule: {alerts: {DeltabridgeLag: {for: 5}}}":               "/prometheusRule/alerts/DeltabridgeLag/for",
		"credentials: [{name: kafka}]":                                       "secretName",
		"credentials: [{name: ../x, secretName: a}]":                         "/credentials/0/name",
		"rbac: {extraRules: [{apiGroup: [a]}]}":                              "apiGroup",
		"networkPolicy: {apiServerPorts: [https]}":                           "/networkPolicy/apiServerPorts/0",
		"service: {auditClusterIP: None}":                                    "/service/auditClusterIP",
		"monitor: {kind: serviceMonitor}":                                    "/monitor/kind",
		"tolerations: {key: a}":                                              "/tolerations",
		"env: [{value: a}]":                                                  "/env/0",
		"nodeSelector: {a: 1}":                                               "/nodeSelector/a",
		"config: {clutser: a}":                                               "clutser",
		"config: {cluster: a b}":                                             "/config/cluster",
		"config: {shutdownTimeout: 30}":                                      "/config/shutdownTimeout",
		"config: {watch: [{resource: [pods]}]}":                              "resource",
		"config: {watch: [{resources: [Pods]}]}":                             "/config/watch/0/resources/0",
		"config: {watch: []}":                                                "/config/watch",
		"config: {sinks: [{name: a}]}":                                       "/config/sinks/0",
		"config: {sinks: [{name: a, stdout: {}, payload: all}]}":             "/config/sinks/0/payload",
		"config: {sinks: [{name: a, stdout: {}, nats: {url: 'a:1'}}]}":       "/config/sinks/0",
		"config: {sinks: [{name: a, kafka: {brokers: k:9092}}]}":             "/config/sinks/0/kafka/brokers",
		"config: {sinks: [{name: a, kafka: {brokers: ['k:1'], tls: true}}]}": "/config/sinks/0/kafka/tls",
	} {
		_, _, err := command(t, tools.helm, "template", "x", chartDir, "--values", writeFile(t, "values.yaml", values))
		if err == nil {
			t.Errorf("accepted: %s", values)
			continue
		}
		if message := strings.ReplaceAll(
			err.Error(),
			".",
			"/",
		); !strings.Contains(message, want) ||
			!strings.Contains(message, "schema") {
			t.Errorf("%s: the message does not name %s:\n%v", values, want, err)
		}
	}
}
