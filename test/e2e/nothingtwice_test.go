package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"
)

// nothingTwice: the bridge is killed many times under random changes, sometimes with events in its spill, and once
// more while it delivers these. Each broker has each revision once.
func (r *replicated) nothingTwice() {
	t := r.t
	config, dir := r.config(), t.TempDir()
	b := startBridgeIn(t, dir, r.c.Kubeconfig(), config)
	b.waitReady() // what happened before the first list is history
	changes := r.startChanges()
	kills := scale.Of(6, 30)
	for n := range kills {
		spills := n%10 == 3
		if spills {
			b.waitReady()
			r.stopNodes(b)
		}
		pause(t, time.Duration(rand.IntN(2500))*time.Millisecond)
		b.kill()
		if spills {
			r.startNodes()
		}
		pause(t, time.Duration(rand.IntN(300))*time.Millisecond)
		b = startBridgeIn(t, dir, r.c.Kubeconfig(), config)
	}
	b.waitReady()
	changes.stop()
	truth := r.upTo(b)
	b.stop()
	t.Logf("%d kills, %d changes", kills, len(truth))
	r.judgeKafka(truth)
	r.judgeStream(truth)
	r.judgeMirror(truth)
}

// rivalLine is what a bridge logs that another one has taken the place of.
var rivalLine = regexp.MustCompile(`.* sink=kafka .*a process with the same identity.*`)

// twoProcesses: the volume of a bridge that hangs is given to another node while the bridge still has it. When it
// goes on, it writes nothing to Kafka or to a stream of last messages that the new one has sent or will send, and says
// why.
func (r *replicated) twoProcesses() {
	t := r.t
	config, dir, newDir := r.config(), t.TempDir(), t.TempDir()
	old := startBridgeIn(t, dir, r.c.Kubeconfig(), config)
	old.waitReady()
	changes := r.startChanges()
	old.waitAcknowledged(100) // it has written to all partitions
	old.signal(syscall.SIGSTOP)
	copyState(t, dir, newDir)
	b := startBridgeIn(t, newDir, r.c.Kubeconfig(), config)
	b.waitReady()
	b.waitAcknowledged(100)
	old.signal(syscall.SIGCONT)
	pause(t, scale.Of(5*time.Second, time.Minute))
	old.waitRival()
	changes.stop()
	truth := r.upTo(b)
	old.kill()
	b.stop()
	r.judgeKafka(truth) // what the old one wrote would be there twice
	r.judgeMirror(truth)
}

// waitRival waits until the bridge has logged that another process writes to Kafka.
func (b *bridge) waitRival() {
	b.t.Helper()
	eventually(b.t, 30*time.Second, func() error {
		line := rivalLine.FindString(b.log.String())
		if line == "" {
			return errors.New("the bridge did not log that another process writes to Kafka")
		}
		b.t.Log(line)
		return nil
	})
}

// copyState gives a bridge the state directory of another one, as it is at this moment.
func copyState(t *testing.T, from, to string) {
	t.Helper()
	from = filepath.Join(from, "state")
	socket := filepath.Join(from, "bridge.sock") // can't be copied
	if err := errors.Join(os.Remove(socket), os.CopyFS(filepath.Join(to, "state"), os.DirFS(from))); err != nil {
		t.Fatal(err)
	}
}

func (b *bridge) signal(s syscall.Signal) {
	b.t.Helper()
	if err := b.cmd.Process.Signal(s); err != nil {
		b.t.Fatal(err)
	}
}

// waitAcknowledged waits until each sink had so many events acknowledged by this process.
func (b *bridge) waitAcknowledged(count float64) {
	b.t.Helper()
	eventually(b.t, time.Minute, func() error {
		for _, sink := range []string{"mirror", "kafka"} {
			if n := b.metric("deltabridge_events_acknowledged_total", "sink="+sink); n < count {
				return fmt.Errorf("sink %s: only %.0f events were acknowledged", sink, n)
			}
		}
		return nil
	})
}

// bytesThatArriveLate: the network holds what a bridge has sent before it was killed, until its successor has sent
// everything. Then it arrives.
func (r *replicated) bytesThatArriveLate() {
	t, l, dir := r.t, r.links[0], r.t.TempDir()
	proxies := slices.Concat(l.nats, l.kafka)
	old := startBridgeIn(t, dir, r.c.Kubeconfig(), r.behind(l).config())
	old.waitReady()
	changes := r.startChanges()
	old.waitAcknowledged(100)
	changes.stop()
	r.upTo(old) // what comes now is not acknowledged before the network holds it
	freeze(proxies)
	old.signal(syscall.SIGSTOP) // so that the first batch has many events
	changes = r.startChanges()
	pause(t, time.Second)
	old.signal(syscall.SIGCONT)
	eventually(t, 10*time.Second, func() error {
		for _, sink := range []string{"jetstream", "mirror", "kafka"} {
			if old.metric("deltabridge_queue_events", "sink="+sink) == 0 {
				return fmt.Errorf("sink %s has nothing under way", sink)
			}
		}
		return nil
	})
	pause(t, time.Second)
	old.kill()
	b := startBridgeIn(t, dir, r.c.Kubeconfig(), r.config())
	b.waitReady()
	pause(t, scale.Of(3*time.Second, time.Minute))
	changes.stop()
	truth := r.upTo(b)
	r.judgeKafka(truth)
	r.judgeMirror(truth)
	stored, refused := r.js[0].lastSequence("E2E"), r.refused()
	thaw(proxies)
	eventually(t, 30*time.Second, func() error {
		for _, p := range proxies {
			if n := p.Connections(); n > 0 {
				return fmt.Errorf("a proxy has %d connections", n)
			}
		}
		return nil
	})
	eventually(t, 10*time.Second, func() error { // only the stream that keeps everything accepts late messages
		late, batches := r.js[0].lastSequence("E2E")-stored, r.refused()-refused
		if late == 0 || batches == 0 {
			return fmt.Errorf("JetStream has stored %d late messages, and Kafka has refused %d batches", late, batches)
		}
		return nil
	})
	pause(t, 2*time.Second) // until the brokers have read all of it
	b.stop()
	t.Logf("JetStream has stored %d late messages, and Kafka has refused %d batches; after that:",
		r.js[0].lastSequence("E2E")-stored, r.refused()-refused)
	r.judgeKafka(truth)
	r.judgeMirror(truth)
}
