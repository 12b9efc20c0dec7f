package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/test/observe"
	"github.com/deltabridge/deltabridge/test/poll"
	"github.com/deltabridge/deltabridge/test/process"
	"github.com/deltabridge/deltabridge/test/scale"
)

// bridge is a running binary.
type bridge struct {
	t       *testing.T
	cmd     *exec.Cmd
	log     *observe.LogBuffer
	stdout  *observe.LogBuffer
	addr    string // of its HTTP server
	ended   chan error
	relists float64 // as reached saw them
}

var httpAddress = regexp.MustCompile(`http=(\S+)`)

// startBridge runs the binary with a configuration, to which it adds the HTTP server, the state and the kubeconfig.
func startBridge(t *testing.T, kubeconfig, config string) *bridge {
	t.Helper()
	return startBridgeIn(t, t.TempDir(), kubeconfig, config)
}

// startBridgeIn is startBridge with the folder of an earlier one, whose state it takes over.
func startBridgeIn(t *testing.T, dir, kubeconfig, config string) *bridge {
	t.Helper()
	return startBridgeWith(t, dir, kubeconfig, "", config)
}

// startBridgeWith is startBridgeIn with more keys of `state`.
func startBridgeWith(t *testing.T, dir, kubeconfig, state, config string) *bridge {
	t.Helper()
	file := filepath.Join(dir, "bridge.yaml")
	if err := os.WriteFile(file, []byte(completeConfig(dir, kubeconfig, state, config)), 0o600); err != nil {
		t.Fatal(err)
	}
	b := launchBridge(t, file)
	eventually(t, 20*time.Second, func() error {
		if b.findAddress(); b.addr == "" {
			return errors.New("the bridge has not named its address")
		}
		if code, body, err := b.get("/metrics"); err != nil || code != http.StatusOK {
			return fmt.Errorf("metrics: code %d, %s, %v", code, body, err)
		}
		return nil
	})
	return b
}

// launchBridge runs the binary with a configuration file, and does not wait for it.
func launchBridge(t *testing.T, file string) *bridge {
	t.Helper()
	b := &bridge{t: t, log: &observe.LogBuffer{}, stdout: &observe.LogBuffer{}, ended: make(chan error, 1)}
	b.cmd = exec.Command(bridgeBinary, "run", "--config", file)
	b.cmd.Stdout, b.cmd.Stderr = b.stdout, b.log
	b.cmd.SysProcAttr = process.Attr()
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { b.ended <- b.cmd.Wait(); close(b.ended) }() // ends with the process, which cleanup ends
	t.Cleanup(func() {
		_ = b.cmd.Process.Kill() // if it has ended, that is as well
		<-b.ended                //nolint:errcheck // it was told to end, one way or another
		if strings.Contains(b.log.String(), "DATA RACE") {
			t.Error("the race detector found something in the bridge")
		}
		if t.Failed() {
			t.Logf("the bridge's log:\n%s", tail(b.log.String(), 120))
		}
	})
	return b
}

// completeConfig adds to a configuration what startBridgeWith adds.
func completeConfig(dir, kubeconfig, state, config string) string {
	return fmt.Sprintf(
		"cluster: e2e\nkubeconfig: %q\nhttp: {listen: \"127.0.0.1:0\", ui: true}\nstate: {path: %q%s}\nlog: {level: debug}\n%s",
		kubeconfig,
		filepath.Join(dir, "state"),
		state,
		config,
	)
}

func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// findAddress finds the address of the HTTP server in the log: the last one, because a replica that has lost the Lease
// begins again by itself.
func (b *bridge) findAddress() {
	if all := httpAddress.FindAllStringSubmatch(b.log.String(), -1); len(all) > 0 {
		b.addr = all[len(all)-1][1]
	}
}

// get reads a page of the bridge's HTTP server.
func (b *bridge) get(path string) (int, string, error) {
	b.findAddress()
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.addr+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return response.StatusCode, string(body), err
}

func (b *bridge) ready() error {
	code, body, err := b.get("/readyz")
	if err == nil && code != http.StatusOK {
		err = errors.New(body)
	}
	return err
}

func (b *bridge) waitReady() {
	b.t.Helper()
	eventually(b.t, time.Minute, b.ready)
}

// waitListed waits until the first list of ConfigMaps was handed over, whatever the sinks do.
func (b *bridge) waitListed() {
	b.t.Helper()
	eventually(b.t, time.Minute, func() error {
		if b.metric("deltabridge_informer_synced", "resource=configmaps") == 0 {
			return errors.New("the first list is not handed over")
		}
		return nil
	})
}

// metrics are those of a bridge at one time, in the text format.
type metrics struct {
	t    *testing.T
	text string
}

func (b *bridge) metrics() metrics {
	b.t.Helper()
	var body string
	eventually(b.t, 10*time.Second, func() (err error) { // it may be beginning again
		_, body, err = b.get("/metrics")
		return err
	})
	return metrics{b.t, body}
}

// family returns the samples of a metric. It parses only the lines with its name.
func (m metrics) family(name string) []*dto.Metric {
	m.t.Helper()
	var text strings.Builder
	for line := range strings.Lines(m.text) {
		if strings.Contains(line, name) {
			text.WriteString(line)
		}
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		m.t.Fatal(err)
	}
	return families[name].GetMetric()
}

// sum sums the samples of a metric whose labels include those given as name=value.
func (m metrics) sum(name string, labels ...string) float64 {
	m.t.Helper()
	sum := 0.0
	for _, sample := range m.family(name) {
		found := 0
		for _, l := range sample.GetLabel() {
			for _, want := range labels {
				if l.GetName()+"="+l.GetValue() == want {
					found++
				}
			}
		}
		if found == len(labels) {
			sum += sample.GetCounter().GetValue() + sample.GetGauge().GetValue()
		}
	}
	return sum
}

// metric is the sum of a metric now.
func (b *bridge) metric(name string, labels ...string) float64 {
	b.t.Helper()
	return b.metrics().sum(name, labels...)
}

// stop ends the bridge as Kubernetes does, and expects it to deliver what it has and to exit cleanly.
func (b *bridge) stop() {
	b.t.Helper()
	began := time.Now()
	defer func() { b.t.Logf("the bridge ended within %s", time.Since(began).Round(time.Millisecond)) }()
	if err := b.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	select {
	case err := <-b.ended:
		if err != nil {
			b.t.Errorf("the bridge ended with %v", err)
		}
	case <-time.After(patience(time.Minute)):
		b.t.Error("the bridge did not end")
	}
}

// kill ends the bridge as a node failure would.
func (b *bridge) kill() {
	b.t.Helper()
	if err := b.cmd.Process.Kill(); err != nil {
		b.t.Fatal(err)
	}
	<-b.ended //nolint:errcheck // killed
}

// residentBytes is the process's memory now.
func (b *bridge) residentBytes() int64 {
	b.t.Helper()
	return int64(b.metric("process_resident_memory_bytes"))
}

// patience returns how long a test waits for something that takes at most limit on a machine that does little else. In
// `make test`, other packages run beside, on a machine that may be slow, or stand still for some seconds.
func patience(limit time.Duration) time.Duration { return max(limit, scale.Of(4*time.Minute, 0)) }

// eventually calls check until it returns nil.
func eventually(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	if err := poll.Until(t.Context(), 100*time.Millisecond, patience(limit), check); err != nil {
		t.Fatal(err)
	}
}

// holdsOnce measures until what is measured holds: something else may use the CPUs for a while, so that in `make test` the
// best of five rounds counts. In make test-long it must hold at once.
func holdsOnce(t *testing.T, measure func(round string) error) {
	t.Helper()
	for round := 1; ; round++ {
		err := measure(itoa(round))
		if err == nil {
			return
		}
		if round == scale.Of(5, 1) {
			t.Error(err)
			return
		}
		t.Logf("round %d: %v", round, err)
	}
}

// resumedLine is what an informer logs that continues where the previous process was.
const resumedLine = `msg="resumed from the checkpoint"`

// seen gives the resourceVersion up to which the bridge has read a resource, or 0 if it is not known.
func (b *bridge) seen(resource string) (rv float64) {
	b.t.Helper()
	_, body, err := b.get(control.StatusPath)
	var s control.Status
	if err != nil || json.Unmarshal([]byte(body), &s) != nil {
		return 0
	}
	for _, source := range s.Sources {
		if at, err := strconv.ParseFloat(source.ResourceVersion, 64); err == nil && source.Resource == resource {
			rv = max(rv, at)
		}
	}
	return rv
}

// settled reports whether a sink has delivered what the bridge has read, or has it on disk.
func (b *bridge) settled(name string) error {
	b.t.Helper()
	s := b.status()
	n := slices.IndexFunc(s.Sinks, func(s control.Sink) bool { return s.Name == name })
	if n < 0 {
		return fmt.Errorf("there is no sink %s", name)
	}
	onDisk := s.Sinks[n].Queue.DiskEvents
	for _, parked := range s.Sinks[n].Parked {
		onDisk -= int64(parked.Events)
	}
	if inMemory := s.Sinks[n].Queue.Events - onDisk; inMemory > 0 {
		return fmt.Errorf("sink %s has %d events in memory", name, inMemory)
	}
	return nil
}

// histogram gives the count and the sum of a sink's histogram.
func (b *bridge) histogram(name, sink string) (count uint64, sum float64) {
	b.t.Helper()
	for _, m := range b.metrics().family(name) {
		for _, l := range m.GetLabel() {
			if l.GetName() == "sink" && l.GetValue() == sink {
				return m.GetHistogram().GetSampleCount(), m.GetHistogram().GetSampleSum()
			}
		}
	}
	return 0, 0
}

// reached reports whether the informers have seen the last of the changes and nothing waits. It keeps the number of
// re-lists of ConfigMaps for later.
func (b *bridge) reached(truth []change) error {
	last := map[string]float64{}
	for _, c := range truth {
		resource, _, _ := strings.Cut(c.subject, "/")
		if rv, err := strconv.ParseFloat(c.rv, 64); err == nil {
			last[resource] = max(last[resource], rv)
		}
	}
	now := b.metrics()
	b.relists = now.sum("deltabridge_informer_relists_total", "resource=configmaps")
	for resource, rv := range last {
		if seen := b.seen(resource); seen < rv {
			return fmt.Errorf("the informer of %s is at %.0f of %.0f", resource, seen, rv)
		}
	}
	if n := now.sum("deltabridge_queue_events") + now.sum("deltabridge_spill_events"); n > 0 {
		return fmt.Errorf("%.0f events wait", n)
	}
	return nil
}
