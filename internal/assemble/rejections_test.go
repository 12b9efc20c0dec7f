package assemble

import (
	"log/slog"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// What the configuration says of refused events gets to the drain.
func TestRefusalsOfTheConfiguration(t *testing.T) {
	for text, want := range map[string]struct {
		mode            sinks.Outcome
		claims, letters bool
		closers         int
	}{
		`nats: {url: "nats://a:4222"}`:                                                                                                 {mode: sinks.OutcomeMetadata},
		`oversize: gap, nats: {url: "nats://a:4222"}`:                                                                                  {mode: sinks.OutcomeGap},
		`oversize: claimCheck, claimCheck: {bucket: b}, nats: {url: "nats://a:4222"}`:                                                  {mode: sinks.OutcomeClaimCheck, claims: true},
		`oversize: claimCheck, claimCheck: {bucket: b, nats: {url: "nats://b:4222"}}, kafka: {brokers: ["a:9092"]}`:                    {mode: sinks.OutcomeClaimCheck, claims: true, closers: 1},
		`oversize: deadLetter, deadLetter: {topic: dead}, kafka: {brokers: ["a:9092"]}`:                                                {mode: sinks.OutcomeDeadLetter, letters: true, closers: 1},
		`deadLetter: {topic: dead}, kafka: {brokers: ["a:9092"], tombstones: true, createTopics: {config: {cleanup.policy: compact}}}`: {mode: sinks.OutcomeMetadata, letters: true, closers: 1},
		`deadLetter: {subject: dead, stream: D}, nats: {url: "nats://a:4222", stream: {lastPerSubject: true, deletionsKeptFor: 1h}}`:   {mode: sinks.OutcomeMetadata, letters: true, closers: 1},
		`deadLetter: {subject: dead, stream: D}, nats: {url: "nats://a:4222", bucket: STATE}`:                                          {mode: sinks.OutcomeMetadata, letters: true, closers: 1},
		`deadLetter: {subject: dead, stream: D}, nats: {url: "nats://a:4222"}`:                                                         {mode: sinks.OutcomeMetadata, letters: true, closers: 1},
	} {
		cfg, err := config.Parse("bridge.yaml", []byte("sinks: [{name: a, "+text+"}]"))
		if err != nil {
			t.Fatal(err)
		}
		d, err := NewDestination(&cfg.Sinks[0], nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		r, err := d.Rejections(&cfg.Sinks[0])
		if err != nil || r.Oversize != want.mode || (r.Payloads != nil) != want.claims ||
			(r.DeadLetters != nil) != want.letters ||
			len(d.Closers) != want.closers {
			t.Errorf("%s: %+v with %d connections, %v", text, r, len(d.Closers), err)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
