package config

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/embedded"
)

// maxFileSize bounds what is read: a ConfigMap holds no more.
const maxFileSize = 1 << 20

// Config is the whole file.
type Config struct {
	// The name of the cluster. It stands in each event: in `source`, in the attribute `cluster`, and for `{cluster}`
	// in templates. Letters, digits, `-`, `_` and `.`, at most 63 characters.
	Cluster string `yaml:"cluster" default:"local" pattern:"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$" example:"prod-eu-1"`
	// The kubeconfig file to use. Empty: the service account of the Pod that the bridge runs in, else what the
	// environment variable `KUBECONFIG` names, else `~/.kube/config`. A relative path is relative to the directory of
	// the configuration file.
	Kubeconfig string `yaml:"kubeconfig" format:"file" default:"\"\"" example:"/etc/deltabridge/kubeconfig"`
	// What the bridge itself has to remember.
	State State `yaml:"state"`
	// Metrics and health.
	HTTP HTTP `yaml:"http"`
	// What the bridge says about itself.
	Log Log `yaml:"log"`
	// How long the bridge goes on delivering what is queued after it was told to stop. What is left then is counted,
	// and comes again after the next start.
	ShutdownTimeout time.Duration `yaml:"shutdownTimeout" default:"30s" min:"0s" example:"1m"`
	// Values that are hidden besides those of Secrets and the annotation `last-applied-configuration`: docs/secrets.md.
	Redact []Redact `yaml:"redact"`
	// The file with the key under which values are hidden: at least 32 bytes, as from `openssl rand -hex 32`. Not given:
	// the bridge makes a key and keeps it in the folder of the state. With another key all fingerprints change.
	RedactionKeyFile string `yaml:"redactionKeyFile" format:"file" example:"/etc/deltabridge/credentials/redaction/key"`
	// What to watch. Not given: everything that can be listed and watched, in all namespaces.
	Watch []Watch `yaml:"watch" minItems:"1"`
	// Where the events go. Not given: one sink `nats` that feeds a JetStream server inside the bridge, with its data
	// in `./data/nats`.
	Sinks []Sink `yaml:"sinks" minItems:"1"`
}

// State is where the bridge keeps what it has to remember over a restart.
type State struct {
	// The folder. It is created if need be. A relative path is relative to the working directory.
	Path string `yaml:"path" pattern:"." default:"./state" example:"/var/lib/deltabridge"`
}

// HTTP is the server of `/metrics`, `/healthz` and `/readyz`.
type HTTP struct {
	// The address to listen on, as `host:port`. Without a host: on all addresses. Port 0: any free one, which the log
	// names.
	Listen string `yaml:"listen" pattern:":[0-9]+$" default:"\":8080\"" example:"127.0.0.1:8080"`
}

// Log is how the bridge logs, to standard error.
type Log struct {
	// The least important lines that are logged.
	Level LogLevel `yaml:"level" default:"info" enum:"debug info warn error" example:"debug"`
	// `text` for people, `json` for log collectors.
	Format string `yaml:"format" default:"text" enum:"text json" example:"json"`
}

// LogJSON is the Log.Format for log collectors.
const LogJSON = "json"

// LogLevel is the name of a level of log/slog in lower case.
type LogLevel string

// Level makes a LogLevel a slog.Leveler. A name that is none means info.
func (l LogLevel) Level() slog.Level {
	var level slog.Level // the zero value is info, and stays so if the text is no level
	_ = level.UnmarshalText([]byte(l))
	return level
}

// Redact is values of some resources that are hidden: a keyed fingerprint stands in place of each.
type Redact struct {
	// Of which resources, in the notation of `watch[].resources`. Empty: all.
	Resources []string `yaml:"resources" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[pods, \"*.apps\"]"`
	// Where the values stand: keys with dots between them, `[*]` for all elements of a list or members of an object, and
	// `["a key"]` for one with a dot in it. Of a list or an object each value inside is hidden.
	Paths []string `yaml:"paths" required:"true" minItems:"1" example:"[\"spec.containers[*].env[*].value\", \"spec.template.spec.containers[*].env[*].value\"]"`
}

// Watch is resources that are watched, in namespaces. Entries may overlap: an object that several of them name is watched once,
// and is in the events once. An object that is not selected any more is sent as deleted, with `leftfilter`; see
// docs/delivery.md for what a changed `watch` does.
type Watch struct {
	// Which resources: `pods` (of the core group), `deployments.apps`, `deployments.v1.apps`, `*.example.com` (all of
	// that group), `*` (everything). Those that are installed later are found when they come.
	Resources []string `yaml:"resources" required:"true" minItems:"1" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[pods, deployments.apps, \"*.example.com\"]"`
	// Resources that are not watched although `resources` names them. The same notation.
	Exclude []string `yaml:"exclude" pattern:"^[a-z0-9*?\\[\\]^-]+(\\.[a-z0-9.*?\\[\\]^-]*[a-z0-9*?\\[\\]^-])?$" example:"[leases.coordination.k8s.io, events]"`
	// In which namespaces: names, globs as in `team-*`, and exclusions as in `!kube-system`, which win. Empty: all.
	// Only names without wildcards: each namespace is watched by itself, which needs no rights for the whole
	// cluster. Cluster-scoped objects have the namespace "": an empty list, exclusions only, and `*` match them.
	Namespaces []string `yaml:"namespaces" pattern:"^!?[a-z0-9*?\\[\\]^-]*$" example:"[\"team-*\", \"!kube-system\"]"`
	// Only objects with these labels. The API server evaluates it, so that others cost nothing; unless entries that name the same
	// resource, in all namespaces or in the same ones, have other selectors: then the bridge reads all objects of the resource, and
	// selects.
	LabelSelector string `yaml:"labelSelector" default:"\"\"" example:"app in (web, api), tier!=test"`
	// Only objects with these fields. The API server evaluates it, and knows only a few fields for each resource. Entries that
	// may name the same objects must have the same, or one of them no selector at all; except for `metadata.name` and
	// `metadata.namespace`, which the bridge can evaluate.
	FieldSelector string `yaml:"fieldSelector" default:"\"\"" example:"spec.nodeName=node-1"`
}

// Load reads the file at path. The error is *strictyaml.Errors.
func Load(path string) (*Config, error) {
	data, err := readFile(path)
	if err != nil {
		if p, ok := errors.AsType[*fs.PathError](err); ok {
			err = p.Err // the message has the path already
		}
		return nil, wrong(path, "can't be read: "+err.Error(), "name the file with --config")
	}
	return Parse(path, data)
}

// wrong is an error about the file as a whole.
func wrong(file, problem, remedy string) error {
	return &strictyaml.Errors{Mistakes: []*strictyaml.Mistake{{File: file, Problem: problem, Remedy: remedy}}}
}

func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return nil, errors.New("it is a directory")
	}
	if info.Size() > maxFileSize {
		return nil, errTooLarge
	}
	return os.ReadFile(path)
}

var errTooLarge = errors.New("it is larger than 1Mi")

// Parse reads data, the content of the file called name: messages name it, and relative paths of files begin in its
// directory. Those files are looked at. The error is *strictyaml.Errors.
func Parse(name string, data []byte) (*Config, error) {
	if len(data) > maxFileSize {
		return nil, wrong(name, errTooLarge.Error(), "")
	}
	c, at := strictyaml.Decode[Config](name, data)
	c.fill(at.Has)
	if !at.Unreadable() {
		c.Validate(at)
	}
	if err := at.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Default is what an empty file means, and no file: everything is watched, and one sink feeds an embedded JetStream
// server. The caller owns it.
func Default() *Config {
	c := strictyaml.Default[Config]()
	c.fill(func(string) bool { return false })
	return &c
}

// fill sets what depends on whether a list was given, which a default for a key can't tell.
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
}
