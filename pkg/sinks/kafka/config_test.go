package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

func TestValidateReportsEveryMistake(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		cfg  Config
		want []string // starts of the lines
	}{
		{"zero", Config{}, []string{"brokers: is empty", `topic: template "", character 1: it is empty`}},
		{"brokers", Config{Brokers: []string{"a:1", "b", ":9092"}, Topic: "t"}, []string{`brokers[1]: "b" is not an address`, `brokers[2]: ":9092" has no host`}},
		{"templates", Config{Brokers: []string{"a:1"}, Topic: "a b", Key: "{nope}"}, []string{`topic: template "a b", `, `key: template "{nope}", character 1: there is no variable`}},
		{"compression", Config{Brokers: []string{"a:1"}, Topic: "t", Compression: "rar"}, []string{`compression: "rar"`}},
		{
			"numbers",
			Config{Brokers: []string{"a:1"}, Topic: "t", RequestTimeout: -1, CreateTopics: &CreateTopics{Partitions: -1, ReplicationFactor: -1}},
			[]string{"createTopics.partitions: -1 is too small", "createTopics.replicationFactor: -1 is too small", "requestTimeout: -1ns is too small"},
		},
		{"tls", Config{Brokers: []string{"a:1"}, Topic: "t", TLS: access.TLS{CAFile: missing}}, []string{"files: open "}},
		{"tls, no certificate", Config{Brokers: []string{"a:1"}, Topic: "t", TLS: access.TLS{CAFile: empty}}, []string{"files: no PEM certificate in "}},
		{"tls, no key", Config{Brokers: []string{"a:1"}, Topic: "t", TLS: access.TLS{CertFile: empty}}, []string{"tls.keyFile: is missing, but certFile is given"}},
		{"sasl, no mechanism", Config{Brokers: []string{"a:1"}, Topic: "t", SASL: SASLConfig{Username: "u"}}, []string{"sasl.mechanism: is missing, but username is given", "sasl.passwordFile: is missing, but username is given"}},
		{
			"sasl",
			Config{Brokers: []string{"a:1"}, Topic: "t", SASL: SASLConfig{Mechanism: "GSSAPI", PasswordFile: missing}},
			[]string{`sasl.mechanism: "GSSAPI" is not a valid value`, "sasl.username: is missing"},
		},
		{
			"sasl, no file",
			Config{Brokers: []string{"a:1"}, Topic: "t", SASL: SASLConfig{Mechanism: "PLAIN", Username: "u", PasswordFile: missing}},
			[]string{"files: open "},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.cfg)
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

func TestDefaults(t *testing.T) {
	s, err := New(Config{Brokers: []string{"127.0.0.1:9092"}, Topic: "k8s.{resource}"})
	if err != nil {
		t.Fatal(err)
	}
	if s.cfg.RequestTimeout != DefaultRequestTimeout || s.codec == nil || s.codec.Name() != DefaultCompression {
		t.Errorf("request timeout %v, codec %v", s.cfg.RequestTimeout, s.codec)
	}
	key, err := s.cfg.KeyTemplate()
	if err != nil || key.String() != DefaultKey || s.volatile {
		t.Errorf("key %q, volatile %v, %v", key, s.volatile, err)
	}
}
