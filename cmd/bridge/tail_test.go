package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Each mistake in the flags of tail is reported before anything is connected, in the words of the configuration where
// the flag stands for a key.
func TestTailMistakes(t *testing.T) {
	dir := t.TempDir()
	file := func(name, sinks string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("sinks: ["+sinks+"]\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	lines := file("lines.yaml", "{name: lines, stdout: {}}")
	several := file("several.yaml", `{name: lines, stdout: {}}, {name: a, nats: {url: "nats://a:4222"}},
		{name: b, kafka: {brokers: ["b:9092"]}}`)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"sinks[0].nats.url: contains credentials", []string{"--nats", "nats://user:t0ken@a:4222"}},
		{`sinks[0].nats.url: "http" is not a NATS URL scheme`, []string{"--nats", "nats://b:4222,http://a:4222"}},
		{`sinks[0].nats.stream.name: "a.b" is not a valid name`, []string{"--nats", "nats://a:4222", "--stream", "a.b"}},
		{`sinks[0].kafka.brokers[1]: "b" is not an address of the form host:port`, []string{"--kafka", "a:1,b"}},
		{`sinks[0].kafka.topic: template "{nope}", character 1: there is no variable`, []string{"--kafka", "a:1", "--topic", "{nope}"}},
		{"--sink requires a configuration", []string{"--kafka", "a:1", "--sink", "a"}},
		{"if any flags in the group [config nats kafka] are set", []string{"--kafka", "a:1", "--nats", "nats://a:4222"}},
		{"--diff requires --output line", []string{"--diff", "-o", "json"}},
		{"must be line or json", []string{"-o", "xml"}},
		{"--since: must not be negative", []string{"--since", "-1m"}},
		{"--resource pods/log: subresources cannot be watched", []string{"--resource", "pods/log"}},
		{`--namespace: [1]: "Shop": not a namespace`, []string{"-n", "shop", "-n", "Shop"}},
		{"--selector: ", []string{"-l", "app in web"}},
		{"no sink delivers to a broker: there is nothing to read", []string{"-c", lines}},
		{"sink lines: events cannot be read back from this kind of destination", []string{"-c", lines, "--sink", "lines"}},
		{"there are several sinks: choose one with --sink (a, b)", []string{"-c", several}},
		{"--sink c: there is no such sink; use one of lines, a, b", []string{"-c", several, "--sink", "c"}},
	} {
		_, err := command(t, append([]string{"tail"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "t0ken") {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
	}
}

// The flags stand for a configuration with one sink; everything else has the defaults of a file.
func TestTailFlags(t *testing.T) {
	nats := tailOptions{nats: "nats://a:4222,tls://b:4223", stream: "AUDIT", topic: "ignored"}
	s, err := nats.sinkConfig()
	if err != nil || strings.Join(s.NATS.URLs, " ") != "nats://a:4222 tls://b:4223" || s.NATS.Stream.Name != "AUDIT" ||
		s.NATS.MaxInFlight == 0 || s.NATS.Stream.Create {
		t.Errorf("%+v, %v", s, err)
	}
	kafka := tailOptions{kafka: "a:1,b:2", topic: `k8s."{resource}`, stream: "ignored"}
	if _, err := kafka.sinkConfig(); err == nil || !strings.Contains(err.Error(), "sinks[0].kafka.topic") {
		t.Errorf("a topic with a quote: %v", err)
	}
	kafka.topic = "k8s.{resource}"
	s, err = kafka.sinkConfig()
	if err != nil || strings.Join(s.Kafka.Brokers, " ") != "a:1 b:2" || s.Kafka.Topic != "k8s.{resource}" ||
		s.Kafka.RequestTimeout == 0 || s.Kafka.CreateTopics != nil {
		t.Errorf("%+v, %v", s, err)
	}
}
