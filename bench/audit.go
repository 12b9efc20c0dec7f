package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/poll"
)

const (
	auditRequests = 1000 // per second, one audit event each
	auditWrites   = 4    // every fourth request is a write
	auditPhase    = 6    // seconds of load in each phase
	auditLongGone = 120  // seconds that the bridge is gone, longer than an API server keeps events
	auditSink     = "bench"
	brokerDelay   = 2 * time.Second // of everything that a slow broker sends
	// auditPolicy has the levels of docs/audit.md for writes. It also has reads, so that there are enough events.
	auditPolicy = "omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n" +
		"  - {level: Metadata, verbs: [get], namespaces: [" + benchNamespace + "]}\n" +
		"  - {level: RequestResponse, verbs: [create, update], namespaces: [" + benchNamespace + "]}\n  - {level: None}\n"
)

// audit measures what the intake of audit events costs the API server and the bridge.
func audit(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "intake-")
	if err != nil {
		return err
	}
	intake, err := cluster.NewAuditIntake(dir, auditPolicy, "")
	if err != nil {
		return err
	}
	m := &auditing{bench: b, intake: intake}
	if m.plain, err = b.startAPIServer(ctx); err != nil {
		return err
	}
	for _, name := range b.brokers {
		m.brokerName = name
		if err = m.bursts(ctx); err != nil {
			return errors.Join(err, m.plain.Stop())
		}
	}
	m.brokerName = b.brokers[0] // for an API server, all brokers are the same
	return errors.Join(m.situations(ctx), m.plain.Stop())
}

// auditing has what the measurements share.
type auditing struct {
	*bench
	intake                 *cluster.AuditIntake
	plain, batch, blocking *apiServer // without a webhook, and with both modes
	brokerName             string
	to                     broker
	via                    *relay
	bridge                 *bridge
	dropped                float64 // audit events so far
}

// situation is a state of the bridge or of its broker.
type situation struct {
	name       string
	api        func(*auditing) *apiServer
	begin, end func(context.Context, *auditing) error
}

func auditSituations() []situation {
	batch := func(m *auditing) *apiServer { return m.batch }
	nothing := func(context.Context, *auditing) error { return nil }
	return []situation{
		{"healthy", batch, nothing, nothing},
		{"healthy, mode blocking", func(m *auditing) *apiServer { return m.blocking }, nothing, nothing},
		{
			"slow broker", batch,
			func(_ context.Context, m *auditing) error { m.via.delay.Store(int64(brokerDelay)); return nil },
			func(_ context.Context, m *auditing) error { m.via.delay.Store(0); return nil },
		},
		{
			"dead broker", batch,
			func(_ context.Context, m *auditing) error { return m.to.down() },
			func(ctx context.Context, m *auditing) error { return m.to.up(ctx) },
		},
		{
			"full disk", batch,
			func(_ context.Context, m *auditing) error { return limitFiles(m.bridge.Pid, true) },
			func(_ context.Context, m *auditing) error { return limitFiles(m.bridge.Pid, false) },
		},
		{
			"bridge gone", batch,
			func(_ context.Context, m *auditing) error { return m.bridge.Kill() },
			func(ctx context.Context, m *auditing) error { return m.restart(ctx) },
		},
	}
}

// situations compares an API server with a webhook with one that has none, in turn.
func (m *auditing) situations(ctx context.Context) (err error) {
	m.via = &relay{}
	if m.via.Listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	defer m.via.end()
	if m.to, err = m.startBehind(ctx, m.via, m.brokerName, 3); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.to.close()) }()
	if err = m.to.create(ctx, auditSink); err != nil {
		return err
	}
	flags := append(m.intake.Flags, "--audit-webhook-batch-max-wait=1s", "--audit-webhook-truncate-enabled",
		"--audit-webhook-truncate-max-event-size=4194304")
	if m.batch, err = m.startAPIServer(ctx, flags...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.batch.Stop()) }()
	if m.bridge, err = m.startIntake(ctx, m.to); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.bridge.end()) }()
	if m.blocking, err = m.startAPIServer(ctx, append(flags, "--audit-webhook-mode=blocking")...); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.blocking.Stop()) }()
	for _, api := range []*apiServer{m.plain, m.batch, m.blocking} {
		err := api.createConfigMaps(ctx, churnObjects)
		if err = errors.Join(err, m.phase(ctx, api, time.Second, &auditSample{})); err != nil {
			return err
		}
	}
	return m.alternate(ctx)
}

// alternate measures all situations in turn, as often as runs says, and then what a long absence of the bridge loses.
func (m *auditing) alternate(ctx context.Context) error {
	span := time.Duration(m.scaled(auditPhase*10)) * time.Second / 10
	situations := auditSituations()
	all := make([][]auditSample, len(situations))
	for range m.runs {
		for n, s := range situations {
			sample, err := m.compare(ctx, s, span)
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			all[n] = append(all[n], sample)
		}
	}
	for n, s := range situations {
		m.report.audit(s.name, all[n])
	}
	gone := situations[len(situations)-1]
	seconds := m.scaled(auditLongGone)
	sample, err := m.compare(ctx, gone, time.Duration(seconds)*time.Second)
	if err != nil {
		return err
	}
	m.report.audit(fmt.Sprintf("%s for %d s", gone.name, seconds), []auditSample{sample})
	return nil
}

// auditSample is one comparison of an API server without and one with a webhook.
type auditSample struct {
	without, with   sample // CPU is the API server's, latencies are those of writes
	bridgeCPU       float64
	bridgeMemory    int64
	events, dropped float64 // audit events of the API server with a webhook
	memory          float64 // that it has more at the end than at the beginning
}

// compare loads one API server after the other.
func (m *auditing) compare(ctx context.Context, s situation, span time.Duration) (c auditSample, err error) {
	none := auditSample{}
	if err := m.phase(ctx, m.plain, min(span, auditPhase*time.Second), &none); err != nil {
		return c, err
	}
	if err := s.begin(ctx, m); err != nil {
		return c, err
	}
	cpu, _ := m.bridge.cpu() // fails if there is no bridge now
	err = m.phase(ctx, s.api(m), span, &c)
	if after, cpuErr := m.bridge.cpu(); cpuErr == nil {
		c.bridgeCPU = (after - cpu).Seconds() / c.with.seconds * 100
		c.bridgeMemory, _, _ = memoryOf(m.bridge.Pid)
	}
	if err = errors.Join(err, s.end(ctx, m)); err != nil {
		return c, err
	}
	dropped, err := m.caughtUp(ctx)
	c.without, c.dropped = none.with, dropped
	m.say("audit, %s: %.0f and %.0f requests/s, p50 %.1f and %.1f ms, p99 %.1f and %.1f ms; %.0f of %.0f events dropped",
		s.name, c.without.rate(), c.with.rate(), c.without.latency(.5), c.with.latency(.5),
		c.without.latency(.99), c.with.latency(.99), c.dropped, c.events)
	return c, err
}

// phase sends requests to an API server, and fills in what concerns it.
func (m *auditing) phase(ctx context.Context, api *apiServer, span time.Duration, c *auditSample) error {
	before, err := api.counters(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if c.with.latencies, c.with.events, err = api.auditLoad(ctx, span); err != nil {
		return err
	}
	c.with.seconds = time.Since(began).Seconds()
	after, err := api.counters(ctx)
	if err != nil {
		return err
	}
	c.with.cpu = time.Duration((after.cpu - before.cpu) * float64(time.Second))
	c.events, c.memory = after.events-before.events, after.memory-before.memory
	return nil
}

// caughtUp waits until everything is in the broker that the API servers have not dropped, and returns how many events
// they have dropped since the last call.
func (m *auditing) caughtUp(ctx context.Context) (dropped float64, err error) {
	before := m.dropped
	err = poll.Until(ctx, time.Second, loadTimeout, func() error {
		events := 0.0
		m.dropped = 0
		for _, api := range []*apiServer{m.batch, m.blocking} {
			c, err := api.counters(ctx)
			if err != nil {
				return err
			}
			events, m.dropped = events+c.events, m.dropped+c.dropped
		}
		held, err := m.to.held(ctx, auditSink)
		if err == nil && float64(held) < events-m.dropped {
			err = fmt.Errorf("the broker has %d audit events; the API servers have created %.0f and dropped %.0f",
				held, events, m.dropped)
		}
		return err
	})
	return m.dropped - before, err
}

// startIntake starts a bridge that only receives audit events.
func (m *auditing) startIntake(ctx context.Context, to broker) (*bridge, error) {
	dir, err := os.MkdirTemp(m.dir, "bridge-")
	if err != nil {
		return nil, err
	}
	config := fmt.Sprintf("cluster: bench\nkubeconfig: %q\nhttp: {listen: \"127.0.0.1:0\"}\nstate: {path: %q}\n"+
		"watch: [{resources: [configmaps], namespaces: [none]}]\n"+
		"audit: {listen: %q, certFile: %q, keyFile: %q, clientCAFile: %q, clientNames: [%s]}\n"+
		"sinks:\n  - name: %s\n    events: audit\n    %s\n",
		m.plain.Kubeconfig(), filepath.Join(dir, "state"), m.intake.Address, m.intake.CertFile, m.intake.KeyFile,
		m.intake.CAFile, cluster.AuditClient, auditSink, to.sink(auditSink))
	if err := os.WriteFile(configFile(dir), []byte(config), 0o600); err != nil {
		return nil, err
	}
	r, err := m.runBridge(ctx, dir)
	if err != nil {
		return nil, err
	}
	if err := r.ready(ctx); err != nil {
		return nil, errors.Join(err, r.end())
	}
	return r, nil
}

// restart starts the bridge after it was killed.
func (m *auditing) restart(ctx context.Context) error {
	again, err := m.runBridge(ctx, m.bridge.dir)
	if err == nil {
		m.bridge = again
	}
	return err
}

func (r *report) audit(situation string, all []auditSample) {
	var p pairs
	for _, c := range all {
		p.floor, p.bridge = append(p.floor, c.without), append(p.bridge, c.with)
	}
	bridge := "-"
	if memory := of(all, func(c auditSample) float64 { return megabytes(c.bridgeMemory) }); memory > 0 {
		bridge = fmt.Sprintf("%.1f %%, %.0f MB", of(all, func(c auditSample) float64 { return c.bridgeCPU }), memory)
	}
	dropped, events := func(c auditSample) float64 { return c.dropped }, func(c auditSample) float64 { return c.events }
	r.add(
		"audit",
		fmt.Sprintf("A real API server with the audit webhook and one without, in turn, with %d requests per second, one "+
			"audit event each; every fourth one is an update of a ConfigMap of 2.6 KB at RequestResponse. Latency of these "+
			"updates. A slow broker answers after %s. On the full disk, no file can grow. "+
			"With / without; ratios are medians of those of each run.",
			auditRequests, brokerDelay),
		cell{"bridge", situation},
		p.compared("requests/s", "%.0f", sample.rate),
		p.compared("p50 ms", "%.1f", at(.5)),
		p.compared("p99 ms", "%.1f", at(.99)),
		p.compared("CPU of the API server, us/request", "%.0f", sample.cpuPerEvent),
		cell{"CPU and memory of the bridge", bridge},
		cell{"dropped events", fmt.Sprintf("%.0f of %.0f", of(all, dropped), of(all, events))},
		figure("MB more in the API server", "%.0f", all, func(c auditSample) float64 { return c.memory / 1e6 }),
	)
}
