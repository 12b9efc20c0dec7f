package logfile

import (
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// writer writes a log as an API server does, and rotates it as lumberjack does.
type writer struct {
	t       testing.TB
	path    string
	clock   time.Time
	written int // number of events
	// The backups, the oldest first, without .gz, and the log itself: the events of each file.
	backups []string
	events  map[string][]int
	halves  int // number of lines that are not complete
}

func newWriter(t testing.TB) *writer {
	w := &writer{
		t: t, path: filepath.Join(t.TempDir(), "audit.log"), events: map[string][]int{},
		clock: time.Date(2026, 11, 27, 6, 0, 0, 0, time.UTC),
	}
	w.append("")
	return w
}

func (w *writer) fatal(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *writer) append(text string) {
	w.t.Helper()
	file, err := os.OpenFile(w.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	w.fatal(err)
	_, err = file.WriteString(text)
	w.fatal(err)
	w.fatal(file.Close())
}

func line(n int) string {
	return fmt.Sprintf(`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"%d",`+
		`"stage":"ResponseComplete","requestURI":"/%s","verb":"get"}`, n, strings.Repeat("x", n*37%400)) + "\n"
}

// write appends events.
func (w *writer) write(n int) {
	w.t.Helper()
	for range n {
		w.written++
		w.append(line(w.written))
		w.events[w.path] = append(w.events[w.path], w.written)
	}
}

// half appends a part of a line, as if the API server was killed.
func (w *writer) half() {
	w.t.Helper()
	w.written++
	w.halves++
	w.append(line(w.written)[:40])
}

func (w *writer) rotate() {
	w.t.Helper()
	w.clock = w.clock.Add(time.Second)
	backup := strings.TrimSuffix(w.path, ".log") + "-" + w.clock.Format(stampFormat) + ".log"
	w.fatal(os.Rename(w.path, backup))
	w.backups = append(w.backups, backup)
	w.events[backup], w.events[w.path] = w.events[w.path], nil
}

// compress compresses a backup, up to a step: 0 leaves an incomplete file, 1 both, 2 only the compressed one.
func (w *writer) compress(backup string, step int) {
	w.t.Helper()
	text, err := os.ReadFile(backup)
	if err != nil {
		return // compressed already
	}
	file, err := os.Create(backup + ".gz")
	w.fatal(err)
	z := gzip.NewWriter(file)
	_, err = z.Write(text)
	w.fatal(err)
	w.fatal(z.Close())
	if step == 0 {
		info, err := file.Stat()
		w.fatal(err)
		w.fatal(file.Truncate(info.Size() / 2))
	}
	w.fatal(file.Close())
	if step == 2 {
		w.fatal(os.Remove(backup))
	}
}

// prune removes the oldest backup, and returns its events.
func (w *writer) prune() []int {
	w.t.Helper()
	backup := w.backups[0]
	w.backups = w.backups[1:]
	_ = os.Remove(backup)
	_ = os.Remove(backup + ".gz")
	return w.events[backup]
}

// truncate removes the content of the log, and returns its events.
func (w *writer) truncate() []int {
	w.t.Helper()
	w.fatal(os.Truncate(w.path, 0))
	events := w.events[w.path]
	w.events[w.path] = nil
	return events
}

// item is an event, or a loss.
type item struct {
	event int
	lost  string
}

func newReader(t testing.TB, path string, maxLine int) *Reader {
	r := New(Options{Path: path, MaxLine: cmp.Or(maxLine, audit.MaxBody), Logger: slog.New(slog.DiscardHandler)})
	r.poll = time.Millisecond
	return r
}

// pull reads everything that is there.
func pull(t testing.TB, r *Reader, after json.RawMessage) (items []item, position json.RawMessage) {
	t.Helper()
	if !r.started {
		r.stored = after
	}
	batch := &audit.Batch{}
	for atEnd := false; !atEnd; {
		var err error
		if atEnd, err = r.step(batch); err != nil {
			t.Fatal(err)
		}
		if batch.Bytes() >= batchBytes {
			t.Fatal("too much for one batch")
		}
	}
	position, err := json.Marshal(r.at.position())
	if err != nil {
		t.Fatal(err)
	}
	return itemsOf(t, batch), position
}

func itemsOf(t testing.TB, batch *audit.Batch) (items []item) {
	t.Helper()
	for raw, lost := range batch.All() {
		if lost != nil {
			items = append(items, item{lost: lost.Message})
			continue
		}
		var e struct {
			AuditID int `json:"auditID,string"`
		}
		if err := json.Unmarshal(raw, &e); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		items = append(items, item{event: e.AuditID})
	}
	return items
}
