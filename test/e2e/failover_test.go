package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deltabridge/deltabridge/test/scale"
	natsgo "github.com/nats-io/nats.go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stateLog is a state log on three nodes, of which one is the leader.
type stateLog struct {
	config string
	leader func() (node int, _ error)
	move   func(ctx context.Context) error // makes another node the leader
	kill   func(node int) error
	start  func(node int) error // it returns when the node has what the others have
}

// jetStreamLog returns the configuration of a state log on servers of JetStream.
func jetStreamLog(urls []string) string {
	return fmt.Sprintf("nats: {url: %q, stream: {name: STATE, create: true, replicas: 3}}", strings.Join(urls, ","))
}

func (r *replicated) jetStreamLog() stateLog {
	request := func(ctx context.Context, subject string) error {
		conn, err := natsgo.Connect(r.js[0].url())
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.RequestWithContext(ctx, subject, nil)
		return err
	}
	return stateLog{
		config: jetStreamLog(r.natsURLs),
		leader: func() (int, error) {
			api, closeConn := r.js[0].api()
			defer closeConn()
			s, err := api.Stream(r.t.Context(), "STATE")
			if err != nil {
				return 0, err
			}
			name := s.CachedInfo().Cluster.Leader
			node := slices.IndexFunc(r.js, func(js *jetStream) bool { return js.name() == name })
			if node < 0 {
				err = errors.New("stream STATE has no leader")
			}
			return node, err
		},
		move:  func(ctx context.Context) error { return request(ctx, "$JS.API.STREAM.LEADER.STEPDOWN.STATE") },
		kill:  func(node int) error { r.js[node].kill(); return nil },
		start: func(node int) error { r.js[node].start(); return nil },
	}
}

func (r *replicated) kafkaLog() stateLog {
	topic := r.namespace + "-state"
	client, err := kgo.NewClient(kgo.SeedBrokers(r.brokers...))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(client.Close)
	admin := kadm.NewClient(client)
	find := func(ctx context.Context) (kadm.PartitionDetail, error) {
		topics, err := admin.ListTopics(ctx, topic)
		return topics[topic].Partitions[0], errors.Join(err, topics[topic].Partitions[0].Err)
	}
	return stateLog{
		config: fmt.Sprintf("kafka: {brokers: [%s], topic: %s, createTopics: {replicationFactor: 3}}",
			strings.Join(r.brokers, ", "), topic),
		leader: func() (int, error) {
			p, err := find(r.t.Context())
			return int(p.Leader) - 1, err
		},
		move: func(ctx context.Context) error {
			p, err := find(ctx)
			if err != nil {
				return err
			}
			at := slices.Index(p.Replicas, p.Leader) + 1
			var assignment kadm.AlterPartitionAssignmentsReq
			assignment.Assign(topic, 0, slices.Concat(p.Replicas[at:], p.Replicas[:at]))
			_, err = admin.AlterPartitionAssignments(ctx, assignment)
			if err != nil {
				return err
			}
			elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, kadm.TopicsSet{topic: {0: {}}})
			return errors.Join(err, elected[topic][0].Err)
		},
		kill: func(node int) error { return r.kafka[node].Kill() },
		start: func(node int) error {
			if err := r.kafka[node].Restart(r.t.Context()); err != nil {
				return err
			}
			eventually(r.t, time.Minute, func() error {
				p, err := find(r.t.Context())
				if err == nil && len(p.ISR) < len(p.Replicas) {
					err = fmt.Errorf("only nodes %d are in sync", p.ISR)
				}
				return err
			})
			return nil
		},
	}
}

// keepMoving makes another node the leader of the log again and again until stop is called, and at least once.
func (l *stateLog) keepMoving(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	moved := make(chan int)
	go func() {
		times := 0
		for tried := 0; ctx.Err() == nil || times == 0 && tried < 20; tried++ {
			limited, done := context.WithTimeout(t.Context(), 5*time.Second)
			if l.move(limited) == nil {
				times++
			}
			done()
			pause(t, 200*time.Millisecond)
		}
		moved <- times
	}()
	return func() {
		t.Helper()
		cancel()
		times := <-moved
		t.Logf("the leader of the log was moved %d times", times)
		if times == 0 {
			t.Error("the leader of the log was not moved")
		}
	}
}

// killLeader kills the node that leads the log. The first node stays: the test uses it.
func (l *stateLog) killLeader(t *testing.T) (node int) {
	t.Helper()
	eventually(t, time.Minute, func() (err error) {
		if node, err = l.leader(); err == nil && node == 0 {
			err = errors.Join(errors.New("the first node leads the log"), l.move(t.Context()))
		}
		return err
	})
	if err := l.kill(node); err != nil {
		t.Fatal(err)
	}
	return node
}

// failOver: under random changes, the log gets another leader again and again, once while a replica leads, and once
// during a take-over. Then a node of the log is killed together with the replica that leads. Each broker has each
// revision once, in order.
func (r *replicated) failOver(log stateLog, rounds int) {
	t := r.t
	all := newReplicas(t, r.c.Kubeconfig(), r.namespace, log.config, r.configWithWindow()).withShortLease()
	leader := all.start()
	leader.waitLeader()
	changes := startChanges(t, r.cs, r.namespace, 60, scale.Of(60, 150), r.resources...)
	delivered := watchPauses(t, r.js[0], "k8s.>")
	standby := all.start()
	takeOver := func(what string, fail func() (end func())) {
		standby.waitReady()
		began := time.Now()
		end := fail()
		leader.kill()
		leader, standby = waitSuccessor(t, standby, all.start())
		end()
		t.Logf("killed, and %s: nothing was delivered for %v", what, delivered.longest(began))
	}
	for range rounds {
		standby.waitReady()
		began := time.Now()
		stop := log.keepMoving(t)
		pause(t, leaseDuration())
		stop()
		t.Logf("the log moves: nothing was delivered for %v", delivered.longest(began))
		if err := leader.leads(); err != nil {
			t.Error("while the leader of the log moved:", err)
		}
		takeOver("the log moves", func() (end func()) { return log.keepMoving(t) })
		takeOver("a node of the log is killed", func() (end func()) {
			node := log.killLeader(t)
			return func() {
				if err := log.start(node); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	leader.waitLeader()
	changes.stop()
	truth := r.upTo(leader)
	leader.stop()
	standby.stop()
	r.judge(truth)
}
