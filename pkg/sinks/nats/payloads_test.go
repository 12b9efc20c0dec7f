package nats_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
)

const maxPayload = 64 << 10

// smallBroker is a server whose limit is below that of a part of an object in an object store.
func smallBroker(t *testing.T) *broker {
	b := newBroker(t)
	b.Stop(t)
	b.opts.MaxPayload = maxPayload
	b.Start(t)
	return b
}

// large is version v of an object that the server does not take.
func large(name string, v int) *event.Message {
	m := sinktest.Message(name, v, 0)
	m.Data = fmt.Appendf(
		nil,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"a":%q}}`,
		name,
		strings.Repeat(fmt.Sprint(v), 4*maxPayload),
	)
	return m
}

// drained delivers messages through a drain.
func drained(t *testing.T, sink sinks.Sink, r sinks.Rejections, messages ...*event.Message) {
	t.Helper()
	q := sinktest.Queue(t, 1000)
	for _, m := range messages {
		if err := q.Push(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	q.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	d := &sinks.Drain{
		Sink: sink, Queue: q, Rejections: r, Parked: sinktest.OpenParked(t, t.TempDir()),
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if err := d.Run(ctx); err != nil {
		t.Fatal(err)
	}
}

// inStream tells of each message in the stream what it is, and checks what is told of a claim.
func inStream(t *testing.T, b *broker) (all []string) {
	t.Helper()
	for _, m := range b.messages(t) {
		h := m.Headers()
		text := h.Get("ce-id")
		for _, name := range []string{"ce-dataomitted", "ce-datasize", "ce-refused"} {
			if value := h.Get(name); value != "" {
				text += " " + value
			}
		}
		all = append(all, text)
	}
	return all
}

func TestOversizeModes(t *testing.T) {
	size := fmt.Sprint(len(large("a", 2).Data))
	tests := []struct {
		mode sinks.Outcome
		want string // in the place of a.2
	}{
		{sinks.OutcomeMetadata, "uid-a.1002 oversize " + size},
		{sinks.OutcomeClaimCheck, "uid-a.1002 oversize " + size},
		{sinks.OutcomeDeadLetter, "uid-a.1002.gap"},
		{sinks.OutcomeGap, "uid-a.1002.gap"},
	}
	for _, test := range tests {
		t.Run(string(test.mode), func(t *testing.T) {
			b := smallBroker(t)
			sink := connect(t, b)
			letters := newSink(t, b, func(cfg *nats.Config) {
				cfg.Subject, cfg.Stream = "dead.{name}", nats.StreamConfig{Name: "DEAD", Create: true}
			})
			big := large("a", 2)
			drained(t, sink, sinks.Rejections{
				Oversize: test.mode, Payloads: sink.PayloadStore(nats.PayloadConfig{Bucket: "claims", Create: true}),
				DeadLetters: &sinks.DeadLetterSink{Sink: letters, Where: "subject dead.{name}"},
			}, sinktest.Message("a", 1, 100), big, sinktest.Message("a", 3, 100), sinktest.Message("b", 1, 100))
			got := inStream(t, b)
			position := map[string]int{}
			for i, text := range got {
				position[text] = i + 1
			}
			if len(got) != 4 || position[test.want] == 0 ||
				position["uid-a.1003"] < position[test.want] && test.mode != sinks.OutcomeGap &&
					test.mode != sinks.OutcomeDeadLetter {
				t.Errorf("stream %q, want %q before a.3", got, test.want)
			}
			if test.mode == sinks.OutcomeClaimCheck {
				checkClaim(t, b, big)
			}
		})
	}
}

// checkClaim reads a claim back as a reader of the stream does.
func checkClaim(t *testing.T, b *broker, m *event.Message) {
	t.Helper()
	for _, got := range b.messages(t) {
		if got.Headers().Get("ce-id") != m.ID {
			continue
		}
		sum := sha256.Sum256(m.Data)
		digest := hex.EncodeToString(sum[:])
		name := m.UniqueID() + "." + digest[:16]
		if ref := got.Headers().Get("ce-dataref"); ref != "nats-object://claims/"+name {
			t.Errorf("dataref %q", ref)
		}
		if d := got.Headers().Get("ce-datadigest"); d != "sha256:"+digest {
			t.Errorf("digest %q", d)
		}
		store, err := b.js(t).ObjectStore(t.Context(), "claims")
		if err != nil {
			t.Fatal(err)
		}
		data, err := store.GetBytes(t.Context(), name)
		if err != nil || !bytes.Equal(data, m.Data) {
			t.Errorf("%d bytes of %d, %v", len(data), len(m.Data), err)
		}
		if want := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + m.Identity.Name + `"}}`; string(
			got.Data(),
		) != want {
			t.Errorf("data %s", got.Data())
		}
		return
	}
	t.Errorf("%s is not in the stream", m.ID)
}

// What a dead letter says in a stream of its own, where the stream of the events alone has the limit.
func TestDeadLetterSubject(t *testing.T) {
	b := newBroker(t)
	if _, err := b.js(t).
		CreateStream(t.Context(), jetstream.StreamConfig{Name: streamName, Subjects: []string{"k8s.>"}, MaxMsgSize: maxPayload}); err != nil {
		t.Fatal(err)
	}
	sink := connect(t, b)
	letters := newSink(t, b, func(cfg *nats.Config) {
		cfg.Subject, cfg.Stream = "dead.{name}", nats.StreamConfig{Name: "DEAD", Create: true}
	})
	big := large("a", 2)
	drained(
		t,
		sink,
		sinks.Rejections{
			Oversize:    sinks.OutcomeDeadLetter,
			DeadLetters: &sinks.DeadLetterSink{Sink: letters, Where: "subject dead.{name}"},
		},
		big,
	)
	stream, err := b.js(t).Stream(t.Context(), "DEAD")
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Subject != "dead.a" || m.Header.Get("ce-id") != big.ID || m.Header.Get("ce-refused") != "oversize" ||
		!strings.Contains(m.Header.Get("ce-refusedbecause"), "maximum%20message%20size") || !bytes.Equal(m.Data, big.Data) {
		t.Errorf("%s %v, %d bytes", m.Subject, m.Header, len(m.Data))
	}
	if gap := string(b.messages(t)[0].Data()); !strings.Contains(gap, `"deadLetter":"subject dead.{name}"`) {
		t.Errorf("%s", gap)
	}
}

// newSink makes a sink with an edited configuration, which ends with the test.
func newSink(t *testing.T, b *broker, edit func(*nats.Config)) *nats.Sink {
	t.Helper()
	cfg := b.config()
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	edit(&cfg)
	sink := nats.New(cfg)
	t.Cleanup(func() { _ = sink.Close(context.WithoutCancel(t.Context())) }) // the test is over
	return sink
}

// A claim that is stored again, as after a crash, is the one that is there; other data of the same event has another
// name. A store that is away, or missing, is an error that passes.
func TestPayloadsAgainAndAway(t *testing.T) {
	b := smallBroker(t)
	cfg := b.config()
	cfg.Logger = slog.New(slog.DiscardHandler)
	cfg.AckTimeout = time.Second
	claims := nats.NewPayloadStore(cfg, nats.PayloadConfig{Bucket: "claims"})
	t.Cleanup(func() { _ = claims.Close(context.WithoutCancel(t.Context())) }) // the test is over
	checked(t, claims, "claims does not exist")
	var known *sinks.ConnectError
	if _, _, err := claims.Store(
		t.Context(),
		large("a", 1),
	); !errors.As(err, &known) || sinks.IsPermanent(err) ||
		!strings.Contains(err.Error(), "claimCheck.create") {
		t.Errorf("no bucket: %v", err)
	}
	store, err := b.js(t).CreateObjectStore(t.Context(), jetstream.ObjectStoreConfig{Bucket: "claims", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	checked(t, claims, "objects are kept for 1h0m0s")
	keep := func(m *event.Message) string {
		t.Helper()
		ref, _, err := claims.Store(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		return ref
	}
	m := large("a", 1)
	first := keep(m)
	info := objects(t, store)
	other := *m
	other.Data = large("a", 2).Data
	refs := []string{keep(m), keep(&other)}
	if refs[0] != first || refs[1] == first {
		t.Errorf("%s, then %s", first, refs)
	}
	after := objects(t, store)
	if len(info) != 1 || len(after) != 2 || after[0].NUID != info[0].NUID && after[1].NUID != info[0].NUID {
		t.Errorf("the claim was written again: %v, then %v", info, after)
	}
	b.Stop(t)
	if _, _, err := claims.Store(t.Context(), large("b", 1)); err == nil || sinks.IsPermanent(err) {
		t.Errorf("the server is away: %v", err)
	}
	b.Start(t)
	for deadline := time.Now().Add(2 * time.Minute); ; {
		if _, _, err = claims.Store(t.Context(), large("b", 1)); err == nil || time.Now().After(deadline) {
			break
		}
	}
	if err != nil {
		t.Errorf("the server is back: %v", err)
	}
	if diff := cmp.Diff(3, len(objects(t, mustStore(t, b)))); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
}

func mustStore(t *testing.T, b *broker) jetstream.ObjectStore {
	t.Helper()
	store, err := b.js(t).ObjectStore(t.Context(), "claims")
	if err != nil {
		t.Fatal(err)
	}
	return store
}

func objects(t *testing.T, store jetstream.ObjectStore) []*jetstream.ObjectInfo {
	t.Helper()
	all, err := store.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// checked fails the test if the result of a check, which creates nothing, differs from want.
func checked(t *testing.T, payloads *nats.PayloadStore, want string) {
	t.Helper()
	findings := payloads.Check(t.Context())
	last := fmt.Sprintf("%+v", findings[len(findings)-1])
	if len(findings) < 2 || !strings.Contains(last, want) || !strings.Contains(last, "object store claims") {
		t.Errorf("%s", last)
	}
}

// A full bucket takes the description of an object and refuses its parts: that is no claim, however often it is tried.
// Nor is one of whose parts some are gone.
func TestPayloadsInAFullBucket(t *testing.T) {
	b := smallBroker(t)
	cfg := b.config()
	cfg.Logger = slog.New(slog.DiscardHandler)
	claims := nats.NewPayloadStore(cfg, nats.PayloadConfig{Bucket: "claims", Create: true, MaxBytes: 150 << 10})
	t.Cleanup(func() { _ = claims.Close(context.WithoutCancel(t.Context())) }) // the test is over
	m := large("a", 1)
	for range 3 {
		if ref, _, err := claims.Store(t.Context(), m); err == nil || sinks.IsPermanent(err) {
			t.Fatalf("%d bytes in a bucket of 150 KiB: %s, %v", len(m.Data), ref, err)
		}
	}
	if n := len(objects(t, mustStore(t, b))); n != 1 {
		t.Fatalf("%d objects are described, want the one that is not there", n)
	}
	stream, err := b.js(t).Stream(t.Context(), "OBJ_claims")
	if err != nil {
		t.Fatal(err)
	}
	wider := stream.CachedInfo().Config
	wider.MaxBytes = 1 << 20
	if stream, err = b.js(t).UpdateStream(t.Context(), wider); err != nil {
		t.Fatal(err)
	}
	stored := func() string {
		t.Helper()
		ref, _, err := claims.Store(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		data, err := mustStore(t, b).GetBytes(t.Context(), strings.TrimPrefix(ref, "nats-object://claims/"))
		if err != nil || !bytes.Equal(data, m.Data) {
			t.Errorf("%d bytes of %d, %v", len(data), len(m.Data), err)
		}
		return objects(t, mustStore(t, b))[0].NUID
	}
	first := stored()
	if again := stored(); again != first {
		t.Error("what is whole was written again")
	}
	part, err := stream.GetLastMsgForSubject(t.Context(), "$O.claims.C."+first)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.DeleteMsg(t.Context(), part.Sequence); err != nil {
		t.Fatal(err)
	}
	if again := stored(); again == first {
		t.Error("a part is missing, and it was not written again")
	}
}

// Dead letters of one event, of two sinks, lie side by side in a stream, and beside the event itself. One that is sent
// again is the same letter.
func TestDeadLettersHaveIDsOfTheirOwn(t *testing.T) {
	b := newBroker(t)
	m := sinktest.Message("a", 1, 100)
	for _, of := range []string{"live", "audit", "live"} {
		letters := newSink(t, b, func(cfg *nats.Config) { cfg.LettersOf = of })
		if _, err := (&sinks.DeadLetterSink{Sink: letters}).Keep(
			t.Context(),
			m,
			event.ReasonRefused,
			errors.New("no"),
		); err != nil {
			t.Fatal(err)
		}
	}
	drained(t, connect(t, b), sinks.Rejections{}, m)
	var ids []string
	for _, got := range b.messages(t) {
		ids = append(ids, got.Headers().Get("Nats-Msg-Id"))
		if id := got.Headers().Get("ce-id"); id != m.ID {
			t.Errorf("ce-id %q", id)
		}
	}
	if diff := cmp.Diff(
		[]string{m.UniqueID() + ".letter.live", m.UniqueID() + ".letter.audit", m.UniqueID()},
		ids,
	); diff != "" {
		t.Errorf("ids of messages (-want +got):\n%s", diff)
	}
}

// A bucket that goes missing is created again where the configuration says so.
func TestPayloadsInABucketThatWent(t *testing.T) {
	b := smallBroker(t)
	cfg := b.config()
	cfg.Logger = slog.New(slog.DiscardHandler)
	claims := nats.NewPayloadStore(cfg, nats.PayloadConfig{Bucket: "claims", Create: true, TTL: time.Hour})
	t.Cleanup(func() { _ = claims.Close(context.WithoutCancel(t.Context())) }) // the test is over
	checked(t, claims, "the bridge creates it")
	if _, _, err := claims.Store(t.Context(), large("a", 1)); err != nil {
		t.Fatal(err)
	}
	if err := b.js(t).DeleteObjectStore(t.Context(), "claims"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := claims.Store(t.Context(), large("a", 2)); err == nil || sinks.IsPermanent(err) {
		t.Errorf("the bucket is gone: %v", err)
	}
	if _, _, err := claims.Store(t.Context(), large("a", 2)); err != nil {
		t.Error(err)
	}
	status, err := mustStore(t, b).Status(t.Context())
	if err != nil || status.TTL() != time.Hour || len(objects(t, mustStore(t, b))) != 1 {
		t.Errorf("%v, %v", status, err)
	}
}
