package checkpoint

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/internal/statelog"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/test/scale"
)

// change is an item of a queue: a source pushes the changes 1, 2, 3 and so on.
type change struct{ source, number int }

const (
	changeSources = 3
	changesOfEach = 400
)

// deliveries is what a sink and a checkpoint know of the changes.
type deliveries struct {
	delivered [changeSources]map[int]bool
	settled   [changeSources]map[int]bool
}

func (d *deliveries) clone() *deliveries {
	c := &deliveries{}
	for i := range c.delivered {
		c.delivered[i], c.settled[i] = map[int]bool{}, map[int]bool{}
		for n := range d.delivered[i] {
			c.delivered[i][n] = true
		}
		for n := range d.settled[i] {
			c.settled[i][n] = true
		}
	}
	return c
}

// mortal is a process with a queue that spills to the events of a store. It is killed during a transaction. It is the
// log of its store.
type mortal struct {
	t      *testing.T
	random *rand.Rand // of the log
	store  *Store
	kill   context.CancelFunc

	mu      sync.Mutex
	known   *deliveries
	left    int                // transactions before it is killed; 0 means that it is not killed
	pending []statelog.Pair    // of a transaction that failed, but is in the log
	after   *mortal            // what a kill leaves; nil before it
	folder  string             // of the store
	taken   [changeSources]int // number of the last change that was taken
}

func (m *mortal) Sync() error {
	if m.pending == nil {
		return nil
	}
	err := m.store.Copy().Apply(m.pending, statelog.Point{Number: m.store.noted().Point.Number + 1, Own: true})
	m.pending = nil
	return err
}

func (m *mortal) Append(pairs []statelog.Pair) (statelog.Point, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	at := statelog.Point{Number: m.store.noted().Point.Number + 1, Own: true}
	if m.after != nil {
		return at, errCut
	}
	if m.left--; m.left == 0 {
		m.after = &mortal{t: m.t, random: m.random, known: m.known.clone(), folder: copyOf(m.t, m.store)}
		if m.random.IntN(2) == 0 {
			m.after.pending = slices.Clone(pairs)
		}
		m.kill()
		return at, errCut
	}
	switch m.random.IntN(12) {
	case 0:
		return at, errCut
	case 1:
		m.pending = slices.Clone(pairs)
		return at, errCut
	}
	return at, nil
}

func (m *mortal) open() (queue *fifo.Queue[change], next [changeSources]int) {
	var err error
	m.store, err = Open(Options{Path: m.folder, Log: m, NoSync: true})
	if err != nil {
		m.t.Fatal(err)
	}
	left := m.left
	m.left = 0
	if err := m.Sync(); err != nil {
		m.t.Fatal(err)
	}
	repeat(m.t, m.store.TakeOver)
	m.left = left
	events := events(m.t, m.store)
	queue, err = fifo.New(fifo.Options[change]{
		Log: events, MaxItems: 20, Size: func(change) int64 { return 1 },
		Encode: func(dst []byte, c change) ([]byte, error) {
			return binary.BigEndian.AppendUint32(append(dst, byte(c.source)), uint32(c.number)), nil
		},
		Decode: func(b []byte, _ bool) (change, error) {
			return change{int(b[0]), int(binary.BigEndian.Uint32(b[1:]))}, nil
		},
		Mark: func(c change) (source, position string) { return fmt.Sprint(c.source), strconv.Itoa(c.number) },
		OnSettled: func(changes []change) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, c := range changes {
				m.known.settled[c.source][c.number] = true
			}
		},
		Receipt:   func(c change) change { return c },
		OnCorrupt: func(l fifo.Loss) []change { m.t.Errorf("lost: %+v", l); return nil },
		Since:     func(change) time.Time { return time.Now() },
		Logger:    slog.New(slog.DiscardHandler),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	for i := range next {
		for next[i] = 1; m.known.settled[i][next[i]]; next[i]++ {
		}
		if position, err := strconv.Atoi(events.Positions()[fmt.Sprint(i)]); err == nil && events.Last() > events.Acked() {
			next[i] = max(next[i], position+1)
		}
	}
	return queue, next
}

// run pushes and delivers changes until all are delivered, or until the process is killed. It returns the error of the
// queue.
func (m *mortal) run() error {
	ctx, kill := context.WithCancel(m.t.Context())
	defer kill()
	m.kill = kill
	queue, next := m.open()
	random := rand.New(rand.NewPCG(uint64(m.left), 1))
	var all, pushing sync.WaitGroup
	var ended error
	all.Go(func() { ended = queue.Run(ctx) })
	for i, number := range next {
		pushing.Go(func() {
			for ; number <= changesOfEach && queue.Push(ctx, change{i, number}) == nil; number++ {
				time.Sleep(time.Duration(number%7) * time.Millisecond)
			}
		})
	}
	all.Go(func() {
		pushing.Wait()
		queue.Close()
	})
	for {
		batch, err := queue.Take(ctx, nil, 1+random.IntN(30), 1000)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, fifo.ErrClosed) {
				m.t.Error(err)
			}
			break
		}
		for _, c := range batch {
			m.take(c)
		}
		queue.Ack(len(batch))
		time.Sleep(time.Duration(random.IntN(300)*random.IntN(2)) * time.Millisecond)
	}
	kill()
	all.Wait()
	if err := m.store.Close(); err != nil {
		m.t.Error(err)
	}
	return ended
}

// take notes that a change is delivered. What is missing between it and the change before it was delivered earlier.
func (m *mortal) take(c change) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := m.taken[c.source]; c.number <= last {
		m.t.Errorf("source %d: took %d after %d", c.source, c.number, last)
	}
	for n := m.taken[c.source] + 1; n < c.number; n++ {
		if !m.known.delivered[c.source][n] {
			m.t.Errorf("source %d: took %d, but %d is missing", c.source, c.number, n)
		}
	}
	m.taken[c.source] = c.number
	m.known.delivered[c.source][c.number] = true
}

// A queue spills to the events of a store, over kills and transactions of which it does not know whether they succeeded.
// It loses nothing, and keeps the order of each source.
func TestQueueOverKills(t *testing.T) {
	kills, seeds := 0, scale.Of[uint64](4, 100)
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 9))
			m := &mortal{t: t, random: random, known: (&deliveries{}).clone(), folder: t.TempDir()}
			m.left = 1 + random.IntN(60)
			ended := m.run()
			for ; m.after != nil; kills++ {
				m = m.after
				m.left = 1 + random.IntN(60)
				ended = m.run()
			}
			for i, delivered := range m.known.delivered {
				if len(delivered) != changesOfEach {
					t.Errorf("%d changes of source %d were delivered", len(delivered), i)
				}
			}
			if ended == nil {
				wantEvents(t, events(t, begin(t, m.folder)), 1, 0)
			}
		})
	}
	if kills < 3*int(seeds) {
		t.Errorf("%d kills", kills)
	}
}
