package ledger

import (
	"math"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/deltabridge/deltabridge/internal/mutant"
	"github.com/deltabridge/deltabridge/pkg/object"
)

// Ledger computes the watermark of one source, see the package's documentation. It is safe for concurrent use.
type Ledger struct {
	source Source

	mu      sync.Mutex
	seq     uint64 // of the last call that changed something; it only grows
	here    mark   // the last position
	sinks   map[string]*sinkLedger
	all     []*sinkLedger             // the values of sinks: each change reads them
	pending map[string]*[]rowChange   // changes of rows that are not written, by key, oldest first; none is empty
	writing map[string]*object.Object // rows that were collected, and are not known to be written
	dirty   bool                      // something changed since the last Collect
	bytes   int64                     // of pending
	// unreached is how much of bytes came since the last position: none of it can be written before the next one.
	unreached int64
	total     *atomic.Int64 // see CountIn; nil: none
	counted   int64         // how much of it is of this ledger
	written   State         // of the last Collect
	// scopeBefore is the scope of the rows at watermarks below scopeFrom, which is the first position that is reached. The
	// rows at later watermarks are of the scope of source.
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
	object *object.Object // nil: the row goes
	added  bool           // there was no row before
}

// New returns the ledger of a source whose state the store holds; the zero State if the source is new. If the state has
// another scope, updates have that scope until the list that was compared with it is settled. sinks are the configured
// sinks. Numbers begin above base, so that two ledgers of one source have different numbers.
func New(source Source, state State, sinks []string, base uint64) *Ledger {
	l := &Ledger{
		source:      source,
		sinks:       map[string]*sinkLedger{},
		pending:     map[string]*[]rowChange{},
		writing:     map[string]*object.Object{},
		seq:         base,
		here:        mark{base, state.ResourceVersion},
		written:     state,
		scopeBefore: state.Source.Scope,
		scopeFrom:   math.MaxUint64,
	}
	for _, name := range sinks {
		floor := state.Sinks[name]
		_, began := state.Sinks[name]
		l.sinks[name] = &sinkLedger{here: l.here, caught: floor != "", began: began, floor: floor, last: base}
		if refilter, ok := state.Refilters[name]; ok {
			l.sinks[name].caught, l.sinks[name].refilter = false, &refilter
		}
		l.all = append(l.all, l.sinks[name])
	}
	return l
}

// Begun reports whether the ledger has a position: it resumed, or its first list was stored.
func (l *Ledger) Begun() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.here.resourceVersion != ""
}

// reaches reports whether a is resourceVersion b or a later one; false if they cannot be compared.
func reaches(a, b string) bool {
	if a == "" {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order >= 0
}

// Begin starts at the source's first list, which was stored with its rows before any of it is handed over.
func (l *Ledger) Begin(resourceVersion string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.scopeFrom = min(l.scopeFrom, l.seq)
	l.here = mark{l.seq, resourceVersion}
	for _, s := range l.all {
		s.here = l.here
	}
}

// StartOver drops what sinks had settled before the process began: resourceVersions went back, since etcd was
// restored to an earlier revision.
func (l *Ledger) StartOver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		s.floor = ""
	}
}

// AddRow adds the row of an object that was not there before.
func (l *Ledger) AddRow(key string, o *object.Object) { l.change(key, o, true) }

// SetRow changes a row: it becomes the object's new state, or is removed if o is nil.
func (l *Ledger) SetRow(key string, o *object.Object) { l.change(key, o, false) }

func (l *Ledger) change(key string, o *object.Object, added bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	l.append(key, rowChange{l.seq, o, added})
	l.dirty = true
}

// rowOverhead is what a waiting change costs in addition to the object's JSON, in bytes.
const rowOverhead = 300

func (c rowChange) size() int64 {
	if c.object == nil {
		return rowOverhead
	}
	return int64(len(c.object.Raw)) + rowOverhead
}

// append appends a change of a row.
func (l *Ledger) append(key string, change rowChange) {
	l.bytes += change.size()
	l.unreached += change.size()
	if row := l.pending[key]; row != nil {
		*row = append(*row, change)
	} else {
		l.pending[key] = &[]rowChange{change}
	}
}

// drop subtracts changes from the number of bytes that wait.
func (l *Ledger) drop(changes ...rowChange) {
	for _, c := range changes {
		l.bytes -= c.size()
	}
}

// before returns how many changes are not after seq.
func before(waiting []rowChange, seq uint64) (n int) {
	for n < len(waiting) && waiting[n].seq <= seq {
		n++
	}
	return n
}

// Find returns a state of an object that is not known to be written; nil if there is none. The last state of an
// object, and until Advance follows it also the one before, is either found here or in the store.
func (l *Ledger) Find(key string, id object.Identity) *object.Object {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := func(o *object.Object) bool {
		return o != nil && o.UID == id.UID && o.ResourceVersion == id.ResourceVersion
	}
	if row := l.pending[key]; row != nil {
		for _, change := range slices.Backward(*row) {
			if is(change.object) {
				return change.object
			}
		}
	}
	if o := l.writing[key]; is(o) {
		return o
	}
	return nil
}

// Track counts an event that is sent to a sink, and returns the number under which the sink is to settle it; never 0.
// Call it before the sink can settle the event. at is the time.
func (l *Ledger) Track(sink string, at time.Time) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seq++
	s := l.sinks[sink]
	s.began = true
	return s.track(entry{since: at.UnixNano(), before: s.here, fresh: !s.caught})
}

// Settle marks an event as done: the sink's destination acknowledged or rejected it, or it was written to disk, or
// dropped by policy. Numbers that are settled already are ignored.
func (l *Ledger) Settle(sink string, number uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sinks[sink]; s != nil && s.settle(number) {
		l.dirty = true
	}
}

// FinishList notes that a sink was sent its whole initial list, or the difference between its filters. Further calls
// change nothing.
func (l *Ledger) FinishList(sink string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sinks[sink]; !s.caught {
		s.caught, s.here = true, mark{l.seq, l.here.resourceVersion}
		l.dirty = true
	}
}

// Advance moves the position: everything up to resourceVersion was handed over. It follows each change, each list as a
// whole, and each bookmark.
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

// Collect returns what may be written now; false if nothing changed since the last call. Call Confirm or TakeBack
// before the next Collect.
func (l *Ledger) Collect() (Update, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.dirty || l.here.resourceVersion == "" {
		return Update{}, false
	}
	l.dirty = false
	u := Update{State: State{Source: l.source, Sinks: map[string]string{}}}
	least := l.least()
	if mutant.On("rows-early") {
		least = l.here
	}
	for name, s := range l.sinks {
		m, fresh := s.watermark()
		if mutant.On("watermark-early") {
			m = l.here
		}
		switch {
		case fresh:
			u.begin(name, s)
		case reaches(s.floor, m.resourceVersion):
			u.Sinks[name] = s.floor
		default:
			u.Sinks[name] = m.resourceVersion
		}
	}
	u.ResourceVersion = least.resourceVersion
	if least.seq < l.scopeFrom {
		u.Source.Scope = l.scopeBefore
	}
	for key, row := range l.pending {
		l.collectRow(&u, key, row, least.seq)
	}
	l.count()
	if len(u.Upserts)+len(u.Deletes) == 0 && reflect.DeepEqual(u.State, l.written) {
		return Update{}, false
	}
	l.written = u.State
	for _, o := range u.Upserts {
		l.writing[o.Key()] = o
	}
	return u, true
}

// begin notes a sink that is still to be sent its initial list, or the difference between its filters: a restart begins
// with that again.
func (u *Update) begin(name string, s *sinkLedger) {
	switch {
	case s.refilter != nil && s.floor != "":
		u.Sinks[name] = s.floor
	case s.began:
		u.Sinks[name] = ""
	}
	if s.refilter == nil {
		return
	}
	if u.Refilters == nil {
		u.Refilters = map[string]Refilter{}
	}
	u.Refilters[name] = *s.refilter
}

// Refilter returns by which filters a sink may know the source, until FinishList.
func (l *Ledger) Refilter(sink string) Refilter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sinks[sink]; s != nil && !s.caught && s.refilter != nil {
		return *s.refilter
	}
	return Refilter{}
}

// Open returns how many events all sinks together have not settled.
func (l *Ledger) Open() (open int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.all {
		open += s.open
	}
	return open
}

// Confirm notes that what was collected is in the store.
func (l *Ledger) Confirm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.writing)
}

// collectRow moves the changes of one row that the watermark covers into the update.
func (l *Ledger) collectRow(u *Update, key string, row *[]rowChange, covered uint64) {
	waiting := *row
	n := before(waiting, covered)
	if n == 0 {
		return
	}
	if o := waiting[n-1].object; o != nil {
		u.Upserts = append(u.Upserts, o)
	} else {
		u.Deletes = append(u.Deletes, key)
	}
	l.drop(waiting[:n]...)
	if n == len(waiting) {
		delete(l.pending, key)
	} else {
		*row = waiting[n:]
	}
}

// TakeBack takes back an update that could not be written: the next one contains its rows.
func (l *Ledger) TakeBack(u Update) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.writing)
	back := func(key string, o *object.Object) {
		change := rowChange{object: o}
		l.bytes += change.size()
		if row := l.pending[key]; row != nil {
			*row = append([]rowChange{change}, *row...)
		} else {
			l.pending[key] = &[]rowChange{change}
		}
	}
	for _, o := range u.Upserts {
		back(o.Key(), o)
	}
	for _, key := range u.Deletes {
		back(key, nil)
	}
	l.written = State{}
	l.dirty = true
	l.count()
}
