package page

import (
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
)

// script is a name that would run a script if it were not escaped.
const script = `<script>document.title="broken"</script>`

// The statuses that the page is tested with. Each call returns a status of its own.

func base(role control.Role, health control.Health, text, remedy string) control.Status {
	now := time.Now()
	return control.Status{
		Replica: control.Replica{
			Name: "deltabridge-0-x7k2p", Version: "v0.9.0", Started: now.Add(-52 * time.Hour), Role: role,
			Since: now.Add(-52 * time.Hour), Ready: true,
		},
		Configuration: control.Configuration{
			File: "/etc/deltabridge/bridge.yaml", Hash: "5b1f0c9ae2d47a10", Loaded: now.Add(-26 * time.Hour),
		},
		Verdict: control.Verdict{Health: health, Text: text, Remedy: remedy},
	}
}

func source(resource string, objects int, rate float64) control.Source {
	return control.Source{
		Name: resource, Resource: resource, Health: control.Healthy, Objects: objects, Rate: rate,
		Changes: int64(rate*90000) + int64(objects), LastContact: time.Now().Add(-2 * time.Second),
	}
}

func sink(name, kind, destination string, rate float64) control.Sink {
	return control.Sink{
		Name: name, Kind: kind, Destination: destination, Health: control.Healthy, Received: 4_812_337, Filtered: 1_204_118,
		Delivered: 3_608_219, Rate: rate,
		Queue: control.Queue{MemoryBytes: 64 << 20, MaxDisk: 1 << 30, Overflow: "block"},
	}
}

// healthy is a bridge that delivers everything.
func healthy() control.Status {
	s := base(control.Leader, control.Healthy, "Everything is delivered.", "")
	s.Replica.Epoch, s.Checkpoint = 12, &control.Checkpoint{
		LastCommit: time.Now(),
		Bytes:      188 << 20,
		Log:        "JetStream stream STATE",
	}
	s.Sources = []control.Source{
		source("pods", 8214, 31.4), source("events", 20133, 22.8), source("endpointslices.discovery.k8s.io", 1240, 9.3),
		source("deployments.apps", 642, 1.2), source("replicasets.apps", 3120, 1.1), source("jobs.batch", 911, 0.4),
		source("configmaps", 2044, 0.2), source("services", 702, 0), source("nodes", 48, 4.8),
	}
	s.Sinks = []control.Sink{
		sink("live", "nats", "tls://nats.nats:4222, stream K8S", 48.2),
		sink("warehouse", "kafka", "kafka-0.kafka:9093, topic k8s-changes", 70.9),
		sink("audit", "kafka", "audit.example.com:9093, topic audit", 2.4),
	}
	return s
}

// outage is a bridge with a broker that is unavailable.
func outage() control.Status {
	s := healthy()
	s.Verdict = control.Verdict{
		Health: control.Waiting, Text: "Sink warehouse waits for its broker; nothing is lost.",
		Remedy: "Check that the Kafka broker kafka-0.kafka:9093 runs; the bridge reconnects by itself.",
	}
	w := &s.Sinks[1]
	w.Health, w.Rate, w.Lag = control.Waiting, 0, 754
	w.Queue.Events, w.Queue.Bytes, w.Queue.DiskEvents, w.Queue.DiskBytes = 53_503, 63<<20, 41_503, 221<<20
	w.Problem = &control.Problem{
		Text: "cannot connect to kafka-0.kafka:9093: connection refused", Since: time.Now().Add(-754 * time.Second),
		Remedy: "check that the broker is running and the port is correct",
	}
	w.Fuse = &control.Fuse{
		Seconds: 9_855,
		Text:    "at 71.2 more waiting events per second, the queue is full in 163m; then, the API server keeps changes that are not read for at least 75s",
	}
	return s
}

// atRisk is an outage that soon loses something.
func atRisk() control.Status {
	s := outage()
	s.Verdict.Health, s.Verdict.Text = control.AtRisk, "Sink warehouse waits for its broker, and loses changes in 11 min if it does not return."
	w := &s.Sinks[1]
	w.Health, w.Fuse.Seconds, w.Queue.DiskBytes, w.Queue.Blocked = control.AtRisk, 660, 1<<30, true
	return s
}

// failing is a bridge whose rights are missing.
func failing() control.Status {
	s := healthy()
	s.Verdict = control.Verdict{
		Health: control.Failing, Text: "Resource ingresses.networking.k8s.io cannot be read.",
		Remedy: "Grant list and watch for ingresses in networking.k8s.io; `bridge rbac` prints the role.",
	}
	bad := source("ingresses.networking.k8s.io", 0, 0)
	bad.Health, bad.Problem = control.Failing, &control.Problem{
		Text:   "ingresses.networking.k8s.io is forbidden: the service account cannot list it",
		Since:  time.Now().Add(-9 * time.Minute),
		Remedy: "bridge rbac -c bridge.yaml | kubectl apply -f -",
	}
	s.Sources = append(s.Sources, bad)
	s.Replica.Ready, s.Replica.NotReady = false, []string{"ingresses.networking.k8s.io: no complete list yet"}
	return s
}

// lossy is a bridge that dropped events.
func lossy() control.Status {
	s := healthy()
	s.Verdict = control.Verdict{
		Health: control.Lossy, Text: "Sink audit dropped 1,204 events in the last 15 minutes.",
		Remedy: "Run `bridge resync audit`, and raise buffer.spill.maxBytes.",
	}
	a := &s.Sinks[2]
	a.Health, a.Dropped, a.DeadLetters, a.Queue.Overflow = control.Lossy, 1204, 3, "drop-oldest"
	a.Gaps = []control.Gap{
		{Resource: "pods", Reason: "overflow", At: time.Now().Add(-4 * time.Minute)},
		{Resource: "configmaps", Reason: "oversize", At: time.Now().Add(-3 * time.Hour)},
	}
	a.Parked = []control.Parked{{Destination: "audit/7", Events: 18}}
	return s
}

// standby is a replica that does not lead.
func standby() control.Status {
	s := base(control.Standby, control.Unknown, "This replica is a standby; the leader delivers.", "")
	s.Replica.Notes = []string{`standby, the leader is "deltabridge-1-q8d4z"`}
	s.Replica.BehindCommits, s.Replica.Epoch = new(0), 12
	return s
}

// starting is a bridge that has nothing yet.
func starting() control.Status {
	s := base(control.Single, control.Waiting, "The bridge starts.", "")
	s.Replica.Ready, s.Replica.NotReady = false, []string{"starting"}
	return s
}

// stopping is a bridge that shuts down, with a configuration that is not in use.
func stopping() control.Status {
	s := healthy()
	s.Verdict = control.Verdict{Health: control.Stopping, Text: "The bridge stops, and delivers what is queued."}
	s.Configuration.Error = &control.Problem{Text: "sinks[0].nats.url: is not a URL", Remedy: "write nats://HOST:4222"}
	s.Configuration.Waits = "a running resync"
	s.Checkpoint.Detached, s.Checkpoint.Problem = true, &control.Problem{Text: "the state log cannot be written"}
	s.Sinks[0].Health, s.Sinks[0].PausedSince = control.Idle, time.Now().Add(-time.Hour)
	return s
}

// large is a bridge with 300 resources and 16 sinks, two of which do not deliver.
func large() control.Status {
	s := outage()
	s.Verdict.Text = "2 of 16 sinks wait for their brokers; nothing is lost."
	for n := range 300 - len(s.Sources) {
		s.Sources = append(s.Sources, source(fmt.Sprintf("widgets%03d.factory%d.example.com", n, n%7), 10+n, float64(n%40)/8))
	}
	for n := range 16 - len(s.Sinks) {
		s.Sinks = append(
			s.Sinks,
			sink(
				fmt.Sprintf("team-%02d", n),
				"kafka",
				fmt.Sprintf("kafka.team-%02d.svc:9093, topic changes", n),
				float64(n)*3.7,
			),
		)
	}
	s.Sinks[9].Health, s.Sinks[9].Rate, s.Sinks[9].Lag, s.Sinks[9].Queue.Events = control.Waiting, 0, 31, 220
	return s
}

// hostile is a bridge all of whose strings are scripts.
func hostile() control.Status {
	s := lossy()
	s.Verdict.Text, s.Verdict.Remedy, s.Replica.Name, s.Configuration.File = script, script, script, script
	s.Sources[0].Resource, s.Sources[0].Namespace, s.Sources[0].Selector = script, script, script
	s.Sources[0].Problem = &control.Problem{Text: script, Remedy: script}
	s.Sinks[0].Name, s.Sinks[0].Destination, s.Sinks[0].Kind = script, script, script
	s.Sinks[0].Gaps = []control.Gap{{Resource: script, Reason: script, At: time.Now()}}
	s.Sinks[0].Fuse = &control.Fuse{Seconds: -1, Text: script}
	return s
}

// states returns all statuses by their names.
func states() map[string]func() control.Status {
	return map[string]func() control.Status{
		"healthy": healthy, "outage": outage, "at-risk": atRisk, "failing": failing, "lossy": lossy, "standby": standby,
		"starting": starting, "stopping": stopping, "large": large, "hostile": hostile,
	}
}
