package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
		{"zero", Config{}, []string{"brokers: at least one", "topic: template"}},
		{"brokers", Config{Brokers: []string{"a:1", "b", ":9092"}, Topic: "t"}, []string{`brokers[1]: "b" is not`, `brokers[2]: ":9092" is not`}},
		{"templates", Config{Brokers: []string{"a:1"}, Topic: "a b", Key: "{nope}"}, []string{"topic: template", "key: template"}},
		{"compression", Config{Brokers: []string{"a:1"}, Topic: "t", Compression: "rar"}, []string{`compression: "rar"`}},
		{
			"numbers",
			Config{Brokers: []string{"a:1"}, Topic: "t", RequestTimeout: -1, CreateTopics: &CreateTopics{Partitions: -1, ReplicationFactor: -1}},
			[]string{"requestTimeout:", "createTopics.partitions:", "createTopics.replicationFactor:"},
		},
		{"tls", Config{Brokers: []string{"a:1"}, Topic: "t", TLS: TLSConfig{CAFile: missing}}, []string{"tls.caFile: open"}},
		{"tls, no certificate", Config{Brokers: []string{"a:1"}, Topic: "t", TLS: TLSConfig{CAFile: empty}}, []string{"tls.caFile: no PEM"}},
		{"tls, no key", Config{Brokers: []string{"a:1"}, Topic: "t", TLS: TLSConfig{CertFile: empty}}, []string{"tls.certFile:"}},
		{"sasl, no mechanism", Config{Brokers: []string{"a:1"}, Topic: "t", SASL: SASLConfig{Username: "u"}}, []string{"sasl.mechanism: is needed"}},
		{
			"sasl",
			Config{Brokers: []string{"a:1"}, Topic: "t", SASL: SASLConfig{Mechanism: "GSSAPI", PasswordFile: missing}},
			[]string{`sasl.mechanism: "GSSAPI"`, "sasl.username:", "sasl.passwordFile: open"},
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
	if s.cfg.RequestTimeout != DefaultRequestTimeout || s.codec == nil || s.codec.Name() != string(DefaultCompression) {
		t.Errorf("request timeout %v, codec %v", s.cfg.RequestTimeout, s.codec)
	}
	key, err := s.cfg.KeyTemplate()
	if err != nil || key.String() != DefaultKey || s.volatile {
		t.Errorf("key %q, volatile %v, %v", key, s.volatile, err)
	}
}
