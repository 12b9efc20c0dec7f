package sinktest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

func identified(t *testing.T, d Destination) sinks.Identified {
	t.Helper()
	sink, ok := connected(t, d).(sinks.Identified)
	if !ok {
		t.Skip("the destination has no identity of its own")
	}
	return sink
}

// testDestination tests that two sinks see the same identity of a destination.
func testDestination(t *testing.T, _ Harness, d Destination) {
	one, other := identified(t, d), identified(t, d)
	if one.Destination() == "" || one.Destination() != other.Destination() {
		t.Errorf("two sinks write to %q and %q", one.Destination(), other.Destination())
	}
}

// claim claims a name. The register can have been created a moment ago, and be unavailable at first.
func claim(t *testing.T, d sinks.Identified, owner sinks.Owner) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := sinks.Claim(ctx, d, "live", owner)
		if err == nil || errors.Is(err, sinks.ErrNameTaken) || ctx.Err() != nil {
			return err
		}
		t.Logf("a claim for %s: %v", owner.UID, err)
	}
}

// belongsTo fails the test if a sink that is not connected reads an owner other than uid for a cluster's name.
func belongsTo(t *testing.T, d Destination, cluster, uid string) {
	t.Helper()
	sink := newSink(t, d)
	for _, f := range sink.(diagnose.Checker).Check(t.Context()) {
		if f.Err != nil {
			t.Fatal(f.Err)
		}
	}
	found, err := sink.(sinks.Identified).Registered(t.Context(), cluster)
	if err != nil || found.UID != uid {
		t.Errorf("%s belongs to %+v, %v; want %q", cluster, found, err, uid)
	}
}

// testClusterNames tests that the name of a cluster belongs to the first cluster that registers it, until the name is
// transferred.
func testClusterNames(t *testing.T, _ Harness, d Destination) {
	one, other := identified(t, d), identified(t, d)
	first, second := sinks.Owner{Cluster: "prod.eu-1", UID: "k1"}, sinks.Owner{Cluster: "prod.eu-1", UID: "k2"}
	belongsTo(t, d, first.Cluster, "")
	for range 2 {
		if err := claim(t, one, first); err != nil {
			t.Fatalf("the first claim: %v", err)
		}
	}
	belongsTo(t, d, first.Cluster, first.UID)
	err := claim(t, other, second)
	if !errors.Is(err, sinks.ErrNameTaken) || !strings.Contains(err.Error(), "bridge claim") ||
		!strings.Contains(err.Error(), "k1") {
		t.Fatalf("a second cluster under the same name: %v", err)
	}
	if err := claim(t, other, sinks.Owner{Cluster: "prod", UID: "k2"}); err != nil {
		t.Errorf("under a name of its own: %v", err)
	}
	if err := other.Register(t.Context(), second, "another"); err != nil {
		t.Error(err)
	}
	if err := claim(t, one, first); err != nil {
		t.Errorf("what does not belong to the one that is replaced was handed over: %v", err)
	}
	if err := other.Register(t.Context(), second, "k1"); err != nil {
		t.Fatalf("handing over: %v", err)
	}
	if err := claim(t, other, second); err != nil {
		t.Errorf("after it was handed over: %v", err)
	}
	if err := claim(t, one, first); !errors.Is(err, sinks.ErrNameTaken) {
		t.Errorf("the cluster that lost the name: %v", err)
	}
}

// testClusterNamesAtOnce tests that only one of several clusters gets a name if all register it at the same time, and
// that the register contains that cluster.
func testClusterNamesAtOnce(t *testing.T, _ Harness, d Destination) {
	const clusters = 8
	var all []sinks.Identified
	for range clusters {
		all = append(all, identified(t, d))
	}
	errs := make([]error, clusters)
	var group sync.WaitGroup
	for n, sink := range all {
		group.Go(func() {
			errs[n] = claim(t, sink, sinks.Owner{Cluster: "prod", UID: fmt.Sprintf("k%d", n)})
		})
	}
	group.Wait()
	holder := ""
	for n, err := range errs {
		switch {
		case err == nil && holder == "":
			holder = fmt.Sprintf("k%d", n)
		case err == nil:
			t.Errorf("k%d has the name too, not only %s", n, holder)
		case !errors.Is(err, sinks.ErrNameTaken):
			t.Errorf("k%d: %v", n, err)
		}
	}
	if found, err := all[0].Registered(t.Context(), "prod"); err != nil || found.UID != holder || holder == "" ||
		found.Since.IsZero() {
		t.Errorf("the name belongs to %+v, want %q; %v", found, holder, err)
	}
}

// testForeignNameWritesNothing tests that a sink writes nothing under the name of another cluster. When the name is
// transferred to its cluster, the sink begins to write without a restart.
func testForeignNameWritesNothing(t *testing.T, _ Harness, d Destination) {
	if err := claim(t, identified(t, d), sinks.Owner{Cluster: "test", UID: "k1"}); err != nil {
		t.Fatal(err)
	}
	sink := newSink(t, d)
	owner := sinks.Owner{Cluster: "test"} // the UID is not known yet
	var destinations []string
	guard := &sinks.Guard{
		Sink:          sink,
		Name:          "live",
		Owner:         func() sinks.Owner { return owner },
		Logger:        slog.New(slog.NewTextHandler(t.Output(), nil)),
		OnDestination: func(name string) error { destinations = append(destinations, name); return nil },
	}
	if err := guard.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	owner.UID = "k2"
	if err := guard.Connect(t.Context()); !errors.Is(err, sinks.ErrNameTaken) {
		t.Errorf("Connect: %v", err)
	}
	batch := []*event.Message{Message("a", 1, 100), Message("b", 1, 100)}
	for _, err := range send(t, guard, batch) {
		if !errors.Is(err, sinks.ErrNameTaken) || sinks.IsPermanent(err) ||
			!strings.Contains(err.Error(), "bridge claim --config FILE --sink live") {
			t.Errorf("Send: %v", err)
		}
	}
	if got := d.Records(t); len(got) != 0 {
		t.Fatalf("%d events were written", len(got))
	}
	if err := sink.(sinks.Identified).Register(t.Context(), owner, "k1"); err != nil {
		t.Fatal(err)
	}
	if len(destinations) != 0 {
		t.Errorf("destinations %q although the name belongs to another cluster", destinations)
	}
	sendAll(t, guard, batch)
	if got := d.Records(t); len(got) != len(batch) {
		t.Errorf("%d events were written, want %d", len(got), len(batch))
	}
	if len(destinations) != 1 || destinations[0] != sink.(sinks.Identified).Destination() {
		t.Errorf("destinations %q", destinations)
	}
}

// testStateElsewhere tests that a new bridge does not replace one that keeps its state in the other place, unless the
// name is registered again for it. A bridge that has that state can move it.
func testStateElsewhere(t *testing.T, _ Harness, d Destination) {
	sink := identified(t, d)
	owner := sinks.Owner{Cluster: "prod", UID: "k1"}
	for _, step := range []struct {
		state     sinks.State
		isNew, ok bool
	}{
		{sinks.StateFile, true, true},
		{sinks.StateFile, true, true},
		{sinks.StateLog, true, false},
		{sinks.StateLog, false, true},
		{sinks.StateFile, true, false},
		{sinks.StateLog, true, true},
		{sinks.StateFile, false, true},
	} {
		owner.State, owner.New = step.state, step.isNew
		err := claim(t, sink, owner)
		if (err == nil) != step.ok || err != nil && (!errors.Is(err, sinks.ErrNameTaken) ||
			!strings.Contains(err.Error(), "state.log") || !strings.Contains(err.Error(), "bridge claim")) {
			t.Errorf("%+v: %v", step, err)
		}
	}
	owner.State, owner.New = sinks.StateLog, true
	if err := sink.Register(t.Context(), owner, owner.UID); err != nil {
		t.Fatal(err)
	}
	if err := claim(t, sink, owner); err != nil {
		t.Errorf("after it was registered again: %v", err)
	}
}
