package stdout_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/event"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	ourevent "github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// file is a destination: a buffer.
type file struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (f *file) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.buf.Write(p)
}

func (f *file) NewSink(testing.TB) sinks.Sink { return stdout.New(f) }

func (f *file) Records(t testing.TB) (out []sinktest.Record) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := bufio.NewScanner(bytes.NewReader(f.buf.Bytes()))
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var ev event.Event // the CloudEvents SDK's
		if err := json.Unmarshal(lines.Bytes(), &ev); err != nil {
			t.Fatalf("line %.300q: %v", lines.Text(), err)
		}
		attributes := map[string]string{
			"specversion": ev.SpecVersion(), "id": ev.ID(), "source": ev.Source(), "type": ev.Type(), "subject": ev.Subject(),
			"time": ev.Time().Format(time.RFC3339Nano), "datacontenttype": ev.DataContentType(),
		}
		if s := ev.DataSchema(); s != "" {
			attributes["dataschema"] = s
		}
		for name, value := range ev.Extensions() {
			attributes[name] = fmt.Sprint(value)
		}
		out = append(out, sinktest.Record{Attributes: attributes, Whole: true, Data: ev.Data()})
	}
	return out
}

func TestConformance(t *testing.T) {
	sinktest.Run(t, sinktest.Harness{New: func(*testing.T) sinktest.Destination { return &file{} }})
}

func messages(n int) (out []*ourevent.Message) {
	for i := range n {
		out = append(out, sinktest.Message(fmt.Sprint("o", i), 1, 200))
	}
	return out
}

// full takes so many bytes and then fails, as a full disk does.
type full struct {
	bytes.Buffer
	room int
	err  error
}

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	f.room -= n
	_, _ = f.Buffer.Write(p[:n])
	if n < len(p) {
		return n, f.err
	}
	return n, nil
}

// After a failure in the middle of a line the sink goes on at a new line.
func TestFullDisk(t *testing.T) {
	disk := &full{room: 2000, err: syscall.ENOSPC}
	sink := stdout.New(disk)
	batch := messages(10)
	results := make([]error, len(batch))
	sink.Send(t.Context(), batch, results)
	failed := 0
	for failed < len(results) && results[failed] == nil {
		failed++
	}
	if failed == 0 || failed >= 9 || !errors.Is(results[failed], syscall.ENOSPC) ||
		!errors.Is(results[9], sinks.ErrNotAttempted) {
		t.Fatalf("results: %v", results)
	}
	disk.room = 1 << 20
	sink.Send(t.Context(), batch[failed:], results[failed:])
	if err := errors.Join(results...); err != nil {
		t.Fatalf("with room again: %v", err)
	}
	var ids []string
	torn := 0
	for line := range strings.Lines(disk.String()) {
		var ev event.Event
		if json.Unmarshal([]byte(line), &ev) != nil {
			torn++
			continue
		}
		ids = append(ids, ev.ID())
	}
	var want []string
	for _, m := range batch {
		want = append(want, m.ID)
	}
	if diff := cmp.Diff(want, ids); diff != "" || torn != 1 {
		t.Errorf("%d torn lines, whole lines (-want +got):\n%s", torn, diff)
	}
}

func TestClosedPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	_ = r.Close()
	results := make([]error, 2)
	stdout.New(w).Send(t.Context(), messages(2), results)
	if !errors.Is(results[0], syscall.EPIPE) || !strings.Contains(results[0].Error(), "closed by the reading process") ||
		sinks.IsPermanent(results[0]) {
		t.Errorf("closed pipe: %v", results[0])
	}
}

// A reader that does not read can't hold Send up beyond its context, and loses nothing when it reads again.
func TestReaderThatHangs(t *testing.T) {
	r, w := io.Pipe()
	sink := stdout.New(w)
	batch := messages(3)
	results := make([]error, len(batch))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	sink.Send(ctx, batch, results)
	for i, err := range results {
		if err == nil || i == 0 && !sinks.IsMaybeWritten(err) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	if err := sink.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close with a write under way: %v", err)
	}
	var lines []string
	done := make(chan struct{})
	go func() {
		defer close(done)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines = append(lines, s.Text())
		}
	}()
	sink.Send(t.Context(), batch, results)
	if err := errors.Join(results...); err != nil {
		t.Fatalf("with a reader: %v", err)
	}
	if err := sink.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	_ = w.Close()
	<-done
	if len(lines) != 6 || lines[0] != lines[3] {
		t.Errorf("%d lines, want the three messages twice", len(lines))
	}
}

func TestOneLinePerEvent(t *testing.T) {
	var out bytes.Buffer
	m := sinktest.Message("o", 1, 0)
	m.Data = []byte("{\n  \"a\": \"b\\nc\"\r\n}")
	results := make([]error, 1)
	stdout.New(&out).Send(t.Context(), []*ourevent.Message{m}, results)
	if got := strings.Count(
		out.String(),
		"\n",
	); got != 1 || results[0] != nil ||
		!strings.Contains(out.String(), `{   "a": "b\nc"  }`) {
		t.Errorf("%v: %q", results[0], out.String())
	}
}
