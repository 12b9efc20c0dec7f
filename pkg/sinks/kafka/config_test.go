package kafka

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

func TestValidateReportsEveryMistake(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		text string
		want []string // starts of the lines
	}{
		{"empty", "{}", []string{"brokers: is missing"}},
		{"brokers", `{brokers: ["a:1", b, ":9092"]}`, []string{`brokers[1]: "b" is not an address`, `brokers[2]: ":9092" has no host`}},
		{"templates", `{brokers: ["a:1"], topic: a b, key: "{nope}"}`, []string{`topic: template "a b", `, `key: template "{nope}", character 1: there is no variable`}},
		{"an empty template", `{brokers: ["a:1"], topic: ""}`, []string{`topic: template "", character 1: it is empty`}},
		{"compression", `{brokers: ["a:1"], compression: rar}`, []string{`compression: "rar"`}},
		{
			"numbers",
			`{brokers: ["a:1"], createTopics: {partitions: -1, replicationFactor: -1}, requestTimeout: -1ns}`,
			[]string{"createTopics.partitions: -1 is too small", "createTopics.replicationFactor: -1 is too small", "requestTimeout: -1ns is too small"},
		},
		{"tls", `{brokers: ["a:1"], tls: {caFile: missing}}`, []string{"tls.caFile: stat missing"}},
		{"tls, no certificate", `{brokers: ["a:1"], tls: {caFile: /dev/null}}`, []string{"tls.caFile: /dev/null is not a regular file"}},
		{"tls, no key", fmt.Sprintf(`{brokers: ["a:1"], tls: {certFile: %s}}`, empty), []string{"tls.keyFile: is missing, but certFile is given"}},
		{"sasl, no mechanism", `{brokers: ["a:1"], sasl: {username: u}}`, []string{"sasl.mechanism: is missing, but username is given", "sasl.passwordFile: is missing, but username is given"}},
		{
			"sasl",
			fmt.Sprintf(`{brokers: ["a:1"], sasl: {mechanism: GSSAPI, passwordFile: %s}}`, empty),
			[]string{"sasl.username: is missing", `sasl.mechanism: "GSSAPI" is not a valid value`},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, at := strictyaml.Decode[Config]("", []byte(c.text))
			cfg.Validate(at)
			err := at.Err()
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.Split(err.Error(), "\n")
			for i := range got {
				if i < len(c.want) && strings.HasPrefix(got[i], c.want[i]) {
					got[i] = c.want[i]
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// New reads the files, which the configuration only names. A file that does not exist is reported by each connection.
func TestFilesOfNew(t *testing.T) {
	missing, empty := filepath.Join(t.TempDir(), "missing"), filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	brokers := newFake(t).ListenAddrs()
	for _, tt := range []struct {
		want, file string
		cfg        Config
	}{
		{"files: open ", missing, Config{TLS: access.TLS{CAFile: missing}}},
		{"files: open ", missing, Config{SASL: SASLConfig{Mechanism: "PLAIN", Username: "u", PasswordFile: missing}}},
		{"files: no PEM certificate in ", empty, Config{TLS: access.TLS{CAFile: empty}}},
		{"files: ", empty, Config{SASL: SASLConfig{Mechanism: "PLAIN", Username: "u", PasswordFile: empty}}},
	} {
		tt.cfg.Brokers, tt.cfg.Topic = brokers, "t"
		s, err := New(tt.cfg)
		if tt.file == missing && err == nil {
			err = s.Connect(t.Context())
			_ = s.Close(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), tt.want+tt.file) {
			t.Errorf("%v, want %s", err, tt.want+tt.file)
		}
	}
}

func TestDefaults(t *testing.T) {
	s, err := New(Config{Brokers: []string{"127.0.0.1:9092"}, Topic: "k8s.{resource}"})
	if err != nil {
		t.Fatal(err)
	}
	if s.cfg.RequestTimeout != 15*time.Second || s.codec == nil || s.codec.Name() != "snappy" {
		t.Errorf("request timeout %v, codec %v", s.cfg.RequestTimeout, s.codec)
	}
	if key := s.cfg.KeyTemplate(); key.String() != "{cluster}/{group}/{resource}/{namespace}/{name}" || s.volatile {
		t.Errorf("key %q, volatile %v", key, s.volatile)
	}
}
