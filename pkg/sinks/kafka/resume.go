package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// storeDelay is how long the position of a new partition waits for the positions of other new partitions. They are
// stored together, because each Store waits for the disk.
const storeDelay = 10 * time.Millisecond

// fences contains what the fences of a sink share.
type fences struct {
	resume      *sinks.Resume   // nil if Resume was not called
	earlier     sinks.Positions // the positions that earlier processes stored
	all         bool            // reports whether the fences of all partitions in earlier have begun
	deniedUntil time.Time       // until when the sink does not try to use transactional ids
	warned      bool            // reports whether it was logged that fences can't be used
	advanced    time.Time       // when advance last looked at all partitions

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	arbiter arbiter
	storing sync.Mutex // held while positions are stored

	mu     sync.Mutex // guards the following fields
	found  sinks.Found
	limits map[string]chan struct{} // by address
	stored sinks.Positions          // earlier, and the positions that the fences of this process have stored
	group  *group                   // the positions that are stored next, or nil
}

// group contains positions that are stored together.
type group struct {
	positions sinks.Positions
	done      bool
	err       error
}

// open must be called before anything runs in the background.
func (s *fences) open() { s.ctx, s.cancel = context.WithCancel(context.Background()) }

// Resume implements [sinks.Resumer].
func (s *Sink) Resume(from sinks.Resume) {
	f := &s.fences
	f.resume, f.earlier, f.found = &from, from.Positions, sinks.Found{Writer: from.Writer, Logger: s.cfg.Logger}
	if f.stored = maps.Clone(from.Positions); f.stored == nil {
		f.stored = make(sinks.Positions)
	}
	f.limits = make(map[string]chan struct{})
	f.arbiter.txn = wire.Transactions{Client: s.client, ID: wire.TransactionPrefix + from.Writer}
	if mutant.On("no-fence") {
		f.arbiter.txn.ID += time.Now().String() // no other process has these ids
	}
	f.arbiter.producer = wire.NoProducer()
}

// Positions implements [sinks.Resumer]. It returns the positions of the fenced partitions.
func (s *Sink) Positions(parked []string) sinks.Positions {
	s.fences.with((*sinks.Found).Mark)
	positions := make(sinks.Positions)
	for _, t := range s.topics {
		t.undivided = t.undivided &&
			slices.ContainsFunc(parked, func(part string) bool { return sinks.Overlap(part, t.name) })
		for _, p := range t.partitions {
			if p.fenced && !slices.ContainsFunc(parked, func(part string) bool { return sinks.Overlap(part, p.name) }) {
				positions[s.partName(p)] = sinks.Position{
					Next: p.next, Producer: p.producer.id, Partitions: len(t.partitions), Key: s.key.String(),
				}
			}
		}
	}
	return positions
}

// Forget implements [sinks.Resumer].
func (s *Sink) Forget() { s.fences.with((*sinks.Found).Forget) }

// FoundNothing implements [sinks.Resumer].
func (s *Sink) FoundNothing() (empty bool) {
	s.fences.with(func(f *sinks.Found) { empty = f.Empty() })
	return empty
}

// Fenced implements [sinks.Resumer].
func (s *Sink) Fenced() bool {
	if s.fences.resume == nil || time.Now().Before(s.fences.deniedUntil) {
		return false
	}
	for _, t := range s.topics {
		if s.isDenied(t) {
			return false
		}
	}
	return true
}

// partName returns the name of a partition in [sinks.Positions].
func (s *Sink) partName(p *partition) string { return s.client.ClusterID() + "/" + p.name }

// writer returns what identifies the sink in its records, or an empty string if the records are not read back.
func (s *fences) writer() string {
	if s.resume == nil {
		return ""
	}
	return s.resume.Writer
}

// limit returns the semaphore for requests to the broker at addr.
func (s *fences) limit(addr string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	limit := s.limits[addr]
	if limit == nil {
		limit = make(chan struct{}, requestsAtOnce)
		s.limits[addr] = limit
	}
	return limit
}

// position returns the stored position of a partition.
func (s *fences) position(part string) (p sinks.Position, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, known = s.stored[part]
	return p, known
}

// store stores the position of a partition, together with the positions that other fences store at this time.
func (s *fences) store(part string, p sinks.Position) error {
	s.mu.Lock()
	if s.group == nil {
		s.group = &group{positions: make(sinks.Positions)}
	}
	g := s.group
	g.positions[part] = p
	s.mu.Unlock()

	s.storing.Lock()
	defer s.storing.Unlock()
	if !g.done {
		select {
		case <-time.After(storeDelay):
		case <-s.ctx.Done():
		}
		s.mu.Lock()
		s.group = nil
		s.mu.Unlock()
		g.err, g.done = s.resume.Store(g.positions), true
		if g.err == nil {
			s.mu.Lock()
			maps.Copy(s.stored, g.positions)
			s.mu.Unlock()
		}
	}
	if g.err != nil {
		return fmt.Errorf("store its position: %w", g.err)
	}
	return nil
}

// with calls a function with the records that were found.
func (s *fences) with(do func(*sinks.Found)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	do(&s.found)
}

func (s *fences) note(r sinks.FoundRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.Note(r)
}

func (s *fences) sent(m *event.Message, part, place string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found.Sent(m, part, place)
}

func (s *fences) has(m *event.Message, place string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found.Has(m, place)
}

// close ends all fences.
func (s *fences) close() {
	s.cancel()
	s.wg.Wait()
}
