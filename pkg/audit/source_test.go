package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// numbers is a source of numbered events. A position is a number.
type numbers struct {
	last, size int
	fails      int // so many reads fail first
	lostAfter  int // a loss follows this event
	at         int
}

func (n *numbers) Name() string { return "numbers" }
func (n *numbers) Close()       {}

func (n *numbers) Read(ctx context.Context, after json.RawMessage) (*Batch, error) {
	if n.fails > 0 {
		n.fails--
		return nil, errors.New("not now")
	}
	if n.at == 0 && len(after) > 0 {
		if err := json.Unmarshal(after, &n.at); err != nil {
			return nil, err
		}
	}
	if n.at == n.last {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	batch := &Batch{}
	for range min(3, n.last-n.at) {
		n.at++
		batch.Add(
			[][]byte{fmt.Appendf(nil, `{"auditID":"%d","stage":"Panic","x":"%s"}`, n.at, strings.Repeat("x", n.size))},
			nil,
		)
		if n.at == n.lostAfter {
			batch.Lose(1, "gone")
			batch.Lose(2, "gone")
			batch.Lose(0, "perhaps")
		}
	}
	batch.Position = fmt.Appendf(nil, "%d", n.at)
	return batch, nil
}

// script is a source whose reads return what it says.
type script struct {
	batches []*Batch // nil for an error
}

func (s *script) Name() string { return "script" }
func (s *script) Close()       {}

func (s *script) Read(ctx context.Context, _ json.RawMessage) (*Batch, error) {
	if len(s.batches) == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	batch := s.batches[0]
	if s.batches = s.batches[1:]; batch == nil {
		return nil, errors.New("all of it")
	}
	return batch, nil
}

type importCounts struct {
	sync.Mutex
	events, lost, calls int64
	failing             []bool
	log                 bytes.Buffer
}

func (c *importCounts) Imported(events, lost int64, _ time.Duration) {
	c.Lock()
	defer c.Unlock()
	c.events, c.lost, c.calls = c.events+events, c.lost+lost, c.calls+1
}

// watched is a source that notes, before each read, whether the status says that it is failing.
type watched struct {
	Source
	counts *importCounts
	status func() []SourceStatus
}

func (w *watched) Read(ctx context.Context, after json.RawMessage) (*Batch, error) {
	all := w.counts.failing
	if failing := w.status()[0].Err != nil; failing != (len(all) > 0 && all[len(all)-1]) {
		w.counts.failing = append(all, failing)
	}
	return w.Source.Read(ctx, after)
}

// importing runs an importer until the time is over.
func importing(t *testing.T, j *Journal, source Source, d time.Duration) *importCounts {
	t.Helper()
	counts := new(importCounts)
	w := &watched{Source: source, counts: counts}
	i := NewImporter(ImporterOptions{
		Journal: j, Sources: []Source{w}, Logger: slog.New(slog.NewTextHandler(&counts.log, nil)), Observer: counts,
	})
	w.status = i.Status
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if err := i.Run(ctx); err != nil {
		t.Error(err)
	}
	if s := i.Status()[0]; s.Name != source.Name() || s.Events != counts.events || s.Err == nil && !s.Since.IsZero() {
		t.Errorf("status %+v, counted %+v", s, counts)
	}
	return counts
}

// contents returns the auditIDs and the losses in a journal.
func contents(t *testing.T, j *Journal) (all []string) {
	t.Helper()
	for next := j.Status().Acked + 1; next <= j.Status().Last; {
		records, err := j.Read(t.Context(), next, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if next = r.Last + 1; r.Err != nil {
				all = append(all, fmt.Sprintf("%d lost: %v", r.Lost, r.Err))
				continue
			}
			all = append(all, r.Event.AuditID)
		}
	}
	return all
}

// An importer brings all events of a source to the journal, and continues at the same place after a restart. If the
// position was not stored, events are imported again.
func TestImport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "audit")
		j := openJournal(t, dir)
		counts := importing(t, j, &numbers{last: 4, fails: 2, lostAfter: 2}, time.Minute)
		if counts.events != 4 || counts.lost != 4 || fmt.Sprint(counts.failing) != "[true false]" {
			t.Errorf("counted %+v", counts)
		}
		if !strings.Contains(counts.log.String(), "audit events are lost") {
			t.Errorf("the loss is not logged: %s", counts.log.String())
		}
		importing(t, j, &numbers{last: 6}, time.Minute)
		want := "1 2 3 lost: gone 0 lost: perhaps 3 4 5 6"
		if got := strings.Join(contents(t, j), " "); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if err := os.Remove(filepath.Join(dir, positionsName)); err != nil {
			t.Fatal(err)
		}
		importing(t, j, &numbers{last: 1}, time.Minute)
		if got := strings.Join(contents(t, j), " "); got != want+" 1" {
			t.Errorf("got  %s\nwant %s 1", got, want)
		}
	})
}

// A source that fails in part is failing, and what it has is stored. It is not failing any more when it can be read, even
// if it has no events.
func TestImportInPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openJournal(t, filepath.Join(t.TempDir(), "audit"))
		batch := func(err error, ids ...string) *Batch {
			b := &Batch{Position: json.RawMessage("1"), Err: err}
			for _, id := range ids {
				b.Add([][]byte{fmt.Appendf(nil, `{"auditID":%q,"stage":"Panic"}`, id)}, nil)
			}
			return b
		}
		failed := errors.New("a part")
		counts := importing(
			t, j, &script{batches: []*Batch{batch(failed, "a"), batch(failed, "b"), nil, batch(nil)}}, time.Minute,
		)
		if fmt.Sprint(counts.failing) != "[true false]" || counts.events != 2 || counts.calls != 2 {
			t.Errorf("counted %+v", counts)
		}
		if got := strings.Join(contents(t, j), " "); got != "a b" {
			t.Errorf("got %s", got)
		}
	})
}

// While the journal is full, the importer waits, and loses nothing. An event for which there is never room is lost.
func TestImportWhileFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openJournal(t, filepath.Join(t.TempDir(), "audit"), func(o *JournalOptions) { o.MaxBytes = 16 << 20 })
		counts := importing(t, j, &numbers{last: 1, size: 9 << 20}, time.Minute)
		if counts.events != 0 || counts.lost != 1 {
			t.Errorf("counted %+v", counts)
		}
		importing(t, j, &numbers{last: 40, size: 1 << 20}, time.Minute)
		waits := contents(t, j)
		if len(waits) < 10 || len(waits) > 16 || !strings.Contains(waits[0], "no room") {
			t.Fatalf("in the journal: %v", waits)
		}
		all := waits
		for range 10 {
			if err := j.Ack(j.Status().Last); err != nil {
				t.Fatal(err)
			}
			importing(t, j, &numbers{last: 40, size: 1 << 20}, time.Minute)
			all = append(all, contents(t, j)...)
		}
		seen := map[string]bool{}
		for _, id := range all {
			seen[id] = true
		}
		if len(seen) != 40 {
			t.Errorf("%d of 40 are there", len(seen))
		}
	})
}

// What a line of a file and a message can contain.
func TestParseValue(t *testing.T) {
	const event = `{"auditID":"a","stage":"Panic"}`
	typed := `{"kind":"Event","apiVersion":"audit.k8s.io/v1","auditID":"a","stage":"Panic"}`
	for value, want := range map[string]string{
		"":           "",
		" \n":        "",
		event:        event,
		typed + "\n": typed,
		`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + event + "," + event + `]}`: event + event,
		`{"specversion":"1.0","type":"dev.deltabridge.audit","data":` + typed + `}`:                 typed,
		`{"specversion":"1.0","type":"dev.deltabridge.gap","data":{"message":"m","events":3}}`:      "lost 3 m",
		`{"specversion":"1.0","type":"dev.deltabridge.gap","data":3}`:                               "lost 0 the bridge that has sent the audit events has announced a gap",
		`{"specversion":"1.0","type":"x","data":` + event + `}`:                                     "a CloudEvent, but not of the type dev.deltabridge.audit",
		`{"specversion":"1.0","type":"dev.deltabridge.audit"}`:                                      "a CloudEvent without an audit event in its data",
		`{"specversion":"1.0","type":"dev.deltabridge.audit","data":{"specversion":"1.0"}}`:         "a CloudEvent without an audit event in its data",
		`{"kind":"Event","apiVersion":"audit.k8s.io/v1beta1","auditID":"a","stage":"Panic"}`:        "neither an Event nor an EventList of audit.k8s.io/v1",
		`{"kind":"Pod"}`:                       "neither an Event nor an EventList of audit.k8s.io/v1",
		`{"kind":"EventList","items":[]}`:      "not an EventList of audit.k8s.io/v1",
		`{"log":"x"}`:                          "an audit event has no auditID",
		`{"auditID":"a"}`:                      "an audit event has no stage",
		event + event:                          "not valid JSON",
		event[:10]:                             "not valid JSON",
		"[" + event + "]":                      "not valid JSON",
		`{"auditID":"a","stage":"Panic","x":}`: "not valid JSON",
		"null":                                 "not valid JSON",
		`{"lost":{"events":1,"message":"x"}}`:  "an audit event has no auditID",
	} {
		events, lost, err := ParseValue([]byte(value))
		got := ""
		for _, raw := range events {
			got += string(raw)
		}
		if lost != nil {
			got += fmt.Sprintf("lost %d %s", lost.Events, lost.Message)
		}
		if err != nil {
			got += err.Error()
		}
		if got != want {
			t.Errorf("%s: got  %s\nwant %s", value, got, want)
		}
	}
}
