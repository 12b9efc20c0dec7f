package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/tracker"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// If the checkpoint belongs to another cluster, what waits on disk is sent with the identity of that checkpoint. Then
// the bridge begins again with a new checkpoint in the same process, but not a second time.
func TestCheckpointOfAnotherCluster(t *testing.T) {
	for name, uids := range map[string][]string{"once": {"b"}, "twice": {"b", "c", "d"}} {
		t.Run(name, func(t *testing.T) {
			identified := make(chan struct{}, 1000) // receives a value when the bridge asks for anything but the cluster's uid
			cfg := configAt(t, uids, identified)
			before := leaveState(t, cfg.State.Path)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var out syncBuffer
			ended := make(chan error, 1)
			go func() { ended <- Run(ctx, Options{Config: cfg, Events: &out, Log: &out}) }()
			var err error
			select {
			case <-identified:
				if page := metricsAt(t, out.String()); !strings.Contains(page, "deltabridge_checkpoint_refused_total 1\n") {
					t.Errorf("the metrics do not show that a checkpoint was quarantined:\n%s", page)
				}
				cancel()
				err = <-ended
			case err = <-ended:
			}
			clusters := min(2, len(uids))
			if errors.Is(err, tracker.ErrOtherCluster) != (clusters > 1) || err != nil && clusters == 1 {
				t.Error(err)
			}
			log := out.String()
			for text, want := range map[string]int{
				"starting bridge": 1, "starting again": 1, "checkpoint quarantined": clusters, "pods shop/web": 1,
			} {
				if n := strings.Count(log, text); n != want {
					t.Errorf("%q %d times, want %d", text, n, want)
				}
			}
			if strings.Index(log, "pods shop/web") > strings.Index(log, "starting again") {
				t.Error("the event on disk was sent with the identity of the new checkpoint")
			}
			after, uid := identity(t, cfg.State.Path, "")
			if after == before || uid != uids[clusters-1] {
				t.Errorf("the checkpoint of %s has the identity %s, before it was %s", uid, after, before)
			}
			if t.Failed() {
				t.Log(log)
			}
		})
	}
}

// configAt returns the configuration of a bridge. The uid of its cluster is another one of uids at each request, and the
// last one in the end.
func configAt(t *testing.T, uids []string, identified chan<- struct{}) *config.Config {
	t.Helper()
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/namespaces/kube-system" {
			identified <- struct{}{}
			w.WriteHeader(http.StatusNotFound)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		_, _ = fmt.Fprintf(
			w,
			`{"kind":"Namespace","metadata":{"name":"kube-system","uid":%q,"resourceVersion":"1"}}`,
			uids[0],
		)
		uids = uids[min(1, len(uids)-1):]
	}))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	kubeconfig := writeFile(
		t,
		filepath.Join(dir, "kubeconfig"),
		fmt.Sprintf(`{"clusters": [{"name": "c", "cluster": {"server": %q}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`, server.URL),
	)
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
kubeconfig: %q
http: {listen: "127.0.0.1:0"}
state: {path: %q}
sinks: [{name: lines, stdout: {}}]
`, kubeconfig, filepath.Join(dir, "state")))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// leaveState writes the state of a bridge of another cluster, which has left an event on disk. It returns the identity
// of the checkpoint.
func leaveState(t *testing.T, dir string) (installation string) {
	t.Helper()
	installation, _ = identity(t, dir, "a")
	q, err := fifo.New(fifo.Options[*event.Message]{
		Path: filepath.Join(dir, "spill-lines"), MaxItems: 10, MaxBytes: 1 << 20,
		Size:      (*event.Message).Size,
		Encode:    func(dst []byte, m *event.Message) ([]byte, error) { return m.AppendStored(dst) },
		Decode:    func(data []byte, _ bool) (*event.Message, error) { return event.ParseStored(data) },
		Mark:      func(m *event.Message) (source, position string) { return "a/" + m.Origin.Source, m.Origin.Position },
		OnSettled: func([]*event.Message) {},
		Receipt:   func(m *event.Message) *event.Message { return m },
		Since:     func(m *event.Message) time.Time { return m.Time },
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	o, err := object.New([]byte(
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"17"}}`))
	if err != nil {
		t.Fatal(err)
	}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	m, err := (&event.Encoder{Cluster: "c"}).Encode(event.Event{
		Type: event.Added, Resource: pods, Object: o, Time: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Origin = event.Origin{Source: "pods", Position: "17"}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if err := q.Push(ctx, m); err != nil {
		t.Fatal(err)
	}
	q.Close()
	stop()
	if err := q.Run(ctx); err != nil {
		t.Fatal(err)
	}
	return installation
}

// identity returns the identity and the cluster of the checkpoint in a directory. If uid is not empty, it becomes the
// uid of the cluster.
func identity(t *testing.T, dir, uid string) (installation, cluster string) {
	t.Helper()
	store, err := checkpoint.Open(checkpoint.Options{Path: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if uid != "" {
		if err := store.BeginCluster(uid); err != nil {
			t.Fatal(err)
		}
	}
	return store.Installation(), store.ClusterUID()
}

// metricsAt returns the metrics of the bridge that has written the log.
func metricsAt(t *testing.T, log string) string {
	t.Helper()
	_, address, _ := strings.Cut(log[strings.LastIndex(log, "starting bridge"):], "http=")
	address, _, _ = strings.Cut(address, " ")
	_, page := getPage(t, "http://"+address+"/metrics")
	return page
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
