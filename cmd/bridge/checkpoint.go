package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/informer"
	"github.com/deltabridge/deltabridge/pkg/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// unknownCluster stands for the uid of a cluster that RBAC forbids to ask.
const unknownCluster = "unknown"

// checkpointer keeps the store in step with the ledgers: one ledger for each informer. It is safe for concurrent use.
type checkpointer struct {
	store *checkpoint.Store
	log   *slog.Logger
	sinks []string
	lossy bool // some sink's queue gives up events when it is full
	// filters is each sink's configuration as text. Of a sink whose filter changed the store keeps the old text until
	// the sink was told of the difference everywhere.
	filters map[string]string
	changed map[string]*config.Sink // sinks whose filter changed: with the filter that they had

	mu       sync.Mutex
	states   map[string]checkpoint.State // what the store held at the start
	ledgers  map[string]*checkpoint.Ledger
	stages   map[string]*checkpoint.Stage // of first lists that are being read
	opened   uint64                       // ledgers that were opened, so that no two use the same numbers
	leaving  map[string]bool              // sources that are forgotten when all of their events are settled
	refilter map[string]bool              // of which source and sink the difference between the old and the new filter is to be told
	failing  string                       // why the last commit failed; empty if it did not
}

// openCheckpoint opens the store of the configured state folder.
func openCheckpoint(cfg *config.Config, privacy *checkpoint.Privacy, log *slog.Logger) (*checkpointer, error) {
	store, err := checkpoint.Open(checkpoint.Options{
		Path: cfg.State.Path, ClusterName: cfg.Cluster, Privacy: privacy, Logger: log,
	})
	if err != nil {
		return nil, err
	}
	c := &checkpointer{
		store: store, log: log, filters: map[string]string{}, changed: map[string]*config.Sink{},
		states: map[string]checkpoint.State{}, ledgers: map[string]*checkpoint.Ledger{}, stages: map[string]*checkpoint.Stage{}, leaving: map[string]bool{}, refilter: map[string]bool{},
	}
	for n := range cfg.Sinks {
		if err := c.addSink(&cfg.Sinks[n]); err != nil {
			return nil, fmt.Errorf("checkpoint: %w", err)
		}
	}
	return c, nil
}

// addSink notes a sink's filter, and whether it is another one than before.
func (c *checkpointer) addSink(s *config.Sink) error {
	text, err := json.Marshal(s.Filters)
	if err != nil {
		return err
	}
	c.sinks = append(c.sinks, s.Name)
	c.lossy = c.lossy || s.Buffer.Overflow == config.OverflowCompact || s.Buffer.Overflow == config.OverflowDropOldest
	c.filters[s.Name] = string(text)
	before, known, err := c.store.SinkConfig(s.Name)
	if err != nil || !known || before == string(text) {
		return err
	}
	old := &config.Sink{Name: s.Name}
	if err := json.Unmarshal([]byte(before), &old.Filters); err != nil {
		return fmt.Errorf("filter of sink %s as it was: %w", s.Name, err)
	}
	c.log.Info("the sink's filter changed: it will be told of what enters and what leaves", "sink", s.Name)
	c.changed[s.Name] = old
	return nil
}

// identify waits until the API server says which cluster it is, and loads what the store holds of that cluster. It
// returns ctx's error if that ends first.
func (c *checkpointer) identify(ctx context.Context, client rest.Interface) error {
	reported := false
	for {
		uid, err := clusterUID(ctx, client)
		if err == nil {
			return c.load(uid)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if !reported {
			c.log.Warn("API server does not answer, trying again", "err", err)
			reported = true
		}
		c.fail("the API server does not answer: " + err.Error())
		timer := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		}
	}
}

// clusterUID is the uid of the namespace kube-system, which lives as long as the cluster. Empty if RBAC forbids to ask.
func clusterUID(ctx context.Context, client rest.Interface) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	data, err := client.Get().AbsPath("/api/v1/namespaces/kube-system").DoRaw(ctx)
	switch {
	case apierrors.IsForbidden(err) || apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", err
	}
	o, err := object.New(data)
	if err != nil {
		return "", err
	}
	return string(o.UID), nil
}

func (c *checkpointer) load(uid string) error {
	if uid == "" {
		c.log.Warn("the namespace kube-system can't be read: whether the checkpoint is of this cluster is not checked")
		if uid = c.store.ClusterUID(); uid == "" {
			uid = unknownCluster
		}
	}
	if _, err := c.store.BeginCluster(uid); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	states, err := c.store.States()
	if err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failing = ""
	for _, s := range states {
		c.states[s.Source.Name] = s
	}
	return nil
}

// remembered are the sources that an earlier process watched and this one has not begun to.
func (c *checkpointer) remembered() []informer.Source {
	c.mu.Lock()
	defer c.mu.Unlock()
	var sources []informer.Source
	for name, s := range c.states {
		if c.ledgers[name] == nil {
			sources = append(sources, informer.Source(s.Source))
		}
	}
	return sources
}

// resume opens the ledger of a source and gives what the store holds of it. spilled are the positions that lie in the
// sinks' spills.
func (c *checkpointer) resume(source informer.Source, spilled map[string]string) (known []*object.Object, at string) {
	if c.isBack(source.Name) {
		return nil, "" // what was told of it before still counts
	}
	state, known, err := c.store.LoadIndex(source.Name)
	if err != nil {
		c.log.Error("checkpoint of a resource can't be read, listing", "source", source.Name, "err", err)
		state, known = checkpoint.State{}, nil
	}
	if state.Sinks == nil {
		state.Sinks = map[string]string{}
	}
	if state.ResourceVersion != "" {
		for sink, position := range spilled {
			if state.Sinks[sink] != "" { // a sink that has no watermark gets everything, whatever lies in its spill
				state.Sinks[sink] = laterVersion(state.Sinks[sink], position)
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for sink := range c.changed {
		if state.Sinks[sink] != "" {
			c.refilter[source.Name+"\x00"+sink] = true
			delete(state.Sinks, sink)
		}
	}
	state.Source = checkpoint.Source(source)
	c.states[source.Name] = state
	c.opened++
	ledger := checkpoint.NewLedger(checkpoint.Source(source), state, c.sinks, c.opened<<40)
	if c.lossy {
		ledger.Merge()
	}
	c.ledgers[source.Name] = ledger
	return known, state.ResourceVersion
}

// knows reports whether a sink knows the state from which a source resumes.
func (c *checkpointer) knows(source, sink string) (floor string, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	floor = c.states[source].Sinks[sink]
	return floor, floor != ""
}

// refilters reports whether a sink knows a source by its old filter.
func (c *checkpointer) refilters(source, sink string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refilter[source+"\x00"+sink]
}

func (c *checkpointer) ledger(source string) *checkpoint.Ledger {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ledgers[source]
}

// settle says that a sink is done with a message.
func (c *checkpointer) settle(sink string, m *event.Message) {
	if m.Origin.Seq == 0 {
		return
	}
	if l := c.ledger(m.Origin.Source); l != nil {
		l.Settle(sink, m.Origin.Seq)
	}
}

// isBack reports whether a source has a ledger: its resource went and came again.
func (c *checkpointer) isBack(source string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.leaving, source)
	return c.ledgers[source] != nil
}

// forget drops a source that is not watched any more, as soon as every sink has settled what it was told of it.
func (c *checkpointer) forget(source string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leaving[source] = true
}

// removed drops a source whose resource is gone. Where its objects may live on, unseen, the source stays.
func (c *checkpointer) removed(i *informer.Informer) {
	if len(i.Objects()) == 0 {
		c.forget(i.Source().Name)
	}
}

// finishLeaving drops the sources that are to be forgotten and have nothing open.
func (c *checkpointer) finishLeaving() {
	c.mu.Lock()
	var failure error
	for source := range c.leaving {
		open := 0
		if l := c.ledgers[source]; l != nil {
			for _, lag := range l.Lags() {
				open += lag.Open
			}
		}
		if open > 0 {
			continue
		}
		if err := c.store.Forget(source); err != nil {
			failure = err
			continue
		}
		c.store.DropStage(source)
		delete(c.stages, source)
		delete(c.leaving, source)
		delete(c.states, source)
		delete(c.ledgers, source)
	}
	c.mu.Unlock()
	if failure != nil {
		c.report(failure)
	}
}

// Run commits until ctx ends, and once more then.
func (c *checkpointer) Run(ctx context.Context) error {
	ticker := time.NewTicker(commitInterval)
	defer ticker.Stop()
	pace, last := newCommitPace(), time.Now()
	for {
		select {
		case <-ctx.Done():
			c.commit()
			return nil
		case <-ticker.C:
		}
		if began := time.Now(); pace.due(c.waiting(), began.Sub(last)) {
			rows, size := c.commit()
			last = began
			pace.learn(rows, size, time.Since(began))
		}
	}
}

// waiting is how many rows changed since they were written.
func (c *checkpointer) waiting() (rows int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.ledgers {
		rows += l.Waiting()
	}
	return rows
}

// commit writes what was settled since the last time, in one transaction. It gives the number of its rows, and the size of
// their objects.
func (c *checkpointer) commit() (rows, size int) {
	c.mu.Lock()
	ledgers := maps.Clone(c.ledgers)
	c.mu.Unlock()
	var updates []checkpoint.Update
	var from []*checkpoint.Ledger
	for _, name := range slices.Sorted(maps.Keys(ledgers)) {
		if u, ok := ledgers[name].Collect(); ok {
			updates, from = append(updates, u), append(from, ledgers[name])
			rows += len(u.Upserts) + len(u.Deletes)
			for _, o := range u.Upserts {
				size += len(o.Raw)
			}
		}
	}
	c.finishChanges(ledgers)
	defer c.finishLeaving()
	if len(updates) == 0 {
		return 0, 0
	}
	err := c.store.Commit(updates, c.storedFilters())
	for n, u := range updates {
		if err != nil {
			from[n].Failed(u)
		} else {
			from[n].Written(u)
		}
	}
	c.report(err)
	return rows, size
}

// finishChanges lets the store take the new filter of a sink that was told of the difference everywhere.
func (c *checkpointer) finishChanges(ledgers map[string]*checkpoint.Ledger) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for sink := range c.changed {
		done := len(ledgers) > 0
		for source := range c.states { // those that are not begun yet are still to be told
			l := ledgers[source]
			done = done && l != nil && l.Lags()[sink].ResourceVersion != ""
		}
		if done {
			delete(c.changed, sink)
		}
	}
}

// storedFilters is what the store is to hold of each sink.
func (c *checkpointer) storedFilters() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	filters := maps.Clone(c.filters)
	for sink, old := range c.changed {
		if text, err := json.Marshal(old.Filters); err == nil {
			filters[sink] = string(text)
		}
	}
	return filters
}

// report keeps the outcome of a commit, and logs it if it is news.
func (c *checkpointer) report(err error) {
	if err == nil {
		c.mu.Lock()
		before := c.failing
		c.failing = ""
		c.mu.Unlock()
		if before != "" {
			c.log.Info("checkpoint is written again")
		}
		return
	}
	if c.fail("checkpoint can't be written: " + err.Error()) {
		c.log.Error("checkpoint can't be written: a restart would repeat more, and could miss deletions; trying again", "err", err)
	}
}

func (c *checkpointer) fail(why string) (news bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	news = c.failing == ""
	c.failing = why
	return news
}

// notReady says why the checkpoint keeps the bridge from being ready; empty if it does not.
func (c *checkpointer) notReady() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failing
}

// lags gives what each sink has not settled, by source and sink.
func (c *checkpointer) lags() map[string]map[string]checkpoint.Lag {
	c.mu.Lock()
	ledgers := maps.Clone(c.ledgers)
	c.mu.Unlock()
	lags := map[string]map[string]checkpoint.Lag{}
	for source, l := range ledgers {
		lags[source] = l.Lags()
	}
	return lags
}
