package fifo

import (
	"log/slog"
	"path/filepath"
	"strconv"
	"testing"
)

// msg resembles the items that the bridge queues: a pointer to a struct with a uid and a size.
type msg struct {
	uid  string
	size int64
}

const (
	benchItems = 8192
	benchBytes = 32 << 20
	benchBatch = 256
)

// benchMsgs have distinct uids of the usual length.
func benchMsgs(n int) []*msg {
	msgs := make([]*msg, n)
	for i := range msgs {
		msgs[i] = &msg{uid: "0f8fad5b-d9cb-469f-a165-" + strconv.Itoa(100000000000+i), size: 2600}
	}
	return msgs
}

func msgSize(m *msg) int64 { return m.size }

// benchQueue is a queue with a policy, for items without a place on disk: it has no Run.
func benchQueue(b *testing.B, policy string, full bool) *Queue[*msg] {
	o := Options[*msg]{
		Path: filepath.Join(b.TempDir(), "q"), MaxItems: benchItems, MaxBytes: benchBytes, Size: msgSize,
		Mark: func(*msg) (string, string) { return "", "" }, OnSettled: func([]*msg) {},
		Receipt: func(*msg) *msg { return nil }, Logger: slog.New(slog.DiscardHandler),
	}
	switch policy {
	case dropOldest:
		o.Gap = func(_, m *msg) (*msg, bool) { return m, true }
	case compact:
		o.Key, o.Merge = func(m *msg) string { return m.uid }, func(_, newer *msg) *msg { return newer }
		o.OnMerge = func(*msg) {}
	}
	q, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	if full {
		q.begin()
		q.full = true
	}
	return q
}

func mustPushMsg(b *testing.B, q *Queue[*msg], m *msg) {
	if err := q.Push(b.Context(), m); err != nil {
		b.Error(err)
	}
}

// BenchmarkPushTakeAck pushes, takes and acknowledges items in a queue that is never full, from one goroutine.
func BenchmarkPushTakeAck(b *testing.B) {
	b.Run("queue", func(b *testing.B) {
		q := benchQueue(b, block, false)
		msgs := benchMsgs(4096)
		buf := make([]*msg, 0, benchBatch)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			mustPushMsg(b, q, msgs[i%len(msgs)])
			if i%benchBatch == benchBatch-1 {
				buf, _ = q.Take(b.Context(), buf, benchBatch, benchBytes)
				q.Ack(len(buf))
			}
		}
	})
	b.Run("channel", func(b *testing.B) { // what the queue is measured against
		c := make(chan *msg, benchItems)
		msgs := benchMsgs(4096)
		for i := 0; b.Loop(); i++ {
			c <- msgs[i%len(msgs)]
			if i%benchBatch == benchBatch-1 {
				for range benchBatch {
					<-c
				}
			}
		}
	})
}

// BenchmarkContended has producers on all processors and one consumer, which is slower than they are now and then:
// pushes wait.
func BenchmarkContended(b *testing.B) {
	for _, policy := range []string{block, dropOldest, compact} {
		b.Run(policy, func(b *testing.B) {
			q := benchQueue(b, policy, true)
			msgs := benchMsgs(20000)
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				var buf []*msg
				for {
					buf, _ = q.Take(b.Context(), buf, benchBatch, benchBytes)
					q.Ack(len(buf))
					select {
					case <-stop:
						return
					default:
					}
				}
			}()
			b.ReportAllocs()
			b.SetParallelism(50)
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					mustPushMsg(b, q, msgs[i%len(msgs)])
				}
			})
			close(stop)
			mustPushMsg(b, q, msgs[0])
			<-stopped
		})
	}
}

// BenchmarkOverflow pushes into a full queue that drops its oldest item each time.
func BenchmarkOverflow(b *testing.B) {
	q := benchQueue(b, dropOldest, true)
	msgs := benchMsgs(2 * benchItems)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		mustPushMsg(b, q, msgs[i%len(msgs)])
	}
}

// BenchmarkMerge pushes into a full compacting queue: first with superseded items waiting, which are merged; then
// with all keys distinct, where the new item takes up the old one of its key.
func BenchmarkMerge(b *testing.B) {
	for name, keys := range map[string]int{"superseded": benchItems / 8, "replaced": benchItems - 1} {
		b.Run(name, func(b *testing.B) {
			q := benchQueue(b, compact, true)
			msgs := benchMsgs(keys)
			mustPushMsg(b, q, &msg{}) // the oldest, which is not merged
			for i := range benchItems - 1 {
				mustPushMsg(b, q, msgs[i%keys])
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				mustPushMsg(b, q, msgs[i%keys])
			}
		})
	}
}

// BenchmarkBlocked measures pushes that wait until an acknowledgement makes room: two goroutines take turns.
func BenchmarkBlocked(b *testing.B) {
	q := benchQueue(b, block, true)
	q.opts.MaxItems, q.headShare, q.bufShare = 2, share{items: 1}, share{items: 1}
	m := &msg{}
	go func() {
		for range b.N {
			_ = q.Push(b.Context(), m)
		}
	}()
	b.ReportAllocs()
	var buf []*msg
	for range b.N {
		buf, _ = q.Take(b.Context(), buf, 1, 0)
		q.Ack(1)
	}
}
