package wire

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// Config is how to reach a Kafka cluster. All fields except TLS and SASL are required.
type Config struct {
	Brokers []string   // host:port of some brokers; the client finds the others through them
	TLS     access.TLS // if it is not set, connections are plaintext
	SASL    SASL
	// RequestTimeout bounds the opening of a connection, and each exchange.
	RequestTimeout time.Duration
	Prober         *reach.Prober
	Logger         *slog.Logger
	Dial           func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Files returns the names of all files that a connection is opened with.
func (cfg *Config) Files() []string {
	return slices.DeleteFunc(append(cfg.TLS.Files(), cfg.SASL.PasswordFile), func(file string) bool { return file == "" })
}

// CheckFiles reports whether the files with certificates and the password can be read and understood.
func (cfg *Config) CheckFiles() error {
	_, err := cfg.TLS.NewSession(tlsSection)
	if cfg.SASL.PasswordFile != "" {
		_, passwordErr := cfg.SASL.Password()
		err = errors.Join(err, passwordErr)
	}
	return err
}

// Client knows the brokers of a cluster and keeps one connection to each that was used. [Client.Send] is safe for
// concurrent use, the rest is not.
type Client struct {
	// CheckFiles is how often the files of a connection are compared with the ones that it was opened with.
	CheckFiles time.Duration
	// ClusterID of the Kafka cluster, of the last metadata; empty: not known yet.
	ClusterID string

	cfg        *Config
	brokers    map[int32]string // id to host:port, of the last metadata
	controller int32

	answered   string // the broker that answered the last question about the cluster
	answeredAt time.Time

	aws awsCredentials

	mu   sync.Mutex
	idle map[string]*conn // by address
}

// New returns a client that is not connected.
func New(cfg *Config) *Client {
	return &Client{CheckFiles: 10 * time.Second, cfg: cfg, controller: -1, idle: make(map[string]*conn)}
}

// Send does one exchange with the broker at addr. See [Sent] for its error.
func (c *Client) Send(ctx context.Context, addr string, req protocol.Message) (protocol.Message, error) {
	k := c.renew(ctx, c.take(addr))
	if k == nil {
		var err error
		if k, err = c.dial(ctx, addr); err != nil {
			return nil, err
		}
	}
	reused := k.exchanges > 0
	msg, err := k.exchange(ctx, req)
	if err != nil {
		k.close()
		return nil, &brokerError{addr: addr, sent: true, reused: reused, err: k.demandsSASL(err)}
	}
	c.put(addr, k)
	return msg, nil
}

// sendAgain is Send for a request that may arrive twice: the broker may have closed a connection while it was idle.
func (c *Client) sendAgain(ctx context.Context, addr string, req protocol.Message) (protocol.Message, error) {
	msg, err := c.Send(ctx, addr, req)
	if b, ok := errors.AsType[*brokerError](err); ok && b.reused && ctx.Err() == nil {
		return c.Send(ctx, addr, req)
	}
	return msg, err
}

func (c *Client) take(addr string) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.idle[addr]
	delete(c.idle, addr)
	if k != nil && !k.usable(time.Now()) {
		k.close()
		return nil
	}
	return k
}

// renew replaces a connection if the files that it was opened with have changed. If that fails, k still works, and
// serves until it ends by itself: a mistake in the new files must not stop what works.
func (c *Client) renew(ctx context.Context, k *conn) *conn {
	if k == nil || time.Since(k.checked) < c.CheckFiles {
		return k
	}
	k.checked = time.Now()
	if access.Stamp(c.cfg.Files()...) == k.files {
		return k
	}
	fresh, err := c.dial(ctx, k.addr)
	if err != nil {
		if ctx.Err() == nil && err.Error() != k.warned {
			k.warned = err.Error()
			c.cfg.Logger.Warn("rotated TLS or SASL files rejected, keeping the current connection", "err", err)
		}
		return k
	}
	c.cfg.Logger.Info("TLS or SASL files rotated, reconnected", "broker", k.addr)
	k.close()
	return fresh
}

func (c *Client) put(addr string, k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.broken || c.idle[addr] != nil {
		k.close()
		return
	}
	c.idle[addr] = k
}

// Close closes the connections. The client may be used again.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.idle {
		k.close()
	}
	clear(c.idle)
}

// Ask sends a request that any broker can answer, and that may be sent twice, to one broker after the other.
func (c *Client) Ask(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	candidates, err := c.reachable(ctx)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, addr := range candidates {
		msg, err := c.sendAgain(ctx, addr, req)
		if err == nil {
			c.answered, c.answeredAt = addr, time.Now()
			return msg, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		errs = append(errs, err)
	}
	return nil, access.Join("", errs)
}

// askController asks the controller, where the cluster names one that clients can reach. (In KRaft mode every
// broker passes such requests on.)
func (c *Client) askController(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	if addr, ok := c.brokers[c.controller]; ok {
		return c.sendAgain(ctx, addr, req)
	}
	return c.Ask(ctx, req)
}

// reachable returns candidates, with a broker that accepts connections first. If none does for a second, the error says
// why.
func (c *Client) reachable(ctx context.Context) ([]string, error) {
	all, connected := c.candidates()
	if connected {
		return all, nil
	}
	addr, err := access.Reach(ctx, c.cfg.Prober, all, func(addr string, err error) error {
		return &brokerError{addr: addr, err: c.DialError(ctx, addr, err)}
	})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(other string) bool { return other == addr })
	return slices.Insert(all, 0, addr), nil
}

// candidates returns the brokers in the order in which to ask them: connected ones, configured ones, others.
func (c *Client) candidates() (all []string, connected bool) {
	c.mu.Lock()
	idle := slices.Sorted(maps.Keys(c.idle))
	c.mu.Unlock()
	for _, addr := range slices.Concat(idle, c.cfg.Brokers, c.Addresses()) {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	return all, len(idle) > 0
}

// WorksWithout reports whether a broker other than the one at addr answered recently.
func (c *Client) WorksWithout(addr string) bool {
	return c.answered != addr && time.Since(c.answeredAt) < c.cfg.RequestTimeout
}

// WriteTimeout is the broker's limit for the wait for followers, in milliseconds. It is less than the client's: the
// broker's answer says more than silence.
func (c *Client) WriteTimeout() int32 { return int32((c.cfg.RequestTimeout * 2 / 3).Milliseconds()) }

// Addresses returns the addresses of all brokers in the last metadata.
func (c *Client) Addresses() []string { return slices.Sorted(maps.Values(c.brokers)) }

// Topic is the metadata of a topic.
type Topic struct {
	Name    string
	Leaders []string // of each partition, as host:port; empty while it has none
	Err     error    // wraps the broker's kafkago.Error
}

// Ready reports whether each partition has a leader.
func (t *Topic) Ready() bool {
	return t.Err == nil && len(t.Leaders) > 0 && !slices.Contains(t.Leaders, "")
}

// Topics asks for the topics' partitions and leaders, and learns the brokers. Without names it asks for no topic.
func (c *Client) Topics(ctx context.Context, names ...string) (topics []Topic, err error) {
	if names == nil {
		names = []string{} // nil means: all topics
	}
	msg, err := c.Ask(ctx, &metadata.Request{TopicNames: names})
	if err != nil {
		return nil, err
	}
	res := msg.(*metadata.Response)
	c.brokers = make(map[int32]string, len(res.Brokers))
	for _, b := range res.Brokers {
		c.brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	c.controller, c.ClusterID = res.ControllerID, res.ClusterID
	for _, found := range res.Topics {
		t := Topic{Name: found.Name, Leaders: make([]string, len(found.Partitions))}
		switch code := kafkago.Error(found.ErrorCode); code {
		case 0:
		case kafkago.UnknownTopicOrPartition:
			t.Err = NoTopic(t.Name)
		default:
			t.Err = c.CodeError("topic "+t.Name, code, "")
		}
		for _, p := range found.Partitions {
			if int(p.PartitionIndex) < len(t.Leaders) {
				t.Leaders[p.PartitionIndex] = c.brokers[p.LeaderID]
			}
		}
		topics = append(topics, t)
	}
	return topics, nil
}

// ProducerID gets an id for an idempotent producer. The first epoch is 0.
func (c *Client) ProducerID(ctx context.Context) (int64, error) {
	msg, err := c.Ask(ctx, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		return 0, err
	}
	res := msg.(*initproducerid.Response)
	switch code := kafkago.Error(res.ErrorCode); code {
	case 0:
		return res.ProducerID, nil
	case kafkago.ClusterAuthorizationFailed, kafkago.TransactionalIDAuthorizationFailed:
		return 0, &sinks.ConnectError{
			Step: sinks.StepAuthorize, Key: "kafka.topic", Rejected: true,
			Remedy: fmt.Sprintf("give %s the permission Write on the topic; Kafka before 3.0 also requires IdempotentWrite "+
				"on the cluster", c.cfg.SASL.Who()),
			Err: access.Words(code, "the cluster grants no producer id (%s)", code.Title()),
		}
	default:
		return 0, fmt.Errorf("requesting a producer id: %w", code)
	}
}
