package logfile

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/pkg/audit"
)

// events returns the items of consecutive events.
func events(from, to int) (items []item) {
	for n := from; n <= to; n++ {
		items = append(items, item{event: n})
	}
	return items
}

func lost(message string) []item { return []item{{lost: message}} }

func concat(parts ...[]item) (items []item) {
	for _, part := range parts {
		items = append(items, part...)
	}
	return items
}

// What a reader gets after a restart, depending on what has happened to the log since, and to its last line before.
func TestRestart(t *testing.T) {
	const removed = "a file of LOG was removed or truncated before all of it was read"
	for name, test := range map[string]struct {
		before func(w *writer) // then 10 events follow, which are read
		during func(w *writer) // then 1 event follows
		want   []item
	}{
		"nothing":           {during: func(*writer) {}, want: events(11, 11)},
		"more":              {during: func(w *writer) { w.write(5) }, want: events(11, 16)},
		"rotation":          {during: (*writer).rotate, want: events(11, 11)},
		"rotated, no log":   {during: func(w *writer) { w.write(3); w.rotate() }, want: events(11, 14)},
		"several rotations": {during: func(w *writer) { w.write(3); w.rotate(); w.write(3); w.rotate() }, want: events(11, 17)},
		"compressed": {during: func(w *writer) {
			w.write(3)
			w.rotate()
			w.compress(w.backups[0], 2)
			w.write(3)
			w.rotate()
			w.compress(w.backups[1], 2)
		}, want: events(11, 17)},
		"being compressed": {during: func(w *writer) {
			w.write(3)
			w.rotate()
			w.compress(w.backups[0], 0)
		}, want: events(11, 14)},
		"both": {during: func(w *writer) {
			w.write(3)
			w.rotate()
			w.compress(w.backups[0], 1)
		}, want: events(11, 14)},
		"removed": {during: func(w *writer) {
			w.write(3)
			w.rotate()
			w.write(2)
			w.prune()
		}, want: concat(lost(removed), events(14, 16))},
		"truncated": {
			before: func(w *writer) { w.write(2); w.rotate(); w.written = 0 },
			during: func(w *writer) { w.write(3); w.truncate() }, want: concat(lost(removed), events(14, 14)),
		},
		"half a line": {during: func(w *writer) {
			w.half()
			w.write(1)
		}, want: concat(lost("lines of LOG cannot be read: not valid JSON"), events(12, 13))},
		"half a line at the end": {during: func(w *writer) {
			w.half()
			w.rotate()
		}, want: concat(lost("lines of LOG cannot be read: not valid JSON"), events(12, 12))},
		"only the end of a line is missing": {during: func(w *writer) {
			w.written++
			w.append(strings.TrimSpace(line(w.written)))
			w.rotate()
		}, want: events(11, 12)},
		"zeros after a crash of the machine": {during: func(w *writer) {
			w.append(strings.Repeat("\x00", 3000))
		}, want: concat(lost("lines of LOG cannot be read: not valid JSON"), events(11, 11))},
		"garbage": {during: func(w *writer) {
			w.append("a\n\n{}\n[1]\n{\"a\":\n")
		}, want: concat(
			lost("lines of LOG cannot be read: not valid JSON"),
			lost("lines of LOG cannot be read: an audit event has no auditID"),
			lost("lines of LOG cannot be read: not valid JSON"), events(11, 11))},
		"too long": {during: func(w *writer) {
			w.append(strings.Repeat("y", 600<<10) + "\n")
		}, want: concat(lost("a line of LOG has more than 2000 bytes"), events(11, 11))},
		"damaged": {during: func(w *writer) {
			w.rotate()
			w.write(3)
			w.rotate()
			w.compress(w.backups[1], 0)
			w.fatal(os.Remove(w.backups[1]))
		}, want: concat(lost("the backup BACKUP is damaged: unexpected EOF"), events(14, 14))},
		"other files": {during: func(w *writer) {
			for _, name := range []string{"audit.log.1", "audit-x.log", "audit-2026-11-27T06-18-52.123.txt", "audit"} {
				w.fatal(os.WriteFile(filepath.Join(filepath.Dir(w.path), name), []byte(line(99)), 0o600))
			}
		}, want: events(11, 11)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWriter(t)
			if test.before != nil {
				test.before(w)
			}
			first := newReader(t, w.path, 0)
			if test.before != nil { // all before is read
				pull(t, first, nil)
			}
			w.write(10)
			_, at := pull(t, first, nil)
			first.Close()
			test.during(w)
			w.write(1)
			second := newReader(t, w.path, 2000)
			defer second.Close()
			got, at := pull(t, second, at)
			for n := range got {
				got[n].lost = strings.ReplaceAll(got[n].lost, w.path, "LOG")
				for _, backup := range w.backups {
					got[n].lost = strings.ReplaceAll(got[n].lost, backup+".gz", "BACKUP")
				}
			}
			for n := 1; n < len(got); n++ { // half a line that was damaged with zeros, and the like
				if got[n].lost != "" && got[n] == got[n-1] {
					got = append(got[:n], got[n+1:]...)
				}
			}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %v\nwant %v", got, test.want)
			}
			third := newReader(t, w.path, 2000)
			defer third.Close()
			if again, _ := pull(t, third, at); len(again) > 0 {
				t.Errorf("after another restart: %v", again)
			}
		})
	}
}

// Read waits for events, goes on with the file that follows, and returns at most about a megabyte at once.
func TestRead(t *testing.T) {
	w := newWriter(t)
	w.fatal(os.Remove(w.path))
	r := newReader(t, w.path, 0)
	defer r.Close()
	go func() { // the writer is used only by this goroutine
		<-time.After(5 * time.Millisecond) // the reader waits for the log
		for range 20 {
			w.write(400)
			w.rotate()
			w.compress(w.backups[len(w.backups)-1], 2)
		}
		w.write(1)
	}()
	var got []item
	var at json.RawMessage
	for len(got) < 8001 {
		batch, err := r.Read(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if batch.Len() == 0 || batch.Bytes() > batchBytes+1000 {
			t.Errorf("a batch of %d events and %d bytes", batch.Len(), batch.Bytes())
		}
		at, got = batch.Position, append(got, itemsOf(t, batch)...)
	}
	if !reflect.DeepEqual(got, events(1, 8001)) {
		t.Error("other events were read than were written")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if batch, err := r.Read(ctx, at); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("at the end: %v, %v", batch, err)
	}
}

// If nothing is written, Read says that the log can be read, with the place after everything that it has read.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWriter(t)
		w.write(2)
		r := newReader(t, w.path, 0)
		batch, err := r.Read(t.Context(), nil)
		if err != nil || batch.Len() != 2 {
			t.Fatalf("got %v, %v", batch, err)
		}
		w.rotate()
		w.append("\n")
		begin := time.Now()
		batch, err = r.Read(t.Context(), batch.Position)
		if took := time.Since(begin); err != nil || batch.Len() != 0 || took < audit.Idle || took > 2*audit.Idle {
			t.Fatalf("got %v, %v after %v", batch, err, took)
		}
		r.Close()
		w.prune()
		w.write(1)
		again := newReader(t, w.path, 0)
		defer again.Close()
		if got, _ := pull(t, again, batch.Position); !reflect.DeepEqual(got, events(3, 3)) {
			t.Errorf("got %v", got)
		}
	})
}

// A file that cannot be read is an error that says what to do, and is read when it can be.
func TestErrors(t *testing.T) {
	w := newWriter(t)
	w.write(3)
	w.fatal(os.Rename(w.path, w.path+"x"))
	w.fatal(os.Symlink(w.path, w.path)) // a loop
	r := newReader(t, w.path, 0)
	defer r.Close()
	for range 2 {
		if _, err := r.Read(t.Context(), nil); err == nil || !strings.Contains(err.Error(), w.path) {
			t.Fatalf("got %v", err)
		}
	}
	w.fatal(os.Rename(w.path+"x", w.path))
	batch, err := r.Read(t.Context(), nil)
	if err != nil || batch.Len() != 3 {
		t.Fatalf("got %v, %v", batch, err)
	}
	denied := explain(&os.PathError{Op: "open", Path: w.path, Err: os.ErrPermission})
	if !strings.Contains(denied.Error(), "runAsUser") || !errors.Is(denied, os.ErrPermission) {
		t.Error(denied)
	}
	if os.Getuid() == 0 {
		return // root may read everything
	}
	w.fatal(os.Chmod(w.path, 0))
	other := newReader(t, w.path, 0)
	if _, err := other.Read(t.Context(), nil); err == nil || err.Error() != denied.Error() {
		t.Errorf("got %v\nwant %v", err, denied)
	}
}

// If the last file that was read to its end does not exist any more, newer ones may have been removed too.
func TestRemovedUnread(t *testing.T) {
	w := newWriter(t)
	w.write(1)
	first := newReader(t, w.path, 0)
	defer first.Close()
	pull(t, first, nil)
	w.rotate()
	w.append("")
	if got, _ := pull(t, first, nil); len(got) > 0 {
		t.Fatal(got)
	}
	_, at := pull(t, first, nil)
	w.write(1)
	w.rotate()
	w.prune()
	w.prune()
	w.write(1)
	second := newReader(t, w.path, 0)
	defer second.Close()
	got, _ := pull(t, second, at)
	want := concat(lost("files of "+w.path+" were removed, perhaps before they were read"), events(3, 3))
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
}
