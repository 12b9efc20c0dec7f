package config

import (
	"strings"

	"github.com/deltabridge/deltabridge/pkg/event"
)

// NATS delivers to a JetStream stream.
type NATS struct {
	// The server; several servers of one cluster are separated by commas. The schemes are `nats`, `tls`, `ws` and
	// `wss`. Either `url` or `embedded` is given.
	URL string `yaml:"url" example:"nats://nats-0:4222,nats://nats-1:4222"`
	// Run a server inside the bridge and deliver to it.
	Embedded *Embedded `yaml:"embedded"`
	// The stream, and how to create it.
	Stream Stream `yaml:"stream"`
	// A key-value bucket in place of a stream, so that `nats kv get`, `ls` and `watch` show the present state: a mirror.
	// `subject` is then the key, in which `=` and two hexadecimal digits stand for what a key can't hold. `stream` says how
	// it is created, but for `name`, `subjects` and `lastPerSubject`; one that exists needs a history of 1.
	Bucket string `yaml:"bucket" pattern:"^[A-Za-z0-9_-]{1,240}$" example:"STATE"`
	// The subject of a message. `{cluster}`, `{group}`, `{version}`, `{resource}`, `{kind}`, `{namespace}`, `{name}`,
	// `{uid}` and `{operation}` stand for what the event says, each for one token: the dots of a group become `_`, the
	// core group is `core`, what is empty is `_`, and what a token can't hold is percent-encoded.
	Subject string `yaml:"subject" default:"\"k8s.{cluster}.{group}.{resource}.{namespace}.{name}\"" example:"\"audit.{operation}.{resource}.{namespace}.{name}\""`
	// How many messages wait for their acknowledgement at once.
	MaxInFlight int `yaml:"maxInFlight" default:"512" min:"1" max:"65536" example:"2048"`
	// After this long without any acknowledgement, what waits is sent again.
	AckTimeout Duration `yaml:"ackTimeout" default:"10s" min:"100ms" max:"10m" example:"30s"`
	// A `.creds` file, with JWT and nkey seed. Like all files with credentials, keys and certificates it is read again at
	// each connection. At most one of `credentialsFile`, `nkeyFile`, `tokenFile` and `user` is given.
	CredentialsFile File `yaml:"credentialsFile" example:"/etc/deltabridge/bridge.creds"`
	// A file with the seed of a user's nkey, which begins with `SU`.
	NkeyFile File `yaml:"nkeyFile" example:"/etc/deltabridge/bridge.nk"`
	// A file with a token.
	TokenFile File `yaml:"tokenFile" example:"/etc/deltabridge/token"`
	// A user, with `passwordFile`.
	User string `yaml:"user" example:"bridge"`
	// A file with the password of `user`.
	PasswordFile File `yaml:"passwordFile" example:"/etc/deltabridge/password"`
	// TLS. On if anything is set here, or if the scheme of `url` is `tls` or `wss`.
	TLS TLS `yaml:"tls"`
}

// A bucket is a stream of this name, with these subjects.
const bucketStream, bucketSubjects = "KV_", "$KV."

// Escape is how values are made fit for Subject.
func (n *NATS) Escape() event.Escape {
	if n.Bucket != "" {
		return event.EscapeKey
	}
	return event.EscapeSubject
}

// streamName is that of the stream, or of the one that a bucket is.
func (n *NATS) streamName() string {
	if n.Bucket != "" {
		return bucketStream + n.Bucket
	}
	return n.Stream.Name
}

// resolve writes a bucket out as the stream that it is.
func (n *NATS) resolve() {
	if n.Bucket == "" {
		return
	}
	prefix := bucketSubjects + n.Bucket + "."
	n.Stream.Name, n.Stream.Subjects, n.Stream.LastPerSubject = n.streamName(), []string{prefix + ">"}, true
	n.Subject = prefix + n.Subject
}

// Servers is URL as a list. Empty if it is not set.
func (n *NATS) Servers() []string {
	if n.URL == "" {
		return nil
	}
	servers := strings.Split(n.URL, ",")
	for i := range servers {
		servers[i] = strings.TrimSpace(servers[i])
	}
	return servers
}

// Embedded is a nats-server with JetStream inside the bridge. It has no authentication: whoever reaches its address can
// read and write.
type Embedded struct {
	// The address to listen on, as `host:port`. Port 0: any free one.
	Listen string `yaml:"listen" pattern:":[0-9]+$" default:"127.0.0.1:4222" example:"127.0.0.1:14222"`
	// The folder of the streams. It is created if need be; one bridge at a time can use it. A relative path is
	// relative to the working directory.
	StoreDir string `yaml:"storeDir" pattern:"." default:"./data/nats" example:"/var/lib/deltabridge/nats"`
	// What all streams together may take on disk. 0: three quarters of what is free when it starts.
	MaxStore Size `yaml:"maxStore" default:"0" min:"0" example:"10Gi"`
	// Wait for the disk at each message. Otherwise the last two minutes of messages outlive the end of the bridge, but
	// not that of the machine.
	SyncAlways bool `yaml:"syncAlways" default:"false" example:"true"`
}

// Stream is the stream that a NATS sink delivers to. One that exists is checked and never changed: all keys but
// `name` and `create` only matter when it is created.
type Stream struct {
	// Its name. No two sinks deliver to one stream of one server: they would take each other's events for
	// repetitions.
	Name string `yaml:"name" default:"K8S" pattern:"^[^\\s.*>/\\\\]{1,255}$" example:"AUDIT"`
	// Create it if it is not there.
	Create bool `yaml:"create" default:"false" example:"true"`
	// The subjects that it takes, with the wildcards `*` and `>`. They have to cover `subject`. Empty: those that
	// `subject` can make.
	Subjects []string `yaml:"subjects" example:"[\"k8s.>\"]"`
	// How many servers keep a copy.
	Replicas int `yaml:"replicas" default:"1" min:"1" max:"5" example:"3"`
	// Where the server keeps it: `file` or `memory`.
	Storage string `yaml:"storage" default:"file" enum:"file memory" example:"memory"`
	// What a full stream does. `old`: the oldest messages go, and readers that lag behind miss them. `new`: it takes no
	// more, and the bridge waits.
	Discard string `yaml:"discard" default:"old" enum:"old new" example:"new"`
	// What it holds at most. 0: no limit.
	MaxBytes Size `yaml:"maxBytes" default:"0" min:"0" example:"50Gi"`
	// How many messages it holds at most. 0: no limit.
	MaxMsgs int `yaml:"maxMsgs" default:"0" min:"0" example:"1000000"`
	// How long it keeps a message. 0s: for ever.
	MaxAge Duration `yaml:"maxAge" default:"0s" min:"0s" example:"168h"`
	// How long it remembers the ids of messages, to tell repetitions. 0s: two minutes, or `maxAge` if that is
	// shorter.
	DuplicateWindow Duration `yaml:"duplicateWindow" default:"0s" min:"0s" example:"10m"`
	// Keep the last message of each subject, so that the stream holds the present state: a mirror. `subject` has to name
	// one object, as its default does: by `{group}`, `{resource}`, `{namespace}` and `{name}`, or by `{uid}`. A stream that exists is used only if it is so (`max_msgs_per_subject` 1).
	LastPerSubject bool `yaml:"lastPerSubject" default:"false" example:"true"`
	// With `lastPerSubject`: how long deletions stay in the stream, for readers that were away. 0s: for ever. It needs
	// nats-server 2.11 or newer.
	DeletionsKeptFor Duration `yaml:"deletionsKeptFor" default:"24h" min:"0s" example:"1h"`
}

// TLS is how a connection is secured. The certificate of the server is always verified.
type TLS struct {
	// The certificates of the authorities to trust, as PEM. Not given: those of the system.
	CAFile File `yaml:"caFile" example:"/etc/deltabridge/tls/ca.crt"`
	// The certificate that the bridge shows, as PEM. With `keyFile`.
	CertFile File `yaml:"certFile" example:"/etc/deltabridge/tls/tls.crt"`
	// The private key of `certFile`, as PEM.
	KeyFile File `yaml:"keyFile" example:"/etc/deltabridge/tls/tls.key"`
	// The name that the certificate of the server has to have. Empty: the host that is connected to.
	ServerName string `yaml:"serverName" example:"nats.example.com"`
}
