package reload

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/control"
)

// The leader uses a changed configuration when all other replicas that answer have it, or after some time, and when the
// state log has everything that the leader has.
func TestLeaderIsLast(t *testing.T) {
	replica := func(name, hash string) control.Answer {
		return control.Answer{Status: &control.Status{
			Replica: control.Replica{Name: name}, Configuration: control.Configuration{Hash: hash},
		}}
	}
	const until = 20 * time.Second
	for name, c := range map[string]struct {
		others []control.Answer // until the time is over
		peers  []string
		log    time.Duration // how long the state log is unavailable
		took   time.Duration
	}{
		"alone":       {[]control.Answer{replica("self", "old"), {Error: "refused"}}, []string{"p"}, 0, 0},
		"has it":      {[]control.Answer{replica("self", "old"), replica("b", "new")}, []string{"p"}, 0, 0},
		"has it late": {[]control.Answer{replica("b", "old"), replica("c", "new")}, []string{"p"}, 0, until},
		"no log":      {[]control.Answer{replica("b", "new")}, []string{"p"}, time.Hour, time.Hour},
		"no peers":    {nil, nil, 0, peersPatience + peersInterval},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				r, _ := reloading(t)
				r.Follow(detached{until: began.Add(c.log)})
				r.opts.Peers = func(context.Context, []string) []control.Answer {
					if time.Since(began) >= until {
						return nil
					}
					return c.others
				}
				cfg := config.Default()
				cfg.HTTP.Peers = c.peers
				next := &Loaded{Config: cfg, Hash: "new"}
				r.begin()
				r.accept(t.Context(), next)
				time.AfterFunc(time.Second/2, func() {
					if waits := r.Status().Waits; (waits != "") != (c.took > 0) {
						t.Errorf("waits for %q", waits)
					}
				})
				if !r.awaitPeers(t.Context(), next) {
					t.Error("the configuration is not to be used")
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
				time.Sleep(time.Second)
				r.refuse(errors.New("x"), "")
				if r.awaitPeers(t.Context(), next) {
					t.Error("a configuration that was refused is to be used")
				}
			})
		})
	}
}

// detached is a copy that has changes which the state log does not have, until a time.
type detached struct {
	Copy

	until time.Time
}

func (d detached) Reach(context.Context) error {
	if time.Now().Before(d.until) {
		return errors.New("not available")
	}
	return nil
}

// flapping is a copy whose state log is not available when it is asked first.
type flapping struct {
	Copy

	asked *atomic.Int32
}

func (f flapping) Reach(context.Context) error {
	if f.asked.Add(1) == 1 {
		return errors.New("not available")
	}
	return nil
}

func (flapping) SetConfiguration(context.Context, string) error { return nil }

// The state log becomes unavailable while the engine ends: the next one has the earlier configuration, until the log is
// available again.
func TestTheLogIsUnavailableMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, end := runEngines(t, twoSinks, nil)
		e.Follow(flapping{asked: new(atomic.Int32)})
		e.load(oneSink)
		var sinks []int
		for _, started := range e.started {
			sinks = append(sinks, len(started.cfg.Sinks))
		}
		if want := []int{2, 2, 1}; !slices.Equal(sinks, want) {
			t.Errorf("engines with %v sinks, want %v", sinks, want)
		}
		if err := end(); err != nil {
			t.Error(err)
		}
	})
}

// A file that changes while the leader asks the other replicas is not hidden by what the earlier one waits for.
func TestTheFileChangesMeanwhile(t *testing.T) {
	r, _ := reloading(t)
	cfg := config.Default()
	cfg.HTTP.Peers = []string{"p"}
	next := &Loaded{Config: cfg, Hash: "new"}
	r.begin()
	r.accept(t.Context(), next)
	r.opts.Peers = func(context.Context, []string) []control.Answer {
		r.refuse(errors.New("bad"), "other")
		return []control.Answer{{Status: &control.Status{Replica: control.Replica{Name: "b"}}}}
	}
	if r.awaitPeers(t.Context(), next) {
		t.Error("the configuration is to be used")
	}
	if c := r.Status(); c.Error == nil || c.Refused != "other" || c.Waits != "" {
		t.Errorf("%+v", c)
	}
}

// Await waits for all replicas that answer, and fails if one of them refuses the configuration.
func TestAwait(t *testing.T) {
	replica := func(c control.Configuration) control.Answer {
		return control.Answer{Status: &control.Status{Replica: control.Replica{Name: "r"}, Configuration: c}}
	}
	bad := &control.Problem{Text: "bad"}
	uses, silent := replica(control.Configuration{Hash: "new"}), control.Answer{Address: "a:1", Error: "refused"}
	for name, c := range map[string]struct {
		answers []control.Answer
		want    string
		took    time.Duration
	}{
		"in use":  {[]control.Answer{uses, uses, silent}, "", 0},
		"another": {[]control.Answer{uses, replica(control.Configuration{Hash: "old"})}, "r uses another configuration", time.Minute},
		"waits":   {[]control.Answer{replica(control.Configuration{Waits: "waits for b"})}, "r waits for b", time.Minute},
		"silent":  {[]control.Answer{silent}, "a:1: refused; no bridge answers", time.Minute},
		"refuses another": {
			[]control.Answer{uses, replica(control.Configuration{Hash: "new", Refused: "other", Error: bad})},
			"r refuses the file that it has: bad", time.Minute,
		},
		"refuses what has no hash": {
			[]control.Answer{uses, replica(control.Configuration{Error: bad})},
			"r refuses the file that it has: bad", time.Minute,
		},
		"refused": {
			[]control.Answer{uses, replica(control.Configuration{Hash: "old", Refused: "new", Error: bad})},
			"r refuses the configuration: bad", refusalPatience,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				err := Await(ctx, func() []control.Answer { return c.answers }, "new")
				if (err == nil) != (c.want == "") || err != nil && !strings.HasSuffix(err.Error(), c.want) {
					t.Errorf("%v, want %s", err, c.want)
				}
				if took := time.Since(began); took != c.took {
					t.Errorf("took %s, want %s", took, c.took)
				}
			})
		})
	}
}
