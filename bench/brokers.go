package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/deltabridge/deltabridge/test/kafka"
)

// Names of the brokers in tables and flags.
const (
	jetStreamName = "JetStream"
	kafkaName     = "Kafka"
)

// broker is a real broker in a separate process, with a client to inspect its contents.
type broker interface {
	name() string
	// create creates an empty destination: a stream or a topic.
	create(ctx context.Context, name string) error
	remove(ctx context.Context, name string) error
	// held returns the number of messages in the destination.
	held(ctx context.Context, name string) (int64, error)
	// consume passes each existing and new message of the destination to a function, until stop is called.
	consume(ctx context.Context, name string, take func(data []byte)) (stop func(), err error)
	// floorArgs returns the arguments with which the floor writes to the destination.
	floorArgs(name string) []string
	// sink returns the configuration of the destination for a sink of the bridge.
	sink(name string) string
	// log returns the configuration of a state log, to be added to that of the state.
	log(name string) string
	// logBytes returns the size of a state log in the broker.
	logBytes(ctx context.Context, name string) (float64, error)
	cpu() (time.Duration, error)
	down() error
	up(ctx context.Context) error
	close() error
}

func (b *bench) startBroker(ctx context.Context, name string) (broker, error) {
	if name == kafkaName {
		return b.startKafka(ctx)
	}
	return b.startJetStream(ctx)
}

// onEachBroker runs a scenario on one broker after the other.
func (b *bench) onEachBroker(ctx context.Context, run func(to broker) error) error {
	for _, name := range b.brokers {
		to, err := b.startBroker(ctx, name)
		if err != nil {
			return err
		}
		if err := errors.Join(run(to), to.close()); err != nil {
			return err
		}
	}
	return nil
}

// onFirstBroker runs a scenario that does not depend on the broker.
func (b *bench) onFirstBroker(ctx context.Context, run func(to broker) error) error {
	to, err := b.startBroker(ctx, b.brokers[0])
	if err != nil {
		return err
	}
	return errors.Join(run(to), to.close())
}

// jetStream is a nats-server.
type jetStream struct {
	*program
	dir, url string
	front    string // URL for the bridge, if it is not the server's
	conn     *natsgo.Conn
	js       jetstream.JetStream
}

func (b *bench) startJetStream(ctx context.Context) (*jetStream, error) {
	dir, err := os.MkdirTemp(b.dir, "nats-")
	if err != nil {
		return nil, err
	}
	j := &jetStream{dir: dir}
	return j, j.up(ctx)
}

func (j *jetStream) up(ctx context.Context) error {
	args := []string{"nats-server", "-dir", j.dir}
	if j.url != "" { // reuse the port after a restart
		args = append(args, "-port", j.url[strings.LastIndexByte(j.url, ':')+1:])
	}
	var err error
	if j.program, err = startSelf(args...); err != nil {
		return err
	}
	if j.url, err = j.firstWord(ctx); err != nil {
		return errors.Join(err, j.stop())
	}
	if j.conn == nil {
		if j.conn, err = natsgo.Connect(
			j.url,
			natsgo.MaxReconnects(-1),
			natsgo.ReconnectWait(100*time.Millisecond),
		); err == nil {
			j.js, err = jetstream.New(j.conn)
		}
	}
	if err != nil {
		return errors.Join(err, j.stop())
	}
	return nil
}

func (j *jetStream) down() error { return j.stop() }

func (j *jetStream) close() error {
	j.conn.Close()
	return errors.Join(j.stop(), os.RemoveAll(j.dir))
}

func (j *jetStream) name() string { return jetStreamName }

// create creates the stream with the same settings as the bridge.
func (j *jetStream) create(ctx context.Context, name string) error {
	_, err := j.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: name, Subjects: []string{name + ".>"}, Duplicates: 2 * time.Minute, AllowDirect: true,
	})
	return err
}

func (j *jetStream) remove(ctx context.Context, name string) error {
	return j.js.DeleteStream(ctx, name)
}

func (j *jetStream) held(ctx context.Context, name string) (int64, error) {
	s, err := j.js.Stream(ctx, name)
	if err != nil {
		return 0, err
	}
	return int64(s.CachedInfo().State.Msgs), nil
}

func (j *jetStream) floorArgs(name string) []string {
	return []string{"-nats", j.url, "-subject", name + ".line"}
}

func (j *jetStream) sink(name string) string {
	return fmt.Sprintf(
		`nats: {url: %q, stream: {name: %s}, subject: "%s.{cluster}.{group}.{resource}.{namespace}.{name}"}`,
		cmp.Or(j.front, j.url),
		name,
		name,
	)
}

func (j *jetStream) log(name string) string {
	return fmt.Sprintf(", log: {nats: {url: %q, stream: {name: %s, create: true}}}", j.url, name)
}

func (j *jetStream) logBytes(ctx context.Context, name string) (float64, error) {
	s, err := j.js.Stream(ctx, name)
	if err != nil {
		return 0, err
	}
	return float64(s.CachedInfo().State.Bytes), nil
}

// kafkaBroker is a Kafka broker.
type kafkaBroker struct {
	broker     *kafka.Broker
	dir        string
	front      string // address for the bridge, if it is not the broker's
	partitions int    // of a topic
	client     *kgo.Client
	admin      *kadm.Client
}

// startKafka starts a broker that can also be reached through proxies; see kafka.StartBehind.
func (b *bench) startKafka(ctx context.Context, proxies ...string) (*kafkaBroker, error) {
	dir, err := os.MkdirTemp(b.dir, "kafka-")
	if err != nil {
		return nil, err
	}
	k := &kafkaBroker{dir: dir, partitions: 3}
	if k.broker, err = kafka.StartBehind(ctx, filepath.Join(dir, "broker"), proxies); err != nil {
		return nil, err
	}
	if k.client, err = kgo.NewClient(kgo.SeedBrokers(k.broker.Addr())); err != nil {
		return nil, errors.Join(err, k.broker.Kill())
	}
	k.admin = kadm.NewClient(k.client)
	return k, nil
}

func (k *kafkaBroker) name() string { return kafkaName }

func (k *kafkaBroker) create(ctx context.Context, name string) error {
	if _, err := k.admin.CreateTopic(ctx, int32(k.partitions), 1, nil, name); err != nil {
		return err
	}
	return until(ctx, startTimeout, func() error { // it takes a moment until the partitions have leaders
		_, err := k.held(ctx, name)
		return err
	})
}

func (k *kafkaBroker) remove(ctx context.Context, name string) error {
	_, err := k.admin.DeleteTopic(ctx, name)
	return err
}

func (k *kafkaBroker) held(ctx context.Context, name string) (int64, error) {
	ends, err := k.admin.ListEndOffsets(ctx, name)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return 0, err
	}
	if len(ends[name]) != k.partitions {
		return 0, fmt.Errorf("topic %s has %d partitions", name, len(ends[name]))
	}
	sum := int64(0)
	ends.Each(func(end kadm.ListedOffset) { sum += end.Offset })
	return sum, nil
}

func (k *kafkaBroker) floorArgs(name string) []string {
	return []string{"-kafka", k.broker.Addr(), "-topic", name, "-partitions", fmt.Sprint(k.partitions)}
}

func (k *kafkaBroker) sink(name string) string {
	return fmt.Sprintf(`kafka: {brokers: [%q], topic: %s}`, cmp.Or(k.front, k.broker.Addr()), name)
}

func (k *kafkaBroker) log(name string) string {
	return fmt.Sprintf(", log: {kafka: {brokers: [%q], topic: %s, createTopics: {replicationFactor: 1}}}",
		k.broker.Addr(), name)
}

func (k *kafkaBroker) logBytes(ctx context.Context, name string) (bytes float64, err error) {
	dirs, err := k.admin.DescribeAllLogDirs(ctx, kadm.TopicsSet{name: {0: {}}})
	dirs.Each(func(d kadm.DescribedLogDir) { bytes += float64(d.Size()) })
	return bytes, err
}

func (k *kafkaBroker) cpu() (time.Duration, error)  { return cpuOf(k.broker.PID()) }
func (k *kafkaBroker) down() error                  { return k.broker.Stop() }
func (k *kafkaBroker) up(ctx context.Context) error { return k.broker.Restart(ctx) }

func (k *kafkaBroker) close() error {
	k.client.Close()
	return errors.Join(k.broker.Kill(), os.RemoveAll(k.dir))
}
