package natslog_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/internal/statelog/logtest"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natslog"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
)

// doubts is the handler of a logger. It counts how often a log had to look for its record.
type doubts struct{ atomic.Int32 }

func (*doubts) Enabled(context.Context, slog.Level) bool { return true }
func (d *doubts) WithAttrs([]slog.Attr) slog.Handler     { return d }
func (d *doubts) WithGroup(string) slog.Handler          { return d }
func (d *doubts) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "looking for a record") {
		d.Add(1)
	}
	return nil
}

// stepDown makes the stream elect another leader again and again until ctx ends. It returns how often it did.
func stepDown(ctx context.Context, js jetstream.JetStream) (times int) {
	for ctx.Err() == nil {
		limit, cancel := context.WithTimeout(ctx, time.Second) // a server that has no leader may not answer
		_, err := js.Conn().RequestWithContext(limit, "$JS.API.STREAM.LEADER.STEPDOWN."+streamName, nil)
		cancel()
		if err == nil {
			times++
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return times
}

func TestCluster(t *testing.T) {
	urls, between := startCluster(t)
	replicated := func(c *natslog.Config) { c.Stream.Replicas, c.Timeout = 3, 2*time.Second }
	t.Run("conformance", func(t *testing.T) {
		logs := 0
		logtest.Run(t, logtest.Harness{
			New: func(*testing.T) func(*testing.T) statelog.Log {
				logs++
				name := fmt.Sprint("LOG", logs)
				return func(t *testing.T) statelog.Log {
					return open(t, func(c *natslog.Config) { replicated(c); c.Stream.Name = name }, urls...)
				}
			},
			TooLarge: 1 << 20,
		})
	})
	t.Run("step-downs", func(t *testing.T) { testStepDowns(t, replicated, urls) })
	t.Run("no replication", func(t *testing.T) { testNoReplication(t, replicated, urls, between) })
}

// The stream changes its leader again and again. A process appends, another one claims the log in the middle, and a third
// one follows. All records that a process was told to have written are there once and in order, and nothing of the first
// process is behind the claim.
func testStepDowns(t *testing.T, replicated func(*natslog.Config), urls []string) {
	const perWriter = 200
	var doubts doubts
	writer := func(c *natslog.Config) { replicated(c); c.Logger = slog.New(&doubts) }
	writers := []*natslog.Log{open(t, writer, urls...), open(t, writer, urls...)}
	fence(t, writers[0])
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	js, times := natsserver.Connect(t, urls[0]), make(chan int, 1)
	go func() { times <- stepDown(ctx, js) }()

	follower, followed := open(t, replicated, urls...), make(chan []string, 1)
	var last atomic.Int64 // position after the last record; 0 while more records come
	go func() { followed <- follow(t, follower, &last) }()

	var want []string
	var end int64
	failures := 0
	for i, l := range writers {
		end = fenceWhenReady(t, l)
		for n := 0; n < perWriter || doubts.Load() == 0 && n < 20*perWriter; n++ {
			text := fmt.Sprintf("writer %d record %d", i, n)
			var failed int
			end, failed = persist(t, l, end, text)
			failures += failed
			want = append(want, text)
		}
	}
	for range 3 {
		if _, err := writers[0].Append(t.Context(), end-1, []byte("stale")); !errors.Is(err, statelog.ErrConflict) {
			t.Errorf("stale append: %v", err)
		}
	}
	last.Store(end)
	got := <-followed
	cancel()
	t.Logf("%d step-downs, %d attempts in doubt, %d errors", <-times, doubts.Load(), failures)
	if doubts.Load() == 0 {
		t.Error("no acknowledgement was lost")
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("followed %q", got)
	}
	expectLog(t, open(t, replicated, urls...), 1, end, want...)
}

// The leader has received a record, but the other servers have not. It refuses the repetition (nats-server 2.11 does not
// answer), which proves nothing. The record that came first is stored when the servers are connected again.
func testNoReplication(t *testing.T, replicated func(*natslog.Config), urls []string, between []*sinktest.Proxy) {
	stream := natsserver.Stream(t, natsserver.Connect(t, urls[0]), streamName)
	leader := 0
	if _, err := fmt.Sscanf(stream.CachedInfo().Cluster.Leader, "n%d", &leader); err != nil {
		t.Fatal(err)
	}
	edit := func(c *natslog.Config) { replicated(c); c.Timeout = time.Second }
	first, second := open(t, edit, urls[leader]), open(t, edit, urls[leader])
	end := fence(t, first)
	fence(t, second)
	for _, p := range between {
		p.Freeze()
	}
	for _, l := range []*natslog.Log{first, second, first} {
		_, err := l.Append(t.Context(), end, []byte(fmt.Sprint("first ", l == first)))
		if err == nil || errors.Is(err, statelog.ErrConflict) {
			t.Errorf("append without replicas: %v", err)
		}
	}
	for _, p := range between {
		p.Thaw()
	}
	after, _ := persist(t, first, end, "first true")
	if _, err := second.Append(t.Context(), end, []byte("first false")); !errors.Is(err, statelog.ErrConflict) {
		t.Errorf("append of the second: %v", err)
	}
	expectLog(t, second, end, after, "first true")
}

// fenceWhenReady calls Fence until it succeeds, for at most a minute. While servers elect a leader, none answers.
func fenceWhenReady(t *testing.T, l *natslog.Log) int64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		end, err := l.Fence(ctx)
		if err == nil {
			return end
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		t.Log("cannot fence yet:", err)
	}
}

// persist appends a record until there is a result.
func persist(t *testing.T, l *natslog.Log, after int64, text string) (end int64, failed int) {
	t.Helper()
	for ; ; failed++ {
		end, err := l.Append(t.Context(), after, []byte(text))
		if err == nil {
			return end, failed
		}
		if errors.Is(err, statelog.ErrConflict) || t.Context().Err() != nil {
			t.Fatalf("append %q after %d: %v", text, after, err)
		}
	}
}

// follow returns what a process reads up to the position last.
func follow(t *testing.T, l *natslog.Log, last *atomic.Int64) (texts []string) {
	next := int64(1)
	for last.Load() == 0 || next < last.Load() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := l.Wait(ctx, next)
		cancel()
		if err == nil {
			_, err = l.Read(t.Context(), next, func(position int64, record []byte) error {
				texts, next = append(texts, string(record)), position+1
				return nil
			})
		}
		if t.Context().Err() != nil {
			return texts
		}
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Logf("follow: %v", err)
		}
	}
	return texts
}
