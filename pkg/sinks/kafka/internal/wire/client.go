package wire

import (
	"cmp"
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

	awssdk "github.com/aws/aws-sdk-go-v2/aws"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

// Config configures the connections to a Kafka cluster. Brokers is required. New sets the defaults.
type Config struct {
	// The bootstrap brokers, each as `host:port`.
	Brokers []string `yaml:"brokers" required:"true" minItems:"1" pattern:":[0-9]+$" example:"[kafka-0:9092, kafka-1:9092]"`
	// The maximum duration of a request to a broker, including opening the connection.
	RequestTimeout time.Duration `yaml:"requestTimeout" default:"15s" min:"100ms" max:"10m" example:"30s"`
	// TLS settings. The bridge opens new connections when a certificate, key or password file changes.
	TLS access.TLS `yaml:"tls"`
	// Authentication. It is disabled if no key is set.
	SASL SASL `yaml:"sasl"`
	// The client id, which brokers use in logs, metrics and quotas. If it is empty, it is `deltabridge-<cluster>-state` for
	// `state.log`, and `deltabridge-<cluster>-audit` for `audit`.
	ClientID string `yaml:"clientId" example:"deltabridge"`

	Logger *slog.Logger // If it is nil, slog.Default() is used.
	// Prober detects when a broker is available again. If it is nil, New creates one.
	Prober *reach.Prober
	// If Dial is nil, it is reach.Dial.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Validate reports mistakes in the addresses of the brokers, and in the TLS and SASL settings.
func (cfg *Config) Validate(at *strictyaml.Section) {
	if len(cfg.Brokers) == 0 && at.Fine("brokers") {
		at.Report("brokers", "is empty", "write [127.0.0.1:9092]")
	}
	for i, broker := range cfg.Brokers {
		at.Address(fmt.Sprintf("brokers[%d]", i), broker, true, "write host:9092, without a scheme")
	}
	cfg.TLS.Validate(at.At("tls"))
	cfg.SASL.Validate(at.At("sasl"))
}

// Files returns the names of all TLS and SASL files that are read when a connection is opened.
func (cfg *Config) Files() []string {
	files := slices.Concat(cfg.TLS.Files(), []string{cfg.SASL.PasswordFile}, cfg.SASL.OAuth.files())
	return slices.DeleteFunc(files, func(file string) bool { return file == "" })
}

// CheckFiles returns an error if a certificate, key or password file is unreadable or invalid.
func (cfg *Config) CheckFiles() error {
	_, err := cfg.TLS.NewSession(tlsSection)
	if cfg.SASL.PasswordFile != "" {
		_, passwordErr := cfg.SASL.Password()
		err = errors.Join(err, passwordErr)
	}
	return errors.Join(err, cfg.SASL.OAuth.checkFiles())
}

// Client knows the brokers of a cluster and keeps open connections to the brokers that it has used. Its methods are
// safe for concurrent use. Concurrent requests to a broker use several connections.
type Client struct {
	Config *Config
	// CheckFiles is the interval at which the client checks whether the files of an open connection have changed.
	CheckFiles time.Duration

	mu sync.Mutex // guards the following fields

	clusterID  string           // from the last metadata
	brokers    map[int32]string // maps broker ids to host:port, from the last metadata; never modified
	controller string           // host:port, from the last metadata; empty if it is not known

	answered   string // the broker that last answered an Ask
	answeredAt time.Time

	idle map[string][]*conn // idle connections by address; the one that was used last is the last
	aws  *awssdk.Config     // nil until it is used for the first time

	tokens tokens
}

// New returns a client that is not connected. It sets the defaults of cfg.
func New(cfg *Config) *Client {
	cfg.RequestTimeout = cmp.Or(cfg.RequestTimeout, strictyaml.Default[Config]().RequestTimeout)
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	if cfg.Dial == nil {
		cfg.Dial = reach.Dial
	}
	cfg.Prober = cmp.Or(cfg.Prober, &reach.Prober{Dial: cfg.Dial})
	return &Client{CheckFiles: 10 * time.Second, Config: cfg, idle: make(map[string][]*conn)}
}

// Send performs one exchange with the broker at addr. [Sent] reports whether a failed request may have reached the
// broker.
func (c *Client) Send(ctx context.Context, addr string, req protocol.Message) (protocol.Message, error) {
	k, err := c.take(ctx, addr)
	if err != nil {
		return nil, err
	}
	msg, err := k.exchange(ctx, req)
	if err != nil {
		k.close()
		return nil, &brokerError{addr: addr, sent: true, err: k.demandsSASL(err)}
	}
	c.put(k)
	return msg, nil
}

// take returns the idle connection to addr, or a new connection. If the files have changed since the connection was
// opened, take replaces the connection. If the new connection fails, take returns the old one, so a mistake in the new
// files does not interrupt a working connection. The same files are not tried again on that connection.
func (c *Client) take(ctx context.Context, addr string) (*conn, error) {
	k := c.takeIdle(addr)
	now := time.Now()
	if k == nil {
		return c.dial(ctx, addr)
	}
	if !k.isUsable(now) {
		k.close()
		return c.dial(ctx, addr)
	}
	if now.Sub(k.checked) < c.CheckFiles {
		return k, nil
	}
	files := access.Stamp(c.Config.Files()...)
	if k.checked = now; k.files == files {
		return k, nil
	}
	fresh, err := c.dial(ctx, addr)
	switch {
	case err == nil:
		c.Config.Logger.Info("TLS or SASL files rotated, reconnected", "broker", addr)
		k.close()
		return fresh, nil
	case ctx.Err() == nil:
		c.Config.Logger.Warn("rotated TLS or SASL files rejected, keeping the current connection", "err", err)
		k.files = files
	}
	return k, nil
}

func (c *Client) takeIdle(addr string) (k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if idle := c.idle[addr]; len(idle) > 0 {
		k, c.idle[addr] = idle[len(idle)-1], idle[:len(idle)-1]
	}
	return k
}

// put makes k available to other requests, and closes connections that were not used for a long time.
func (c *Client) put(k *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.idle[k.addr] = append(slices.DeleteFunc(c.idle[k.addr], func(old *conn) bool {
		if old.isUsable(now) {
			return false
		}
		old.close()
		return true
	}), k)
}

// Close closes all idle connections. The client can be used again.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, idle := range c.idle {
		for _, k := range idle {
			k.close()
		}
	}
	clear(c.idle)
}

// Ask sends a request to one broker after another until a broker answers. Any broker must be able to answer the
// request, and the request may be sent twice.
func (c *Client) Ask(ctx context.Context, req protocol.Message) (protocol.Message, error) {
	candidates, err := c.candidates(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	controller := c.controller
	c.mu.Unlock()
	if _, ok := req.(*createtopics.Request); ok && controller != "" { // With KRaft, any broker can create topics.
		candidates = slices.Insert(candidates, 0, controller)
	}
	var errs []error
	for _, addr := range candidates {
		msg, err := c.Send(ctx, addr, req)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
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

// candidates returns the brokers in the order in which they are asked. Brokers with an idle connection are first. They
// occur a second time, because the broker may have closed the idle connection. If no connection is idle, the first
// candidate is the broker that has answered recently, or one that accepts connections. If no broker accepts connections
// within a second, candidates returns an error that contains the reason.
func (c *Client) candidates(ctx context.Context) ([]string, error) {
	all := slices.Clone(c.Config.Brokers)
	for _, addr := range c.Addresses() {
		if !slices.Contains(all, addr) {
			all = append(all, addr)
		}
	}
	var idle []string
	c.mu.Lock()
	for addr, conns := range c.idle {
		if len(conns) > 0 {
			idle = append(idle, addr)
		}
	}
	if len(idle) == 0 && time.Since(c.answeredAt) < c.Config.RequestTimeout { // other requests use its connections
		idle = []string{c.answered}
	}
	c.mu.Unlock()
	if slices.Sort(idle); len(idle) > 0 {
		return append(idle, all...), nil
	}
	first, err := access.Reach(ctx, c.Config.Prober, all, func(addr string, err error) error {
		return &brokerError{addr: addr, err: c.DialError(ctx, addr, err)}
	})
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(addr string) bool { return addr == first })
	return slices.Insert(all, 0, first), nil
}

// WorksWithout reports whether a broker other than addr has answered recently.
func (c *Client) WorksWithout(addr string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answered != addr && time.Since(c.answeredAt) < c.Config.RequestTimeout
}

// WriteTimeout is the maximum time in milliseconds that the broker waits for followers. It is shorter than the client's
// request timeout, because an error from the broker is more informative than a timeout.
func (c *Client) WriteTimeout() int32 { return int32((c.Config.RequestTimeout * 2 / 3).Milliseconds()) }

// Addresses returns the addresses of all brokers from the last metadata.
func (c *Client) Addresses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Values(c.brokers))
}

// ClusterID returns the id of the Kafka cluster from the last metadata, or an empty string if it is not known yet.
func (c *Client) ClusterID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clusterID
}

// Topic contains the metadata of a topic.
type Topic struct {
	metadata.ResponseTopic
	Leaders []string // host:port of every partition's leader, or empty if the partition has none
	Err     error    // wraps the broker's kafkago.Error
}

// Ready reports whether all partitions have a leader.
func (t *Topic) Ready() bool {
	return t.Err == nil && len(t.Leaders) > 0 && !slices.Contains(t.Leaders, "")
}

// Topics returns the partitions and leaders of the topics, and updates the known brokers. If names is empty, Topics
// returns no topics.
func (c *Client) Topics(ctx context.Context, names ...string) ([]Topic, error) {
	return c.topics(ctx, append([]string{}, names...))
}

// topics is like Topics, but returns all topics if names is nil.
func (c *Client) topics(ctx context.Context, names []string) (topics []Topic, err error) {
	msg, err := c.Ask(ctx, &metadata.Request{TopicNames: names, IncludeTopicAuthorizedOperations: true})
	if err != nil {
		return nil, err
	}
	res := msg.(*metadata.Response)
	brokers := make(map[int32]string, len(res.Brokers))
	for _, b := range res.Brokers {
		brokers[b.NodeID] = net.JoinHostPort(b.Host, strconv.Itoa(int(b.Port)))
	}
	c.mu.Lock()
	c.brokers, c.controller, c.clusterID = brokers, brokers[res.ControllerID], res.ClusterID
	c.mu.Unlock()
	for _, found := range res.Topics {
		t := Topic{ResponseTopic: found, Leaders: make([]string, len(found.Partitions))}
		switch code := kafkago.Error(found.ErrorCode); code {
		case 0:
		case kafkago.UnknownTopicOrPartition:
			t.Err = NoTopic(t.Name)
		default:
			t.Err = c.CodeError("topic "+t.Name, code, "")
		}
		for _, p := range found.Partitions {
			if int(p.PartitionIndex) < len(t.Leaders) {
				t.Leaders[p.PartitionIndex] = brokers[p.LeaderID]
			}
		}
		topics = append(topics, t)
	}
	return topics, nil
}
