package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// mustParse parses what has no mistakes.
func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("bridge.yaml", []byte(text))
	if err != nil {
		t.Fatalf("%v\nin:\n%s", err, text)
	}
	return c
}

func TestDefault(t *testing.T) {
	want := &Config{
		Cluster:         "local",
		State:           State{Path: "./state"},
		Election:        defaultElection,
		HTTP:            HTTP{Listen: ":8080", TokenFile: "/var/run/secrets/deltabridge/token"},
		Log:             Log{"info", "text"},
		ShutdownTimeout: 30 * time.Second,
		Watch:           []Watch{{Resources: []string{"*"}}},
		Sinks: []Sink{
			{
				Name:     "nats",
				Events:   EventsChanges,
				Payload:  "object",
				Content:  "binary",
				Secrets:  SecretsFingerprint,
				Oversize: sinks.OutcomeMetadata,
				Buffer:   Buffer{8192, 32 << 20, "block", Spill{1 << 30}},
				Destinations: Destinations{NATS: &nats.Config{
					Servers:  nats.Servers{InboxPrefix: "_INBOX", ConnectionName: "deltabridge-local-nats"},
					Embedded: &embedded.Config{Listen: "127.0.0.1:4222", StoreDir: "./data/nats"},
					Stream: nats.StreamConfig{
						Name:             "K8S",
						Create:           true,
						Subjects:         []string{"k8s.>"},
						Replicas:         1,
						Storage:          "file",
						Discard:          "old",
						DeletionsKeptFor: 24 * time.Hour,
					},
					Subject:     "k8s.{cluster}.{group}.{resource}.{namespace}.{name}",
					MaxInFlight: 512, AckTimeout: 10 * time.Second,
				}},
			},
		},
	}
	if diff := cmp.Diff(want, Default()); diff != "" {
		t.Errorf("Default() (-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "\n", "# a comment\n", "---\n", "--- # nothing\n...\n", "{}", "\ufeff", "\ufeffcluster: local"} {
		if diff := cmp.Diff(want, mustParse(t, text)); diff != "" {
			t.Errorf("Parse(%q) is not the default (-want +got):\n%s", text, diff)
		}
	}
}

func TestDesign(t *testing.T) {
	if _, err := Load("testdata/design.yaml"); err != nil {
		t.Error(err)
	}
}

// Every key set to something that is not its default.
func TestEveryKey(t *testing.T) {
	c, err := Load("testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	notDefault(t, "", reflect.ValueOf(c).Elem())

	if got, want := c.Kubeconfig, "testdata/full.yaml"; got != want {
		t.Errorf("kubeconfig %q, want it relative to the file: %q", got, want)
	}
	if got, want := c.State.Path, "elsewhere/state"; got != want {
		t.Errorf("state.path %q, want it as it is: %q", got, want)
	}
	if diff := cmp.Diff([]string{"nats://a:4222", "tls://b:4223"}, c.Sinks[0].NATS.URLs); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	if c.Log.Level.Level() != slog.LevelDebug {
		t.Errorf("level %v", c.Log.Level.Level())
	}
	if diff := cmp.Diff(
		map[string]string{"cleanup.policy": "compact", "retention.ms": "604800000", "x": "true"},
		c.Sinks[1].Kafka.CreateTopics.Config,
	); diff != "" {
		t.Errorf("topic settings (-want +got):\n%s", diff)
	}
}

// notDefault fails for each key that no element of the file sets to another value than its default.
func notDefault(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	defaults := reflect.New(v.Type()).Elem()
	strictyaml.SetDefaults(defaults)
	for _, f := range strictyaml.Fields(v.Type()) {
		at, child := path+"."+f.Name, v.FieldByIndex(f.Index)
		switch {
		case f.Type.Kind() == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
			if child.Len() == 0 {
				t.Errorf("%s: not set", at)
			}
			if at == ".sinks" { // each sink has another destination
				notDefault(t, at, merged(child))
				continue
			}
			notDefault(t, at, child.Index(0))
		case f.Type == reflect.TypeFor[*stdout.Config]():
		case f.Type == reflect.TypeFor[*StateLog](): // see TestStateLog
		case f.Type.Kind() == reflect.Pointer:
			if child.IsNil() {
				t.Errorf("%s: not set", at)
				continue
			}
			notDefault(t, at, child.Elem())
		case f.Type.Kind() == reflect.Struct:
			notDefault(t, at, child)
		default:
			fresh := defaults.FieldByIndex(f.Index)
			if reflect.DeepEqual(fresh.Interface(), child.Interface()) {
				t.Errorf("%s: still %v", at, child)
			}
		}
	}
}

// merged is the first sink with the destinations of the others, with the embedded server of the last, and with the
// keys that exclude others.
func merged(sinks reflect.Value) reflect.Value {
	s := sinks.Index(0).Interface().(Sink)
	for i := 1; i < sinks.Len(); i++ {
		other := sinks.Index(i).Interface().(Sink)
		if other.IsAudit() {
			s.Events = other.Events
		}
		if other.Kafka != nil && other.Kafka.SASL.OAuth != nil {
			s.Kafka.SASL.OAuth = other.Kafka.SASL.OAuth
			s.Kafka.SASL.OAuth.TokenFile = "set"
		} else if other.Kafka != nil {
			k := *other.Kafka
			k.SASL.Region = "set"
			s.Kafka = &k
		}
		if other.NATS != nil && other.NATS.Bucket != "" {
			n := *s.NATS
			n.Bucket = other.NATS.Bucket
			s.NATS = &n
		} else if other.NATS != nil {
			n := *s.NATS
			n.Embedded, n.Auth.TokenFile, n.Auth.CredentialsFile, n.Auth.NkeyFile = other.NATS.Embedded, "set", "set", "set"
			n.APIPrefix = "set"
			n.Stream.LastPerSubject, n.Stream.DeletionsKeptFor = other.NATS.Stream.LastPerSubject, other.NATS.Stream.DeletionsKeptFor
			s.NATS = &n
		}
		if other.ClaimCheck != nil {
			c := *other.ClaimCheck
			n := *c.NATS
			n.Auth.TokenFile, n.Auth.CredentialsFile, n.Auth.NkeyFile, n.APIPrefix = "set", "set", "set", "set"
			c.NATS, s.ClaimCheck = &n, &c
		}
		if c := other.ControlEvents; c != nil {
			s.ControlEvents.Topic += c.Topic
		}
		if d := other.DeadLetter; d != nil {
			s.DeadLetter.Topic += d.Topic
		}
	}
	return reflect.ValueOf(s)
}

// Brokers know each bridge and each sink by a name. On Kafka, another one can be configured.
func TestNamesForBrokers(t *testing.T) {
	c := mustParse(t, `
cluster: prod
sinks:
- {name: a, nats: {url: "nats://a"}}
- {name: b, kafka: {brokers: ["b:9092"]}, oversize: claimCheck, claimCheck: {bucket: c, nats: {url: "nats://c"}}}
- {name: d, kafka: {brokers: ["d:9092"], clientId: "y"}}`)
	got := []string{
		c.Sinks[0].NATS.ConnectionName, c.Sinks[1].Kafka.ClientID, c.Sinks[1].ClaimCheck.NATS.ConnectionName,
		c.Sinks[2].Kafka.ClientID,
	}
	want := []string{"deltabridge-prod-a", "deltabridge-prod-b", "deltabridge-prod-b", "y"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLoadWithoutFile(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{filepath.Join(dir, "none.yaml"): "no such file", dir: "is a directory"} {
		_, err := Load(path)
		if err == nil || !strings.Contains(err.Error(), path+": "+want) {
			t.Errorf("Load(%s): %v, want %q", path, err, want)
		}
	}
}

// LoadOffline accepts files that do not exist, and no other mistake.
func TestLoadOffline(t *testing.T) {
	if c, notes, err := LoadOffline("testdata/full.yaml"); c == nil || notes.MissingFiles != nil || err != nil {
		t.Errorf("%v, %v", notes, err)
	}
	for name, want := range map[string]int{"files.bad.yaml": 2, "ranges.bad.yaml": 0} {
		_, strict := Load("testdata/" + name)
		c, notes, err := LoadOffline("testdata/" + name)
		missing := notes.MissingFiles
		if c != nil || err == nil || len(missing) != want || len(mistakesOf(t, err))+want != len(mistakesOf(t, strict)) {
			t.Errorf("%s: %v, %v, %v", name, c, missing, err)
		}
		for _, m := range missing {
			if text, _, _ := strings.Cut(m.Error(), " ("); !strings.Contains(strict.Error(), text) {
				t.Errorf("%s: %v is not a mistake of Load", name, m)
			}
		}
	}
	if _, _, err := LoadOffline("testdata/none.yaml"); err == nil {
		t.Error("there is no such file")
	}
}

// Warnings are about settings that are valid.
func TestWarnings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bridge.yaml")
	for text, want := range map[string]string{
		`{name: a, kafka: {brokers: ["k:9092"]}}`:                                               "",
		`{name: a, controlEvents: {topic: c}, kafka: {brokers: ["k:9092"]}}`:                    "1:34: sinks[0].controlEvents: gap events can be read later",
		`{name: a, controlEvents: {subject: c, stream: C}, nats: {url: "nats://a"}}`:            "1:34: sinks[0].controlEvents: gap events can be read later",
		`{name: a, oversize: deadLetter, deadLetter: {topic: d}, kafka: {brokers: ["k:9092"]}}`: "",
		`{name: a, oversize: deadLetter, deadLetter: {subject: d, stream: D}, nats: {url: "nats://a"}}`: "1:29: sinks[0].oversize: does not keep an event that exceeds the server's max_payload, because no subject accepts it " +
			"(if events can be that large, write oversize: claimCheck)",
	} {
		if err := os.WriteFile(file, []byte("sinks: ["+text+"]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		c, notes, err := LoadOffline(file)
		if c == nil || err != nil {
			t.Errorf("%s: %v", text, err)
		}
		got := ""
		for _, m := range notes.Warnings {
			got += m.Error()
		}
		begins := strings.HasPrefix(strings.TrimPrefix(got, file+":"), want)
		if (got == "") != (want == "") || len(notes.Warnings) > 1 || !begins {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

// Sinks that look alike, but do each other no harm.
func TestNoConflict(t *testing.T) {
	for _, text := range []string{
		`sinks: [{name: a, nats: {url: "nats://a"}}, {name: b, nats: {url: "nats://b"}}]`,
		`sinks: [{name: a, nats: {url: "nats://a"}}, {name: b, nats: {url: "nats://a:4223"}}]`,
		`sinks: [{name: a, nats: {url: "nats://a"}}, {name: b, nats: {url: "nats://a", stream: {name: B}}}]`,
		`sinks: [{name: a, nats: {url: "nats://a"}}, {name: b, nats: {url: "nats://a", domain: hub, subject: "b.{name}"}}]`,
		`sinks: [{name: a, nats: {url: "nats://a", bucket: B}}, {name: b, nats: {url: "nats://a", bucket: B, domain: hub}}]`,
		`sinks: [{name: a, nats: {url: "nats://a"}}, {name: b, nats: {url: "nats://a", apiPrefix: JS.b, user: b, passwordFile: testdata/full.yaml}}]`,
		`sinks: [{name: a, nats: {url: "nats://a", stream: {create: true}}}, {name: b, nats: {url: "nats://a", subject: "b.{name}", stream: {create: true, name: B}}}]`,
		`sinks: [{name: a, nats: {embedded: {listen: "127.0.0.1:0", storeDir: a}, stream: {create: true}}}, {name: b, nats: {embedded: {listen: "127.0.0.1:0", storeDir: b}, stream: {create: true}}}]`,
		`sinks: [{name: a, kafka: {brokers: ["k:9092"]}}, {name: b, kafka: {brokers: ["k:9092"]}}, {name: c, stdout: {}}]`,
		`sinks: [{name: a, controlEvents: {topic: a}, kafka: {brokers: ["k:9092"]}}, {name: b, controlEvents: {topic: a}, kafka: {brokers: ["l:9092"]}}]`,
		`sinks: [{name: a, controlEvents: {subject: control, stream: C}, nats: {embedded: {}, stream: {create: true}}}]`,
	} {
		mustParse(t, text)
	}
}

// Without peers, the bridge itself is asked.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "127.0.0.1:8080",
		"http: {listen: \"0.0.0.0:1\"}":  "127.0.0.1:1",
		"http: {listen: \"[::]:1\"}":     "127.0.0.1:1",
		"http: {listen: \"10.0.0.1:1\"}": "10.0.0.1:1",
		"http: {peers: [a:1, b:2]}":      "a:1 b:2",
	} {
		cfg, err := Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(cfg.HTTP.Addresses(), " "); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
