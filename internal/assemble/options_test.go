package assemble

import (
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// What the configuration says of all sinks together, and of each one, gets to the engine.
func TestOptions(t *testing.T) {
	for _, test := range []struct {
		payload       string
		managedFields bool
	}{{"object", false}, {"change", true}} {
		cfg := parse(t, `
cluster: prod
sinks:
- {name: plain, secrets: plain, stdout: {}}
- {name: hidden, payload: `+test.payload+`, resync: 1h, buffer: {overflow: drop-oldest}, stdout: {}}`)
		cfg.State.Path = t.TempDir()
		kube := &rest.Config{Host: "https://a", UserAgent: "kubectl"}
		log := slog.New(slog.DiscardHandler)
		o, err := Options(cfg, kube, "1.2", log)
		if err != nil {
			t.Fatal(err)
		}
		store, err := Checkpoint(cfg, log)
		if err != nil {
			t.Fatal(err)
		}
		if o.Kube.UserAgent != "deltabridge/1.2" || kube.UserAgent != "kubectl" || o.Kube.Host != "https://a" {
			t.Errorf("the client %+v, made of %+v", o.Kube, kube)
		}
		if o.Cluster != "prod" || o.ManagedFields != test.managedFields || len(o.Scopes) == 0 || o.Watch == "" {
			t.Errorf("payload %s: %+v", test.payload, o)
		}
		if store.Path != cfg.State.Path || store.ClusterName != "prod" {
			t.Errorf("%+v", store)
		}
		if o.Transform != nil || store.Privacy.Seal == nil {
			t.Error("secret values are hidden from the sink that is sent them in plain text, or are in the checkpoint")
		}
		plain, hidden := o.Sinks[0], o.Sinks[1]
		if plain.Seen != nil || plain.Encoder.Redactor != nil || hidden.Seen == nil || hidden.Encoder.Redactor == nil {
			t.Error("a sink sees what it is not sent, or the other way round")
		}
		if plain.Buffer.Overflow != delivery.Block || hidden.Buffer.Overflow != delivery.DropOldest ||
			hidden.Resync.Hours() != 1 {
			t.Errorf("%+v, %+v", plain, hidden)
		}
	}
}

// The state log is the configured one.
func TestLog(t *testing.T) {
	key := t.TempDir() + "/key"
	if err := os.WriteFile(key, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		`{nats: {url: "nats://a"}}`:                    "*natslog.Log",
		`{kafka: {brokers: ["a:9092"], topic: state}}`: "*kafkalog.Log",
	} {
		cfg := parse(
			t,
			"state: {path: "+t.TempDir()+", log: "+text+"}\nredactionKeyFile: "+key+"\nsinks: [{name: s, stdout: {}}]",
		)
		log, err := Log(cfg.State.Log, slog.New(slog.DiscardHandler))
		if err != nil || fmt.Sprintf("%T", log) != want {
			t.Errorf("%s: %T, %v", text, log, err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Facts go to every sink. So none of them is read from a secret value, even if one sink is sent these.
func TestEnrichment(t *testing.T) {
	cfg := parse(t, `sinks: [{name: s, secrets: plain, enrich: {owner: true, namespaceLabels: true}, stdout: {}}]`)
	cfg.State.Path = t.TempDir()
	r, err := newRedaction(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e := Enrichment(cfg, r)
	for resource, awaited := range map[string]bool{"replicasets.apps": true, "namespaces": true, "pods": false, "nodes": false} {
		if e.Awaited[resource] != awaited {
			t.Errorf("%s: awaited %t", resource, !awaited)
		}
	}
	o, err := object.New(
		[]byte(`{"kind":"Secret","metadata":{"name":"a","uid":"u","resourceVersion":"1"},"data":{"a":"aHVudGVyMg=="}}`),
	)
	if err != nil {
		t.Fatal(err)
	}
	seen, err := e.FactBytes(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, o)
	if err != nil || strings.Contains(string(seen), "aHVudGVyMg==") {
		t.Errorf("%s, %v", seen, err)
	}
}
