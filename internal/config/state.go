package config

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/kafkalog"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natslog"
)

// State configures where the bridge stores its checkpoint and spilled events.
type State struct {
	// The directory. The bridge creates it if it does not exist. A relative path is relative to the working directory.
	Path string `yaml:"path" pattern:"." default:"./state" example:"/var/lib/deltabridge"`
	// A log in a broker, to which the bridge also writes its checkpoint and its spilled events. With the log, the
	// directory needs no volume: a bridge with an empty directory reads the log. Several replicas can run, of which the
	// holder of a Lease is the leader. It requires `redactionKeyFile`. See docs/availability.md.
	Log *StateLog `yaml:"log"`
}

// StateLog configures the log of the state. The broker can also be one that a sink uses. Set exactly one of `nats` and
// `kafka`.
type StateLog struct {
	// The log is a JetStream stream.
	NATS *natslog.Config `yaml:"nats" oneOf:"true"`
	// The log is a Kafka topic.
	Kafka *kafkalog.Config `yaml:"kafka" oneOf:"true"`
}

// Election configures how the replicas of the bridge agree on a leader, which is the only one that reads and delivers.
// The others are standbys. It has an effect only with `state.log`. The replicas must have the same configuration.
type Election struct {
	// The Lease that the leader holds.
	Lease Lease `yaml:"lease"`
	// How long the leader may not renew the Lease until a standby takes over, in whole seconds. The leader renews the
	// Lease twenty times in this time. If it cannot renew the Lease for 70% of this time, it stops reading. A take-over
	// after a crash takes up to 1.22 times as long, because standbys wait between two attempts.
	LeaseDuration time.Duration `yaml:"leaseDuration" default:"10s" min:"1s" max:"1h" example:"15s"`
}

// RenewDeadline returns how long a leader that cannot renew the Lease continues to read.
func (e *Election) RenewDeadline() time.Duration { return e.LeaseDuration * 7 / 10 }

// RetryPeriod returns the interval at which the leader renews the Lease. Standbys examine it at random intervals, which
// are up to 2.2 times as long.
func (e *Election) RetryPeriod() time.Duration { return e.LeaseDuration / 20 }

// Lease names a Lease.
type Lease struct {
	// The name of the Lease. The bridge creates the Lease if it does not exist.
	Name string `yaml:"name" pattern:"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$" default:"deltabridge" example:"deltabridge-audit"`
	// The namespace of the Lease. If it is empty, it is the namespace of the Pod or, outside a Pod, that of the
	// kubeconfig.
	Namespace string `yaml:"namespace" pattern:"^([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)?$" example:"deltabridge"`
}

// validateState reports mistakes in state.log and election, and keys that state.log does not permit.
func (c *Config) validateState(at *strictyaml.Section) {
	if at.Fine("state.log") && c.State.Log != nil {
		c.validateLog(at.At("state.log"))
	}
	if at.Fine("election") {
		c.Election.validate(at.At("election"))
	}
	for i := range c.Sinks {
		s, sink := &c.Sinks[i], fmt.Sprintf("sinks[%d]", i)
		if c.State.Log == nil {
			continue
		}
		if s.NATS != nil && s.NATS.Embedded != nil {
			at.Report(sink+".nats.embedded", "is a server of one process, but with state.log there can be several",
				"use nats.url")
		}
	}
}

func (c *Config) validateLog(at *strictyaml.Section) {
	l := c.State.Log
	switch given := at.Given("nats", "kafka"); {
	case len(given) > 1:
		at.Report(given[1], "cannot be used together with "+given[0], "use one log")
	case len(given) == 0:
		at.Report("", "has no broker", "add nats or kafka")
	case l.NATS != nil && at.Fine("nats"):
		l.NATS.Validate(at.At("nats"))
	case l.Kafka != nil && at.Fine("kafka"):
		l.Kafka.Validate(at.At("kafka"))
	}
	if c.RedactionKeyFile == "" {
		at.Report("", "requires redactionKeyFile, because each process would create another key for fingerprints",
			"create a key with openssl rand -hex 32, and set redactionKeyFile")
	}
}

func (e *Election) validate(at *strictyaml.Section) {
	if len(validation.IsDNS1123Subdomain(e.Lease.Name)) > 0 && at.Fine("lease.name") {
		at.Report("lease.name", strictyaml.Quote(e.Lease.Name)+" is not a valid name",
			"use lower-case letters, digits, - and ., beginning and ending with a letter or digit")
	}
	if e.LeaseDuration%time.Second != 0 {
		at.Report("leaseDuration", fmt.Sprint(e.LeaseDuration, " is not a whole number of seconds"), "write 10s")
	}
}
