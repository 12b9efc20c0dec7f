package nats

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/reach"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
)

// Defaults.
const (
	DefaultMaxInFlight     = 512
	DefaultAckTimeout      = 10 * time.Second
	DefaultDuplicateWindow = 2 * time.Minute
	minDeletionsKeptFor    = time.Second // the server's least TTL
)

// Config of a Sink. Its zero values are the defaults named at the fields.
type Config struct {
	// URLs of the servers of one cluster, as in nats://host:4222 or tls://host:4222. Not with Embedded.
	URLs []string
	// Embedded runs a server in the process and delivers to it.
	Embedded *embedded.Config

	Stream StreamConfig
	// Subject is the template of the subject (event.EscapeSubject).
	Subject string

	// MaxInFlight is how many messages wait for their acknowledgement at once. 0: DefaultMaxInFlight.
	MaxInFlight int
	// AckTimeout: after this long without any acknowledgement (and at most twice as long) those that wait are
	// given up and sent again. 0: DefaultAckTimeout.
	AckTimeout time.Duration

	// LettersOf is the sink of which the messages are dead letters; empty: they are none. A letter is an event of which a
	// stream may hold another message, so it has a Nats-Msg-Id of its own.
	LettersOf string

	Auth AuthConfig
	TLS  TLSConfig

	// Prober finds out when a server is back. Sinks with the same servers should share it. Nil: the sink's own.
	Prober *reach.Prober

	Logger *slog.Logger // nil: slog.Default()
}

// AuthConfig names the files that hold credentials. They are read at each connection, so that they can be
// rotated. At most one of CredentialsFile, NkeyFile, TokenFile and User is set.
type AuthConfig struct {
	CredentialsFile string // a .creds file: JWT and nkey seed
	NkeyFile        string // the seed of a user's nkey
	TokenFile       string
	User            string
	PasswordFile    string
}

// TLSConfig names the files for TLS. Any field that is set turns TLS on, as a tls:// URL does.
type TLSConfig struct {
	CAFile     string // empty: the system's
	CertFile   string // client certificate, with KeyFile
	KeyFile    string
	ServerName string // empty: the host of the URL
}

// Storage of a stream that is created.
type Storage string

// The kinds of storage.
const (
	StorageFile   Storage = "file"
	StorageMemory Storage = "memory"
)

// Discard says what a full stream that is created does.
type Discard string

// The kinds of discarding.
const (
	DiscardOld Discard = "old" // drop the oldest messages: readers that lag behind lose them
	DiscardNew Discard = "new" // refuse new ones: the bridge waits until there is room
)

// StreamConfig names the stream, and says how to create it. All fields but Name only matter for creation.
type StreamConfig struct {
	Name     string
	Create   bool     // create it if it is not there
	Subjects []string // empty: the subjects that Config.Subject can make
	Replicas int      // 0: 1
	Storage  Storage  // empty: StorageFile
	Discard  Discard  // empty: DiscardOld
	MaxBytes int64    // 0: unlimited
	MaxMsgs  int64    // 0: unlimited
	MaxAge   time.Duration
	// DuplicateWindow is how long the stream remembers ids. 0: DefaultDuplicateWindow, or MaxAge if that is less.
	DuplicateWindow time.Duration
	// LastPerSubject makes the stream a mirror, which keeps the last message of each subject. One that exists has to be so.
	LastPerSubject bool
	// KeyValue makes it a key-value bucket: Name is KV_<bucket>, and Config.Subject is $KV.<bucket>.<key>, with values for keys
	// (event.EscapeKey). It is a mirror, too.
	KeyValue bool
	// DeletionsKeptFor is how long deletions stay in a mirror. 0: for ever.
	DeletionsKeptFor time.Duration
}

// validate checks cfg, fills in the defaults and compiles the subject. It reports every mistake that it finds.
func (cfg *Config) validate() (*event.Template, error) {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check((len(cfg.URLs) > 0) != (cfg.Embedded != nil), "exactly one of url and embedded is needed")
	check(cfg.Embedded == nil || cfg.Embedded.StoreDir != "", "embedded.storeDir is needed")
	check(validStreamName(cfg.Stream.Name), "stream.name %q: needed, without dots, spaces, wildcards and slashes", cfg.Stream.Name)
	check(cfg.Stream.Replicas >= 0 && cfg.Stream.Replicas <= 5, "stream.replicas must be 1 to 5")
	check(oneOf(cfg.Stream.Storage, "", StorageFile, StorageMemory), "stream.storage must be file or memory")
	check(oneOf(cfg.Stream.Discard, "", DiscardOld, DiscardNew), "stream.discard must be old or new")
	check(cfg.Stream.DeletionsKeptFor == 0 || cfg.Stream.DeletionsKeptFor >= minDeletionsKeptFor, "stream.deletionsKeptFor must be 0 or at least %v", minDeletionsKeptFor)
	check(cfg.MaxInFlight >= 0, "maxInFlight must not be negative")
	check(cfg.AckTimeout >= 0, "ackTimeout must not be negative")
	a := cfg.Auth
	check(countSet(a.CredentialsFile, a.NkeyFile, a.TokenFile, a.User) <= 1, "only one of credentialsFile, nkeyFile, tokenFile and user can be set")
	check((a.User != "") == (a.PasswordFile != ""), "user and passwordFile belong together")
	check((cfg.TLS.CertFile != "") == (cfg.TLS.KeyFile != ""), "tls.certFile and tls.keyFile belong together")
	escape := event.EscapeSubject
	if cfg.Stream.KeyValue {
		escape, cfg.Stream.LastPerSubject = event.EscapeKey, true
	}
	subject, err := event.ParseTemplate(cfg.Subject, escape)
	if err != nil {
		errs = append(errs, fmt.Errorf("subject: %w", err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	cfg.fill()
	return subject, nil
}

func (cfg *Config) fill() {
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	if cfg.AckTimeout == 0 {
		cfg.AckTimeout = DefaultAckTimeout
	}
	if cfg.Prober == nil {
		cfg.Prober = new(reach.Prober)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
}

// jetstream is the stream as it would be created, for messages whose subjects match wildcard.
func (s *StreamConfig) jetstream(wildcard string) jetstream.StreamConfig {
	c := jetstream.StreamConfig{
		Name:        s.Name,
		Description: "created by deltabridge",
		Subjects:    s.Subjects,
		Replicas:    max(s.Replicas, 1),
		Storage:     jetstream.FileStorage,
		Discard:     jetstream.DiscardOld,
		MaxBytes:    s.MaxBytes,
		MaxMsgs:     s.MaxMsgs,
		MaxAge:      s.MaxAge,
		Duplicates:  s.DuplicateWindow,
		AllowDirect: true, // lets readers get the last state of an object from any replica
	}
	if len(c.Subjects) == 0 {
		c.Subjects = []string{wildcard}
	}
	if s.Storage == StorageMemory {
		c.Storage = jetstream.MemoryStorage
	}
	if s.Discard == DiscardNew {
		c.Discard = jetstream.DiscardNew
	}
	if c.Duplicates == 0 {
		c.Duplicates = DefaultDuplicateWindow
		if s.MaxAge > 0 { // the server refuses a window longer than the age
			c.Duplicates = min(c.Duplicates, s.MaxAge)
		}
	}
	if s.LastPerSubject {
		c.MaxMsgsPerSubject = 1
		c.AllowMsgTTL = s.DeletionsKeptFor > 0
	}
	if s.KeyValue { // as clients create them
		c.Discard, c.AllowRollup, c.DenyDelete = jetstream.DiscardNew, true, true
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = -1
	}
	if c.MaxMsgs == 0 {
		c.MaxMsgs = -1
	}
	return c
}

// validStreamName follows the server's rule for stream names.
func validStreamName(name string) bool {
	for _, r := range name {
		if r <= ' ' || r >= 0x7f || strings.ContainsRune(`.*>/\`, r) {
			return false
		}
	}
	return name != ""
}

func oneOf[T comparable](v T, allowed ...T) bool { return slices.Contains(allowed, v) }

func countSet(values ...string) (n int) {
	for _, v := range values {
		if v != "" {
			n++
		}
	}
	return n
}
