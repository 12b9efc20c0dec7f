package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/deltabridge/deltabridge/test/poll"
)

// stopsReading is what the bridge logs when it stops to read in order to use another configuration, and inUse when it
// uses it.
var stopsReading = regexp.MustCompile(`time=(\S+) .*msg="loading the changed configuration"`)

const inUse = `msg="changed configuration is in use"`

// reload makes the bridge use the wanted configuration while it runs. For the judge, this is the end of a process and
// the start of another one. A configuration that the bridge refuses because events wait for a sink is given up.
func (r *run) reload(ctx context.Context) error {
	file := filepath.Join(r.dir, "bridge.yaml")
	if r.bridge == nil || r.bridge.Ended() {
		return nil
	}
	before, err := os.ReadFile(file)
	if err != nil || r.yaml(r.config) == string(before) {
		return err
	}
	rev, err := r.w.cluster.Revision(ctx)
	if err != nil {
		return err
	}
	used := strings.Count(r.bridge.text(), inUse)
	if err := replaceFile(file, r.yaml(r.config)); err != nil {
		return err
	}
	if err := r.bridge.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	refused := ""
	late := poll.Until(ctx, pollInterval, 4*time.Minute, func() error {
		if r.bridge.Ended() || strings.Count(r.bridge.text(), inUse) > used {
			return nil
		}
		var err error
		if refused, err = r.bridge.refusal(); err == nil && refused == "" {
			err = errors.New("the configuration is not in use")
		}
		return err
	})
	switch {
	case r.bridge.Ended():
		return nil // start reports it
	case late != nil:
		r.violation("reload: %v\n%s", late, r.bridge.tail(20))
		r.stopped = true
		return nil
	case refused != "" && !strings.Contains(refused, "which is not in the configuration"):
		r.violation("the bridge refuses a configuration: %s\n%s", refused, r.yaml(r.config))
		r.stopped = true
		return nil
	case refused != "":
		r.note("the configuration is refused, the one before stays: %s", refused)
		r.config = r.used
		return replaceFile(file, string(before))
	}
	return r.reloaded(ctx, rev)
}

// reloaded notes that the bridge has used another configuration since it stopped reading. rev is a revision before.
func (r *run) reloaded(ctx context.Context, rev int64) error {
	all := stopsReading.FindAllStringSubmatch(r.bridge.text(), -1)
	at, err := time.Parse(time.RFC3339Nano, all[len(all)-1][1])
	if err != nil {
		return err
	}
	now, err := r.w.cluster.Revision(ctx)
	if err != nil {
		return err
	}
	p := &r.timeline.Processes[len(r.timeline.Processes)-1]
	p.ReadyRev, p.How, p.Asked, p.End, p.EndRev = r.bridge.ready.Swap(0), string(Term), at, at, now
	r.used = r.config
	r.timeline.Processes = append(r.timeline.Processes,
		Process{Config: r.config, Start: at, Up: time.Now(), StartRev: rev, EndRev: math.MaxInt64})
	go r.bridge.watch(r.w) // ends with the process
	return nil
}

// refusal returns why the bridge refuses its configuration file; empty if it does not.
func (b *bridge) refusal() (string, error) {
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get("http://" + b.addr + "/api/status")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	var status struct {
		Configuration struct{ Error struct{ Text string } }
	}
	if err = errors.Join(err, json.Unmarshal(body, &status)); err != nil {
		return "", fmt.Errorf("%s: %w", body, err)
	}
	return status.Configuration.Error.Text, nil
}

// replaceFile replaces the content of a file at once.
func replaceFile(file, text string) error {
	return errors.Join(os.WriteFile(file+".new", []byte(text), 0o600), os.Rename(file+".new", file))
}
