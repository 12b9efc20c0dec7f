package engine

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/files"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

var podsV1 = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// formatState is the content of a state directory in testdata.
type formatState struct {
	States  []ledger.State
	Rows    []string
	Sink    string // the destination of the sink
	Waiting map[string]any
	Parked  map[string]any
}

func formatObject(t *testing.T) *object.Object {
	t.Helper()
	o, err := object.New([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop",` +
		`"uid":"u-1","resourceVersion":"17","labels":{"filler":"` + strings.Repeat("0123456789", 100) + `"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// formatMessage is an event with as many of the stored fields as possible.
func formatMessage(t *testing.T) *event.Message {
	t.Helper()
	key, err := event.ParseTemplate("{resource}/{name}", event.EscapeNone)
	if err != nil {
		t.Fatal(err)
	}
	e := &event.Encoder{Cluster: "prod", PartitionKey: key}
	m, err := e.Encode(event.Event{
		Type: event.Added, Resource: podsV1, Object: formatObject(t), InitialList: true,
		Time: time.Date(2026, 11, 23, 9, 15, 0, 0, time.UTC),
	})
	if err != nil {
		t.Fatal(err)
	}
	m.ClusterUID, m.Epoch = "c-1", "e1"
	m.Origin = event.Origin{Source: "pods", Position: "16"}
	return m
}

func describe(m *event.Message) map[string]any {
	return map[string]any{
		"attributes": maps.Collect(m.Attributes), "data": string(m.Data), "key": m.PartitionKey, "order": m.Key(),
		"epoch": m.Epoch, "source": m.Origin.Source, "position": m.Origin.Position,
	}
}

func formatQueue(t *testing.T, dir string) *fifo.Queue[*event.Message] {
	t.Helper()
	q, err := fifo.New(fifo.Options[*event.Message]{
		Path: filepath.Join(dir, "spill-live"), MaxItems: 10, MaxBytes: 1 << 20,
		Size:      (*event.Message).Size,
		Encode:    func(dst []byte, m *event.Message) ([]byte, error) { return m.AppendStored(dst) },
		Decode:    func(data []byte, _ bool) (*event.Message, error) { return event.ParseStored(data) },
		Mark:      func(m *event.Message) (source, position string) { return m.Origin.Source, m.Origin.Position },
		OnSettled: func([]*event.Message) {},
		Receipt:   func(m *event.Message) *event.Message { return m },
		OnCorrupt: func(l fifo.Loss) []*event.Message { t.Errorf("lost: %v", l.Err); return nil },
		Since:     func(m *event.Message) time.Time { return m.Time },
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

// formatFiles opens the stores in a state directory.
func formatFiles(t *testing.T, dir string) (*checkpoint.Store, *parked.Store) {
	t.Helper()
	c, err := checkpoint.Open(checkpoint.Options{Path: dir, ClusterName: "prod", NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p, err := parked.Open(parked.Options{Dir: dir, Sink: "live"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return c, p
}

func wantedState(t *testing.T) formatState {
	t.Helper()
	m := describe(formatMessage(t))
	return formatState{
		States: []ledger.State{{
			Source: ledger.Source{Name: "pods", Resource: podsV1}, ResourceVersion: "17", Sinks: map[string]string{"live": "17"},
		}},
		Rows: []string{string(formatObject(t).Raw)}, Sink: "stream K8S", Waiting: m, Parked: m,
	}
}

// writeState writes the files of the state directory in the format of this version.
func writeState(t *testing.T, dir string) {
	t.Helper()
	want, m := wantedState(t), formatMessage(t)
	c, p := formatFiles(t, dir)
	_, _, watchErr := c.SetWatch("pods")
	if err := errors.Join(
		c.BeginCluster("c-1"), watchErr,
		c.Commit(
			[]ledger.Update{{State: want.States[0], Upserts: []*object.Object{formatObject(t)}}},
			map[string]string{"live": "all"}, nil,
		),
		c.SetDestination("live", want.Sink),
		p.Park([]parked.Parking{{Destination: "k8s.pods", Message: m}}),
	); err != nil {
		t.Fatal(err)
	}
	q := formatQueue(t, dir)
	ctx, stop := context.WithCancel(t.Context())
	if err := q.Push(ctx, m); err != nil {
		t.Fatal(err)
	}
	q.Close()
	stop()
	if err := errors.Join(q.Run(ctx), p.Close(), c.Close()); err != nil {
		t.Fatal(err)
	}
}

func readState(t *testing.T, dir string) (got formatState) {
	t.Helper()
	c, p := formatFiles(t, dir)
	var err error
	if got.States, err = c.States(); err != nil || len(got.States) != 1 {
		t.Fatal(got.States, err)
	}
	_, rows, err := c.Load("pods")
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range rows {
		raw, err := c.Fetch("pods", o.Key(), o.Identity)
		if err != nil {
			t.Fatal(err)
		}
		got.Rows = append(got.Rows, string(raw))
	}
	got.Sink = c.Destination("live")
	head, err := p.Head("k8s.pods", 10, 1<<20)
	if err != nil || len(head) != 1 {
		t.Fatal(head, err)
	}
	waiting, err := formatQueue(t, dir).Take(t.Context(), nil, 10, 1<<20)
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	got.Waiting, got.Parked = describe(waiting[0]), describe(head[0].Message)
	return got
}

// Files that a version with the same or an older format has written are read. testdata has a state directory of the
// first version with each format; a new one is only written if there is none.
func TestFilesOfEachFormat(t *testing.T) {
	for format := 1; format <= files.Format; format++ {
		file := filepath.Join("testdata", fmt.Sprintf("format-%d.zip", format))
		if _, err := os.Stat(file); *update && format == files.Format && errors.Is(err, fs.ErrNotExist) {
			dir := t.TempDir()
			writeState(t, dir)
			var data bytes.Buffer
			archive := zip.NewWriter(&data)
			err := errors.Join(archive.AddFS(os.DirFS(dir)), archive.Close(), os.MkdirAll("testdata", 0o755))
			if err = errors.Join(err, os.WriteFile(file, data.Bytes(), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		archive, err := zip.OpenReader(file)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if err := errors.Join(os.CopyFS(dir, archive), archive.Close()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(wantedState(t), readState(t, dir)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", file, diff)
		}
	}
}
