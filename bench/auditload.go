package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// auditLoad sends requests for a time, and returns the sorted latencies of writes and the number of all requests.
func (a *apiServer) auditLoad(ctx context.Context, span time.Duration) ([]time.Duration, int, error) {
	limiter := rate.NewLimiter(auditRequests, writers)
	deadline := time.Now().Add(span)
	latencies, counts := make([][]time.Duration, writers), make([]int, writers)
	err := parallel(ctx, writers, func(ctx context.Context, writer int) error {
		for n := 0; time.Now().Before(deadline); n++ {
			if err := limiter.Wait(ctx); err != nil {
				return err
			}
			began := time.Now()
			isWrite, err := a.auditRequest(ctx, writer, n)
			if err != nil {
				return err
			}
			if counts[writer]++; isWrite {
				latencies[writer] = append(latencies[writer], time.Since(began))
			}
		}
		return nil
	})
	total := 0
	for _, n := range counts {
		total += n
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	return all, total, err
}

// auditRequest sends the nth request of a writer.
func (a *apiServer) auditRequest(ctx context.Context, writer, n int) (isWrite bool, err error) {
	objects := a.client.CoreV1().ConfigMaps(benchNamespace)
	o := realConfigMap((n*writers + writer) % churnObjects)
	if isWrite = n%auditWrites == 0; !isWrite {
		_, err = objects.Get(ctx, o.Name, metav1.GetOptions{ResourceVersion: "0"}) // from the cache
		return false, err
	}
	o.Annotations[committedAt] = strconv.FormatInt(time.Now().UnixNano(), 10)
	_, err = objects.Update(ctx, o, metav1.UpdateOptions{})
	return true, err
}

// apiCounters are metrics of an API server.
type apiCounters struct {
	cpu, memory     float64 // seconds, bytes
	events, dropped float64 // audit events
}

func (a *apiServer) counters(ctx context.Context) (c apiCounters, err error) {
	text, err := a.client.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return c, err
	}
	m, err := parseMetrics(string(text))
	if err != nil {
		return c, err
	}
	return apiCounters{
		cpu: m.sum("process_cpu_seconds_total"), memory: m.sum("process_resident_memory_bytes"),
		events: m.sum("apiserver_audit_event_total"), dropped: m.sum("apiserver_audit_error_total"),
	}, nil
}

const (
	burstEvents   = 50_000
	burstBatch    = 400 // events in a request, as API servers send them
	burstRequests = 4   // at the same time
)

// bursts sends 50,000 events to the intake at once.
func (m *auditing) bursts(ctx context.Context) error {
	to, err := m.startBroker(ctx, m.brokerName)
	if err != nil {
		return err
	}
	runs, err := repeat(m.runs, func(int) (sample, error) { return m.burst(ctx, to) })
	if err = errors.Join(err, to.close()); err != nil {
		return err
	}
	m.report.add(
		"audit: burst",
		"50,000 audit events of 1.6 KB, sent to the intake at once, in requests of 400 events, four at a time. Accepted: all "+
			"are on the disk. Delivered: the broker has all.",
		cell{"broker", m.brokerName},
		figure("accepted s", "%.2f", runs, func(s sample) float64 { return s.accepted }),
		figure("delivered s", "%.2f", runs, sample.wallSeconds),
		figure("CPU us/event", "%.1f", runs, sample.cpuPerEvent),
		figure("peak memory MB", "%.0f", runs, sample.peakMB),
		figure("slowest request ms", "%.0f", runs, at(1)),
	)
	return nil
}

func (m *auditing) burst(ctx context.Context, to broker) (s sample, err error) {
	if err = to.create(ctx, auditSink); err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, to.remove(ctx, auditSink)) }()
	r, err := m.startIntake(ctx, to)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, r.end()) }()
	client, err := m.auditClient()
	if err != nil {
		return s, err
	}
	defer client.CloseIdleConnections()
	s.events = m.scaled(burstEvents)
	requests := s.events / burstBatch
	s.latencies = make([]time.Duration, requests)
	if s.cpu, err = r.cpu(); err != nil {
		return s, err
	}
	began := time.Now()
	err = parallel(ctx, burstRequests, func(ctx context.Context, first int) error {
		for n := first; n < requests; n += burstRequests {
			body := burstBody(n)
			sent := time.Now()
			if err := m.post(ctx, client, body); err != nil {
				return err
			}
			s.latencies[n] = time.Since(sent)
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	s.events = requests * burstBatch
	s.accepted = time.Since(began).Seconds()
	err = until(ctx, loadTimeout, func() error {
		held, err := to.held(ctx, auditSink)
		if err == nil && held < int64(s.events) {
			err = fmt.Errorf("%d of %d events are delivered", held, s.events)
		}
		return err
	})
	s.seconds = time.Since(began).Seconds()
	slices.Sort(s.latencies)
	if err = errors.Join(err, s.finish(r.program)); err == nil {
		m.say("audit, burst, %s: accepted after %.2f s, delivered after %.2f s, %.1f us CPU/event, peak %.0f MB",
			m.brokerName, s.accepted, s.seconds, s.cpuPerEvent(), megabytes(s.peak))
	}
	return s, err
}

// burstBody returns the nth request of a burst.
func burstBody(n int) []byte {
	var b strings.Builder
	b.WriteString(`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":[`)
	data := strings.Repeat("x", 450)
	for i := range burstBatch {
		if i > 0 {
			b.WriteByte(',')
		}
		object := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"settings-%06d","namespace":"bench",`+
			`"resourceVersion":"%d"},"data":{"settings":"%s"}}`, i, n, data)
		fmt.Fprintf(&b, `{"level":"RequestResponse","auditID":"%08d-0000-4000-8000-%012d","stage":"ResponseComplete",`+
			`"requestURI":"/api/v1/namespaces/bench/configmaps/settings-%06d","verb":"update",`+
			`"user":{"username":"system:serviceaccount:bench:writer","groups":["system:authenticated"]},`+
			`"sourceIPs":["10.0.0.1"],"userAgent":"bench","objectRef":{"resource":"configmaps","namespace":"bench",`+
			`"name":"settings-%06d","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},`+
			`"requestObject":%s,"responseObject":%s,"requestReceivedTimestamp":"2026-11-27T08:00:00.000000Z",`+
			`"stageTimestamp":"2026-11-27T08:00:00.005000Z"}`, n, i, i, i, object, object)
	}
	b.WriteString("]}")
	return []byte(b.String())
}

// auditClient returns a client with the certificate of the API server.
func (m *auditing) auditClient() (*http.Client, error) {
	config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{
		CAFile: m.intake.CAFile, CertFile: m.intake.ClientCertFile, KeyFile: m.intake.ClientKeyFile,
	}}
	if err := rest.LoadTLSFiles(config); err != nil { // files that it reads itself, it would watch
		return nil, err
	}
	return rest.HTTPClientFor(config)
}

func (m *auditing) post(ctx context.Context, client *http.Client, body []byte) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+m.intake.Address+"/audit", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("the intake answers with %s: %s", response.Status, text)
	}
	return err
}
