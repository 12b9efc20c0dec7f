package reload

import (
	"strings"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
)

// What is sent to a sink can change without an effect on its delivery. What concerns the destination or the queue cannot.
func TestKeepsDelivery(t *testing.T) {
	const base = `
sinks:
- {name: js, nats: {url: "nats://a:4222", subject: "k8s.{resource}.{name}", stream: {name: S, create: true, subjects: [k8s.>]}}}
- {name: kafka, deadLetter: {topic: dead}, kafka: {brokers: ["a:9092"], topic: "k8s.{resource}", key: "{uid}", createTopics: {}}}
- {name: out, stdout: {}}
`
	parse := func(text string) *config.Config {
		t.Helper()
		cfg, err := config.Parse("", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	for change, want := range map[string]string{
		"":                                     "js kafka out",
		"name: js,>name: js, payload: change,": "js kafka out",
		"name: js,>name: js, content: structured,":             "js kafka out",
		"name: js,>name: js, secrets: plain,":                  "js kafka out",
		"name: js,>name: js, resync: 1h,":                      "js kafka out",
		"name: js,>name: js, enrich: {owner: true},":           "js kafka out",
		"name: js,>name: js, filters: [{resources: [pods]}],":  "js kafka out",
		"name: js,>name: js, buffer: {events: 10},":            "kafka out",
		"name: js,>name: js, oversize: gap,":                   "kafka out",
		"a:4222>b:4222":                                        "kafka out",
		"k8s.{resource}.{n>k8s.x.{resource}.{n":                "kafka out",
		"topic: dead>topic: letters":                           "js out",
		"name: kafka,>name: kafka, controlEvents: {topic: c},": "js out",
		"{uid}>{name}":          "js out",
		"a:9092>b:9092":         "js out",
		"name: out>name: other": "js kafka",
	} {
		from, to, _ := strings.Cut(change, ">")
		text := strings.Replace(base, from, to, 1)
		var kept []string
		for _, sink := range []string{"js", "kafka", "out", "none"} {
			if keepsDelivery(parse(base), parse(text), sink) {
				kept = append(kept, sink)
			}
		}
		if got := strings.Join(kept, " "); got != want {
			t.Errorf("%q: kept %s, want %s", change, got, want)
		}
	}
}
