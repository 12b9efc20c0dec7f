package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// lookEvery is a matter of seconds as the kubelet takes a minute or so to renew a mounted Secret.
const lookEvery = 10 * time.Second

// cluster knows the brokers and keeps one connection to each that was needed.
type cluster struct {
	cfg *Config

	brokers    map[int32]string // id to host:port, of the last metadata
	controller int32
	id         string // of the Kafka cluster; empty: not known yet

	answered   string // the broker that answered the last question about the cluster
	answeredAt time.Time

	aws       awsCredentials
	lookEvery time.Duration // how often the files of a connection are looked at

	mu    sync.Mutex
	conns map[string]*conn // idle ones, by address
}

func newCluster(cfg *Config) *cluster {
	return &cluster{cfg: cfg, controller: -1, lookEvery: lookEvery, conns: make(map[string]*conn)}
}

// send does one exchange with the broker at addr. It is safe for concurrent use. Its error is a *brokerError.
func (c *cluster) send(ctx context.Context, addr string, req protocol.Message) (protocol.Message, error) {
	msg, _, err := c.sendReuse(ctx, addr, req)
	return msg, err
}

func (c *cluster) sendReuse(ctx context.Context, addr string, req protocol.Message) (_ protocol.Message, reused bool, _ error) {
	k := c.renewed(ctx, c.take(addr))
	if reused = k != nil && k.exchanges > 0; k == nil {
		var err error
		if k, err = c.dial(ctx, addr); err != nil {
			return nil, false, err
		}
	}
	msg, err := k.exchange(ctx, req)
	if err != nil {
		k.close()
		if isClosed(err) && k.exchanges == 1 && c.cfg.SASL.Mechanism == "" {
			err = k.demandsSASL()
		}
		return nil, reused, &brokerError{addr: addr, sent: true, err: err}
	}
	c.put(addr, k)
	return msg, reused, nil
}

func (c *cluster) take(addr string) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.conns[addr]
	delete(c.conns, addr)
	if k != nil && !k.usable(time.Now()) {
		k.close()
		return nil
	}
	return k
}

// renewed opens a connection anew if the files that it was opened with have changed. If that fails, k still holds, and
// serves until it ends by itself: a mistake in the new files must not stop what works.
func (c *cluster) renewed(ctx context.Context, k *conn) *conn {
	if k == nil || time.Since(k.looked) < c.lookEvery {
		return k
	}
	k.looked = time.Now()
	stamp := access.Stamp(c.cfg.files()...)
	if stamp == k.files {
		return k
	}
	fresh, err := c.dial(ctx, k.addr)
	if err != nil {
		if ctx.Err() == nil && err.Error() != k.spoken {
			k.spoken = err.Error()
			c.cfg.Logger.Warn("the files for the connection have changed, and do not do; going on with what there is", "error", err)
		}
		return k
	}
	c.cfg.Logger.Info("the files for the connection have changed; connected anew", "broker", k.addr)
	k.close()
	return fresh
}

func (c *cluster) put(addr string, k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.broken || c.conns[addr] != nil {
		k.close()
		return
	}
	c.conns[addr] = k
}

func (c *cluster) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.conns {
		k.close()
	}
	clear(c.conns)
}

// ask sends a request that any broker can answer, and that may be sent twice, to one after the other.
func (c *cluster) ask(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	var errs []string
	var last error
	candidates, err := c.reachable(ctx)
	if err != nil {
		return nil, err
	}
	for _, addr := range candidates {
		msg, reused, err := c.sendReuse(ctx, addr, req)
		if err != nil && reused && ctx.Err() == nil { // it may have been closed while it was idle
			msg, err = c.send(ctx, addr, req)
		}
		if err == nil {
			c.answered, c.answeredAt = addr, time.Now()
			return msg, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		if s := err.Error(); !slices.Contains(errs, s) {
			errs = append(errs, s)
		}
		last = err
	}
	if len(errs) == 1 {
		return nil, last
	}
	return nil, &unreachableError{strings.Join(errs, "; "), last}
}

// reachable is candidates, of which the first accepts connections. If none does for a second, the error says why.
func (c *cluster) reachable(ctx context.Context) ([]string, error) {
	all, connected := c.candidates()
	if connected {
		return all, nil
	}
	addr, err := access.Reach(ctx, c.cfg.Prober, all, func(addr string, err error) error {
		return &brokerError{addr: addr, err: c.dialError(ctx, addr, err)}
	})
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b string) int { return boolRank(a != addr) - boolRank(b != addr) })
	return all, nil
}

// worksWithout reports whether another broker than that at addr has answered just now.
func (c *cluster) worksWithout(addr string) bool {
	return c.answered != addr && time.Since(c.answeredAt) < c.cfg.RequestTimeout
}

// unreachableError is the errors of several brokers on one line.
type unreachableError struct {
	text string
	last error
}

func (e *unreachableError) Error() string { return e.text }
func (e *unreachableError) Unwrap() error { return e.last }

// candidates are the brokers in the order in which to ask them: connected ones, configured ones, others. connected: there
// is a connection to the first.
func (c *cluster) candidates() (all []string, connected bool) {
	known := slices.Sorted(maps.Values(c.brokers))
	all = slices.Concat(c.cfg.Brokers, known)
	c.mu.Lock()
	defer c.mu.Unlock()
	slices.SortStableFunc(all, func(a, b string) int {
		return boolRank(c.conns[a] == nil) - boolRank(c.conns[b] == nil)
	})
	seen := make(map[string]bool, len(all))
	all = slices.DeleteFunc(all, func(addr string) bool {
		again := seen[addr]
		seen[addr] = true
		return again
	})
	return all, c.conns[all[0]] != nil
}

func boolRank(b bool) int {
	if b {
		return 1
	}
	return 0
}

// metadata asks for the topics' partitions and leaders, and learns the brokers. Without names it asks for no topic.
func (c *cluster) metadata(ctx context.Context, names []string) ([]metadata.ResponseTopic, error) {
	if names == nil {
		names = []string{} // nil means: all topics
	}
	msg, err := c.ask(ctx, &metadata.Request{TopicNames: names})
	if err != nil {
		return nil, err
	}
	res := msg.(*metadata.Response)
	c.brokers = make(map[int32]string, len(res.Brokers))
	for _, b := range res.Brokers {
		c.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	c.controller, c.id = res.ControllerID, res.ClusterID
	return res.Topics, nil
}

// cleanupPolicy is the topic setting that says whether the last record of each key stays.
const cleanupPolicy = "cleanup.policy"

// createTopics creates the topics. One that is there meanwhile is none the worse. The result has an entry for each
// topic that could not be created.
func (c *cluster) createTopics(ctx context.Context, names []string, how *CreateTopics) (map[string]error, error) {
	msg, err := c.askController(ctx, c.createRequest(names, how))
	if err != nil {
		return nil, fmt.Errorf("creating topics: %w", err)
	}
	failed := make(map[string]error)
	for _, t := range msg.(*createtopics.Response).Topics {
		if code := kafkago.Error(t.ErrorCode); code != 0 && code != kafkago.TopicAlreadyExists {
			failed[t.Name] = c.notCreated(t.Name, code, t.ErrorMessage)
		}
	}
	return failed, nil
}

func (c *cluster) createRequest(names []string, how *CreateTopics) *createtopics.Request {
	req := &createtopics.Request{TimeoutMs: int32(c.cfg.RequestTimeout.Milliseconds())}
	for _, name := range names {
		t := createtopics.RequestTopic{Name: name, NumPartitions: -1, ReplicationFactor: -1}
		if how.Partitions > 0 {
			t.NumPartitions = int32(how.Partitions)
		}
		if how.ReplicationFactor > 0 {
			t.ReplicationFactor = int16(how.ReplicationFactor)
		}
		if _, given := how.Config[cleanupPolicy]; c.cfg.Tombstones && !given {
			t.Configs = append(t.Configs, createtopics.RequestConfig{Name: cleanupPolicy, Value: "compact"})
		}
		for _, key := range slices.Sorted(maps.Keys(how.Config)) {
			t.Configs = append(t.Configs, createtopics.RequestConfig{Name: key, Value: how.Config[key]})
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// askController asks the controller, where the cluster names one that clients can reach. (In KRaft mode every
// broker passes such requests on.)
func (c *cluster) askController(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	addr, ok := c.brokers[c.controller]
	if !ok {
		return c.ask(ctx, req)
	}
	msg, reused, err := c.sendReuse(ctx, addr, req)
	if err != nil && reused && ctx.Err() == nil {
		return c.send(ctx, addr, req)
	}
	return msg, err
}

// errNoProducerID: the cluster lets this client have no producer id.
var errNoProducerID = errors.New("the cluster grants no producer id")

// producerID gets an id for an idempotent producer. Its epoch is 0.
func (c *cluster) producerID(ctx context.Context) (int64, error) {
	msg, err := c.ask(ctx, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		return 0, err
	}
	res := msg.(*initproducerid.Response)
	switch code := kafkago.Error(res.ErrorCode); code {
	case 0:
		return res.ProducerID, nil
	case kafkago.ClusterAuthorizationFailed, kafkago.UnsupportedVersion, kafkago.TransactionalIDAuthorizationFailed:
		return 0, fmt.Errorf("%w: %w", errNoProducerID, code)
	default:
		return 0, fmt.Errorf("asking for a producer id: %w", code)
	}
}
