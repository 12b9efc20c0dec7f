package main

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// run --print has a line for each acknowledged event: when, what happened, to which object, and where it went.
func TestPrintedEvents(t *testing.T) {
	cfg, err := config.Parse("", []byte(`sinks: [
		{name: js, nats: {url: "nats://a:4222", subject: "k8s.{resource}.{name}"}}, {name: lines, stdout: {}}]`))
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 20, 15, 58, 31, 845_000_000, time.Local)
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	message := func(typ event.Type, left bool) *event.Message {
		m := &event.Message{Type: typ, Time: at, Resource: deployments, LeftFilter: left}
		if !typ.IsControl() {
			m.Identity = object.Identity{Namespace: "shop", Name: "web"}
		}
		return m
	}
	var out bytes.Buffer
	p := &printer{out: &out, places: assemble.Places(cfg)}
	for _, c := range []struct {
		sink string
		m    *event.Message
		want string
	}{
		{"js", message(event.Added, false), "15:58:31.845  added    deployments.apps shop/web  -> js: k8s.deployments.web\n"},
		{"js", message(event.Deleted, true), "15:58:31.845  left     deployments.apps shop/web  -> js: k8s.deployments.web\n"},
		{"lines", message(event.Updated, false), "15:58:31.845  updated  deployments.apps shop/web  -> lines\n"},
		{"lines", message(event.Gap, false), "15:58:31.845  gap      deployments.apps  -> lines\n"},
	} {
		out.Reset()
		if p.print(c.sink, c.m); out.String() != c.want {
			t.Errorf("got  %swant %s", out.String(), c.want)
		}
	}
	out.Reset()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { p.print("lines", message(event.Updated, false)) })
	}
	group.Wait()
	if lines := strings.Count(out.String(), " -> lines\n"); lines != 8 {
		t.Errorf("%d lines from 8 sinks at a time", lines)
	}
}

// The log has the configured format and level.
func TestLog(t *testing.T) {
	for _, c := range []struct {
		config.Log

		want string
	}{
		{config.Log{Level: "info", Format: "text"}, "level=INFO msg=kept n=1\n"},
		{config.Log{Level: "info", Format: config.LogJSON}, `"level":"INFO","msg":"kept","n":1}` + "\n"},
		{config.Log{Level: "error", Format: "text"}, ""},
	} {
		var out bytes.Buffer
		log := newLogger(&config.Config{Log: c.Log}, &out)
		log.Debug("left out")
		log.Info("kept", "n", 1)
		if !strings.HasSuffix(out.String(), c.want) || strings.Count(out.String(), "\n") != strings.Count(c.want, "\n") {
			t.Errorf("%+v: %q", c.Log, out.String())
		}
		if !log.Enabled(t.Context(), slog.LevelError) {
			t.Errorf("%+v: errors are not logged", c.Log)
		}
	}
}

// The server of --pprof prints its address, serves profiles there, and ends with the command.
func TestPprof(t *testing.T) {
	var out bytes.Buffer
	stop, err := servePprof(t.Context(), "127.0.0.1:0", &out)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	address, ok := strings.CutPrefix(strings.TrimSpace(out.String()), "pprof=")
	if !ok {
		t.Fatalf("printed %q", out.String())
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	get := func(path string) (int, string) {
		response, err := client.Get("http://" + address + path)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
	if code, body := get(
		"/debug/pprof/goroutine?debug=1",
	); code != http.StatusOK ||
		!strings.Contains(body, "goroutine profile:") {
		t.Errorf("%d %.100s", code, body)
	}
	if code, _ := get("/metrics"); code != http.StatusNotFound {
		t.Errorf("something other than profiles: %d", code)
	}
	if _, err := servePprof(t.Context(), address, io.Discard); err == nil || !strings.HasPrefix(err.Error(), "--pprof: ") {
		t.Errorf("an address that is in use: %v", err)
	}
	stop()
	if code, body := get("/debug/pprof/"); code != 0 {
		t.Errorf("the server has not ended: %d %.100s", code, body)
	}
}

// claim changes nothing unless it knows which cluster this is.
func TestClaimMistakes(t *testing.T) {
	file := stateConfig(t)
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", file+".none")
	for want, args := range map[string][]string{
		"--sink audit: there is no such sink; use one of lines": {"--config", file, "--sink", "audit"},
		"not in a Pod, and there is no kubeconfig":              {"--config", file},
		"no such file": {"--config", file + ".none"},
	} {
		if out, err := command(
			t,
			append([]string{"claim"}, args...)...); err == nil || !strings.Contains(err.Error(), want) ||
			out != "" {
			t.Errorf("%v: %q, %v, want %s", args, out, err, want)
		}
	}
}
