package nats_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/sinktest"
	"github.com/deltabridge/deltabridge/test/natsserver"
	"github.com/deltabridge/deltabridge/test/scale"
)

// newCluster starts a cluster of three servers, whose streams have three replicas. Sinks connect to all servers.
func newCluster(t *testing.T) *broker {
	t.Helper()
	b := &broker{opts: &server.Options{Host: "127.0.0.1"}}
	var routes []*url.URL
	var ports []string
	for range 3 {
		address := natsserver.FreePort(t)
		proxy := sinktest.NewProxy(t, address)
		_, port, _ := strings.Cut(address, ":")
		ports, b.routes = append(ports, port), append(b.routes, proxy)
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: proxy.Addr()})
	}
	var urls []string
	for i, port := range ports {
		member := &broker{opts: &server.Options{
			ServerName: fmt.Sprintf("n%d", i), Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true,
			JetStream: true, StoreDir: t.TempDir(), JetStreamMaxStore: 1 << 30, Routes: routes,
			Cluster: server.ClusterOpts{Name: "c", Host: "127.0.0.1", Advertise: b.routes[i].Addr()},
		}}
		if _, err := fmt.Sscan(port, &member.opts.Cluster.Port); err != nil {
			t.Fatal(err)
		}
		member.Start(t)
		t.Cleanup(func() { member.Stop(t) })
		urls, b.members = append(urls, natsserver.ClientURL(member.opts)), append(b.members, member)
	}
	b.opts.Port = b.members[0].opts.Port
	b.Proxy = sinktest.NewProxy(t, strings.TrimPrefix(urls[0], "nats://"))
	b.edit = func(c *nats.Config) {
		c.URLs, c.Stream.Replicas, c.AckTimeout = urls, 3, 500*time.Millisecond
	}
	js, probe := b.js(t), jetstream.StreamConfig{Name: "PROBE", Replicas: len(urls)}
	natsserver.CreateStream(t, js, probe) // when the servers have formed a cluster
	natsserver.DeleteStream(t, js, probe.Name)
	return b
}

// leader returns the URL of the leader of the stream.
func (b *broker) leader(t *testing.T) string {
	t.Helper()
	name := b.stream(t).CachedInfo().Cluster.Leader
	for _, member := range b.members {
		if member.opts.ServerName == name {
			return natsserver.ClientURL(member.opts)
		}
	}
	t.Fatalf("no leader %q", name)
	return ""
}

// A process is killed while the leader of the stream has many of its messages that are not replicated yet. The next
// process starts before they are stored, and stores none of them again.
func TestKilledBeforeReplication(t *testing.T) {
	const objects, rounds = 200, 3
	in := install(newCluster(t))
	edit := in.edit
	in.edit = func(c *nats.Config) { edit(c); shortWindow(c) }
	first := in.start(t)
	all := sinktest.Messages(objects, rounds)
	send(t, first, sinktest.Message("first", 1, 100))
	in.commit(first)
	for round := range rounds {
		leader := in.leader(t)
		in.edit = func(c *nats.Config) {
			edit(c)
			shortWindow(c)
			c.URLs = []string{leader}
		}
		killed := in.start(t)
		in.commit(killed)
		batch := all[objects*round:][:objects]
		for _, route := range in.routes {
			route.Freeze()
		}
		for i, err := range try(t, killed, batch...) {
			if !sinks.IsMaybeWritten(err) {
				t.Fatalf("message %d without replicas: %v", i, err)
			}
		}
		thaw := time.AfterFunc(300*time.Millisecond, func() {
			for _, route := range in.routes {
				route.Thaw()
			}
		})
		expectStored(t, in.start(t), strings.Repeat("1", objects), batch...)
		thaw.Stop()
		expectWritten(t, in.broker, uint64(1+objects*(round+1)))
	}
	ids := map[string]bool{}
	for _, m := range in.messages(t) {
		ids[m.Headers().Get("ce-id")] = true
	}
	if len(ids) != 1+objects*rounds {
		t.Errorf("%d different events", len(ids))
	}
}

// stepDown makes the stream elect another leader again and again until ctx ends. The pauses become longer, so that a
// slow machine gets on too.
func stepDown(ctx context.Context, js jetstream.JetStream, pause time.Duration) (times int) {
	for ; ctx.Err() == nil; times++ {
		limit, cancel := context.WithTimeout(ctx, time.Second) // a server that has no leader may not answer
		_, _ = js.Conn().RequestWithContext(limit, "$JS.API.STREAM.LEADER.STEPDOWN."+streamName, nil)
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(pause):
			pause += pause / 10
		}
	}
	return times
}

// The stream changes its leader under load, which swallows acknowledgements. Each message is stored once, and the next
// process repeats none of them.
func TestStepDowns(t *testing.T) {
	t.Parallel()
	objects, versions := 300, scale.Of(8, 20)
	for name, latest := range map[string]bool{"all messages": false, "latest states": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := install(newCluster(t))
			edit := in.edit
			in.edit = func(c *nats.Config) {
				edit(c)
				if c.Stream.LastPerSubject = latest; latest {
					shortWindow(c) // the expected sequences do it alone
				}
			}
			sink := in.start(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			times := make(chan int, 1)
			js := in.js(t)
			go func() { times <- stepDown(ctx, js, 300*time.Millisecond) }()
			all := sinktest.Messages(objects, 10*versions)
			sent, doubts := 0, 0
			for ; sent < objects*versions || doubts == 0 && sent < len(all); sent += objects {
				doubts += sendAll(t, sink, all[sent:sent+objects])
			}
			cancel()
			t.Logf("%d step-downs, %d messages in doubt", <-times, doubts)
			if doubts == 0 {
				t.Error("no acknowledgement was lost")
			}
			expectWritten(t, in.broker, uint64(sent))
			sendAll(t, in.start(t), all[sent/2:sent])
			expectWritten(t, in.broker, uint64(sent))
		})
	}
}

// Two processes write the same states at the same time, one of them from the beginning although the other is halfway, and
// the stream replicates them. Each state is stored once, and none after a newer one.
func TestMirrorTwoProcesses(t *testing.T) {
	const objects, versions = 20, 100
	in := install(newCluster(t))
	edit := in.edit
	in.edit = func(c *nats.Config) { edit(c); shortWindow(c); c.Stream.LastPerSubject = true }
	conn := in.js(t).Conn()
	order, err := conn.SubscribeSync("stored.>")
	if err == nil {
		err = conn.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	var processes []*nats.Sink
	for range 2 {
		processes = append(processes, in.start(t))
	}
	config := in.stream(t).CachedInfo().Config
	config.RePublish = &jetstream.RePublish{Source: ">", Destination: "stored.>", HeadersOnly: true}
	natsserver.Repeat(t, "update the stream", func(ctx context.Context) error {
		_, err := in.js(t).UpdateStream(ctx, config)
		return err
	})
	all := sinktest.Messages(objects, versions)
	sendAll(t, processes[0], all[:len(all)/2])
	outlastWindowOf(t, in) // an id would not keep the second process from writing the same again
	var running sync.WaitGroup
	for i, sink := range processes {
		running.Go(func() {
			rest := all[(1-i)*len(all)/2:]
			for size := objects * (1 + 4*i); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				sendAll(t, sink, rest[:min(size, len(rest))])
			}
		})
	}
	running.Wait()
	expectWritten(t, in.broker, objects*versions)
	last := map[string]string{}
	for range objects * versions {
		m, err := order.NextMsg(2 * time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		uid, version := m.Header.Get("ce-uid"), m.Header.Get("ce-resourceversion")
		if last[uid] >= version {
			t.Errorf("%s: %s was stored after %s", uid, version, last[uid])
		}
		last[uid] = version
	}
}

// sendAll sends a batch until all of it is settled, as a drain does. It returns how many messages were in doubt.
func sendAll(t *testing.T, sink *nats.Sink, batch []*event.Message) (doubts int) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); len(batch) > 0; {
		var rest []*event.Message
		for i, err := range try(t, sink, batch...) {
			if err != nil && !errors.Is(err, sinks.ErrStored) {
				rest = append(rest, batch[i])
			}
			if sinks.IsMaybeWritten(err) {
				doubts++
			}
		}
		if batch = rest; time.Now().After(deadline) {
			t.Errorf("%d messages are left", len(batch))
			return doubts
		}
	}
	return doubts
}
