package natslog_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natslog"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

func TestConformance(t *testing.T) {
	url := startServer(t, func(o *server.Options) { o.MaxPayload = 1 << 17 })
	logs := 0
	logtest.Run(t, logtest.Harness{
		New: func(*testing.T) func(*testing.T) statelog.Log {
			logs++
			name := fmt.Sprint("LOG", logs)
			return func(t *testing.T) statelog.Log {
				return open(t, func(c *natslog.Config) { c.Stream.Name = name }, url)
			}
		},
		TooLarge: 1 << 17,
	})
}

// A process that was overtaken appends nothing, and continues after it has fenced again.
func TestStaleWriter(t *testing.T) {
	url := startServer(t, nil)
	first, second := open(t, nil, url), open(t, nil, url)
	stale := add(t, first, fence(t, first), "a1", "a2")
	end := add(t, second, fence(t, second), "b1")
	for range 2 {
		if _, err := first.Append(t.Context(), stale, []byte("a3")); !errors.Is(err, statelog.ErrConflict) {
			t.Errorf("stale append: %v", err)
		}
	}
	end = add(t, second, end, "b2")
	if got := fence(t, first); got != end {
		t.Errorf("fence %d, want %d", got, end)
	}
	end = add(t, first, end, "a3")
	if _, err := second.Append(t.Context(), end-1, []byte("b3")); !errors.Is(err, statelog.ErrConflict) {
		t.Errorf("stale append: %v", err)
	}
	expectLog(t, second, 1, end, "a1", "a2", "b1", "b2", "a3")
	expectLog(t, second, 4, end, "b2", "a3")
	expectLog(t, second, end, end)
}

// Records are removed from the beginning, even all of them, and the positions go on.
func TestTruncate(t *testing.T) {
	l := open(t, nil, startServer(t, nil))
	truncate := func(before int64) error { return l.Truncate(t.Context(), before) }
	if err := truncate(1); err != nil {
		t.Error(err)
	}
	end := add(t, l, fence(t, l), "1", "2", "3", "4")
	for _, before := range []int64{0, 1, 3, 2} {
		if err := truncate(before); err != nil {
			t.Errorf("truncate to %d: %v", before, err)
		}
	}
	expectLog(t, l, 1, end, "3", "4")
	if err := truncate(end + 1); err == nil { // this would raise the last sequence
		t.Error("truncated behind the end")
	}
	expectLog(t, l, 1, end, "3", "4")
	if err := truncate(end); err != nil {
		t.Error(err)
	}
	expectLog(t, l, 1, end)
	end = add(t, l, end, "5")
	expectLog(t, l, 1, end, "5")
}

// Somebody removes single records, also the last one. Reading passes over them, with and without a consumer.
func TestRemovedRecords(t *testing.T) {
	url := startServer(t, nil)
	l := open(t, func(c *natslog.Config) { c.Timeout = time.Second }, url)
	var texts []string
	for i := range 20 {
		texts = append(texts, fmt.Sprint(i+1))
	}
	end := add(t, l, fence(t, l), texts...)
	stream, err := natsserver.Connect(t, url).Stream(t.Context(), streamName)
	for _, sequence := range []uint64{1, 4, 20} {
		if err == nil {
			err = stream.DeleteMsg(t.Context(), sequence)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	expectLog(t, l, 1, end, slices.Concat(texts[1:3], texts[4:19])...)
	expectLog(t, l, 18, end, "18", "19")
	expectLog(t, l, 20, end)
	if _, err := l.Append(t.Context(), end-1, []byte("20")); !errors.Is(err, statelog.ErrConflict) {
		t.Errorf("appended where a record was removed: %v", err)
	}
	expectLog(t, l, 17, add(t, l, end, "21"), "17", "18", "19", "21")
}

// The stream is deleted. A new one begins at position 1, and a Log reports that once even if the new one is as long.
func TestRecreatedStream(t *testing.T) {
	url := startServer(t, nil)
	js := natsserver.Connect(t, url)
	writer, reader := open(t, nil, url), open(t, nil, url)
	end := add(t, writer, fence(t, writer), "1", "2", "3")
	expectLog(t, reader, 1, end, "1", "2", "3")
	if err := js.DeleteStream(t.Context(), streamName); err != nil {
		t.Fatal(err)
	}
	conflict := func() {
		if _, err := writer.Append(t.Context(), end, []byte("4")); !errors.Is(err, statelog.ErrConflict) {
			t.Errorf("append: %v", err)
		}
	}
	conflict()
	other := open(t, nil, url)
	after := add(t, other, fence(t, other), "other")
	conflict()
	if err := writer.Truncate(t.Context(), end); err == nil {
		t.Error("truncated to a position of the old stream")
	}
	if err := reader.Wait(t.Context(), end); err != nil {
		t.Error(err)
	}
	if got := fence(t, writer); got != after {
		t.Errorf("fence %d", got)
	}
	end = add(t, writer, after, "5", "6", "7")
	expectLog(t, reader, 4, 1)
	expectLog(t, reader, 1, end, "other", "5", "6", "7")
	expectLog(t, reader, 4, end, "7")
}

// The stream is missing, and must not be created.
func TestMissingStream(t *testing.T) {
	url := startServer(t, nil)
	l := open(t, func(c *natslog.Config) { c.Stream.Create = false }, url)
	for range 2 {
		_, err := l.Fence(t.Context())
		if !sinks.IsRejected(err) || !strings.Contains(err.Error(), "stream STATE does not exist") {
			t.Errorf("fence: %v", err)
		}
	}
	if err := l.Wait(t.Context(), 1); !sinks.IsRejected(err) {
		t.Errorf("wait: %v", err)
	}
	other := open(t, nil, url)
	end := add(t, other, fence(t, other), "1")
	expectLog(t, l, 1, end, "1")
}

// Acknowledgements are lost, and so is the connection. Each record is written once.
func TestLostAcknowledgements(t *testing.T) {
	url := startServer(t, nil)
	r := newRelay(t, url)
	l := open(t, func(c *natslog.Config) { c.Timeout = time.Second }, r.url)
	end := fence(t, l)
	var want []string
	for i := range 10 {
		r.losing.Store(true)
		text := fmt.Sprint(i) + strings.Repeat("x", 100*i)
		want = append(want, text)
		end = add(t, l, end, text)
	}
	if lost := r.lost.Load(); lost != 10 {
		t.Errorf("%d acknowledgements lost", lost)
	}
	expectLog(t, open(t, nil, url), 1, end, want...)
}

// The acknowledgement is lost, another process appends, and then truncates the log beyond the record.
func TestLostAcknowledgementAndAnotherWriter(t *testing.T) {
	url := startServer(t, nil)
	for _, truncated := range []bool{false, true} {
		name := fmt.Sprintf("TRUNCATED_%v", truncated)
		edit := func(c *natslog.Config) { c.Stream.Name, c.Timeout = name, 2*time.Second }
		r := newRelay(t, url)
		first, second := open(t, edit, url), open(t, edit, r.url)
		end := add(t, first, fence(t, first), "a1")
		add(t, second, fence(t, second), "b1")
		end = add(t, first, end+1, "a2") // first has read b1
		if truncated {
			if err := first.Truncate(t.Context(), end-1); err != nil {
				t.Fatal(err)
			}
		}
		// second has not heard of the success, and tries again.
		got, err := second.Append(t.Context(), 2, []byte("b1"))
		if truncated && !errors.Is(err, statelog.ErrConflict) || !truncated && (err != nil || got != 3) {
			t.Errorf("%d, %v", got, err)
		}
		if _, err := second.Append(t.Context(), 3, []byte("b2")); !errors.Is(err, statelog.ErrConflict) {
			t.Errorf("stale append: %v", err)
		}
	}
}

// Records have up to the maximum size. One that is larger is rejected, and nothing is sent.
func TestRecordSizes(t *testing.T) {
	url := startServer(t, func(o *server.Options) { o.MaxPayload = 4096 })
	for name, size := range map[string]int32{"SERVER": 0, "STREAM": 2048} {
		c := jetstream.StreamConfig{
			Name: name, Subjects: []string{"deltabridge.state." + name}, Discard: jetstream.DiscardNew, MaxMsgSize: size,
		}
		if size == 0 {
			size, c.MaxMsgSize = 4096, -1
		}
		if _, err := natsserver.Connect(t, url).CreateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		l := open(t, func(c *natslog.Config) { c.Stream.Name = name }, url)
		end := fence(t, l)
		largest := l.MaxRecord()
		if largest > int(size)-60 || largest < int(size)-150 {
			t.Errorf("%s: %d bytes", name, largest)
		}
		text := strings.Repeat("x", largest)
		end = add(t, l, end, text)
		if got := add(t, l, end-1, text); got != end { // an earlier attempt has written it
			t.Errorf("appended again at %d", got)
		}
		if _, err := l.Append(t.Context(), end, []byte(text+"x")); !errors.Is(err, statelog.ErrTooLarge) {
			t.Errorf("one byte more: %v", err)
		}
		expectLog(t, l, 1, end, text)
	}
}

// The limit of the stream was lowered since the log has read it.
func TestLowerLimit(t *testing.T) {
	url := startServer(t, nil)
	l := open(t, nil, url)
	end := fence(t, l)
	js := natsserver.Connect(t, url)
	stream, err := js.Stream(t.Context(), streamName)
	if err != nil {
		t.Fatal(err)
	}
	config := stream.CachedInfo().Config
	config.MaxMsgSize = 1000
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(t.Context(), end, make([]byte, 2000)); !errors.Is(err, statelog.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	config.MaxBytes = 2000
	if _, err := js.UpdateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	for err = nil; err == nil && end < 10; {
		end, err = l.Append(t.Context(), end, make([]byte, 500))
	}
	if err == nil || !strings.Contains(err.Error(), "maximum bytes exceeded") {
		t.Errorf("the stream is full: %v", err)
	}
}

// Many large records are read over a connection that breaks.
func TestReadIsInterrupted(t *testing.T) {
	url := startServer(t, nil)
	writer := open(t, nil, url)
	end := fence(t, writer)
	const records = 30
	large := func(i int64) string { return fmt.Sprint(i, strings.Repeat("x", 1<<20-200)) } // 30 MiB in total
	for i := range int64(records) {
		end = add(t, writer, end, large(i))
	}
	proxy := sinktest.NewProxy(t, strings.TrimPrefix(url, "nats://"))
	l := open(t, nil, "nats://"+proxy.Addr())
	fence(t, l)
	for from := range int64(2) {
		next := max(from, 1)
		got, err := l.Read(t.Context(), from, func(position int64, data []byte) error {
			if position != next || string(data) != large(position-1) {
				return fmt.Errorf("position %d, want %d", position, next)
			}
			if next++; next == 10 || next == 20 {
				proxy.Cut()
			}
			return nil
		})
		if err != nil || got != end || next != end {
			t.Errorf("up to %d and %d, want %d: %v", got, next, end, err)
		}
	}
}

// The caller ends a Read. Then, too, it leaves no consumer.
func TestReadEndsEarly(t *testing.T) {
	url := startServer(t, nil)
	l := open(t, nil, url)
	end := add(t, l, fence(t, l), strings.Split(strings.Repeat("x", 20), "")...)
	failure := errors.New("enough")
	got, err := l.Read(t.Context(), 3, func(position int64, _ []byte) error {
		if position == 5 {
			return failure
		}
		return nil
	})
	if !errors.Is(err, failure) || got != 5 {
		t.Errorf("%d, %v", got, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got, err = l.Read(ctx, 1, func(int64, []byte) error { cancel(); return nil })
	if !errors.Is(err, context.Canceled) || got != 2 {
		t.Errorf("cancelled: %d, %v", got, err)
	}
	expectLog(t, l, 20, end, "x")
	stream, err := natsserver.Connect(t, url).Stream(t.Context(), streamName)
	if err != nil || stream.CachedInfo().State.Consumers > 0 {
		t.Errorf("consumers are left: %v", err)
	}
}

func TestWait(t *testing.T) {
	url := startServer(t, nil)
	writer, reader := open(t, nil, url), open(t, nil, url)
	end := fence(t, writer)
	waited := make(chan error, 1)
	go func() { waited <- reader.Wait(t.Context(), end) }()
	select {
	case err := <-waited:
		t.Fatalf("the log is empty: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	end = add(t, writer, end, "1")
	if err := <-waited; err != nil {
		t.Error(err)
	}
	if err := reader.Wait(t.Context(), 1); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := reader.Wait(ctx, end); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	expectLog(t, reader, 1, end, "1")
}

// A missing permission is named. The permission to remove consumers is not required.
func TestPermissions(t *testing.T) {
	const api, subject = "$JS.API.", "deltabridge.state.STATE"
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := []string{
		api + "STREAM.INFO.STATE", api + "STREAM.CREATE.STATE", subject, api + "STREAM.MSG.GET.STATE",
		api + "STREAM.PURGE.STATE", api + "CONSUMER.CREATE.STATE.>", api + "CONSUMER.MSG.NEXT.STATE.>",
	}
	for i, denied := range append(all, "") {
		allowed := append(append([]string(nil), all[:i]...), all[min(i+1, len(all)):]...)
		may := &server.Permissions{
			Publish:   &server.SubjectPermission{Allow: allowed},
			Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}
		url := startServer(t, func(o *server.Options) {
			o.Users = []*server.User{{Username: "bridge", Password: "secret", Permissions: may}}
		})
		l := open(t, func(c *natslog.Config) {
			c.Auth = natsconn.Auth{User: "bridge", PasswordFile: password}
		}, url)
		err := func() error {
			end, err := l.Fence(t.Context())
			for n := int64(1); n < 20 && err == nil; n++ {
				end, err = l.Append(t.Context(), n, []byte("x"))
			}
			if err == nil { // looks for the record
				_, err = l.Append(t.Context(), 1, []byte("x"))
			}
			if err == nil {
				_, err = l.Read(t.Context(), 1, func(int64, []byte) error { return nil })
			}
			if err == nil {
				err = l.Truncate(t.Context(), end)
			}
			return err
		}()
		remedy := "to publish to " + strings.TrimSuffix(denied, ".>")
		if denied == "" && err != nil ||
			denied != "" && (err == nil || !strings.Contains(err.Error(), remedy) || !sinks.IsRejected(err)) {
			t.Errorf("without %q: %v", denied, err)
		}
	}
}
