package engine

import (
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deltabridge/deltabridge/internal/actors"
	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/filter"
	"github.com/deltabridge/deltabridge/pkg/informer"
)

// lined is a process whose sink is sent who made changes. The test answers.
type lined struct {
	*tracked

	asker *actors.Asker
	stop  func()
}

// startLined must be called in a bubble.
func startLined(t *testing.T, dir string, rules ...filter.Rule) *lined {
	t.Helper()
	s := &lined{tracked: startTracked(t, dir, false, nil, rules...), asker: &actors.Asker{}}
	l := s.pipeline.attached["pods"]
	s.pipeline.Actor, l.asker = true, s.asker
	s.pipeline.progress.every = time.Hour
	var group sync.WaitGroup
	group.Go(func() { s.pipeline.followLines(l.ctx) })
	group.Go(func() { s.pipeline.followDebounce(l.ctx) })
	s.stop = group.Wait
	return s
}

// ask delivers a state, and returns the question who made the change.
func (s *lined) ask(uid string, rv int) *actors.Question {
	s.t.Helper()
	q := &actors.Question{}
	s.asker.Current = q
	s.change(box(s.t, uid, uid, rv, true), false)
	s.asker.Current = nil
	return q
}

// answer names the user who made a change.
func (s *lined) answer(q *actors.Question, user string) {
	q.Answer(&event.Actors{By: event.Actor{Grade: event.ActorProven, User: user}})
	(&Engine{pipelines: []*pipeline{s.pipeline}}).answered()
	synctest.Wait()
}

// sent returns what is in the queue and was not sent before, with who made it, and settles it.
func (s *lined) sent() (all []string) {
	s.t.Helper()
	synctest.Wait()
	q := s.pipeline.Queue
	for q.Stats().Items > q.Stats().Taken {
		batch, err := q.Take(s.t.Context(), nil, 100, 1<<20)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, m := range batch {
			attributes := maps.Collect(m.Attributes)
			text := m.Type.String() + " " + m.ID
			if grade := attributes["actorgrade"]; grade != "" {
				text += " by " + grade + " " + attributes["actor"]
			}
			if q.Age() > time.Second {
				s.t.Errorf("%s counts as %v old", text, q.Age())
			}
			all = append(all, text)
		}
	}
	q.Ack(q.Stats().Taken)
	return all
}

func (s *lined) expect(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, s.sent()); diff != "" {
		s.t.Errorf("-want +sent:\n%s", diff)
	}
}

// inBubble runs a test with a process that knows the object z.
func inBubble(t *testing.T, rules []filter.Rule, test func(t *testing.T, s *lined)) {
	synctest.Test(t, func(t *testing.T) {
		s := startLined(t, t.TempDir(), rules...)
		s.must(s.informer.Store().Replace([]any{box(t, "z", "z", 1, true)}, "1"))
		s.expect("added z.1", "synced synced.c.pods.1")
		test(t, s)
		s.kill()
		s.engine.stopReading()
	})
}

// A change waits for its actor, and everything behind it too. It does not count as lag.
func TestLineKeepsTheOrder(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *lined) {
		l := s.pipeline.attached["pods"]
		a, b := s.ask("a", 2), s.ask("b", 3)
		s.change(box(t, "c", "c", 4, true), false) // nobody is asked
		l.OnGap("4", "5", "a test")
		(&restating{listener: l}).OnRestate(box(t, "z", "z", 1, true))
		s.answer(b, "bob")
		time.Sleep(time.Minute)
		s.expect()
		if lag := s.engine.tracker.Lags()["pods"]["test"]; lag.ResourceVersion != "1" || lag.Open != 0 {
			t.Errorf("lag %+v", lag)
		}
		if all, resent := s.pipeline.lines.sizes(); all.events != 5 || all.bytes < 5*400 || resent.events != 1 {
			t.Errorf("%+v waits, re-sent: %+v", all, resent)
		}
		s.answer(a, "alice")
		s.expect("added a.2 by proven alice", "added b.3 by proven bob", "added c.4 by unknown ", "gap gap.c.pods.relist.4.5",
			"restated z.1")
		if all, resent := s.pipeline.lines.sizes(); all != (amount{}) || resent != all {
			t.Errorf("%+v waits, re-sent: %+v", all, resent)
		}
		q := s.ask("d", 6)
		s.expect()
		s.answer(q, "dora")
		s.expect("added d.6 by proven dora")
		s.change(box(t, "e", "e", 7, true), false)
		s.expect("added e.7 by unknown ") // nothing waits, so this does not either
	})
}

// What waits does not count as lag, but holds the watermark.
func TestLineHoldsTheWatermark(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *lined) {
		q := s.ask("a", 2)
		time.Sleep(time.Minute)
		if lag := s.engine.tracker.Lags()["pods"]["test"]; lag.Open != 0 || lag.ResourceVersion != "1" {
			t.Errorf("lag %+v", lag)
		}
		s.answer(q, "alice")
		synctest.Wait()
		if lag := s.engine.tracker.Lags()["pods"]["test"]; lag.Open != 1 || time.Since(lag.Since) > time.Second {
			t.Errorf("lag %+v", lag)
		}
		s.expect("added a.2 by proven alice")
		if lag := s.engine.tracker.Lags()["pods"]["test"]; lag.Open != 0 || lag.ResourceVersion != "2" {
			t.Errorf("lag %+v", lag)
		}
	})
}

// If the line is full, the oldest event leaves it with what is known.
func TestLineIsBounded(t *testing.T) {
	for name, buffer := range map[string]delivery.Buffer{
		"events": {Events: 4 * LineShare, Bytes: 1 << 30}, "bytes": {Events: 1 << 20, Bytes: 4 * LineShare * 640},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(t *testing.T, s *lined) {
				s.pipeline.Buffer = buffer
				var asked []*actors.Question
				for n := range 3 {
					asked = append(asked, s.ask(fmt.Sprint("o", n), 2+n))
				}
				s.expect()
				asked[1].Answer(&event.Actors{By: event.Actor{Grade: event.ActorSole, User: "bob"}})
				s.ask("o3", 5)
				s.expect("added o0.2 by unknown ", "added o1.3 by sole bob")
				s.answer(asked[2], "eve")
				s.expect("added o2.4 by proven eve")
				s.pipeline.advanceLines(true)
				s.expect("added o3.5 by unknown ")
			})
		})
	}
}

// A progress event does not say that the destination has what waits.
func TestLineAndProgress(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *lined) {
		reached := func() string { return s.pipeline.progress.positions["pods"].resourceVersion }
		check := func(want string) {
			t.Helper()
			synctest.Wait()
			if got := reached(); got != want {
				t.Errorf("reached %s, want %s", got, want)
			}
		}
		check("1")
		a := s.ask("a", 2)
		s.informer.Store().UpdateResourceVersion("3") // a bookmark
		s.informer.Store().UpdateResourceVersion("4")
		b := s.ask("b", 5)
		before := time.Now()
		time.Sleep(time.Minute)
		check("1")
		s.answer(a, "alice")
		check("4")
		if at := s.pipeline.progress.positions["pods"].at; !at.Equal(before) {
			t.Errorf("reached at %v, want %v", at, before)
		}
		s.answer(b, "bob")
		check("5")
		s.ask("c", 6)
		s.pipeline.attached["pods"].OnGap("6", "2", "etcd was restored")
		s.pipeline.advanceLines(true)
		check("")
		s.sent()
	})
}

// A killed process loses nothing of what waits: a restart brings the changes again.
func TestLineAfterACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := startLined(t, dir)
		s.must(s.informer.Store().Replace([]any{box(t, "z", "z", 1, true)}, "1"))
		s.expect("added z.1", "synced synced.c.pods.1")
		s.must(s.engine.tracker.Commit())
		s.ask("a", 2)
		s.informer.Store().UpdateResourceVersion("3")
		s.must(s.engine.tracker.Commit())
		s.kill()
		s = startLined(t, dir)
		if s.at != "1" {
			t.Fatalf("the next process resumes at %s", s.at)
		}
		s.answer(s.ask("a", 2), "alice")
		s.expect("added a.2 by proven alice")
		s.must(s.engine.tracker.Commit())
		s.kill()
		if s = startLined(t, dir); s.at != "2" {
			t.Fatalf("the last process resumes at %s", s.at)
		}
		s.kill()
	})
}

// An update that has replaced another one is not the change of one request.
func TestActorsOfDebouncedUpdates(t *testing.T) {
	rules := []filter.Rule{{When: "object.inside", Debounce: 10 * time.Second}}
	inBubble(t, rules, func(t *testing.T, s *lined) {
		s.answer(s.ask("a", 2), "alice")
		s.expect("added a.2 by proven alice")
		one := s.ask("a", 3)
		time.Sleep(11 * time.Second)
		s.expect()
		if lag := s.engine.tracker.Lags()["pods"]["test"]; lag.Open != 0 {
			t.Errorf("what waits for its actor counts as lag: %+v", lag)
		}
		s.answer(one, "bob")
		s.expect("updated a.3 by proven bob")
		s.answer(s.ask("a", 4), "bob")
		s.answer(s.ask("a", 5), "eve")
		time.Sleep(11 * time.Second)
		s.expect("updated a.5 by unknown ")
	})
}

// A resync waits until what waits for its actor has passed.
func TestSettledBehindTheLine(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *lined) {
		q := s.ask("a", 2)
		settled := make(chan error, 1)
		go func() { settled <- s.pipeline.awaitSettled(t.Context(), func() error { return nil }) }()
		time.Sleep(time.Second)
		select {
		case err := <-settled:
			t.Fatalf("what waits counts as settled: %v", err)
		default:
		}
		s.answer(q, "alice")
		s.ask("b", 3) // waits, but has come later
		time.Sleep(time.Second)
		s.expect("added a.2 by proven alice")
		if err := <-settled; err != nil {
			t.Error(err)
		}
	})
}

// What an informer passes on does not overtake what waits since its predecessor has passed it on.
func TestLineOfAFormerListener(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *lined) {
		a := s.ask("a", 2)
		successor := informer.New(informer.Config{Source: s.informer.Source()})
		s.engine.attach(successor)
		s.ask("b", 3) // the predecessor has not ended yet
		s.answer(a, "ann")
		s.expect("added a.2 by proven ann")
		successor.Succeed(s.informer)
		s.must(successor.Store().Replace([]any{
			box(t, "z", "z", 1, true), box(t, "a", "a", 2, true), box(t, "b", "b", 4, true),
		}, "4"))
		s.expect("added b.3 by unknown ", "gap gap.c.pods.relist.3.4", "updated b.4")
	})
}

// Restated objects use up to half of the line, whatever changes use, so that a resync neither waits for changes nor
// displaces them.
func TestNoRestatingIntoAFullLine(t *testing.T) {
	inBubble(t, nil, func(t *testing.T, s *lined) {
		s.pipeline.Buffer.Events = 4 * LineShare
		l := s.pipeline.attached["pods"]
		for n := range 4 {
			s.ask(fmt.Sprint("o", n), 2+n)
		}
		s.sent()
		for n, want := range []bool{true, true, false} {
			if got := s.pipeline.hasRoom(); got != want {
				t.Errorf("with %d restated objects in the line: %t", n, got)
			}
			(&restating{listener: l}).OnRestate(box(t, "z", "z", 1, true))
			s.sent()
		}
		s.pipeline.advanceLines(true)
		s.sent()
	})
}
