package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltabridge/deltabridge/test/kafka"
	"github.com/deltabridge/deltabridge/test/observe"
)

// tailed gives the ids that `bridge tail -o json` prints.
func tailed(t *testing.T, args ...string) (ids []string) {
	t.Helper()
	out, errs, err := runBridge(t, append([]string{"tail", "-o", "json", "--since", "0"}, args...)...)
	if err != nil {
		t.Fatalf("%v: %s", err, errs)
	}
	for line := range strings.Lines(out) {
		var e struct {
			ID   string
			Data json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || len(e.Data) == 0 {
			t.Fatalf("%v: %s", err, line)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

func idsOf(partitions ...[]received) (ids []string) {
	for _, p := range partitions {
		for _, r := range p {
			ids = append(ids, r.id())
		}
	}
	return ids
}

// onTerminal runs the bridge in a terminal, and collects what it shows.
func onTerminal(
	t *testing.T,
	args ...string,
) (cmd *exec.Cmd, terminal *os.File, screen *observe.LogBuffer, ended chan error) {
	t.Helper()
	cmd = exec.Command(bridgeBinary, args...)
	cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=")
	terminal, err := pty.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	screen, ended = &observe.LogBuffer{}, make(chan error, 1)
	go func() { // ends with the process, which closes its side of the terminal
		_, _ = io.Copy(screen, terminal) // which then is an error
		ended <- cmd.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // if it has ended, that is as well
		<-ended                //nolint:errcheck // it was told to end, one way or another
		_ = terminal.Close()
	})
	return cmd, terminal, screen, ended
}

func shows(t *testing.T, screen *observe.LogBuffer, pattern string) {
	t.Helper()
	want := regexp.MustCompile(pattern)
	eventually(t, 20*time.Second, func() error {
		if !want.MatchString(screen.String()) {
			return fmt.Errorf("%s is not in\n%q", pattern, screen.String())
		}
		return nil
	})
}

// `bridge tail` shows what both brokers hold and what comes, and leaves no trace.
func TestTail(t *testing.T) { // alone: it looks at all consumer groups of the broker
	c, js, k := sharedCluster(t), startJetStream(t), kafka.ForTest(t)
	cs := clientset(t, c)
	namespace := newNamespace(t, cs)
	topic := "tail-" + namespace
	dir := t.TempDir()
	b := startBridgeIn(t, dir, c.Kubeconfig(), toBoth(namespace, js.url(), k.Addr(), topic))
	b.waitReady()
	b.waitListed()
	file := filepath.Join(dir, "bridge.yaml")
	put := func(name, color string, create bool) {
		t.Helper()
		cm := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"color": color}},
			Data:       map[string]string{"color": color},
		}
		var err error
		if create {
			_, err = cs.CoreV1().ConfigMaps(namespace).Create(t.Context(), cm, metav1.CreateOptions{FieldManager: "painter"})
		} else {
			_, err = cs.CoreV1().ConfigMaps(namespace).Update(t.Context(), cm, metav1.UpdateOptions{FieldManager: "painter"})
		}
		if err != nil {
			t.Fatal(err)
		}
	}

	_, terminal, toStream, streamEnded := onTerminal(t, "tail", "-c", file, "--sink", "jetstream", "--diff")
	_, _, toTopic, topicEnded := onTerminal(
		t,
		"tail",
		"--kafka",
		k.Addr(),
		"--topic",
		topic,
		"--follow",
		"-n",
		namespace,
	)
	shows(t, toStream, `\x1b\[36mSYNCED   configmaps `)
	shows(t, toTopic, `\x1b\[36mSYNCED   configmaps `)
	for n := range 20 {
		put(fmt.Sprintf("cm-%d", n), "red", true)
	}
	put("cm-7", "green", false)
	shows(t, toStream, `\x1b\[32madded\x1b\[0m    configmaps +`+namespace+`/cm-19 +\d+ +painter\r\n`)
	shows(
		t,
		toStream,
		`\x1b\[33mupdated\x1b\[0m  configmaps +`+namespace+`/cm-7 +\d+ +painter\r\n( +.*\r\n)* +\x1b\[31m- /data/color: "red"\x1b\[0m\r\n +\x1b\[32m\+ /data/color: "green"\x1b\[0m\r\n`,
	)
	shows(t, toTopic, `updated\x1b\[0m  configmaps +`+namespace+`/cm-7 +\d+ +painter\r\n`)
	if err := cs.CoreV1().ConfigMaps(namespace).Delete(t.Context(), "cm-3", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	shows(t, toStream, `\x1b\[31mdeleted\x1b\[0m  configmaps +`+namespace+`/cm-3 +\d+ +painter\r\n`)
	shows(t, toTopic, `\x1b\[31mdeleted\x1b\[0m  configmaps +`+namespace+`/cm-3 +\d+ +painter\r\n`)

	api, closeConn := js.api()
	defer closeConn()
	consumers := func() (names []string) {
		stream, err := api.Stream(t.Context(), "E2E")
		if err != nil {
			t.Fatal(err)
		}
		for name := range stream.ConsumerNames(t.Context()).Name() {
			names = append(names, name)
		}
		return names
	}
	if names := consumers(); len(names) != 1 {
		t.Errorf("while one tail runs there are the consumers %v", names)
	}
	if _, err := terminal.Write([]byte{3}); err != nil { // Ctrl-C
		t.Fatal(err)
	}
	select {
	case err := <-streamEnded:
		if err != nil {
			t.Errorf("it ended with %v:\n%s", err, toStream)
		}
	case err := <-topicEnded:
		t.Fatalf("the other ended with %v:\n%s", err, toTopic)
	case <-time.After(patience(20 * time.Second)):
		t.Fatal("it did not end")
	}
	if names := consumers(); len(names) != 0 {
		t.Errorf("consumers are left: %v", names)
	}

	want := idsOf(js.read("E2E"))
	if diff := cmp.Diff(want, tailed(t, "-c", file, "--sink", "jetstream")); diff != "" || len(want) < 23 {
		t.Errorf("the stream (-independent +tail):\n%s", diff)
	}
	inTopic := readKafka(t, k.Addr(), topic)
	want, got := idsOf(inTopic...), tailed(t, "-c", file, "--sink", "kafka")
	for _, partition := range inTopic {
		last := -1
		for _, id := range idsOf(partition) {
			at := slices.Index(got, id)
			if at < last {
				t.Errorf("%s comes before what precedes it in its partition", id)
			}
			last = at
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the topic (-independent +tail):\n%s", diff)
	}
	if n := len(
		tailed(t, "--nats", js.url(), "--stream", "E2E", "-l", "color=green", "--resource", "configmaps"),
	); n != 1+1 { // with the synced event
		t.Errorf("%d are green", n)
	}
	for want, args := range map[string][]string{
		"there are several sinks":        {"-c", file},
		"there is no such sink":          {"-c", file, "--sink", "other"},
		"stream NONE does not exist":     {"--nats", js.url(), "--stream", "NONE"},
		"topic none does not exist":      {"--kafka", k.Addr(), "--topic", "none"},
		"connect: nothing listens there": {"--kafka", "127.0.0.1:1"},
	} {
		if _, errs, err := runBridge(t, append([]string{"tail"}, args...)...); err == nil || !strings.Contains(errs, want) {
			t.Errorf("%v: %v, %s", args, err, errs)
		}
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(k.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	groups, err := kadm.NewClient(client).ListGroups(t.Context())
	if err != nil || len(groups) != 0 {
		t.Errorf("consumer groups: %v, %v", groups.Groups(), err)
	}
}
