package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/internal/control"
	"github.com/deltabridge/deltabridge/test/cluster"
	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/scale"
)

// reloaded is a bridge whose configuration changes while it runs. Two of its sinks, live and lake, never change.
type reloaded struct {
	*bridge

	c           *cluster.Cluster
	cs          kubernetes.Interface
	dir, file   string
	namespace   string
	live, other *jetStream
	lake, topic string
	version     int // of the file, if it is a symbolic link
}

func startReloaded(t *testing.T) *reloaded {
	t.Helper()
	r := &reloaded{c: sharedCluster(t), live: startJetStream(t), other: startJetStream(t), dir: t.TempDir()}
	r.cs, r.lake = clientset(t, r.c), kafka.ForTest(t).Addr()
	r.namespace = newNamespace(t, r.cs)
	r.topic = "reloaded-" + r.namespace
	r.file = filepath.Join(r.dir, "bridge.yaml")
	r.bridge = startBridgeIn(t, r.dir, r.c.Kubeconfig(), r.config("configmaps", r.sink("third", "")))
	return r
}

// config returns a configuration with some resources, and with more sinks.
func (r *reloaded) config(resources string, sinks ...string) string {
	return fmt.Sprintf(`
watch: [{resources: [%s], namespaces: [%s]}]
sinks:
  - {name: live, nats: {url: %q, subject: "live.{resource}.{name}", stream: {name: LIVE, create: true, duplicateWindow: 100ms, subjects: ["live.>"]}}}
  - {name: lake, kafka: {brokers: [%q], topic: %q, createTopics: {partitions: 3, replicationFactor: 1}}}
`, resources, r.namespace, r.live.url(), r.lake, r.topic) + strings.Join(sinks, "")
}

// sink returns the configuration of a sink with a stream of its own, with more keys.
func (r *reloaded) sink(name, more string) string {
	return fmt.Sprintf("  - {name: %[1]s, %[2]s nats: {url: %[3]q, subject: \"%[1]s.{resource}.{name}\", "+
		"stream: {name: %[1]s, create: true, duplicateWindow: 100ms, subjects: [\"%[1]s.>\"]}}}\n", name, more, r.other.url())
}

// write changes the file, as an editor does it.
func (r *reloaded) write(config string) {
	r.t.Helper()
	text := completeConfig(r.dir, r.c.Kubeconfig(), "", config)
	if err := errors.Join(
		os.WriteFile(r.file+".new", []byte(text), 0o600),
		os.Rename(r.file+".new", r.file),
	); err != nil {
		r.t.Fatal(err)
	}
}

// mount changes the file as the kubelet changes a mounted ConfigMap: the directory that a symbolic link names.
func (r *reloaded) mount(config string) {
	r.t.Helper()
	r.version++
	version := fmt.Sprintf("..%d", r.version)
	text := completeConfig(r.dir, r.c.Kubeconfig(), "", config)
	link := func(to, name string) error {
		name = filepath.Join(r.dir, name)
		return errors.Join(os.Symlink(to, name+".new"), os.Rename(name+".new", name))
	}
	if err := errors.Join(
		os.Mkdir(filepath.Join(r.dir, version), 0o700),
		os.WriteFile(filepath.Join(r.dir, version, "bridge.yaml"), []byte(text), 0o600),
		link(version, "..data"),
		link("..data/bridge.yaml", "bridge.yaml"),
	); err != nil {
		r.t.Fatal(err)
	}
}

// run runs a command of the bridge, whose output must match a regular expression.
func (r *reloaded) run(want string, args ...string) {
	r.t.Helper()
	out, errs, err := runBridge(r.t, append(args, "--config", r.file)...)
	if !regexp.MustCompile(want).MatchString(out + errs) {
		r.t.Errorf("bridge %s: %v: %s%s, want %s", strings.Join(args, " "), err, out, errs, want)
	}
}

// await waits until the configuration in the file is in use and everything is read again. Nothing may be listed again.
func (r *reloaded) await() {
	r.t.Helper()
	began := time.Now()
	r.inUse()
	r.waitReady()
	r.t.Logf("reload: ready %s after the change", time.Since(began).Round(time.Millisecond))
	log := r.log.String()
	engines, resumed := strings.Count(log, "loading the changed configuration"), strings.Count(log, resumedLine)
	relists := r.metric("deltabridge_informer_relists_total", "resource=configmaps")
	if resumed < engines || relists != 0 {
		r.t.Errorf("ConfigMaps: %d of %d engines resumed, %v re-lists", resumed, engines, relists)
	}
	if r.metric("deltabridge_config_last_reload_successful") != 1 {
		r.t.Error("the metric says that the file was refused")
	}
}

// inUse waits until the configuration in the file is in use.
func (r *reloaded) inUse() {
	r.t.Helper()
	r.run("the configuration is in use", "reload", "--address", r.addr, "--timeout", patience(30*time.Second).String())
}

// refused waits until the file is refused, and expects the reason in the status, and that the metric and the command
// fail.
func (r *reloaded) refused(want string) {
	r.t.Helper()
	r.awaitRefusal(want)
	r.waitReady() // it may have begun to use an earlier configuration
}

// awaitRefusal is refused, if not everything is in order otherwise.
func (r *reloaded) awaitRefusal(want string) {
	r.t.Helper()
	eventually(r.t, 20*time.Second, func() error {
		_, body, err := r.get(control.StatusPath)
		var s control.Status
		if err = errors.Join(err, json.Unmarshal([]byte(body), &s)); err != nil {
			return err
		}
		if s.Configuration.Error == nil || !strings.Contains(s.Configuration.Error.Text, want) {
			return fmt.Errorf("%+v, want %s", s.Configuration.Error, want)
		}
		return nil
	})
	if r.metric("deltabridge_config_last_reload_successful") != 0 {
		r.t.Error("the metric says that the file is in use")
	}
}

// connections returns the ids of the connections of a sink to a server.
func connections(t *testing.T, js *jetStream, sink string) string {
	t.Helper()
	response, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/connz", js.monitor))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var all server.Connz
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	ids := ""
	for _, c := range all.Conns {
		if c.Name == "deltabridge-e2e-"+sink {
			ids += fmt.Sprint(c.Cid, " ")
		}
	}
	return ids
}

// TestReload: under random changes, the configuration of a bridge changes: a payload, a filter, the sinks and `watch`.
// What did not change is sent each revision once, over the same connection. A file with mistakes changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	r := startReloaded(t)
	r.waitReady() // what happened before the first list is history
	changes := startChanges(t, r.cs, r.namespace, 60, scale.Of(30, 50))
	connected := connections(t, r.live, "live")
	if connected == "" {
		t.Fatal("the sink has no connection")
	}
	odd := `filters: [{resources: [configmaps], when: "object.metadata.name.endsWith('1')"}],`
	third := r.sink("third", odd)

	r.write(r.config("configmaps", r.sink("third", "payload: metadata,")))
	r.signal(syscall.SIGHUP)
	r.await()
	r.mount(r.config("configmaps", third))
	r.await()
	r.mount(r.config("configmaps", third, r.sink("added", "")))
	r.run("the changed configuration is valid and is loaded|has not changed", "reload") // the bridge may have been first
	r.await()
	r.mount(r.config("configmaps, secrets", r.sink("added", ""), third))
	r.await()

	r.write(r.config("configmaps, secrets", third) + "  - {name: fourth}\n")
	r.signal(syscall.SIGHUP)
	r.refused("sinks[3]")
	r.run(`sinks\[3\]`, "reload")
	r.write("shutdownTimeout: 7s\nelection: {leaseDuration: 20s}\n" + r.config("configmaps, secrets", third))
	r.refused("election: cannot change while the bridge runs")

	r.other.stop() // its events wait
	r.write(r.config("configmaps", r.sink("third", ""), r.sink("added", "")))
	r.inUse()
	r.write(r.config("configmaps", r.sink("third", "")))
	r.refused("events wait for the sink added")
	r.other.start()
	r.await()
	changes.stop()
	failed := strings.Contains(r.log.String(), "retrying\" sink=live") // this machine stood still
	if now := connections(t, r.live, "live"); now != connected && !failed {
		t.Errorf("connections of the sink that did not change: before %s, now %s", connected, now)
	}
	truth := upTo(t, r.bridge, r.c, r.namespace)
	r.stop()
	prefix := "configmaps/" + r.namespace + "/"
	judge(t, "live", truth, prefix, r.live.read("LIVE"))
	judge(t, "lake", truth, prefix, readKafka(t, r.lake, r.topic)...)
	// It was not sent what came and went while it had the filter.
	judgeStates(t, "third", truth, prefix, func(string) bool { return true }, r.other.read("third"))
}

// TestReloadOfReplicas: a changed file reaches one replica after the other. The leader uses it last, and the log names
// it. Whoever takes over meanwhile, no object leaves and enters again.
func TestReloadOfReplicas(t *testing.T) {
	t.Parallel()
	c, js := sharedCluster(t), startJetStream(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	config := func(filters string) string {
		return fmt.Sprintf(`watch: [{resources: [configmaps], namespaces: [%[1]s]}]
sinks:
  - {name: jetstream, nats: {url: %[2]q, subject: "all.{name}", stream: {name: E2E, create: true, subjects: ["all.>"]}}}
  - {name: some, %[3]s nats: {url: %[2]q, subject: "some.{name}", stream: {name: SOME, create: true, subjects: ["some.>"]}}}
`, namespace, js.url(), filters)
	}
	all := newReplicas(t, c.Kubeconfig(), namespace,
		fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true}}", js.url()), config(""))
	dirs := map[*bridge]string{}
	start := func(dir string) *bridge {
		b := all.startIn(dir)()
		dirs[b] = dir
		return b
	}
	leader := start(t.TempDir())
	leader.waitLeader()
	standby := start(t.TempDir())
	standby.waitReady()
	changes := startChanges(t, cs, namespace, 60, scale.Of(20, 30))
	header := strings.TrimSuffix(all.config, config(""))
	peers := fmt.Sprintf(", peers: [%s, %s]", leader.addr, standby.addr)
	change := func(b *bridge, text string) {
		t.Helper()
		text = completeConfig(dirs[b], c.Kubeconfig(), all.state, header+text)
		text = strings.Replace(text, `:0"`, `:0"`+peers, 1)
		if err := os.WriteFile(filepath.Join(dirs[b], "bridge.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b.signal(syscall.SIGHUP)
	}
	configuration := func(b *bridge, check func(control.Configuration) error) {
		t.Helper()
		eventually(t, 30*time.Second, func() error {
			_, body, err := b.get(control.StatusPath)
			var s control.Status
			if err = errors.Join(err, json.Unmarshal([]byte(body), &s)); err != nil {
				return err
			}
			return check(s.Configuration)
		})
	}
	var before, after string
	configuration(standby, func(c control.Configuration) error { before = c.Hash; return nil })
	odd := `filters: [{when: "object.metadata.name.endsWith('1')"}],`
	changed := config(odd)

	change(leader, changed)
	configuration(leader, func(c control.Configuration) error {
		if c.Hash != before || c.Waits == "" {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	change(standby, changed)
	for _, b := range []*bridge{standby, leader} {
		configuration(b, func(c control.Configuration) error {
			if after = c.Hash; after == before || c.Waits != "" || c.Error != nil {
				return fmt.Errorf("%+v", c)
			}
			return nil
		})
	}
	leader.waitLeader()
	leader.kill()
	standby.waitLeader()
	standby.waitDelivered()
	changes.stop()
	truth := upTo(t, standby, c, namespace)
	standby.stop()
	prefix := "configmaps/" + namespace + "/"
	judge(t, "all", truth, prefix, js.read("E2E"))
	left := map[string]int{}
	for _, r := range js.read("SOME") {
		if r.attributes["leftfilter"] == "true" {
			left[r.attributes["uid"]]++
		}
	}
	for uid, times := range left {
		if times > 1 {
			t.Errorf("an object left %d times: %s", times, uid)
		}
	}
	if len(left) == 0 {
		t.Error("no object left with the changed filter")
	}
}
