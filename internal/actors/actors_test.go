package actors

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/audit/actor"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"

	"github.com/deltabridge/deltabridge/internal/auditread"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/internal/tracker"
)

// defaultWait is the default in the configuration.
const defaultWait = 5 * time.Second

// joining is an informer whose changes are asked about, and a journal.
type joining struct {
	t       *testing.T
	dir     string
	store   *checkpoint.Store
	journal *audit.Journal
	finder  *Finder
	asker   *Asker
	contact time.Time
	end     func()
	n       int

	maxBytes int64 // of the journal
}

// start must be called in a bubble. Its informer has delivered its list.
func (j *joining) start() {
	j.t.Helper()
	var err error
	if j.store, err = checkpoint.Open(checkpoint.Options{Path: j.dir, ClusterName: "c", NoSync: true}); err != nil {
		j.t.Fatal(err)
	}
	j.journal, err = audit.OpenJournal(
		audit.JournalOptions{Dir: j.dir + "/audit", MaxBytes: j.maxBytes, Logger: slog.New(slog.DiscardHandler)},
	)
	if err != nil {
		j.t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	t := tracker.New(tracker.Options{Store: j.store, Reading: j.t.Context(), Logger: log})
	j.finder = New(Options{Journal: j.journal, Tracker: t, Wait: defaultWait, Notify: func() {}, Logger: log})
	j.asker = &Asker{
		finder: j.finder, source: informer.Source{Name: "configmaps", Resource: configMaps}, inList: true,
		status: func() informer.Status { return informer.Status{LastContact: j.contact} },
	}
	ctx, cancel := context.WithCancel(j.t.Context())
	var group sync.WaitGroup
	group.Go(func() { j.finder.Run(ctx) })
	j.end = func() {
		cancel()
		group.Wait()
		if err := errors.Join(j.journal.Close(), j.store.Close()); err != nil {
			j.t.Error(err)
		}
	}
	j.position()
	time.Sleep(10 * time.Second)
}

var configMaps = event.AuditResource()

func (j *joining) position() {
	j.contact = time.Now()
	j.asker.OnPosition("")
}

// object returns a state whose metadata has more members.
func (j *joining) object(rv int, more string) *object.Object {
	j.t.Helper()
	o, err := object.New(
		fmt.Appendf(nil, `{"metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"%d",`+
			`"creationTimestamp":%q%s}}`, rv, time.Now().UTC().Format(time.RFC3339), more),
	)
	if err != nil {
		j.t.Fatal(err)
	}
	return o
}

// update delivers an update, and returns what is asked about it.
func (j *joining) update(old, now *object.Object) *Question {
	j.asker.OnUpdate(old, now)
	q := j.asker.Current
	j.position()
	return q
}

// request stores the audit event of a request that has ended now.
func (j *joining) request(user, verb string, base, rv int) {
	j.t.Helper()
	j.n++
	now := time.Now().UTC()
	raw := fmt.Sprintf(
		`{"auditID":"e%d","level":"RequestResponse","stage":"ResponseComplete","verb":%q,"requestURI":"/x",`+
			`"user":{"username":%q,"groups":["devs"]},"sourceIPs":["6.6.6.6","10.0.0.1"],"userAgent":"kubectl",`+
			`"objectRef":{"resource":"events","namespace":"shop","name":"web"},"responseStatus":{"code":200},`+
			`"requestObject":{"metadata":{"resourceVersion":"%d"}},`+
			`"responseObject":{"metadata":{"uid":"u1","resourceVersion":"%d"}},"requestReceivedTimestamp":%q,"stageTimestamp":%q}`,
		j.n,
		verb,
		user,
		base,
		rv,
		now.Add(-time.Millisecond).Format(time.RFC3339Nano),
		now.Format(time.RFC3339Nano),
	)
	if base == 0 {
		raw = fmt.Sprintf(`%s,"requestObject":{"data":{}}}`, raw[:len(raw)-1]) // the last of equal keys counts
	}
	if err := j.journal.Append(j.t.Context(), [][]byte{[]byte(raw)}); err != nil {
		j.t.Fatal(err)
	}
}

// check checks who made a change.
func (j *joining) check(what string, q *Question, want *event.Actors) {
	j.t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, q.Known()); diff != "" {
		j.t.Errorf("%s: -want +got:\n%s", what, diff)
	}
}

func by(grade, user, id string) *event.Actors {
	return &event.Actors{By: event.Actor{
		Grade: grade, User: user, Groups: []string{"devs"}, Address: "10.0.0.1", Agent: "kubectl", AuditID: id,
	}}
}

func testJoining(t *testing.T, test func(t *testing.T, j *joining)) {
	synctest.Test(t, func(t *testing.T) {
		j := &joining{t: t, dir: t.TempDir()}
		j.start()
		test(t, j)
		j.end()
	})
}

// A proven actor is known at once, and a sole one at the end of the wait. Without an audit event, or with two, the actor
// is unknown.
func TestActors(t *testing.T) {
	testJoining(t, func(t *testing.T, j *joining) {
		q := j.update(j.object(1, ""), j.object(2, ""))
		j.check("before its audit event", q, nil)
		j.request("alice", "update", 1, 2)
		j.check("an update with a resourceVersion", q, by(event.ActorProven, "alice", "e1"))
		j.request("bob", "patch", 0, 3)
		q = j.update(j.object(2, ""), j.object(3, ""))
		time.Sleep(defaultWait - time.Millisecond)
		j.check("during the wait", q, nil)
		time.Sleep(3 * tick)
		j.check("a patch", q, by(event.ActorSole, "bob", "e2"))
		j.request("bob", "patch", 0, 4)
		j.request("eve", "patch", 0, 4)
		two, nobody := j.update(j.object(3, ""), j.object(4, "")), j.update(j.object(4, ""), j.object(5, ""))
		time.Sleep(defaultWait + 3*tick)
		j.check("two requests", two, &event.Actors{})
		j.check("no request", nobody, &event.Actors{})
		j.request("eve", "patch", 0, 6)
		time.Sleep(skew / 2) // the clock of its API server may be behind that of bob's
		j.request("bob", "patch", 0, 6)
		skewed := j.update(j.object(5, ""), j.object(6, ""))
		time.Sleep(2 * skew)
		j.request("bob", "patch", 0, 7)
		time.Sleep(2 * skew)
		j.request("eve", "patch", 0, 7)
		later := j.update(j.object(6, ""), j.object(7, ""))
		time.Sleep(defaultWait + 3*tick)
		j.check("two requests at almost the same time", skewed, &event.Actors{})
		j.check("one request when the change had been made", later, by(event.ActorSole, "bob", "e7"))
	})
}

// Nobody is asked about what is no change of one request.
func TestNotAsked(t *testing.T) {
	testJoining(t, func(t *testing.T, j *joining) {
		k, o, now := j.asker, j.object(1, ""), j.object(2, "")
		expect := func(what string, want bool) {
			t.Helper()
			if got := k.Current != nil; got != want {
				t.Errorf("%s is asked about: %t", what, got)
			}
			k.Current = nil
		}
		k.OnAdd(o, false)
		expect("an addition", true)
		k.OnAdd(o, true)
		expect("an object of the initial list", false)
		k.OnLeave(o, o)
		expect("a leave because of the scope", false)
		k.OnLeave(o, now)
		expect("a leave", true)
		k.OnDelete(o)
		expect("a deletion", true)
		missed := *o
		missed.FinalStateUnknown = true
		k.OnDelete(&missed)
		expect("a deletion that was missed", false)
		k.OnGap("1", "2", "")
		for _, deliver := range []func(){
			func() { k.OnAdd(o, false) }, func() { k.OnUpdate(o, now) }, func() { k.OnDelete(o) }, func() { k.OnLeave(o, now) },
		} {
			deliver()
			expect("a change in a list", false)
		}
		j.position()
		k.OnUpdate(o, now)
		expect("an update", true)
		k.source.LabelSelector = "a=b"
		k.OnDelete(o)
		expect("a deletion, or an object that is not selected any more,", false)
		k.OnUpdate(o, now)
		j.position()
		expect("what is delivered between changes", false)
	})
}

// The kind of a change depends on both states. An object that existed before is not a creation.
func TestKindsOfChanges(t *testing.T) {
	testJoining(t, func(t *testing.T, j *joining) {
		const marked = `,"deletionTimestamp":"x"`
		if q := j.update(j.object(1, ""), j.object(2, marked)); q.kind != actor.Marked {
			t.Errorf("a request to delete it: %v", q.kind)
		}
		for more, want := range map[string]actor.Kind{"": actor.Deleted, marked: actor.Finished} {
			j.asker.OnDelete(j.object(2, more))
			if q := j.asker.Current; q.kind != want {
				t.Errorf("deletion of %s: %v, want %v", more, q.kind, want)
			}
		}
		old, oldMarked := j.object(1, ""), j.object(1, marked)
		for _, selector := range []string{"", "a=b"} {
			for _, want := range []actor.Kind{actor.Added, actor.Updated} {
				j.asker.source.LabelSelector = selector
				if selector == "" {
					want = actor.Added // whatever the clocks say
				}
				j.asker.OnAdd(old, false)
				if q := j.asker.Current; q.kind != want {
					t.Errorf("an addition with the selector %q: %v, want %v", selector, q.kind, want)
				}
				j.asker.OnAdd(oldMarked, false)
				if q := j.asker.Current; want == actor.Added && q.kind != want || want != actor.Added && q != nil {
					t.Errorf("an addition of an object that is being deleted, with the selector %q: %+v", selector, q)
				}
				j.position()
				time.Sleep(time.Minute)
				j.position()
			}
			old, oldMarked = j.object(1, ""), j.object(1, marked)
		}
	})
}

// An object that was created a moment ago can be selected because of a later update. Then who created it is unknown,
// unless the audit event proves that it is the same version.
func TestActorOfASelectedObject(t *testing.T) {
	testJoining(t, func(t *testing.T, j *joining) {
		time.Sleep(time.Minute)
		j.position()
		for selector, want := range map[string]*event.Actors{"": by(event.ActorSole, "alice", "e1"), "a=b": {}} {
			j.n, j.asker.source.LabelSelector = 0, selector
			j.create("alice")
			j.asker.OnAdd(j.object(2, ""), false)
			q := j.asker.Current
			j.position()
			time.Sleep(defaultWait + 3*tick)
			j.check("an addition with the selector "+selector, q, want)
			time.Sleep(time.Minute)
			j.position()
		}
	})
}

// create stores the audit event of a creation at level Metadata.
func (j *joining) create(user string) {
	j.t.Helper()
	j.n++
	now := time.Now().UTC()
	raw := fmt.Appendf(nil,
		`{"auditID":"e%d","level":"Metadata","stage":"ResponseComplete","verb":"create","requestURI":"/x",`+
			`"user":{"username":%q,"groups":["devs"]},"sourceIPs":["10.0.0.1"],"userAgent":"kubectl",`+
			`"objectRef":{"resource":"events","namespace":"shop","name":"web"},"responseStatus":{"code":201},`+
			`"requestReceivedTimestamp":%[3]q,"stageTimestamp":%[3]q}`, j.n, user, now.Format(time.RFC3339Nano))
	if err := j.journal.Append(j.t.Context(), [][]byte{raw}); err != nil {
		j.t.Fatal(err)
	}
}

// After an interruption of the watch, or if handlers have blocked, changes can be older.
func TestSinceOfChanges(t *testing.T) {
	testJoining(t, func(t *testing.T, j *joining) {
		check := func(what string, want time.Duration) {
			t.Helper()
			if got := time.Since(j.asker.since(time.Now())) - defaultWait; got != want {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
		time.Sleep(time.Minute) // until the first position, everything is possible
		j.position()
		check("a watch that delivers", 0)
		time.Sleep(30 * time.Second)
		check("a watch that was silent", 0)
		j.position()
		time.Sleep(20 * time.Second)
		j.contact = time.Now()
		check("a new watch", 20*time.Second)
		j.position()
		time.Sleep(10 * time.Second)
		check("some time after it", 30*time.Second)
		time.Sleep(11 * time.Second)
		check("when everything was read", 0)
		j.asker.OnUpdate(j.object(1, ""), j.object(2, ""))
		time.Sleep(7 * time.Second)
		j.position()
		check("handlers that have blocked", 7*time.Second)
		time.Sleep(8 * time.Second)
		check("some time after it", 0)
	})
}

// Nothing is sole while requests of API servers may be missing.
func TestActorsWhileEventsAreMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &joining{t: t, dir: t.TempDir()}
		j.start()
		time.Sleep(2 * time.Minute)
		j.position()
		patch := func(rv int) *Question {
			j.request("bob", "patch", 0, rv)
			q := j.update(j.object(rv-1, ""), j.object(rv, ""))
			time.Sleep(defaultWait + 3*tick)
			synctest.Wait()
			return q
		}
		j.check("a patch", patch(2), by(event.ActorSole, "bob", "e1"))
		for _, wait := range []time.Duration{0, 70 * time.Second} {
			j.end()
			j.start() // a restart: requests may be on connections to the previous process
			time.Sleep(wait)
			j.position()
			got := patch(3 + int(wait)).Known().By.Grade
			if want := map[bool]string{true: event.ActorSole}[wait > 0]; got != want {
				t.Errorf("%v after a restart: %q, want %q", wait, got, want)
			}
		}
		j.end()
	})
}

// A refused request has audit events that are missing.
func TestActorsAfterARefusedRequest(t *testing.T) {
	testJoining(t, func(t *testing.T, j *joining) {
		tokens := j.dir + "/tokens"
		if err := os.WriteFile(tokens, []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
		handler, err := audit.NewHandler(audit.HandlerOptions{
			Journal: j.journal, TokenFile: tokens, Logger: slog.New(slog.DiscardHandler),
			Observer: metrics.NewAuditIntake(j.journal.Status),
		})
		if err != nil {
			t.Fatal(err)
		}
		j.request("bob", "patch", 0, 2)
		q := j.update(j.object(1, ""), j.object(2, ""))
		time.Sleep(time.Second)
		handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
		time.Sleep(defaultWait)
		j.check("a patch", q, &event.Actors{})
	})
}

// What the journal has at the end of the wait is read before a sole actor is given.
func TestActorsReadTheJournalFirst(t *testing.T) {
	testJoining(t, func(t *testing.T, j *joining) {
		a := New(j.finder.Options) // without run
		j.asker.finder = a
		time.Sleep(time.Minute)
		j.position()
		read := func() {
			records, err := j.journal.Read(t.Context(), a.next, 1)
			if err != nil {
				t.Fatal(err)
			}
			a.join(records, time.Now())
		}
		j.request("bob", "patch", 0, 2)
		read()
		j.request("eve", "patch", 0, 2)
		q := j.update(j.object(1, ""), j.object(2, ""))
		time.Sleep(defaultWait)
		a.expire(time.Now())
		j.check("with an event that was not read", q, nil)
		read()
		a.expire(time.Now())
		j.check("when it was read", q, &event.Actors{})

		j.request("bob", "patch", 0, 3)
		read()
		j.request("eve", "patch", 0, 9)
		q = j.update(j.object(2, ""), j.object(3, ""))
		for range 3 { // the journal cannot be read
			time.Sleep(defaultWait)
			a.expire(time.Now())
		}
		j.check("with an event that cannot be read", q, &event.Actors{})
	})
}

// Audit events do not stay in a journal that is more than half full, because a full one refuses others.
func TestActorsDoNotFillTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &joining{t: t, dir: t.TempDir(), maxBytes: 1500}
		j.start()
		for n, want := range []uint64{0, 2} {
			j.request("alice", "update", 1+n, 2+n)
			synctest.Wait()
			if upTo, err := j.finder.Store(); err != nil || upTo != want {
				t.Errorf("not required up to %d, want %d; %+v, %v", upTo, want, j.journal.Status(), err)
			}
		}
		j.end()
	})
}

// Audit events stay in the journal for some time, so that a restart can join what it brings again.
func TestActorsKeepEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &joining{t: t, dir: t.TempDir()}
		j.start()
		store := func(want uint64) {
			t.Helper()
			synctest.Wait()
			if upTo, err := j.finder.Store(); err != nil || upTo != want {
				t.Errorf("not required up to %d, want %d; %v", upTo, want, err)
			} else if err := auditread.Commit(j.finder.Tracker, j.journal, nil, upTo); err != nil {
				t.Error(err)
			}
		}
		j.request("alice", "update", 1, 2)
		time.Sleep(keep / 2)
		j.request("alice", "update", 2, 3)
		store(0)
		j.end()
		j.start()
		j.check("a change that a restart brings again", j.update(j.object(1, ""), j.object(2, "")),
			by(event.ActorProven, "alice", "e1"))
		time.Sleep(keep / 2)
		store(0) // read again by this process
		time.Sleep(keep / 2)
		j.request("alice", "update", 3, 4)
		store(2)
		time.Sleep(keep + time.Minute)
		store(3)
		if s := j.journal.Status(); s.Acked != 3 {
			t.Errorf("%+v", s)
		}
		j.end()
		j.start()
		j.request("alice", "update", 4, 5)
		j.check("after that", j.update(j.object(4, ""), j.object(5, "")), by(event.ActorProven, "alice", "e4"))
		j.end()
	})
}
