package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltabridge/deltabridge/internal/delivery"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/ledger"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/stdout"
)

// know makes a checkpoint that knows sources, and returns its directory.
func know(t *testing.T, all ...ledger.State) (dir string) {
	t.Helper()
	dir = t.TempDir()
	store := openStore(t, dir)
	if err := store.BeginCluster("c"); err != nil {
		t.Fatal(err)
	}
	var updates []ledger.Update
	for _, state := range all {
		state.ResourceVersion = "9"
		updates = append(updates, ledger.Update{State: state})
	}
	if err := store.Commit(updates, map[string]string{"test": "", "another": ""}, nil); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

var knownPods = ledger.State{
	Source: ledger.Source{Name: "pods", Resource: pods}, Sinks: map[string]string{"test": "7"},
}

// Events that a damaged spill lost are announced for each resource that they can belong to, and for no other resource.
func TestLossesOfASpillAreAnnounced(t *testing.T) {
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	p, end := pipelineIn(t, know(t, knownPods, ledger.State{
		Source: ledger.Source{Name: "deployments.apps in a", Resource: deployments},
		Sinks:  map[string]string{"another": "9"},
	}), delivery.Buffer{Events: 4, Bytes: 1 << 20, Overflow: "block"})
	defer end()
	why := errors.New("checksum")
	for name, c := range map[string]struct {
		lost fifo.Loss
		want []string
	}{
		"some items": {
			fifo.Loss{First: 3, Last: 5, Err: why, Positions: map[string]string{"uid/pods": "100", "uid/deployments.apps in a": "90", "uid/deployments.apps in b": "110"}},
			[]string{"deployments.apps@v1 up to 110, 3 events", "pods@v1 up to 100, 3 events"},
		},
		"a resource that the checkpoint does not have": {
			fifo.Loss{First: 3, Last: 3, Err: why, Positions: map[string]string{"uid/jobs.batch": "8"}},
			[]string{"jobs.batch@ up to 8, 1 events"},
		},
		"the whole file": {fifo.Loss{Err: why}, []string{"pods@v1 up to , 0 events"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			ids := map[string]bool{}
			for _, again := range []uint64{0, 10} {
				got = nil
				if c.lost.Last > 0 {
					c.lost.First, c.lost.Last = c.lost.First+again, c.lost.Last+again
				}
				for _, m := range p.lostGaps(c.lost, time.Unix(int64(again), 0)) {
					g := m.GapInfo
					got = append(got, g.Resource+"@"+m.Resource.Version+" up to "+g.To+", "+strconv.FormatInt(g.Events, 10)+" events")
					if g.Reason != "damaged" || m.Type != event.Gap || ids[m.ID] {
						t.Errorf("%s: %+v", m.ID, g)
					}
					ids[m.ID] = true
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Events of a resource that nothing else in the spill names are damaged or missing when a process starts. The resource
// gets a gap event, also if the process is killed before it sends that, but after it has written more.
func TestLostEventsOfAResourceThatNothingElseNames(t *testing.T) {
	configmaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	for name, damage := range map[string]func(data []byte) []byte{
		"damaged": func(data []byte) []byte { return bytes.Replace(data, []byte("Lost"), []byte("lost"), 1) },
		"cut off": func(data []byte) []byte { return data[:bytes.Index(data, []byte("Lost"))] },
		"missing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			dir := know(t, knownPods, ledger.State{
				Source: ledger.Source{Name: "configmaps", Resource: configmaps}, Sinks: map[string]string{"test": "9"},
			})
			write := func(resource schema.GroupVersionResource, rv int, phase string) {
				p, end := pipelineIn(t, dir, roomy)
				l := listen(t.Context(), p)
				l.inList, l.source = false, informer.Source{Name: resource.Resource, Resource: resource}
				l.OnAdd(pod(t, rv, phase), false)
				end()
			}
			write(pods, 100, "Running")
			write(configmaps, 101, "Lost")
			newest, err := filepath.Glob(filepath.Join(dir, "spill-test", "*2.log"))
			if err != nil || len(newest) != 1 {
				t.Fatal(newest, err)
			}
			data, err := os.ReadFile(newest[0])
			if damage == nil {
				err = errors.Join(err, os.Remove(newest[0]))
			} else {
				err = errors.Join(err, os.WriteFile(newest[0], damage(data), 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			write(pods, 102, "Running")
			p, end := pipelineIn(t, dir, roomy)
			defer end()
			if all := strings.Join(taken(t, p), "\n"); strings.Count(all, "configmaps.damaged") != 1 {
				t.Errorf("%d gap events about configmaps:\n%s", strings.Count(all, "configmaps.damaged"), all)
			}
		})
	}
}

// A damaged spill can be found while the engine is still asking for the cluster's uid.
func TestLossesBeforeTheClusterIsKnown(t *testing.T) {
	p, end := pipelineIn(t, know(t, knownPods), delivery.Buffer{Events: 4, Bytes: 1 << 20, Overflow: "block"})
	defer end()
	var asking sync.WaitGroup
	asking.Go(func() { p.clusterUID, p.epoch = "another", "e1" })
	gaps := p.lostGaps(fifo.Loss{}, time.Now())
	asking.Wait()
	if len(gaps) != 1 || gaps[0].ClusterUID != "c" || gaps[0].Cluster != p.Encoder.Cluster {
		t.Errorf("%+v", gaps)
	}
}

// A spill, or a file of parked events, that cannot be used is announced for each resource of the sink. If the process is
// killed before the gap event is settled, the next one sends it. It is settled when it is on disk.
func TestALossIsAnnouncedUntilItIsSettled(t *testing.T) {
	for name, damage := range map[string]func(dir string) error{
		"the spill": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "spill-test"), []byte("not a directory"), 0o600)
		},
		"the parked events": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "parked-test.db"), []byte("not a bbolt file"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := know(t, knownPods)
				if err := damage(dir); err != nil {
					t.Fatal(err)
				}
				var out bytes.Buffer
				works := stdout.New(&out)
				for n, destination := range []sinks.Sink{nil, unavailable{works}, works, works} {
					e := engineWith(t, dir, map[string]sinks.Sink{"test": destination})
					if destination != nil { // otherwise the process is killed before it sends anything
						e.pipelines[0].Start()
						time.Sleep(time.Second)
						if err := delivery.Finish(deliveries(e.pipelines), time.Second); err != nil {
							t.Error(err)
						}
					}
					endEngine(t, e)
					store := openStore(t, dir)
					if noted := !store.LostAt("test").IsZero(); noted != (n == 0) {
						t.Errorf("process %d: noted: %t", n, noted)
					}
					if err := store.Close(); err != nil {
						t.Error(err)
					}
					if got := strings.Count(out.String(), "pods.damaged...file."); got != min(1, n/2) {
						t.Errorf("process %d: %d gap events: %s", n, got, out.String())
					}
				}
			})
		})
	}
}

// unavailable is a destination that cannot be reached.
type unavailable struct{ sinks.Sink }

func (unavailable) Connect(context.Context) error { return errors.New("unavailable") }

// The positions in a spill belong to the history of etcd that their events belong to.
func TestSpilledInTwoHistories(t *testing.T) {
	state := t.TempDir()
	p, end := pipelineIn(t, state, roomy)
	l := listen(t.Context(), p)
	l.inList = false
	l.OnAdd(pod(t, 100, "Running"), false)
	l.ledger.StartOver("60")
	l.OnAdd(pod(t, 70, "Running"), false)
	p.Queue.Close()
	end()
	e := engineWith(t, state, map[string]sinks.Sink{p.Name: stdout.New(io.Discard)})
	defer endEngine(t, e)
	for history, want := range map[string]string{"": "100", "60": "70", "80": ""} {
		if got := (queues{e}).Spilled("pods", history)[p.Name]; got != want {
			t.Errorf("history %q: position %q, want %q", history, got, want)
		}
	}
}
