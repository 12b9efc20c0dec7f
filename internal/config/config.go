package config

import (
	"cmp"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
)

// Config is the configuration of the bridge.
type Config struct {
	// The name of the cluster. Each event contains it, in `source` and in the attribute `cluster`. Templates can use it as
	// `{cluster}`. The name has at most 63 letters, digits, `-`, `_` and `.`, and begins and ends with a letter or digit.
	Cluster string `yaml:"cluster" default:"local" pattern:"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$" example:"prod-eu-1"`
	// The kubeconfig file. If it is empty, the bridge uses the service account of its Pod. Outside a Pod, it uses the file
	// in the environment variable `KUBECONFIG`, or `~/.kube/config`. A relative path is relative to the directory of the
	// configuration file.
	Kubeconfig string `yaml:"kubeconfig" format:"file" default:"\"\"" example:"/etc/deltabridge/kubeconfig"`
	// Where the bridge stores its state.
	State State `yaml:"state"`
	// How replicas of the bridge agree on a leader.
	Election Election `yaml:"election"`
	// The HTTP server for metrics, health checks, the status and commands.
	HTTP HTTP `yaml:"http"`
	// Receives audit events from API servers: see docs/delivery.md#audit-events. It requires a sink with `events: audit`.
	// With `state.log`, every replica receives and delivers audit events. It cannot change while the bridge runs; with
	// `state.log`, neither can sinks with `events: audit`.
	Audit *Audit `yaml:"audit"`
	// The log of the bridge.
	Log Log `yaml:"log"`
	// The maximum time that the bridge spends on delivering queued events when it stops. It stores the remaining events
	// and delivers them after the next start.
	ShutdownTimeout time.Duration `yaml:"shutdownTimeout" default:"30s" min:"0s" example:"1m"`
	// Additional values to hide. The values in Secrets and in the annotation `last-applied-configuration` are always
	// hidden: see docs/secrets.md.
	Redact []Redact `yaml:"redact"`
	// A file that contains the key for fingerprints. The key must have at least 32 bytes: create one with `openssl rand
	// -hex 32`. If this is not set, the bridge creates a key in the state directory. If the key changes, all fingerprints
	// change.
	RedactionKeyFile string `yaml:"redactionKeyFile" format:"file" example:"/etc/deltabridge/credentials/redaction/key"`
	// The resources to watch. If this is not set, the bridge watches all resources that can be listed and watched, in all
	// namespaces. If all sinks have `events: audit`, the bridge watches nothing.
	Watch []Watch `yaml:"watch" minItems:"1"`
	// The sinks, to which the bridge sends events. If this is not set, there is one sink, `nats`, with an embedded
	// JetStream server that stores its data in `./data/nats`.
	Sinks []Sink `yaml:"sinks" minItems:"1"`
}

// HTTP configures the server for `/metrics`, `/healthz`, `/readyz`, `/api/` and the page, and how commands reach it. See
// docs/operations.md#http-endpoints.
type HTTP struct {
	// The address to listen on, as `host:port`. Without a host, the server listens on all addresses. With port 0, the
	// system chooses a free port, and the bridge logs the port.
	Listen string `yaml:"listen" pattern:":[0-9]+$" default:"\":8080\"" example:"127.0.0.1:8080"`
	// Serves a live page at `/`, which shows the status in a browser: see docs/page.md. Anyone who can reach the port may
	// see the status. Data of objects requires a token or a connection from the same machine or Pod.
	UI bool `yaml:"ui" default:"false" example:"true"`
	// The addresses of all replicas, as `host:port`. A name stands for all its addresses, so that the name of a headless
	// Service is enough. `bridge status` asks these addresses. `bridge resync`, `pause`, `resume` and `reload` use them to
	// find the leader if they run beside a standby. The leader asks them before it uses a changed configuration. If the
	// list is empty, `bridge status` asks `listen`.
	Peers []string `yaml:"peers" example:"[\"deltabridge.deltabridge:8080\"]"`
	// A file that contains the token with which these commands identify themselves to the leader: a token of a service
	// account with the audience `deltabridge`. If the file does not exist, the commands send no token.
	TokenFile string `yaml:"tokenFile" default:"/var/run/secrets/deltabridge/token" example:"/etc/deltabridge/token"`
}

// Addresses returns the addresses of all replicas: Peers, or else Listen.
func (h *HTTP) Addresses() []string {
	if len(h.Peers) > 0 {
		return h.Peers
	}
	host, port, _ := net.SplitHostPort(h.Listen) // was validated
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return []string{net.JoinHostPort(host, port)}
}

// Log configures the log of the bridge, which is written to standard error.
type Log struct {
	// The minimum level of logged messages.
	Level LogLevel `yaml:"level" default:"info" enum:"debug info warn error" example:"debug"`
	// The format of the log. `text` is for people, and `json` is for log collectors.
	Format string `yaml:"format" default:"text" enum:"text json" example:"json"`
}

// LogJSON is the value of Log.Format for log collectors.
const LogJSON = "json"

// LogLevel is the lower-case name of a log/slog level.
type LogLevel string

// Level implements slog.Leveler. It returns slog.LevelInfo for unknown names.
func (l LogLevel) Level() slog.Level {
	var level slog.Level // The zero value is info. It stays unchanged if the name is unknown.
	_ = level.UnmarshalText([]byte(l))
	return level
}

// Redact selects values to hide in some resources. The bridge replaces each value with a keyed fingerprint.
type Redact struct {
	// The resources in which values are hidden, in the notation of `watch[].resources`. If it is empty, values are
	// hidden in all resources.
	Resources []string `yaml:"resources" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[pods, \"*.apps\"]"`
	// The paths of the values. A path consists of keys that are separated by dots. `[*]` stands for all elements of a list
	// or all members of an object. `["a key"]` stands for a key that contains a dot or a space. If the value is a list or
	// an object, all values in it are hidden.
	Paths []string `yaml:"paths" required:"true" minItems:"1" example:"[\"spec.containers[*].env[*].value\", \"spec.template.spec.containers[*].env[*].value\"]"`
}

// Watch selects resources to watch, in some or all namespaces. Each object is watched only once. Therefore entries that
// may select the same resource in the same namespace must have the same selectors. Lists of namespaces with globs or
// exclusions count as if they shared a namespace. If sinks require different objects, use `filters`. docs/delivery.md
// describes what happens if you change `watch`.
type Watch struct {
	// The resources to watch: `pods` (core group), `deployments.apps`, `deployments.v1.apps` (one version),
	// `*.example.com` (all resources of a group) or `*` (all resources). The bridge detects matching resources that are
	// installed later.
	Resources []string `yaml:"resources" required:"true" minItems:"1" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[pods, deployments.apps, \"*.example.com\"]"`
	// Resources to exclude, in the notation of `resources`.
	Exclude []string `yaml:"exclude" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[leases.coordination.k8s.io, events]"`
	// The namespaces to watch. An entry is a name, a glob such as `team-*`, or an exclusion such as `!kube-system`.
	// Exclusions have priority. If the list is empty, all namespaces are watched. If all entries are plain names, the
	// bridge watches each namespace separately and does not require cluster-wide permissions. Cluster-scoped objects have
	// the namespace "". They are selected if the list is empty, contains only exclusions, or contains the entry `*` or "".
	Namespaces []string `yaml:"namespaces" pattern:"^!?[a-z0-9*?\\[\\]^-]*$" example:"[\"team-*\", \"!kube-system\"]"`
	// Selects objects by label, as in `kubectl get -l`. The API server evaluates the selector, so objects that are not
	// selected cost nothing. If an object is no longer selected, the bridge sends a deletion.
	LabelSelector string `yaml:"labelSelector" default:"\"\"" example:"app in (web, api), tier!=test"`
	// Selects objects by field, as in `kubectl get --field-selector`. The API server evaluates the selector, and supports
	// only a few fields per resource.
	FieldSelector string `yaml:"fieldSelector" default:"\"\"" example:"spec.nodeName=node-1"`
}

// Load reads the configuration file at path. If the file cannot be read, the error is an *fs.PathError.
func Load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Notes are facts about a configuration file that are not mistakes.
type Notes struct {
	MissingFiles []*strictyaml.Mistake // the files that the configuration names, but that do not exist
	Variables    []strictyaml.Variable // the environment variables that the configuration uses
	Warnings     []*strictyaml.Mistake // valid settings whose effects may surprise
}

// LoadOffline is Load for commands that connect to nothing. The files that the configuration names need not exist.
func LoadOffline(path string) (*Config, Notes, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, Notes{}, err
	}
	c, at := strictyaml.DecodeOffline[Config](path, data)
	c, err = c.checked(at)
	return c, Notes{at.MissingFiles(), at.Variables(), at.Warnings()}, err
}

// Parse parses data, the content of the configuration file with this name. The name appears in messages, and relative
// file paths are relative to its directory. Parse also checks whether the referenced files are readable. The error
// joins all mistakes, each a *strictyaml.Mistake.
func Parse(name string, data []byte) (*Config, error) {
	c, at := strictyaml.Decode[Config](name, data)
	return c.checked(at)
}

// checked fills in defaults and validates the decoded values. It returns c, or all mistakes.
func (c *Config) checked(at *strictyaml.Section) (*Config, error) {
	c.fill(at.Has)
	if !at.Unreadable() {
		c.Validate(at)
	}
	if err := at.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Default returns the configuration that applies if the file is empty or does not exist: everything is watched, and one
// sink sends the events to an embedded JetStream server. The caller may modify the result.
func Default() *Config {
	c := strictyaml.Default[Config]()
	c.fill(func(string) bool { return false })
	return &c
}

// fill sets the defaults that tags cannot describe: those of lists that are not in the file, and the names by which
// brokers know the bridge.
func (c *Config) fill(has func(key string) bool) {
	if !has("watch") {
		c.Watch = []Watch{{Resources: []string{"*"}}}
	}
	if !has("sinks") {
		n := strictyaml.Default[nats.Config]()
		n.Embedded = new(strictyaml.Default[embedded.Config]())
		n.Stream.Create = true
		n.Stream.Subjects = []string{"k8s.>"}
		c.Sinks = []Sink{strictyaml.Default[Sink]()}
		c.Sinks[0].Name, c.Sinks[0].NATS = "nats", &n
	}
	if l := c.State.Log; l != nil {
		client := "deltabridge-" + c.Cluster + "-state"
		if l.NATS != nil {
			l.NATS.ConnectionName = client
		}
		if l.Kafka != nil {
			l.Kafka.ClientID = cmp.Or(l.Kafka.ClientID, client)
		}
	}
	for i := range c.Sinks {
		s := &c.Sinks[i]
		client := "deltabridge-" + c.Cluster + "-" + s.Name
		if s.NATS != nil {
			s.NATS.ConnectionName = client
		}
		if s.Kafka != nil {
			s.Kafka.ClientID = cmp.Or(s.Kafka.ClientID, client)
		}
		if s.ClaimCheck != nil && s.ClaimCheck.NATS != nil {
			s.ClaimCheck.NATS.ConnectionName = client
		}
	}
}
