package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/reload"
	"github.com/deltabridge/deltabridge/internal/replica"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

// serveLease starts an API server that has the namespace kube-system and a Lease, and nothing else. read receives a
// value when it is asked for anything else, which only an engine does.
func serveLease(t *testing.T, read chan<- struct{}) *httptest.Server {
	t.Helper()
	var lease []byte
	var encoding string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api/v1/namespaces/kube-system":
			_, _ = io.WriteString(w, `{"kind":"Namespace","metadata":{"name":"kube-system","uid":"a","resourceVersion":"1"}}`)
		case !strings.Contains(r.URL.Path, "/leases"):
			select {
			case read <- struct{}{}:
			default:
			}
			w.WriteHeader(http.StatusNotFound)
		case r.Method != http.MethodGet:
			lease, _ = io.ReadAll(r.Body)
			encoding = r.Header.Get("Content-Type")
			w.Header().Set("Content-Type", encoding)
			_, _ = w.Write(lease)
		case lease == nil || r.URL.Query().Has("watch"):
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		default:
			w.Header().Set("Content-Type", encoding)
			_, _ = w.Write(lease)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// A replica has started with an earlier configuration, and has loaded what the leader has, which redacts more. When it
// takes over, the rows of the checkpoint are redacted as the configuration in use says, also if it has loaded it while it
// was becoming the leader.
func TestRedactionOfAStandby(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("late: ", late), func(t *testing.T) { testRedactionOfAStandby(t, late) })
	}
}

func testRedactionOfAStandby(t *testing.T, late bool) {
	dir, read := t.TempDir(), make(chan struct{}, 1)
	server := serveLease(t, read)
	kubeconfig := writeFile(t, filepath.Join(dir, "kubeconfig"), fmt.Sprintf(
		`{"clusters": [{"name": "c", "cluster": {"server": %q}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`, server.URL))
	key := writeFile(t, filepath.Join(dir, "key"), strings.Repeat("0123456789abcdef", 4))
	text := fmt.Sprintf(`
kubeconfig: %q
redactionKeyFile: %q
http: {listen: "127.0.0.1:0"}
state: {path: %q, log: {nats: {url: "nats://127.0.0.1:1", stream: {name: S}}}}
sinks: [{name: lines, stdout: {}}]
`, kubeconfig, key, filepath.Join(dir, "state"))
	changed := text + "redact: [{resources: [configmaps], paths: [data.token]}]\n"
	parse := func(text string) *config.Config {
		cfg, err := config.Parse("test.yaml", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	var out syncBuffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	broker := logtest.NewBroker(true)
	open := func(cfg *config.Config, path string) *replica.Copy {
		state, err := assemble.Checkpoint(cfg, log)
		if err != nil {
			t.Fatal(err)
		}
		state.Path, state.NoSync = path, true
		c, err := replica.Open(replica.Options{Checkpoint: state, Log: broker.Open(), Patience: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	leader := open(parse(changed), t.TempDir())
	if err := errors.Join(leader.Lead(t.Context(), false), leader.Store().BeginCluster("a")); err != nil {
		t.Fatal(err)
	}
	for leader.NotReady() != nil { // a standby requires a complete pass
		ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_ = leader.Maintain(ctx)
		stop()
	}
	if err := leader.Close(); err != nil {
		t.Fatal(err)
	}

	cfg := parse(text)
	b := &bridge{Options: Options{Log: &out}, cfg: cfg, log: log}
	var err error
	if b.kube, err = assemble.Kubeconfig(cfg.Kubeconfig); err != nil {
		t.Fatal(err)
	}
	file := writeFile(t, filepath.Join(dir, "bridge.yaml"), text)
	if b.reload, err = reload.New(reload.Options{
		File: file, Config: cfg, Name: "b", Level: new(slog.LevelVar), Logger: log,
		Build: func(cfg *config.Config) (engine.Options, error) { return assemble.Options(cfg, b.kube, "", log) },
	}); err != nil {
		t.Fatal(err)
	}
	if b.server, err = newFrontend(cfg, "b", "", b.kube, b.reload, log); err != nil {
		t.Fatal(err)
	}
	defer b.server.listener.Close()
	c := open(cfg, cfg.State.Path)
	b.reload.Follow(c)
	load := sync.OnceFunc(func() {
		writeFile(t, file, changed)
		w := httptest.NewRecorder()
		if b.reload.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/", nil)); w.Code != http.StatusOK {
			t.Error(w.Body)
		}
	})
	if !late {
		load()
	}
	candidate, err := b.candidate("b", config.Lease{Namespace: "n", Name: "l"}, c.Eligible)
	if err != nil {
		t.Fatal(err)
	}
	client, err := informer.NewClient(b.kube)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	terms := b.terms(c, candidate, client)
	identify, calls := terms.Cluster, 0
	terms.Cluster = func(ctx context.Context) (string, error) {
		if calls++; calls == 2 { // this process holds the Lease
			load()
		}
		return identify(ctx)
	}
	go func() { ended <- c.Run(ctx, terms) }()
	select {
	case <-read:
	case <-time.After(time.Minute):
		t.Error("it does not take over")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	const rewritten = "what is redacted has changed"
	before := strings.Count(out.String(), rewritten)
	if before > 0 && !late {
		t.Error("the rows were redacted in another way than the leader had redacted them")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	next := open(parse(changed), cfg.State.Path)
	defer next.Close()
	if err := next.Lead(t.Context(), false); err != nil {
		t.Error(err)
	}
	if strings.Count(out.String(), rewritten) > before {
		t.Error("the rows were not redacted as the configuration in use says")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
