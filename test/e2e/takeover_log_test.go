package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/kubernetes"

	"github.com/deltabridge/deltabridge/test/cluster"
)

// logged are replicas that send ConfigMaps to a stream, and have their log in another stream of the same server.
type logged struct {
	*replicas

	t         *testing.T
	c         *cluster.Cluster
	cs        kubernetes.Interface
	js        *jetStream
	namespace string
}

func newLogged(t *testing.T) *logged {
	t.Helper()
	l := &logged{t: t, c: sharedCluster(t), js: startJetStream(t)}
	l.cs = clientset(t, l.c)
	l.namespace = newNamespace(t, l.cs)
	l.replicas = l.of(l.c, "one", "STATE")
	return l
}

// of returns the replicas of an installation that sends what happens in a cluster to a stream of its own, which has the
// name of the installation.
func (l *logged) of(c *cluster.Cluster, installation, log string) *replicas {
	l.t.Helper()
	return newReplicas(l.t, c.Kubeconfig(), l.namespace+"-"+installation,
		fmt.Sprintf("nats: {url: %q, stream: {name: %s, create: true}}", l.js.url(), log),
		fmt.Sprintf("watch: [{resources: [configmaps], namespaces: [%s]}]\nsinks: [{name: jetstream, nats: {url: %q, "+
			"subject: \"%s.{namespace}.{name}\", stream: {name: %s, create: true, duplicateWindow: 100ms, "+
			"subjects: [\"%s.>\"]}}}]\n",
			l.namespace, l.js.url(), installation, installation, installation))
}

// startPair starts a leader and a standby, and waits until the leader has sent some changes.
func (l *logged) startPair() (leader, standby *bridge) {
	l.t.Helper()
	leader = l.start()
	leader.waitLeader()
	standby = l.start()
	standby.waitReady()
	l.change("before")
	upTo(l.t, leader, l.c, l.namespace)
	return leader, standby
}

// change creates objects, updates some and deletes others.
func (l *logged) change(prefix string) {
	l.t.Helper()
	if err := churn(l.t.Context(), l.cs, l.namespace, prefix, 10, 2); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logged) stream(use func(context.Context, jetstream.JetStream) error) {
	l.t.Helper()
	api, closeConn := l.js.api()
	defer closeConn()
	if err := use(l.t.Context(), api); err != nil {
		l.t.Fatal(err)
	}
}

func purge(ctx context.Context, api jetstream.JetStream) error {
	s, err := api.Stream(ctx, "STATE")
	if err != nil {
		return err
	}
	return s.Purge(ctx)
}

func remove(ctx context.Context, api jetstream.JetStream) error {
	return api.DeleteStream(ctx, "STATE")
}

// judge starts a replica without a directory, and requires that the stream has each revision once, in order.
func (l *logged) judge() {
	l.t.Helper()
	b := l.start()
	b.waitLeader()
	truth := upTo(l.t, b, l.c, l.namespace)
	b.stop()
	judgeWhole(l.t, "jetstream", truth, "configmaps/"+l.namespace+"/", l.js.read("one"))
}

// TestALostLog: the log is purged or deleted while replicas run. A replica writes it again, so that a later replica
// without a directory has everything.
func TestALostLog(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]struct {
		lose func(context.Context, jetstream.JetStream) error
		says string
	}{
		"purged":  {purge, "state log was purged, writing everything again"},
		"deleted": {remove, "state log has lost commits, continuing with the local checkpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLogged(t)
			leader, standby := l.startPair()
			l.stream(lost.lose)
			l.change("after")
			eventually(t, time.Minute, func() error {
				if !strings.Contains(leader.log.String()+standby.log.String(), lost.says) {
					return errors.New("no replica has noticed it")
				}
				return nil
			})
			leader, standby = waitOneLeader(t, leader, standby)
			upTo(t, leader, l.c, l.namespace)
			leader.waitCommits() // so that the log has everything again
			standby.kill()
			leader.kill()
			l.change("down")
			deleteConfigMap(t, l.cs, l.namespace, "before-1")
			l.judge()
		})
	}
	t.Run("purged and the leader is killed", func(t *testing.T) {
		t.Parallel()
		l := newLogged(t)
		leader, standby := l.startPair()
		leader.waitCommits()
		l.stream(purge)
		leader.kill()
		deleteConfigMap(t, l.cs, l.namespace, "before-1")
		standby.waitLeader()
		upTo(t, standby, l.c, l.namespace)
		standby.waitCommits()
		standby.kill()
		deleteConfigMap(t, l.cs, l.namespace, "before-3")
		l.judge()
	})
}

// TestALogLostWhileVacant: the log is purged while no replica runs. With a directory, a replica writes its copy to the
// log. Without one, it logs that the log is empty, and begins with an initial list.
func TestALogLostWhileVacant(t *testing.T) {
	t.Parallel()
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprintf("directory kept %t", kept), func(t *testing.T) {
			t.Parallel()
			l, dir := newLogged(t), t.TempDir()
			b := startBridgeWith(t, dir, l.kubeconfig, l.replicas.state, l.config)
			b.waitLeader()
			l.change("before")
			upTo(t, b, l.c, l.namespace)
			b.stop()
			deleteConfigMap(t, l.cs, l.namespace, "before-1")
			l.stream(purge)
			if !kept {
				dir = t.TempDir()
			}
			began := time.Now()
			b = startBridgeWith(t, dir, l.kubeconfig, l.replicas.state, l.config)
			b.waitLeader()
			t.Logf("it leads after %v", time.Since(began))
			truth := upTo(t, b, l.c, l.namespace)
			b.stop()
			if events := l.js.read("one"); kept {
				judgeWhole(t, "jetstream", truth, "configmaps/"+l.namespace+"/", events)
			} else {
				judgeAnew(t, events)
				if !strings.Contains(b.log.String(), "state log is empty") {
					t.Error("it has not logged that the log is empty")
				}
			}
		})
	}
}

// judgeAnew requires that each of the four objects that exist was sent again as an initial list, and nothing else.
func judgeAnew(t *testing.T, events []received) {
	t.Helper()
	again := map[string]int{}
	for _, r := range events {
		if r.object() && r.attributes["initiallist"] == "true" {
			again[r.attributes["name"]]++
		}
	}
	for _, name := range []string{"before-3", "before-5", "before-7", "before-9"} {
		if again[name] != 1 {
			t.Errorf("%s is %d times in the initial list", name, again[name])
		}
	}
	if len(again) != 4 {
		t.Errorf("the initial list has %v", again)
	}
}

// TestAForeignLog: the log belongs to another cluster, or to another installation that has a state of its own. The
// second bridge ends with an error, and the first one continues. With another log, the second one runs.
func TestAForeignLog(t *testing.T) {
	t.Parallel()
	other := cluster.ForTest(t)
	for name, prepare := range map[string]func(l *logged, dir string) *cluster.Cluster{
		"of another cluster":      func(*logged, string) *cluster.Cluster { return other },
		"of another installation": (*logged).secondInstallation,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLogged(t)
			leader := l.start()
			leader.waitLeader()
			l.change("before")
			upTo(t, leader, l.c, l.namespace)
			dir := t.TempDir()
			c := prepare(l, dir)
			l.refused(dir, c)
			own := l.of(c, "two", "OTHER")
			b := startBridgeWith(t, dir, own.kubeconfig, own.state, own.config)
			b.waitLeader()
			b.stop()
			l.change("after")
			if err := errors.Join(leader.leads(), leader.ready()); err != nil {
				t.Error(err)
			}
			truth := upTo(t, leader, l.c, l.namespace)
			leader.stop()
			if strings.Contains(leader.log.String(), "another process leads now") {
				t.Error("the first installation has lost the log")
			}
			judgeWhole(t, "jetstream", truth, "configmaps/"+l.namespace+"/", l.js.read("one"))
			l.judge()
		})
	}
}

// secondInstallation runs a bridge in a directory, with another log.
func (l *logged) secondInstallation(dir string) *cluster.Cluster {
	l.t.Helper()
	own := l.of(l.c, "two", "OTHER")
	b := startBridgeWith(l.t, dir, own.kubeconfig, own.state, own.config)
	b.waitLeader()
	b.stop()
	return l.c
}

// refused runs a bridge of a cluster in a directory, with the log of the first one, and requires that it ends
// because of that.
func (l *logged) refused(dir string, c *cluster.Cluster) {
	l.t.Helper()
	r := l.of(c, "two", "STATE")
	file := filepath.Join(dir, "bridge.yaml")
	text := fmt.Sprintf("cluster: e2e\nkubeconfig: %q\nhttp: {listen: \"127.0.0.1:0\"}\nstate: {path: %q%s}\n%s",
		r.kubeconfig, filepath.Join(dir, "state"), r.state, r.config)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(l.t.Context(), patience(time.Minute))
	defer cancel()
	out, err := exec.CommandContext(ctx, bridgeBinary, "run", "--config", file).CombinedOutput()
	if err == nil || ctx.Err() != nil || !strings.Contains(string(out), "state log belongs to another") {
		l.t.Errorf("it was not refused: %v\n%s", err, out)
	}
	l.t.Log(tail(string(out), 1))
}
