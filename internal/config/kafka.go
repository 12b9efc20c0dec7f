package config

// Kafka delivers to topics of a Kafka cluster.
type Kafka struct {
	// Brokers to find the cluster by, as `host:port`.
	Brokers []string `yaml:"brokers" required:"true" minItems:"1" pattern:":[0-9]+$" example:"[kafka-0:9092, kafka-1:9092]"`
	// The topic of a message. The same variables as in `nats.subject`; what a topic name can't hold becomes `-`, the
	// core group is `core`, and what is empty is `_`.
	Topic string `yaml:"topic" default:"\"k8s.{resource}\"" example:"\"k8s.{group}.{resource}\""`
	// The key of a message, which decides on its partition. The same variables, inserted as they are. It has to be the
	// same for all events of an object, or they would lose their order: `{operation}` can't be in it.
	Key string `yaml:"key" default:"\"{cluster}/{group}/{resource}/{namespace}/{name}\"" example:"\"{uid}\""`
	// The compression of messages.
	Compression string `yaml:"compression" default:"snappy" enum:"none gzip snappy lz4 zstd" example:"zstd"`
	// Follow each deletion by a message without value, so that a compacted topic forgets the object and holds the present
	// state: a mirror. `topic` and `key` together then have to name one object, by `{group}`, `{resource}`, `{namespace}` and
	// `{name}`, or by `{uid}`. Topics that the bridge creates are compacted (`cleanup.policy: compact`).
	Tombstones bool `yaml:"tombstones" default:"false" example:"true"`
	// Create topics that are not there. Not given: they have to be there.
	CreateTopics *CreateTopics `yaml:"createTopics"`
	// How long an exchange with a broker may take, connecting included.
	RequestTimeout Duration `yaml:"requestTimeout" default:"15s" min:"100ms" max:"10m" example:"30s"`
	// TLS. All files with certificates, keys and passwords are read at each connection, and connections are opened anew
	// when one of them changes.
	TLS KafkaTLS `yaml:"tls"`
	// Authentication. Off if nothing is set here.
	SASL SASL `yaml:"sasl"`
}

// CreateTopics is how topics are created.
type CreateTopics struct {
	// Into how many partitions a topic is divided. 0: what the broker has as its default.
	Partitions int `yaml:"partitions" default:"0" min:"0" max:"10000" example:"12"`
	// How many brokers keep a copy. 0: what the broker has as its default.
	ReplicationFactor int `yaml:"replicationFactor" default:"0" min:"0" max:"1000" example:"3"`
	// Settings of a topic, by Kafka's names.
	Config map[string]string `yaml:"config" example:"{cleanup.policy: compact, min.insync.replicas: 2}"`
}

// KafkaTLS is how the connections to the brokers are secured. The certificates of the brokers are always verified.
type KafkaTLS struct {
	// Use TLS. It need not be given if another key of `tls` is.
	Enabled bool `yaml:"enabled" default:"false" example:"true"`
	// The other keys are those of `nats.tls`.
	TLS `yaml:",inline"`
}

// SASL is how the bridge authenticates to the brokers.
type SASL struct {
	// The mechanism. Empty: no authentication. `AWS_MSK_IAM` takes the credentials of the AWS environment: the role of a
	// service account (IRSA), EKS Pod Identity, variables or files.
	Mechanism string `yaml:"mechanism" enum:"PLAIN SCRAM-SHA-256 SCRAM-SHA-512 AWS_MSK_IAM" example:"SCRAM-SHA-512"`
	// The user.
	Username string `yaml:"username" example:"bridge"`
	// A file with the password of `username`. It is read at each connection.
	PasswordFile File `yaml:"passwordFile" example:"/etc/deltabridge/password"`
	// The AWS region of the cluster, for `AWS_MSK_IAM`. Empty: that of the environment variable `AWS_REGION`, which IRSA
	// sets.
	Region string `yaml:"region" example:"eu-central-1"`
}
