package engine

import "testing"

func newAuditReplica(t *testing.T, names ...string) *auditBridge {
	t.Helper()
	b := newAuditBridge(t, names...)
	b.replica = true
	return b
}

func (b *auditBridge) delivered(want uint64) func() bool {
	return func() bool {
		upTo, ok := b.e.AuditDelivered()
		return ok && upTo == want
	}
}

// A replica announces what another one has lost: once to each sink, and it counts as delivered only when all sinks have
// it.
func TestAnnounceAuditLoss(t *testing.T) {
	b := newAuditReplica(t, "a", "b")
	b.open()
	b.start(nil)
	b.add(3)
	b.await("all is delivered", b.delivered(3))
	b.sinks["a"].sent()
	b.sinks["b"].sent()
	b.sinks["b"].away.Store(true)
	for range 3 {
		if b.e.AnnounceAuditLoss("J1.x", "replica x is gone") {
			t.Fatal("the gap event counts as delivered while a sink is away")
		}
	}
	b.awaitSent("a", 1)
	b.sinks["b"].away.Store(false)
	b.await("it is delivered", func() bool { return b.e.AnnounceAuditLoss("J1.x", "replica x is gone") })
	b.await("another one is delivered", func() bool { return b.e.AnnounceAuditLoss("J2.x", "replica y is gone") })
	const gap = "gap of 0: audit events may be missing: replica "
	for name := range b.sinks {
		b.check(name, gap+"x is gone", gap+"y is gone")
	}
	if !b.delivered(3)() {
		t.Error("the gap events have moved the position")
	}
	b.end()
	b.checkAcked(3)
}

// A gap event that is on disk when the process ends does not count as delivered, and the next process sends it.
func TestAnnouncementOnDisk(t *testing.T) {
	b := newAuditReplica(t, "a")
	b.open()
	b.start(nil)
	b.await("it delivers", b.e.pipelines[0].Drain.Delivering)
	b.sinks["a"].away.Store(true)
	b.e.AnnounceAuditLoss("J1.x", "replica x is gone")
	b.end()
	b.open()
	b.start(nil)
	b.await("it has begun", func() bool { return b.e.pipelines[0].audit.Settled().Journal != "" })
	if upTo, ok := b.e.AuditDelivered(); ok {
		t.Errorf("delivered up to %d, although events are on disk", upTo)
	}
	b.sinks["a"].away.Store(false)
	b.await("the gap event is delivered", b.delivered(0))
	b.check("a", "gap of 0: audit events may be missing: replica x is gone")
	b.end()
}

// What a replica has delivered: nothing before it has begun, and not what is in a spill.
func TestAuditDelivered(t *testing.T) {
	b := newAuditReplica(t, "a", "b")
	b.sinks["b"].away.Store(true)
	b.open()
	b.add(5)
	b.start(nil)
	b.awaitSent("a", 5)
	if b.delivered(5)() {
		t.Error("everything counts as delivered while a sink is away")
	}
	b.await("the other sink is given up", func() bool { return !b.e.DeliversAudit() })
	b.sinks["b"].away.Store(false)
	b.await("everything is delivered", b.delivered(5))
	b.end()
	b.check("a", ids(1, 5)...)
	b.check("b", ids(1, 5)...)
}
