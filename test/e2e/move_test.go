package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestFromADirectoryToALogAtOnce: a bridge without a log is replaced by one with a log, whose directory is empty. The
// new one sends nothing. A bridge that has both the directory and a log sends what has changed, and then one without the
// directory can replace it. Nothing is missing, nothing is sent twice.
func TestFromADirectoryToALogAtOnce(t *testing.T) {
	t.Parallel()
	l := newLogged(t)
	_, config, _ := strings.Cut(l.config, "\nwatch:")
	dir := t.TempDir()
	b := startBridgeIn(t, dir, l.kubeconfig, "watch:"+config)
	b.waitReady()
	l.change("before")
	upTo(t, b, l.c, l.namespace)
	b.stop()
	sent := len(l.js.read("one"))

	b = l.start()
	l.change("during")
	eventually(t, time.Minute, func() error {
		if err := b.ready(); err == nil || !strings.Contains(err.Error(), "move in two steps") {
			return errors.Join(errors.New("the bridge does not refuse the step"), err)
		}
		return nil
	})
	b.stop()
	if n := len(l.js.read("one")); n != sent {
		t.Errorf("the stream had %d messages, and has %d", sent, n)
	}

	l.stream(remove)
	b = l.startIn(dir)()
	b.waitLeader()
	upTo(t, b, l.c, l.namespace)
	b.stop()
	l.judge()
}
