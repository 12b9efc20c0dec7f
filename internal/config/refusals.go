package config

// Values of Sink.Oversize.
const (
	OversizeMetadata   = "metadata"
	OversizeClaimCheck = "claimCheck"
	OversizeDeadLetter = "deadLetter"
	OversizeGap        = "gap"
)

// ClaimCheck is where the data of events goes that are larger than the destination takes: a JetStream object store.
type ClaimCheck struct {
	// The name of the object store. Sinks can share one.
	Bucket string `yaml:"bucket" required:"true" pattern:"^[A-Za-z0-9_-]{1,200}$" example:"k8s-claims"`
	// Create it if it is not there. `ttl`, `maxBytes` and `replicas` only matter then.
	Create bool `yaml:"create" default:"false" example:"true"`
	// How long data is kept. 0s: for ever. It should be at least as long as readers may lag behind.
	TTL Duration `yaml:"ttl" default:"0s" min:"0s" example:"168h"`
	// What it holds at most. When it is full the sink waits until there is room. 0: no limit.
	MaxBytes Size `yaml:"maxBytes" default:"0" min:"0" example:"10Gi"`
	// How many servers keep a copy.
	Replicas int `yaml:"replicas" default:"1" min:"1" max:"5" example:"3"`
	// The NATS servers with the object store. A sink with `kafka` needs it; one with `nats` uses its own connection where
	// it is not given.
	NATS *NATSServers `yaml:"nats"`
}

// NATSServers is how to reach NATS servers. The keys are as in `sinks[].nats`.
type NATSServers struct {
	// The server; several servers of one cluster are separated by commas.
	URL string `yaml:"url" required:"true" example:"nats://nats-0:4222,nats://nats-1:4222"`
	// A `.creds` file. At most one of `credentialsFile`, `nkeyFile`, `tokenFile` and `user` is given.
	CredentialsFile File `yaml:"credentialsFile" example:"/etc/deltabridge/claims.creds"`
	// A file with the seed of a user's nkey.
	NkeyFile File `yaml:"nkeyFile" example:"/etc/deltabridge/claims.nk"`
	// A file with a token.
	TokenFile File `yaml:"tokenFile" example:"/etc/deltabridge/claims-token"`
	// A user, with `passwordFile`.
	User string `yaml:"user" example:"bridge"`
	// A file with the password of `user`.
	PasswordFile File `yaml:"passwordFile" example:"/etc/deltabridge/claims-password"`
	// TLS. On if anything is set here, or if the scheme of `url` is `tls` or `wss`.
	TLS TLS `yaml:"tls"`
}

// DeadLetter is where events are kept that the destination refuses for good. A gap event stands in the place of each. It has
// exactly one of `file`, `topic` and `subject`.
type DeadLetter struct {
	// Keep them in a file in the folder of the state, for `bridge dead-letters`.
	File *DeadLetterFile `yaml:"file" oneOf:"true"`
	// Send them to this topic of the sink's Kafka cluster. Variables as in `kafka.topic`. With `kafka.createTopics` it is
	// created, for messages of up to 16Mi; otherwise it has to be there.
	Topic string `yaml:"topic" oneOf:"true" example:"\"dead-letters.{cluster}\""`
	// Send them to this subject of the sink's NATS servers. Variables as in `nats.subject`. A stream of its own has to take
	// it: `stream`.
	Subject string `yaml:"subject" oneOf:"true" example:"\"dead.{cluster}.{resource}\""`
	// The stream that takes `subject`. With `nats.stream.create` it is created as that of the sink is.
	Stream string `yaml:"stream" pattern:"^[^\\s.*>/\\\\]{1,255}$" example:"DEAD"`
}

// DeadLetterFile is dead letters on the disk of the bridge.
type DeadLetterFile struct {
	// How many bytes they take at most. What comes when it is full is lost: counted, logged as an error, and a gap event
	// says so.
	MaxBytes Size `yaml:"maxBytes" default:"64Mi" min:"1Mi" max:"16Ti" example:"1Gi"`
}
