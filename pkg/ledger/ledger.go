package ledger

import (
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Ledger computes the watermark of one source; see the package documentation. It is safe for concurrent use.
type Ledger struct {
	source Source

	mu      sync.Mutex
	seq     uint64 // number of the last recorded change or event; it only grows
	changed uint64 // number of the last recorded change
	here    mark   // the last position
	sinks   map[string]*sinkLedger
	all     []*sinkLedger           // the values of sinks, as a slice because every change iterates over them
	pending map[string]*[]rowChange // row changes that are not written, by key, oldest first; no slice is empty
	covered uint64                  // row changes up to this number were collected: at most the first one of a row
	dirty   bool                    // a change may require a new update since the last Collect
	bytes   int64                   // total size of pending, without the changes that are being written
	writing int64                   // total size of the changes that were collected, until Confirm or TakeBack
	// unreached is the part of bytes that was added since the last position. It cannot be written before the next
	// position.
	unreached int64
	total     *atomic.Int64 // see CountIn; may be nil
	counted   int64         // this ledger's part of total
	history   string        // State.History
	written   State         // state that the last Collect returned
	// scopeBefore is the scope of the rows while the watermark is below scopeFrom, which is the first position that
	// this process reaches. From scopeFrom on, the rows have the scope of source.
	scopeBefore string
	scopeFrom   uint64
}

// mark is a position: all changes up to seq belong to it.
type mark struct {
	seq             uint64
	resourceVersion string
}

type rowChange struct {
	seq    uint64
	object *object.Object // nil if the row is removed
	added  bool           // the row did not exist before
}

// New returns the ledger of a source. state is the source's state in the store, or the zero State if the source is new.
// If state has another scope than source, updates have the scope of state until the list that was compared with state
// is settled. sinks contains the names of the configured sinks. Numbers begin above base, so that two ledgers of the
// same source have different numbers.
func New(source Source, state State, sinks []string, base uint64) *Ledger {
	l := &Ledger{
		source: source, sinks: map[string]*sinkLedger{}, pending: map[string]*[]rowChange{},
		seq: base, changed: base, here: mark{base, state.ResourceVersion}, history: state.History, written: state,
		scopeBefore: state.Source.Scope, scopeFrom: math.MaxUint64,
	}
	for _, name := range sinks {
		floor := state.Sinks[name]
		_, began := state.Sinks[name]
		l.sinks[name] = &sinkLedger{
			here: l.here, caught: floor != "", began: began, floor: floor,
			open: map[uint64]entry{}, first: base + 1, last: base, empty: base,
		}
		switch refilter, ok := state.Refilters[name]; {
		case refilter.Settled && floor != "":
			l.sinks[name].former = &refilter
		case ok:
			s := l.sinks[name]
			refilter.Settled = false
			s.caught, s.refilter, s.knows, s.before = false, &refilter, floor != "", base
		}
		if l.sinks[name].caught {
			l.sinks[name].collected = base
		}
		l.all = append(l.all, l.sinks[name])
	}
	return l
}

// Source returns the source of the ledger.
func (l *Ledger) Source() Source { return l.source }

// Begun reports whether the ledger has a position. It has one if it resumed, or if the source's first list was stored.
func (l *Ledger) Begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.here.resourceVersion != ""
}

// Unwritten makes the next Collect return an update even if nothing is recorded, because the store has another state
// than the one that the ledger began with.
func (l *Ledger) Unwritten() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written, l.dirty = State{}, true
	for _, s := range l.all {
		s.collected = 0
	}
}

// Later returns the later of two resourceVersions of one resource, or a if they cannot be compared. An empty
// resourceVersion is earlier than all others.
func Later(a, b string) string {
	if a == "" {
		return b
	}
	if order, err := resourceversion.CompareResourceVersion(a, b); err == nil && order < 0 {
		return b
	}
	return a
}

// Begin sets the position to the resourceVersion of the source's first list. The rows of the list must be in the store
// before any of them is passed to a sink.
func (l *Ledger) Begin(resourceVersion string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scopeFrom = min(l.scopeFrom, l.seq)
	l.here = mark{l.seq, resourceVersion}
	for _, s := range l.all {
		s.here = l.here
	}
}

// StartOver drops the watermarks that the sinks had before the process started. It is called when etcd was restored to
// an earlier revision, so that resourceVersions are lower than before. history is the name of the new history.
//
// All positions that were reached before become informer.Unreachable, so that a process that begins with one of them
// finds out about the restore by itself. The cluster can reach their resourceVersions again, with other changes before
// them.
func (l *Ledger) StartOver(history string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.history, l.dirty = history, true
	l.here.resourceVersion = informer.Unreachable
	for _, s := range l.all {
		s.floor, s.knows = "", false
		s.here.resourceVersion = informer.Unreachable
		for number, e := range s.open {
			e.before.resourceVersion = informer.Unreachable
			s.open[number] = e
		}
	}
}

// History returns the name of the history that the source's resourceVersions belong to.
func (l *Ledger) History() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.history
}

// AddRow adds the row of a new object.
func (l *Ledger) AddRow(key string, o *object.Object) { l.change(key, o, true) }

// SetRow sets an object's row to the new state o, or removes the row if o is nil.
func (l *Ledger) SetRow(key string, o *object.Object) { l.change(key, o, false) }

func (l *Ledger) change(key string, o *object.Object, added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	l.changed = l.seq
	l.append(key, rowChange{l.seq, o, added})
	l.dirty = true
}

// rowOverhead is the memory that a waiting change uses in addition to the object's JSON, in bytes.
const rowOverhead = 300

func (c rowChange) size() int64 {
	if c.object == nil {
		return rowOverhead
	}
	return int64(len(c.object.Raw)) + rowOverhead
}

// append appends a change to a row's waiting changes.
func (l *Ledger) append(key string, change rowChange) {
	l.bytes += change.size()
	l.unreached += change.size()
	row := l.pending[key]
	if row == nil {
		l.pending[key] = &[]rowChange{change}
		return
	}
	l.merge(row)
	*row = append(*row, change)
}

// merge merges the settled changes to a row into the last settled one, which the next update contains. A change that
// was collected stays.
func (l *Ledger) merge(row *[]rowChange) {
	from, to := before(*row, l.covered), before(*row, l.least().seq)
	if to-from < 2 {
		return
	}
	created, last := (*row)[from].added, (*row)[to-1]
	if last.object == nil && created { // nothing to write
		l.replace(row, from, to)
		return
	}
	last.added = created
	l.replace(row, from, to, last)
}

// replace replaces the changes (*row)[from:to] with by.
func (l *Ledger) replace(row *[]rowChange, from, to int, by ...rowChange) {
	l.bytes += bytesOf(by) - bytesOf((*row)[from:to])
	*row = slices.Replace(*row, from, to, by...)
}

func bytesOf(changes []rowChange) (size int64) {
	for _, c := range changes {
		size += c.size()
	}
	return size
}

// before returns the number of waiting changes up to seq, including seq.
func before(waiting []rowChange, seq uint64) (n int) {
	for n < len(waiting) && waiting[n].seq <= seq {
		n++
	}
	return n
}

// Find searches the changes that may not be in the store yet, and returns the object's state with this uid and
// resourceVersion, or nil if there is none. The last state of an object is always in the ledger or in the store. Until
// Advance is called, the same is true for the state before the last one.
func (l *Ledger) Find(key string, id object.Identity) *object.Object {
	l.mu.Lock()
	defer l.mu.Unlock()
	if row := l.pending[key]; row != nil {
		for _, change := range slices.Backward(*row) {
			if o := change.object; o != nil && o.UID == id.UID && o.ResourceVersion == id.ResourceVersion {
				return o
			}
		}
	}
	return nil
}

// Track records an event that is sent to a sink, or will be sent later. It returns the number that the sink must pass
// to Settle, which is never 0. Track must be called before the sink can settle the event.
func (l *Ledger) Track(sink string) uint64 { return l.track(sink, false) }

// TrackAgain tracks an event that is sent again on purpose, for example by a resync. After a restart, the source does
// not deliver this event.
func (l *Ledger) TrackAgain(sink string) uint64 { return l.track(sink, true) }

func (l *Ledger) track(sink string, again bool) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	s := l.sinks[sink]
	if s.began = true; !again {
		s.tracked = l.seq
	}
	return s.track(entry{before: s.here, fresh: !s.caught})
}

// Settle marks an event as settled, because the destination acknowledged or rejected it, or because it was written to
// disk, merged or dropped. Numbers that are already settled are ignored.
func (l *Ledger) Settle(sink string, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sinks[sink]; s != nil && s.settle(number) {
		l.dirty = true
	}
}

// FinishList records that a sink was sent its whole initial list. Calling it again has no effect.
func (l *Ledger) FinishList(sink string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.finish(l.sinks[sink])
}

func (l *Ledger) finish(s *sinkLedger) {
	if !s.caught {
		s.caught, s.here, s.until = true, mark{l.seq, l.here.resourceVersion}, s.last
		l.dirty = true
	}
}

// Advance sets the position to resourceVersion, which means that all changes up to resourceVersion were passed to the
// sinks. It must be called after every change, after a complete list, and after every bookmark.
func (l *Ledger) Advance(resourceVersion string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scopeFrom = min(l.scopeFrom, l.seq)
	l.here, l.unreached = mark{l.seq, resourceVersion}, 0
	for _, s := range l.all {
		if s.caught {
			s.here = l.here
		}
	}
	l.dirty = true
	l.count()
}

// least returns the source's watermark.
func (l *Ledger) least() mark {
	least := l.here
	for _, s := range l.all {
		if m, _ := s.watermark(); m.seq < least.seq {
			least = m
		}
	}
	return least
}

// Collect returns the update that may be written now, or false if there is nothing new to write since the last call.
// Confirm or TakeBack must be called before the next Collect.
func (l *Ledger) Collect() (Update, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.dirty || l.here.resourceVersion == "" {
		return Update{}, false
	}
	l.dirty = false
	u := Update{State: State{Source: l.source, Sinks: map[string]string{}, History: l.history}}
	least := l.least()
	if mutant.On("rows-early") {
		least = l.here
	}
	for name, s := range l.sinks {
		m, fresh := s.watermark()
		if mutant.On("watermark-early") {
			m = l.here
		}
		if s.collected = m.seq; fresh {
			s.collected = 0
		}
		u.addSink(name, s, m, fresh)
	}
	u.ResourceVersion = least.resourceVersion
	if least.seq < l.scopeFrom {
		u.Source.Scope = l.scopeBefore
	}
	l.covered = least.seq
	for key, row := range l.pending {
		l.collectRow(&u, key, row)
	}
	l.count()
	if len(u.Upserts)+len(u.Deletes) == 0 && reflect.DeepEqual(u.State, l.written) {
		return Update{}, false
	}
	l.written = u.State
	return u, true
}

// collectRow adds the last covered change to a row to the update, and drops the changes before it.
func (l *Ledger) collectRow(u *Update, key string, row *[]rowChange) {
	n := before(*row, l.covered)
	if n == 0 {
		return
	}
	if o := (*row)[n-1].object; o != nil {
		u.Upserts = append(u.Upserts, o)
	} else {
		u.Deletes = append(u.Deletes, key)
	}
	l.bytes -= bytesOf((*row)[:n])
	*row = (*row)[n-1:]
	l.writing += (*row)[0].size()
}

// Confirm records that the last update of Collect is in the store.
func (l *Ledger) Confirm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, row := range l.pending {
		if *row = (*row)[before(*row, l.covered):]; len(*row) == 0 {
			delete(l.pending, key)
		}
	}
	l.writing = 0
}

// TakeBack must be called if an update could not be written. The next update contains its rows again.
func (l *Ledger) TakeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.written, l.dirty = State{}, true
	l.bytes, l.writing = l.bytes+l.writing, 0
	l.count()
}
