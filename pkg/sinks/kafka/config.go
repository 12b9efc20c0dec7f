package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/compress/snappy"
	"github.com/segmentio/kafka-go/compress/zstd"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks"
)

// Defaults.
const (
	// DefaultKey names an object of any cluster and resource, so that topics may be shared and compacted. It has the group,
	// for there are resources of one name in several groups: services of the core and of Knative.
	DefaultKey            = "{cluster}/{group}/{resource}/{namespace}/{name}"
	DefaultCompression    = CompressionSnappy
	DefaultRequestTimeout = 15 * time.Second
)

// MetadataMaxAge is how long the sink believes what it knows of a topic's partitions while nothing fails.
const MetadataMaxAge = 5 * time.Minute

// Config of a Sink. Its zero values are the defaults named at the fields.
type Config struct {
	// Brokers are host:port of some brokers of the cluster; the others are found through them.
	Brokers []string
	// Topic is the template of the topic (event.EscapeTopic).
	Topic string
	// Key is the template of the record's key (event.EscapeNone); empty: DefaultKey. The encoder expands it
	// (event.Message.PartitionKey), see Config.KeyTemplate.
	Key string
	// Compression of record batches; empty: DefaultCompression.
	Compression Compression
	// Tombstones lets each deletion be followed by a record with a null value, and topics be created compacted; see the
	// package comment.
	Tombstones bool
	// CreateTopics says how to create missing topics; nil: they are not created.
	CreateTopics *CreateTopics

	TLS  TLSConfig
	SASL SASLConfig

	// RequestTimeout bounds each exchange with a broker, TLS and authentication included. TCP alone has reach.Timeout.
	// 0: DefaultRequestTimeout.
	RequestTimeout time.Duration

	// Prober finds out when a broker is back. Sinks with the same brokers should share it. Nil: the sink's own.
	Prober *reach.Prober

	Logger *slog.Logger // nil: slog.Default()

	dial func(ctx context.Context, network, addr string) (net.Conn, error) // nil: reach.Dial; tests set it
}

// CreateTopics is how missing topics are created.
type CreateTopics struct {
	Partitions        int               // 0: the broker's num.partitions
	ReplicationFactor int               // 0: the broker's default.replication.factor
	Config            map[string]string // topic settings, as in {"min.insync.replicas": "2"}
}

// TLSConfig names the files for TLS. Enabled or any other field turns TLS on. These files, and that of the password, are
// read at each connection, and connections are opened anew when they change, so that they can be rotated.
type TLSConfig struct {
	Enabled            bool
	CAFile             string // empty: the system's
	CertFile           string // client certificate, with KeyFile
	KeyFile            string
	ServerName         string // empty: the host that is connected to
	InsecureSkipVerify bool   // takes any certificate: for tests
}

// SASLConfig is how the sink authenticates. With an empty Mechanism it does not.
type SASLConfig struct {
	Mechanism    string // PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or AWS_MSK_IAM
	Username     string
	PasswordFile string // line ends at its end are cut off
	// Region of the cluster, for AWS_MSK_IAM; empty: the environment's (AWS_REGION). The credentials are those of the
	// AWS environment: a service account's role (IRSA), EKS Pod Identity, variables, files or the instance.
	Region string
}

// Compression of record batches.
type Compression string

// The kinds of compression.
const (
	CompressionNone   Compression = "none"
	CompressionGzip   Compression = "gzip"
	CompressionSnappy Compression = "snappy"
	CompressionLZ4    Compression = "lz4"
	CompressionZstd   Compression = "zstd"
)

// codec returns nil for none.
func (c Compression) codec() (codec compress.Codec, ok bool) {
	switch c {
	case CompressionNone:
		return nil, true
	case CompressionGzip:
		return &compress.GzipCodec, true
	case "", CompressionSnappy:
		// The library's default level takes twice the time, a third of all that is spent on an event, for a few percent.
		return &snappy.Codec{Compression: snappy.FasterCompression}, true
	case CompressionLZ4:
		return &compress.Lz4Codec, true
	case CompressionZstd:
		// Level 1: on JSON within a few percent of the default level's size, for much less time.
		return &zstd.Codec{Level: 1}, true
	}
	return nil, false
}

// KeyTemplate is the compiled Key, or the default's, for the encoder.
func (cfg *Config) KeyTemplate() (*event.Template, error) {
	text := cfg.Key
	if text == "" {
		text = DefaultKey
	}
	return event.ParseTemplate(text, event.EscapeNone)
}

// Validate reports every mistake that shows without a connection, missing files among them. Each message starts
// with the configuration key that it is about, as in "sasl.mechanism: ...".
func (cfg *Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(len(cfg.Brokers) > 0, "brokers: at least one host:port is needed")
	for i, b := range cfg.Brokers {
		host, port, err := net.SplitHostPort(b)
		check(err == nil && host != "" && port != "", "brokers[%d]: %q is not host:port", i, b)
	}
	_, err := event.ParseTemplate(cfg.Topic, event.EscapeTopic)
	check(err == nil, "topic: %w", err)
	_, err = cfg.KeyTemplate()
	check(err == nil, "key: %w", err)
	_, ok := cfg.Compression.codec()
	check(ok, "compression: %q is none of none, gzip, snappy, lz4, zstd", cfg.Compression)
	check(cfg.RequestTimeout >= 0, "requestTimeout: must not be negative")
	if c := cfg.CreateTopics; c != nil {
		check(c.Partitions >= 0, "createTopics.partitions: must not be negative")
		check(c.ReplicationFactor >= 0 && c.ReplicationFactor <= 1000, "createTopics.replicationFactor: must be 0 to 1000")
	}
	errs = append(errs, cfg.TLS.validate()...)
	errs = append(errs, cfg.SASL.validate()...)
	return errors.Join(errs...)
}

func (t *TLSConfig) validate() (errs []error) {
	if (t.CertFile != "") != (t.KeyFile != "") {
		return []error{errors.New("tls.certFile: certFile and keyFile belong together")}
	}
	if _, err := t.files().NewSession(); err != nil {
		errs = append(errs, atKey(err))
	}
	return errs
}

func (s *SASLConfig) validate() (errs []error) {
	if s.Mechanism == "" {
		if s.Username != "" || s.PasswordFile != "" || s.Region != "" {
			errs = append(errs, fmt.Errorf("sasl.mechanism: is needed: one of %v", saslMechanisms()))
		}
		return errs
	}
	if s.Mechanism == mechanismIAM {
		if s.Username != "" || s.PasswordFile != "" {
			errs = append(errs, errors.New("sasl.username: AWS_MSK_IAM takes the credentials of the AWS environment, no user and password"))
		}
		return errs
	}
	if !slices.Contains(saslMechanisms(), s.Mechanism) {
		errs = append(errs, fmt.Errorf("sasl.mechanism: %q is none of %v", s.Mechanism, saslMechanisms()))
	}
	if s.Region != "" {
		errs = append(errs, errors.New("sasl.region: is for AWS_MSK_IAM alone"))
	}
	if s.Username == "" {
		errs = append(errs, errors.New("sasl.username: is needed"))
	}
	if s.PasswordFile == "" {
		errs = append(errs, errors.New("sasl.passwordFile: is needed"))
	} else if _, err := s.password(); err != nil {
		errs = append(errs, atKey(err))
	}
	return errs
}

// atKey is an error of a file behind its key, as the other errors of Validate are.
func atKey(err error) error {
	known, ok := errors.AsType[*sinks.ConnectError](err)
	if !ok {
		return err
	}
	return fmt.Errorf("%s: %w", strings.TrimPrefix(known.Key, "kafka."), known.Err)
}

func (cfg *Config) fill() {
	if cfg.RequestTimeout == 0 {
		cfg.RequestTimeout = DefaultRequestTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.dial == nil {
		cfg.dial = reach.Dial
	}
	if cfg.Prober == nil {
		cfg.Prober = &reach.Prober{Dial: cfg.dial}
	}
}
