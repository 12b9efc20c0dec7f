package config

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
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
		Cluster: "local", State: State{"./state"}, HTTP: HTTP{":8080"}, Log: Log{"info", "text"},
		ShutdownTimeout: Duration(30 * time.Second),
		Watch:           []Watch{{Resources: []string{"*"}}},
		Sinks: []Sink{{
			Name: "nats", Payload: "object", Patch: "json", Content: "binary", Secrets: SecretsFingerprint, Oversize: OversizeMetadata, Enrich: Enrich{As: EnrichAttributes},
			Buffer: Buffer{8192, 32 << 20, OverflowBlock, Spill{1 << 30}},
			NATS: &NATS{
				Embedded: &Embedded{Listen: "127.0.0.1:4222", StoreDir: "./data/nats"},
				Stream: Stream{
					Name: "K8S", Create: true, Subjects: []string{"k8s.>"}, Replicas: 1, Storage: "file", Discard: "old", DeletionsKeptFor: Duration(24 * time.Hour),
				},
				Subject:     "k8s.{cluster}.{group}.{resource}.{namespace}.{name}",
				MaxInFlight: 512, AckTimeout: Duration(10 * time.Second),
			},
		}},
	}
	opts := cmp.Options{cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == "._" }, cmp.Ignore())}
	if diff := cmp.Diff(want, Default(), opts); diff != "" {
		t.Errorf("Default() (-want +got):\n%s", diff)
	}
	for _, text := range []string{"", "\n", "# a comment\n", "---\n", "--- # nothing\n...\n", "{}", "\ufeff", "\ufeffcluster: local"} {
		if diff := cmp.Diff(want, mustParse(t, text), opts); diff != "" {
			t.Errorf("Parse(%q) is not the default (-want +got):\n%s", text, diff)
		}
	}
}

// What Default returns would pass as a file.
func TestDefaultIsValid(t *testing.T) {
	v := &validator{newDecoder("", nil)}
	v.config(Default())
	if err := sorted(v.mistakes); err != nil {
		t.Error(err)
	}
}

// The defaults here are those of the packages that are configured, and so are the names of values.
func TestDefaultsOfPackages(t *testing.T) {
	n, e, k, s := defaulted[NATS](), defaulted[Embedded](), defaulted[Kafka](), defaulted[Sink]()
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"nats.maxInFlight", n.MaxInFlight, nats.DefaultMaxInFlight},
		{"nats.ackTimeout", time.Duration(n.AckTimeout), nats.DefaultAckTimeout},
		{"nats.embedded.listen", e.Listen, embedded.DefaultListen},
		{"nats.stream.storage", nats.Storage(n.Stream.Storage), nats.StorageFile},
		{"nats.stream.discard", nats.Discard(n.Stream.Discard), nats.DiscardOld},
		{"kafka.key", k.Key, kafka.DefaultKey},
		{"kafka.compression", kafka.Compression(k.Compression), kafka.DefaultCompression},
		{"kafka.requestTimeout", time.Duration(k.RequestTimeout), kafka.DefaultRequestTimeout},
		{"payload", event.Payload(s.Payload), event.PayloadObject},
		{"patch", event.Patch(s.Patch), event.PatchJSON},
		{"content", event.Content(s.Content), event.ContentBinary},
	} {
		if c.got != c.want {
			t.Errorf("%s: the default is %v, that of the package %v", c.name, c.got, c.want)
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

	if got, want := c.Kubeconfig, File("testdata/full.yaml"); got != want {
		t.Errorf("kubeconfig %q, want it relative to the file: %q", got, want)
	}
	if got, want := c.State.Path, "elsewhere/state"; got != want {
		t.Errorf("state.path %q, want it as it is: %q", got, want)
	}
	if diff := cmp.Diff([]string{"nats://a:4222", "tls://b:4223"}, c.Sinks[0].NATS.Servers()); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	if c.Log.Level.Level() != slog.LevelDebug {
		t.Errorf("level %v", c.Log.Level.Level())
	}
	if diff := cmp.Diff(map[string]string{"cleanup.policy": "compact", "retention.ms": "604800000", "x": "true"}, c.Sinks[1].Kafka.CreateTopics.Config); diff != "" {
		t.Errorf("topic settings (-want +got):\n%s", diff)
	}
}

// notDefault fails for each key that no element of the file sets to another value than its default.
func notDefault(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	for _, f := range fieldsOf(v.Type()) {
		if f.tag.Get("later") == "true" {
			continue
		}
		at, child := join(path, f.name), v.FieldByIndex(f.index)
		switch {
		case f.typ.Kind() == reflect.Slice && f.typ.Elem().Kind() == reflect.Struct:
			if child.Len() == 0 {
				t.Errorf("%s: not set", at)
			}
			if at == "sinks" { // each sink has another destination
				notDefault(t, at, merged(child))
				continue
			}
			notDefault(t, at, child.Index(0))
		case f.typ.Kind() == reflect.Pointer && f.typ.Elem() == reflect.TypeFor[Stdout]():
		case f.typ.Kind() == reflect.Pointer:
			if child.IsNil() {
				t.Errorf("%s: not set", at)
				continue
			}
			notDefault(t, at, child.Elem())
		case f.typ.Kind() == reflect.Struct:
			notDefault(t, at, child)
		default:
			fresh := reflect.New(f.typ).Elem()
			if text, ok := f.tag.Lookup("default"); ok {
				if err := decodeText(text, fresh, f.tag); err != nil {
					t.Fatal(err)
				}
			}
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
		if other.Kafka != nil {
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
			n.Embedded, n.TokenFile, n.CredentialsFile, n.NkeyFile = other.NATS.Embedded, "set", "set", "set"
			n.Stream.LastPerSubject, n.Stream.DeletionsKeptFor = other.NATS.Stream.LastPerSubject, other.NATS.Stream.DeletionsKeptFor
			s.NATS = &n
		}
		if other.ClaimCheck != nil {
			c := *other.ClaimCheck
			n := *c.NATS
			n.TokenFile, n.CredentialsFile, n.NkeyFile = "set", "set", "set"
			c.NATS, s.ClaimCheck = &n, &c
		}
		if d := other.DeadLetter; d != nil {
			s.DeadLetter.Topic += d.Topic
			if d.File != nil {
				s.DeadLetter.File = d.File
			}
		}
	}
	return reflect.ValueOf(s)
}

func TestLoadWithoutFile(t *testing.T) {
	folder := t.TempDir()
	large := filepath.Join(folder, "large.yaml")
	if err := os.WriteFile(large, make([]byte, maxFileSize+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(folder, "none.yaml"): "no such file",
		folder:                             "it is a folder",
		large:                              "larger than 1Mi",
	} {
		_, err := Load(path)
		errs, ok := errors.AsType[*Errors](err)
		if !ok || len(errs.Mistakes) != 1 || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("Load(%s): %v, want %q", path, err, want)
		}
	}
}

// A file that can't be opened without waiting is refused, not opened.
func TestFileKinds(t *testing.T) {
	if err := File("/dev/null").check(); err == nil {
		t.Error("a device was taken")
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(must(filepath.Abs("doc.go")), link); err != nil {
		t.Skip(err)
	}
	if err := File(link).check(); err != nil { // as Kubernetes mounts Secrets
		t.Errorf("a link to a file: %v", err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestDurations(t *testing.T) {
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "100ms": 100 * time.Millisecond, "0": 0, "0s": 0} {
		d, err := parseDuration(text)
		if err != nil || time.Duration(d) != want {
			t.Errorf("%q: %v, %v", text, d, err)
		}
		if again, err := parseDuration(d.String()); err != nil || again != d {
			t.Errorf("%q is written %q, which is read %v, %v", text, d, again, err)
		}
	}
	for text, want := range map[string]string{"": "a number and a unit", "30": "30s", "1d": "24h", "x": "a number and a unit", "1 s": "a number and a unit"} {
		if d, err := parseDuration(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v; want %q", text, d, err, want)
		}
	}
	if s := Duration(90 * time.Minute).String(); s != "1h30m" {
		t.Error(s)
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]Size{"16Mi": 16 << 20, "16M": 16_000_000, "0": 0, "1e3": 1000, "1.5Ki": 1536, "1Gi": 1 << 30, "-1": -1} {
		s, err := parseSize(text)
		if err != nil || s != want {
			t.Errorf("%q: %d, %v", text, s, err)
		}
		if again, err := parseSize(s.String()); err != nil || again != s {
			t.Errorf("%q is written %q, which is read %d, %v", text, s, again, err)
		}
	}
	for _, text := range []string{"", "16MiB", "x", "100m", "0.5", "9223372036854775808", "100Ei", "1e999999999", "1e99", strings.Repeat("9", 40)} {
		if s, err := parseSize(text); err == nil {
			t.Errorf("%q: %d", text, s)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"name", "filters", "payload", "buffer", "nats", "subject", "username", "maxInFlight"}
	for key, want := range map[string]string{
		"nmae": "name", "filter": "filters", "NATS": "nats", "max_in_flight": "maxInFlight", "user": "username", "bufer": "buffer",
		"xyz": "", "": "", "n": "", strings.Repeat("x", 100): "",
	} {
		if got := nearest(key, known); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}

func TestSubjects(t *testing.T) {
	for _, c := range []struct {
		pattern, subject string
		covers, overlap  bool
	}{
		{"k8s.>", "k8s.*.*", true, true},
		{"k8s.>", "k8s", false, false},
		{"k8s.*", "k8s.a", true, true},
		{"k8s.a", "k8s.*", false, true},
		{"k8s.*.*", "k8s.*", false, false},
		{">", "a", true, true},
		{"*.b", "a.*", false, true},
		{"a.b.>", "a.*", false, false},
		{"a.b", "a.c", false, false},
	} {
		if got := covers(c.pattern, c.subject); got != c.covers {
			t.Errorf("covers(%q, %q) is %v", c.pattern, c.subject, got)
		}
		if got := overlap(c.pattern, c.subject); got != c.overlap || overlap(c.subject, c.pattern) != got {
			t.Errorf("overlap(%q, %q) is %v", c.pattern, c.subject, got)
		}
	}
}

// Sinks that look alike, but do each other no harm.
func TestNoConflict(t *testing.T) {
	for _, text := range []string{
		`sinks: [{name: a, nats: {url: "nats://a"}}, {name: b, nats: {url: "nats://b"}}]`,
		`sinks: [{name: a, nats: {url: "nats://a"}}, {name: b, nats: {url: "nats://a:4223"}}]`,
		`sinks: [{name: a, nats: {url: "nats://a"}}, {name: b, nats: {url: "nats://a", stream: {name: B}}}]`,
		`sinks: [{name: a, nats: {url: "nats://a", stream: {create: true}}}, {name: b, nats: {url: "nats://a", subject: "b.{name}", stream: {create: true, name: B}}}]`,
		`sinks: [{name: a, nats: {embedded: {listen: "127.0.0.1:0", storeDir: a}, stream: {create: true}}}, {name: b, nats: {embedded: {listen: "127.0.0.1:0", storeDir: b}, stream: {create: true}}}]`,
		`sinks: [{name: a, kafka: {brokers: ["k:9092"]}}, {name: b, kafka: {brokers: ["k:9092"]}}, {name: c, stdout: {}}]`,
	} {
		mustParse(t, text)
	}
}
