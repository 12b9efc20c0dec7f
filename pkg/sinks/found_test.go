package sinks_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/object"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"k8s.io/apimachinery/pkg/types"
)

const writer = "installation/sink"

// ev returns a message about the object a in the form that the encoder gives it. kind is update, left, deleted,
// unknown (a deletion that a list showed), or gap.
func ev(kind string, version int, change string) *event.Message {
	m := &event.Message{
		Type: event.Updated, Epoch: "e1", Origin: event.Origin{Left: true},
		Identity: object.Identity{UID: "a", ResourceVersion: strconv.Itoa(version)},
	}
	m.ID = fmt.Sprintf("a.%d", version)
	switch kind {
	case "left":
		m.Type, m.LeftFilter = event.Deleted, true
		m.ID += ".left"
	case "deleted":
		m.Type, m.ID = event.Deleted, "a.deleted"
	case "unknown":
		m.Type, m.ID, m.FinalStateUnknown = event.Deleted, "a.deleted", true
	case "gap":
		m.Type, m.ID, m.Identity.UID = event.Gap, fmt.Sprintf("gap.%d", version), ""
	}
	if change != "" {
		m.ID += ".filter." + change
	}
	return m
}

// The headers contain everything by which a record is found again.
func TestHeadersIdentify(t *testing.T) {
	m := ev("unknown", 7, "")
	m.Resource.Resource, m.Identity.Namespace, m.Identity.Name = "pods", "shop", "web-0"
	var want, got sinks.FoundRecord
	m.Attributes(func(name, value string) bool { want.Set(name, value); return true })
	m.Headers(func(name, value string) bool { got.Set(name, value); return true })
	if got != want || got.UID == "" || got.Subject == "" || !got.Unknown {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func with(m *event.Message, change func(*event.Message)) *event.Message {
	change(m)
	return m
}

func record(by string, m *event.Message) sinks.FoundRecord {
	return sinks.FoundRecord{
		Mark: sinks.Mark(by, m), ID: m.ID, UID: string(m.Identity.UID), Version: m.Identity.ResourceVersion,
		Subject: m.Subject(), Unknown: m.FinalStateUnknown,
	}
}

// about returns m as an event of another object with the same name.
func about(uid types.UID, m *event.Message) *event.Message {
	return with(m, func(m *event.Message) { m.Identity.UID, m.ID = uid, string(uid)+m.ID[1:] })
}

// The records that were read back decide which events are not sent again.
func TestFound(t *testing.T) {
	restated := func(version int, delivery string) *event.Message {
		return with(ev("update", version, ""), func(m *event.Message) { m.Type, m.Delivery = event.Restated, delivery })
	}
	listed := func(delivery string, m *event.Message) *event.Message {
		return with(m, func(m *event.Message) { m.Type, m.Delivery = event.Added, delivery })
	}
	ifFound := func(uid types.UID, version int) *event.Message {
		return with(about(uid, ev("left", version, "c1")), func(m *event.Message) { m.IfFound = true })
	}
	epoch := func(m *event.Message) { m.Epoch = "e2.17" }
	history := func(m *event.Message) { m.History = "500" }
	for name, test := range map[string]struct {
		found []*event.Message
		again []*event.Message
		sent  []int // indices of again
	}{
		"everything up to the last record": {
			found: []*event.Message{ev("update", 10, ""), ev("update", 12, "")},
			again: []*event.Message{ev("update", 9, ""), ev("update", 10, ""), ev("update", 12, ""), ev("update", 13, "")},
			sent:  []int{3},
		},
		"the records before the last one are gone": {
			found: []*event.Message{ev("update", 12, "")},
			again: []*event.Message{ev("update", 10, ""), ev("left", 11, ""), ev("update", 12, "")},
		},
		"the next object of this name": {
			found: []*event.Message{ev("deleted", 11, ""), about("b", ev("update", 12, ""))},
			again: []*event.Message{ev("deleted", 11, ""), about("b", ev("update", 12, ""))},
		},
		"the next object of this name, and compaction has removed the deletion": {
			found: []*event.Message{about("b", ev("update", 12, ""))},
			again: []*event.Message{ev("update", 9, ""), ev("deleted", 11, ""), about("b", ev("update", 12, ""))},
		},
		"an earlier object of this name": {
			found: []*event.Message{about("b", ev("deleted", 8, ""))},
			again: []*event.Message{ev("update", 9, ""), ev("deleted", 11, "")},
			sent:  []int{0, 1},
		},
		"a deletion": {
			found: []*event.Message{ev("deleted", 12, "")},
			again: []*event.Message{ev("update", 10, ""), ev("deleted", 12, ""), ev("unknown", 10, "")},
		},
		"a deletion that a list shows can be newer than the last record": {
			found: []*event.Message{ev("update", 12, "")},
			again: []*event.Message{ev("unknown", 10, "")},
			sent:  []int{0},
		},
		"a deletion that a list shows, of an object that left, and the next object of this name": {
			found: []*event.Message{ev("left", 12, ""), about("b", ev("update", 14, ""))},
			again: []*event.Message{ev("unknown", 10, ""), about("b", ev("update", 14, ""))},
		},
		"a gap is recognized by its id, whether the spill or a list brings it": {
			found: []*event.Message{ev("gap", 12, "")},
			again: []*event.Message{ev("gap", 11, ""), ev("gap", 12, ""), ev("gap", 12, "")},
			sent:  []int{0},
		},
		"restated, sent again by the spill, and restated once more": {
			found: []*event.Message{ev("update", 10, ""), restated(10, "r1")},
			again: []*event.Message{restated(10, "r1"), restated(10, "r2")},
			sent:  []int{1},
		},
		"an initial list that a new destination has in part, and of which an object has changed": {
			found: []*event.Message{listed("l1", ev("update", 10, "")), ev("update", 12, "")},
			again: []*event.Message{
				listed("l1", ev("update", 12, "")), listed("l1", about("b", ev("update", 11, ""))), listed("l2", ev("update", 12, "")),
			},
			sent: []int{1, 2},
		},
		"what follows a restated older state is sent": {
			found: []*event.Message{ev("update", 12, "")},
			again: []*event.Message{restated(10, "r1"), ev("update", 11, ""), ev("update", 12, "")},
			sent:  []int{0, 1, 2},
		},
		"a changed filter: the leave and the return that it causes": {
			found: []*event.Message{ev("update", 10, ""), ev("left", 10, "c1"), ev("update", 10, "c2")},
			again: []*event.Message{ev("left", 10, "c1"), ev("update", 10, "c2"), ev("left", 10, "c3")},
			sent:  []int{2},
		},
		"a changed filter: an older leave that the destination has": {
			found: []*event.Message{ev("left", 10, "c1"), ev("update", 12, "")},
			again: []*event.Message{ev("left", 10, "c1"), ev("update", 12, "")},
		},
		"a changed filter: the object entered before, with another id": {
			found: []*event.Message{ev("update", 12, "")},
			again: []*event.Message{ev("update", 12, "c1"), ev("update", 11, "c1")},
		},
		"a changed filter: the object left in between, and stays away": {
			found: []*event.Message{ev("update", 12, "")},
			again: []*event.Message{ev("left", 10, "c1"), with(ev("left", 11, ""), epoch), ifFound("a", 12)},
			sent:  []int{2},
		},
		"a changed filter: the object left in between, and is back": {
			found: []*event.Message{ev("update", 10, ""), ev("update", 11, ""), ev("update", 12, "")},
			again: []*event.Message{
				ev("left", 10, "c1"), with(ev("left", 11, ""), epoch), with(ev("update", 12, ""), epoch),
			},
		},
		"a changed watch: nothing follows the leave": {
			found: []*event.Message{ev("update", 12, "")},
			again: []*event.Message{with(ev("left", 10, "c1"), func(m *event.Message) { m.Final = true })},
			sent:  []int{0},
		},
		"a changed filter: what an earlier process left on disk, before the leave that the change caused": {
			found: []*event.Message{ev("update", 10, ""), with(ev("left", 10, "c1"), epoch)},
			again: []*event.Message{ev("update", 10, ""), with(ev("left", 10, "c1"), epoch)},
		},
		"a changed filter: a leave that an earlier process left on disk, before the object entered": {
			found: []*event.Message{ev("left", 11, ""), with(ev("update", 12, ""), epoch)},
			again: []*event.Message{ev("left", 11, ""), with(ev("update", 12, ""), epoch)},
		},
		"a changed filter, and an older state of the bridge was restored: a leave from the watch": {
			found: []*event.Message{ev("left", 11, ""), with(ev("update", 12, ""), epoch)},
			again: []*event.Message{with(ev("left", 11, ""), func(m *event.Message) { m.Origin.Left = false })},
			sent:  []int{0},
		},
		"a changed filter: an object that an earlier process may have sent": {
			found: []*event.Message{ev("update", 12, ""), with(ev("left", 5, ""), func(m *event.Message) { m.Identity.UID = "b" })},
			again: []*event.Message{
				ifFound("a", 12), ifFound("a", 13), ifFound("b", 12), ifFound("c", 12),
			},
			sent: []int{0},
		},
		"a changed filter: sending the leave failed": {
			found: []*event.Message{ev("update", 12, "")},
			again: []*event.Message{ifFound("a", 12), ifFound("a", 13), ifFound("a", 12), ifFound("a", 13)},
			sent:  []int{0, 2},
		},
		"a leave with an older resourceVersion, and the object is back": {
			found: []*event.Message{ev("update", 12, ""), ev("left", 10, "c1")},
			again: []*event.Message{ev("update", 11, ""), ev("update", 12, ""), ev("update", 13, "")},
			sent:  []int{1, 2},
		},
		"the same filter: the object left in between": {
			found: []*event.Message{with(ev("update", 12, ""), func(m *event.Message) { m.Epoch = "e2.16" })},
			again: []*event.Message{with(ev("left", 11, ""), epoch), with(ev("update", 12, ""), epoch)},
		},
		"a changed filter: the last state does not pass any more": {
			found: []*event.Message{ev("update", 12, "")},
			again: []*event.Message{with(ev("left", 12, ""), epoch)},
			sent:  []int{0},
		},
		"a restored etcd": {
			found: []*event.Message{ev("update", 12, "")},
			again: []*event.Message{with(ev("update", 10, ""), history), with(ev("update", 12, ""), history)},
			sent:  []int{0, 1},
		},
		"after a restored etcd": {
			found: []*event.Message{ev("update", 12, ""), with(ev("update", 10, ""), history)},
			again: []*event.Message{with(ev("update", 10, ""), history), with(ev("update", 11, ""), history)},
			sent:  []int{1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found, others := sinks.Found{Writer: writer}, sinks.Found{Writer: "another/sink"}
			for _, m := range test.found {
				found.Note(record(writer, m))
				others.Note(record(writer, m))
			}
			var sent []int
			for i, m := range test.again {
				if !found.Has(m, "") {
					sent = append(sent, i)
				}
				if others.Has(m, "") != m.IfFound {
					t.Errorf("%s counts, but another sink wrote it", m.ID)
				}
			}
			if !slices.Equal(sent, test.sent) {
				t.Errorf("sent %d, want %d", sent, test.sent)
			}
		})
	}
}

// An event that an earlier process left on disk, and that this process has sent, is delivered again by its source.
func TestFoundOfThisProcess(t *testing.T) {
	found := sinks.Found{Writer: writer}
	found.Note(
		record(writer, with(about("other", ev("update", 99, "")), func(m *event.Message) { m.Identity.Name = "other" })),
	)
	left := []*event.Message{
		ev("update", 10, ""),
		ev("deleted", 12, ""),
		about("b", ev("update", 13, "")),
		ev("gap", 12, ""),
	}
	for range 2 { // sending them failed once
		for _, m := range left {
			if found.Has(m, "") {
				t.Errorf("%s is not sent", m.ID)
			}
		}
	}
	for _, m := range left {
		found.Sent(m, "", "")
	}
	for _, m := range left {
		if !found.Has(m, "") {
			t.Errorf("%s is sent again", m.ID)
		}
	}
}

// An earlier process has left all events of an object and of the next one with its name on disk, and had written those of
// the first object. Their source delivers all of them again.
func TestFoundNextObject(t *testing.T) {
	found := sinks.Found{Writer: writer}
	written := []*event.Message{ev("update", 10, ""), ev("deleted", 12, "")}
	next := []*event.Message{about("b", ev("update", 13, "")), about("b", ev("deleted", 14, ""))}
	for _, m := range append(written, with(about("c", ev("update", 99, "")), func(m *event.Message) { m.Identity.Name = "c" })) {
		found.Note(record(writer, m))
	}
	for _, m := range next {
		if found.Has(m, "") {
			t.Errorf("%s is not sent", m.ID)
		}
	}
	for _, m := range next {
		found.Sent(m, "", "")
	}
	for _, m := range append(written, next...) {
		if !found.Has(m, "") {
			t.Errorf("%s is sent again", m.ID)
		}
	}
}

// Records are forgotten only if none was added since the last Mark.
func TestForget(t *testing.T) {
	found := sinks.Found{Writer: writer}
	found.Note(record(writer, ev("update", 12, "")))
	found.Forget()
	found.Mark()
	found.Note(record(writer, about("b", ev("update", 13, ""))))
	found.Forget()
	if !found.Has(ev("update", 12, ""), "") {
		t.Fatal("forgotten before a mark")
	}
	found.Mark()
	found.Forget()
	for _, m := range []*event.Message{ev("update", 12, ""), about("c", ev("update", 11, ""))} {
		if found.Has(m, "") {
			t.Errorf("%s is not sent", m.ID)
		}
	}
	found.Note(record(writer, ev("update", 12, "")))
	if !found.Has(ev("update", 12, ""), "") {
		t.Error("nothing is found any more")
	}
}

// An older event of another object with the same name can wait for another place.
func TestFoundElsewhere(t *testing.T) {
	found := sinks.Found{Writer: writer}
	next := record(writer, about("b", ev("update", 12, "")))
	next.Place = "added"
	found.Note(next)
	if found.Has(ev("deleted", 11, ""), "deleted") {
		t.Error("the deletion is lost")
	}
	if !found.Has(ev("deleted", 11, ""), "added") {
		t.Error("the deletion is sent again")
	}
}

// The parts of a destination are read one after another, whatever their events are.
func TestFoundInParts(t *testing.T) {
	found := sinks.Found{Writer: writer}
	records := []*event.Message{
		ev("update", 12, ""), ev("update", 10, ""), about("b", ev("deleted", 9, "")), about("b", ev("update", 8, "")),
	}
	for n, m := range records {
		r := record(writer, m)
		r.Part = strconv.Itoa(n)
		found.Note(r)
	}
	for _, m := range records {
		if !found.Has(m, "") {
			t.Errorf("%s is sent again", m.ID)
		}
	}
}

// FuzzFound compares the records in a destination, with crashes and compaction, with the events of a process that never
// crashed: each event is there once, in order.
func FuzzFound(f *testing.F) {
	f.Add([]byte{1, 0, 7, 0, 1, 2, 9, 3})
	f.Add([]byte{0, 0, 2, 250, 1, 1, 1, 9, 77, 200, 5})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 60 {
			t.Skip("longer histories show nothing else")
		}
		var all []*event.Message // what the watch brings, in order
		here := map[string]bool{}
		for i, b := range script {
			uid := string(rune('a' + b%3))
			name := uid
			m := ev([]string{"update", "update", "left", "deleted"}[b/3%4], i+1, "")
			if !here[uid] && m.Type == event.Deleted {
				continue
			}
			here[uid] = m.Type != event.Deleted
			if m.Type == event.Deleted && !m.LeftFilter {
				uid = fmt.Sprint(uid, i) // the next object of this name has another uid
			}
			m.Identity.UID, m.Identity.Name, m.ID = types.UID(uid), name, uid+m.ID[1:]
			all = append(all, m)
		}
		var stored []*event.Message
		watermark := 0             // the first event that a restart brings again, and the position of its record
		for i, b := range script { // each byte is a crash: the watermark is b/16 events behind, and b%16 more are sent
			watermark = max(watermark, len(stored)-int(b/16))
			found := sinks.Found{Writer: writer}
			tail := stored[watermark:]
			for k, m := range tail {
				isLast := !slices.ContainsFunc(tail[k+1:], func(n *event.Message) bool { return n.Key() == m.Key() })
				if isLast || i%2 == 0 { // otherwise compaction has removed it
					found.Note(record(writer, m))
				}
			}
			for _, m := range all[watermark:min(len(all), len(stored)+int(b%16))] {
				if !found.Has(m, "") {
					stored = append(stored, m)
				}
			}
		}
		for k, m := range stored {
			if m != all[k] {
				t.Fatalf("record %d is %s, want %s", k, m.ID, all[k].ID)
			}
		}
	})
}

// With another configuration, the synced event of a list has the id of an earlier one.
func TestFoundControlEvents(t *testing.T) {
	found := sinks.Found{Writer: writer}
	gap := ev("gap", 12, "")
	found.Note(record(writer, gap))
	for epoch, want := range map[string]bool{"e1": true, "e1.2": true, "e2": false} {
		if got := found.Has(with(ev("gap", 12, ""), func(m *event.Message) { m.Epoch = epoch }), ""); got != want {
			t.Errorf("with the epoch %s: %v", epoch, got)
		}
	}
	if found.Has(with(ev("gap", 12, ""), func(m *event.Message) { m.History = "9" }), "") {
		t.Error("with another history of etcd")
	}
}

// Found remembers as many records as it has room for, and logs a warning if there are more.
func TestFoundIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("reads many records")
	}
	var log strings.Builder
	found := sinks.Found{Writer: writer, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	const n = 300_000
	started := time.Now()
	for i := range n {
		if i == 1<<18 && log.Len() > 0 {
			t.Errorf("%d are too many: %s", i, log.String())
		}
		found.Note(sinks.FoundRecord{Mark: writer, ID: fmt.Sprintf("%d.7", i), UID: strconv.Itoa(i), Version: "7"})
	}
	t.Logf("%d records in %s", n, time.Since(started))
	if n := strings.Count(log.String(), "too many records"); n != 1 {
		t.Errorf("%d warnings: %s", n, log.String())
	}
	for _, i := range []int{0, 1<<18 - 1} {
		m := with(ev("update", 7, ""), func(m *event.Message) { m.Identity.UID = types.UID(strconv.Itoa(i)) })
		if !found.Has(m, "") {
			t.Errorf("object %d is forgotten", i)
		}
	}
	leave := with(ev("left", 8, ""), func(m *event.Message) { m.Identity.UID, m.IfFound = "299999", true })
	if found.Has(leave, "") {
		t.Error("the leave of an object that was not remembered is not sent")
	}
}
