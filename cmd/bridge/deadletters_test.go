package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/deadletter"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/test/natsserver"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// lettersOf fills the file of a sink with letters about ConfigMaps of some sizes, whose ids are u.1, u.2 and so on.
func lettersOf(t *testing.T, state, sink string, sizes ...int) *deadletter.Store {
	t.Helper()
	f := &deadletter.Store{Dir: filepath.Join(state, deadletter.Name(sink))}
	for n, size := range sizes {
		o, err := object.New(
			fmt.Appendf(
				nil,
				`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"big","namespace":"shop","uid":"u","resourceVersion":"%d"},"data":{"a":%q}}`,
				n+1,
				strings.Repeat("x", size),
			),
		)
		if err != nil {
			t.Fatal(err)
		}
		e := &event.Encoder{Cluster: "c"}
		m, err := e.Encode(
			event.Event{
				Type:     event.Updated,
				Object:   o,
				Time:     time.Now(),
				Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			},
		)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Keep(t.Context(), m, event.ReasonOversize, sinks.Permanent(sinks.ErrOversize)); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// smallServer is a JetStream server that takes messages of up to 20,000 bytes.
func smallServer(t *testing.T) (url string, js jetstream.JetStream) {
	t.Helper()
	opts := &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), MaxPayload: 20_000,
		NoLog: true, NoSigs: true,
	}
	_, stop := natsserver.Start(t, opts)
	t.Cleanup(stop)
	url = natsserver.ClientURL(opts)
	return url, natsserver.Connect(t, url)
}

func TestDeadLetters(t *testing.T) {
	url, js := smallServer(t)
	dir := t.TempDir()
	state, file := filepath.Join(dir, "state"), filepath.Join(dir, "bridge.yaml")
	sink := func(name, more string) string {
		return fmt.Sprintf(
			"  - name: %[1]s\n    deadLetter: {file: {}}\n    nats: {url: %[2]q, subject: \"%[1]s.{group}.{resource}.{namespace}.{name}\", stream: {name: %[1]s, create: true%[3]s}}\n",
			name,
			url,
			more,
		)
	}
	text := fmt.Sprintf(
		"cluster: c\nstate: {path: %q}\nsinks:\n",
		state,
	) + sink(
		"live",
		"",
	) + sink(
		"last",
		", lastPerSubject: true",
	) +
		"  - {name: topic, deadLetter: {topic: dead}, kafka: {brokers: [\"127.0.0.1:1\"]}}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) (string, error) {
		return command(t, append([]string{"dead-letters", args[0], "--config", file}, args[1:]...)...)
	}
	if out, err := run("list"); err != nil || strings.Count(out, "\n") != 1 {
		t.Errorf("none: %v\n%s", err, out)
	}
	if out, err := run("list", "-o", "json"); err != nil || out != "[]\n" {
		t.Errorf("none: %v\n%s", err, out)
	}
	live, last := lettersOf(t, state, "live", 100, 50_000, 200, 300), lettersOf(t, state, "last", 100)

	out, err := run("list")
	if err != nil || strings.Count(out, "\n") != 6 || !strings.Contains(out, "configmaps/shop/big") ||
		!strings.Contains(out, "  u.3\n") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run("list", "--sink", "live", "-o", "json")
	var entries []struct {
		Sink, ID, Subject, Operation, Reason, Error string
		Bytes                                       int
	}
	if err != nil || json.Unmarshal([]byte(out), &entries) != nil || len(entries) != 4 {
		t.Fatalf("%v\n%s", err, out)
	}
	if e := entries[1]; e.Sink != "live" || e.ID != "u.2" || e.Subject != "configmaps/shop/big" ||
		e.Operation != "updated" ||
		e.Reason != "oversize" ||
		e.Error == "" ||
		e.Bytes < 50_000 {
		t.Errorf("%+v", e)
	}
	out, err = run("show", "u.2")
	if err != nil || !strings.Contains(out, "\nresourceversion: 2\n") ||
		!strings.Contains(out, strings.Repeat("x", 50_000)) ||
		!strings.Contains(out, "sink:     live\n") {
		t.Errorf("%v\n%.2000s", err, out)
	}
	if _, err := command(t, "dead-letters", "list"); !errors.Is(err, errNoConfig) {
		t.Errorf("%v", err)
	}
	t.Setenv(configVariable, file)
	if inPod, err := command(t, "dead-letters", "show", "u.2"); err != nil || inPod != out {
		t.Errorf("%v\n%.2000s", err, inPod)
	}
	for _, mistake := range []struct {
		args []string
		want string
	}{
		{[]string{"list", "--sink", "none"}, "no such sink"},
		{[]string{"list", "-o", "xml"}, "must be table or json"},
		{[]string{"show", "u.1"}, "of several sinks: choose one with --sink (live, last)"},
		{[]string{"show", "u.9"}, "no such dead letter: u.9"},
		{[]string{"drop"}, "or --all"},
		{[]string{"resend", "--all", "u.1"}, "or --all"},
		{[]string{"resend", "--sink", "last", "--all"}, "--force"},
		{[]string{"resend", "--all"}, "--force"}, // nor is anything sent to the others
	} {
		if _, err := run(mistake.args...); err == nil || !strings.Contains(err.Error(), mistake.want) {
			t.Errorf("%v: %v, want %q", mistake.args, err, mistake.want)
		}
	}
	if n, _, err := live.Stats(); n != 4 || err != nil {
		t.Fatalf("%d letters, %v", n, err)
	}
	if out, err = run("drop", "--sink", "live", "u.4"); err != nil || out != "live  u.4  dropped\n" {
		t.Errorf("%v\n%s", err, out)
	}

	out, err = run("resend", "--sink", "live", "--all")
	known, ok := errors.AsType[*exitError](err)
	if !ok || known.code != exitPartly || !strings.Contains(err.Error(), "1 of 3 events were rejected again") {
		t.Errorf("%v", err)
	}
	if !strings.Contains(out, "live  u.1  re-sent\nlive  u.2  still rejected: ") ||
		!strings.Contains(out, "max_payload") ||
		!strings.Contains(out, "\nlive  u.3  re-sent\n") {
		t.Errorf("%s", out)
	}
	if letters, err := live.List(); err != nil || len(letters) != 1 || letters[0].ID != "u.2" {
		t.Errorf("left: %+v, %v", letters, err)
	}
	stream, err := js.Stream(t.Context(), "live")
	if err != nil {
		t.Fatal(err)
	}
	m, err := stream.GetMsg(t.Context(), 2)
	if err != nil || m.Header.Get("ce-id") != "u.3" || m.Header.Get("ce-resent") != "true" ||
		m.Header.Get("Nats-Msg-Id") != path.Base(m.Header.Get("ce-source"))+"/u.3" {
		t.Errorf("%v, %v", m, err)
	}
	if out, err = run("resend", "--sink", "last", "--force", "u.1"); err != nil || out != "last  u.1  re-sent\n" {
		t.Errorf("%v\n%s", err, out)
	}
	if n, _, err := last.Stats(); n != 0 || err != nil {
		t.Errorf("%d letters, %v", n, err)
	}
}

// A letter that another command drops meanwhile is no reason to keep the others.
func TestResendWhatWasDroppedMeanwhile(t *testing.T) {
	url, _ := smallServer(t)
	cfg, err := config.Parse(
		"bridge.yaml",
		fmt.Appendf(nil, "sinks: [{name: live, nats: {url: %q, subject: \"live.{name}\", stream: {create: true}}}]", url),
	)
	if err != nil {
		t.Fatal(err)
	}
	f := lettersOf(t, t.TempDir(), "live", 100, 100, 100)
	found, err := f.List()
	if err != nil {
		t.Fatal(err)
	}
	var letters []deadLetter
	for _, l := range found {
		letters = append(letters, deadLetter{"live", l, &cfg.Sinks[0], f})
	}
	if _, err := f.Drop("u.2"); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	o := &deadLetterOptions{stdout: &out, timeout: 20 * time.Second}
	sent, rejected, err := o.resendTo(t.Context(), letters)
	if sent != 2 || rejected != 0 || err != nil || out.String() != "live  u.1  re-sent\nlive  u.3  re-sent\n" {
		t.Errorf("%d sent, %d rejected, %v\n%s", sent, rejected, err, out.String())
	}
}

// What goes to a stream for dead letters is marked as that of its sink.
func TestLettersOfASink(t *testing.T) {
	url, js := smallServer(t)
	cfg, err := config.Parse(
		"bridge.yaml",
		fmt.Appendf(
			nil,
			"sinks: [{name: live, deadLetter: {subject: dead, stream: DEAD}, nats: {url: %q, stream: {create: true}}}]",
			url,
		),
	)
	if err != nil {
		t.Fatal(err)
	}
	letter, err := lettersOf(t, t.TempDir(), "live", 100).Get("u.1")
	if err != nil {
		t.Fatal(err)
	}
	d, err := assemble.NewDestination(&cfg.Sinks[0], nil, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer closeDestination(t.Context(), d)
	r, err := d.Rejections(&cfg.Sinks[0], t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.DeadLetters.Keep(t.Context(), letter.Message, event.ReasonRefused, sinks.ErrOversize); err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(t.Context(), "DEAD")
	if err != nil {
		t.Fatal(err)
	}
	if m, err := stream.GetMsg(
		t.Context(),
		1,
	); err != nil || m.Header.Get("Nats-Msg-Id") != path.Base(m.Header.Get("ce-source"))+"/u.1.letter.live" ||
		m.Header.Get("ce-id") != "u.1" {
		t.Errorf("%v, %v", m, err)
	}
}

// A destination that is away leaves everything where it is.
func TestResendToNobody(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "bridge.yaml")
	text := fmt.Sprintf(
		"state: {path: %q}\nsinks: [{name: live, deadLetter: {file: {}}, nats: {url: \"nats://127.0.0.1:1\", stream: {create: true}}}]\n",
		dir,
	)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	letters := lettersOf(t, dir, "live", 100)
	_, err := command(t, "dead-letters", "resend", "--config", file, "--all", "--timeout", "300ms")
	if _, rejected := errors.AsType[*exitError](
		err,
	); err == nil || rejected ||
		!strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	if n, _, err := letters.Stats(); n != 1 || err != nil {
		t.Errorf("%d letters, %v", n, err)
	}
}
