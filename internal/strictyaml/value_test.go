package strictyaml

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// A file that can't be opened without waiting is refused, not opened.
func TestFileKinds(t *testing.T) {
	if err := checkFile("/dev/null"); err == nil {
		t.Error("a device was taken")
	}
	file, err := filepath.Abs("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(file, link); err != nil {
		t.Skip(err)
	}
	if err := checkFile(link); err != nil { // as Kubernetes mounts Secrets
		t.Errorf("a link to a file: %v", err)
	}
}

func TestDurations(t *testing.T) {
	typ := reflect.TypeFor[time.Duration]()
	for text, want := range map[string]time.Duration{"30s": 30 * time.Second, "1h30m": 90 * time.Minute, "100ms": 100 * time.Millisecond, "0": 0, "0s": 0} {
		if d, err := parseNumber(typ, text); err != nil || time.Duration(d) != want {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"", "30", "1d", "x", "1 s"} {
		if d, err := parseNumber(typ, text); err == nil {
			t.Errorf("%q: %v", text, time.Duration(d))
		}
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"16Mi": 16 << 20, "16M": 16_000_000, "0": 0, "1e3": 1000, "1.5Ki": 1536, "1Gi": 1 << 30, "-1": -1} {
		s, err := ParseSize(text)
		if err != nil || s != want {
			t.Errorf("%q: %d, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "16MiB", "x", "100m", "0.5", "9223372036854775808", "100Ei", "1e999999999", "1e99", strings.Repeat("9", 40)} {
		if s, err := ParseSize(text); err == nil {
			t.Errorf("%q: %d", text, s)
		}
	}
}

func TestNearest(t *testing.T) {
	known := []string{"name", "filters", "payload", "buffer", "nats", "subject", "username", "maxInFlight", "url"}
	for key, want := range map[string]string{
		"nmae": "name", "filter": "filters", "NATS": "nats", "natz": "nats", "max_in_flight": "maxInFlight",
		"bufer": "buffer", "ulr": "url", "xyz": "", "": "", "n": "", "user": "", strings.Repeat("x", 100): "",
	} {
		if got := nearest(key, known); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
}
