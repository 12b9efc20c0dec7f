package page

import (
	"fmt"
	"time"

	"github.com/deltabridge/deltabridge/internal/control"
)

// script is a name that would run a script if it were not escaped.
const script = `<script>document.title="broken"</script>`

// The statuses that the page is tested with. Each call returns a status of its own, with the verdict of the bridge.

func base(role control.Role) control.Status {
	now := time.Now()
	return control.Status{
		At: now,
		Replica: control.Replica{
			Name: "deltabridge-0-x7k2p", Version: "v0.9.0", Started: now.Add(-52 * time.Hour), Role: role,
			Since: now.Add(-52 * time.Hour), Ready: true, Epoch: 12,
		},
		Configuration: control.Configuration{
			File: "/etc/deltabridge/bridge.yaml", Hash: "5b1f0c9ae2d47a10", Loaded: now.Add(-26 * time.Hour),
		},
	}
}

// with returns a status with a change.
func with(s control.Status, change func(*control.Status)) control.Status {
	change(&s)
	s.Judge()
	return s
}

// problem returns a problem that began some time ago.
func problem(ago time.Duration, text, remedy string) *control.Problem {
	return &control.Problem{Text: text, Since: time.Now().Add(-ago), Remedy: remedy}
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
	return with(base(control.Leader), func(s *control.Status) {
		s.Checkpoint = &control.Checkpoint{LastCommit: s.At, Bytes: 188 << 20, Log: "JetStream stream STATE"}
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
	})
}

// outage is a bridge with a broker that is unavailable.
func outage() control.Status {
	return with(healthy(), func(s *control.Status) {
		w := &s.Sinks[1]
		w.Health, w.Rate, w.Lag = control.Waiting, 0, 754
		w.Queue.Events, w.Queue.Bytes, w.Queue.DiskEvents, w.Queue.DiskBytes = 53_503, 63<<20, 41_503, 221<<20
		w.Problem = problem(754*time.Second, "cannot connect to kafka-0.kafka:9093: connection refused",
			"check that the broker is running and the port is correct")
		w.Fuse = &control.Fuse{
			Seconds: 9_855,
			Text: "at 71.2 more waiting events per second, the queue is full in 163m; then, the API server keeps " +
				"changes that are not read for at least 75s",
		}
	})
}

// atRisk is an outage that soon loses something.
func atRisk() control.Status {
	return with(outage(), func(s *control.Status) {
		w := &s.Sinks[1]
		w.Health, w.Fuse.Seconds, w.Queue.DiskBytes, w.Queue.Blocked = control.AtRisk, 660, 1<<30, true
	})
}

// failing is a bridge whose rights are missing.
func failing() control.Status {
	return with(healthy(), func(s *control.Status) {
		bad := source("ingresses.networking.k8s.io", 0, 0)
		bad.Health = control.Failing
		bad.Problem = problem(9*time.Minute, "ingresses.networking.k8s.io is forbidden: the service account cannot list it",
			"grant the permissions that `bridge rbac` prints, or exclude the resource in `watch`")
		s.Sources = append(s.Sources, bad)
		s.Replica.Ready, s.Replica.NotReady = false, []string{"ingresses.networking.k8s.io: no complete list yet"}
	})
}

// lossy is a bridge that dropped events.
func lossy() control.Status {
	return with(healthy(), func(s *control.Status) {
		a := &s.Sinks[2]
		a.Health, a.Dropped, a.Queue.Overflow = control.Lossy, 1204, "drop-oldest"
		a.Gaps = []control.Gap{
			{Resource: "pods", Reason: "overflow", At: s.At.Add(-4 * time.Minute)},
			{Resource: "configmaps", Reason: "oversize", At: s.At.Add(-3 * time.Hour)},
		}
		a.Parked = []control.Parked{{Destination: "audit/7", Events: 18}}
	})
}

// paused is a bridge with a sink that somebody has paused.
func paused() control.Status {
	return with(healthy(), func(s *control.Status) {
		w := &s.Sinks[1]
		w.Health, w.Rate, w.Lag, w.PausedSince = control.Idle, 0, 1320, s.At.Add(-22*time.Minute)
		w.Queue.Events, w.Queue.Bytes, w.Queue.DiskEvents, w.Queue.DiskBytes = 93_588, 64<<20, 81_588, 402<<20
		w.Fuse = &control.Fuse{Seconds: 7_440, Text: "at 70.9 more waiting events per second, the queue is full in 123m"}
	})
}

// refused is a bridge whose configuration file has a mistake, and is therefore not in use.
func refused() control.Status {
	return with(healthy(), func(s *control.Status) {
		s.Configuration.Error = problem(3*time.Minute, "/etc/deltabridge/bridge.yaml:9:17: sinks[0].nats.url: "+
			"\"nats.nats:4222\" is not the URL of a server (write it as nats://host:4222; separate several by commas)",
			"correct the configuration; the bridge continues with the earlier one")
	})
}

// standby is a replica that does not lead.
func standby() control.Status {
	return with(base(control.Standby), func(s *control.Status) {
		s.Replica.Name = "deltabridge-2-m4w9c"
		s.Replica.Notes, s.Replica.BehindCommits = []string{`standby, the leader is "deltabridge-0-x7k2p"`}, new(0)
	})
}

// starting is a bridge that has nothing yet.
func starting() control.Status {
	return with(base(control.Single), func(s *control.Status) {
		s.Replica.Ready, s.Replica.NotReady = false, []string{"starting"}
	})
}

// stopping is a bridge that shuts down, and has more problems.
func stopping() control.Status {
	return with(refused(), func(s *control.Status) {
		s.Replica.Ready, s.Replica.NotReady = false, []string{control.ShuttingDown}
		s.Configuration.Waits = "a running resync"
		s.Checkpoint.Detached, s.Checkpoint.Problem = true, &control.Problem{Text: "the state log cannot be written"}
	})
}

// large is a bridge with 300 resources and 16 sinks, two of which do not deliver.
func large() control.Status {
	return with(outage(), func(s *control.Status) {
		for n := range 300 - len(s.Sources) {
			name := fmt.Sprintf("widgets%03d.factory%d.example.com", n, n%7)
			s.Sources = append(s.Sources, source(name, 10+n, float64(n%40)/8))
		}
		for n := range 16 - len(s.Sinks) {
			name, place := fmt.Sprintf("team-%02d", n), fmt.Sprintf("kafka.team-%02d.svc:9093, topic changes", n)
			s.Sinks = append(s.Sinks, sink(name, "kafka", place, float64(n)*3.7))
		}
		w := &s.Sinks[9]
		w.Health, w.Rate, w.Lag, w.Queue.Events = control.Waiting, 0, 31, 220
		w.Problem = problem(31*time.Second, "cannot connect to kafka.team-06.svc:9093: connection refused",
			"check that the broker is running and the port is correct")
	})
}

// hostile is a bridge all of whose strings are scripts.
func hostile() control.Status {
	s := lossy()
	s.Verdict.Text, s.Verdict.Remedy, s.Replica.Name, s.Configuration.File = script, script, script, script
	s.Sources[0].Resource, s.Sources[0].Namespace, s.Sources[0].Selector = script, script, script
	s.Sources[0].Problem = &control.Problem{Text: script, Remedy: script}
	s.Sinks[0].Name, s.Sinks[0].Destination, s.Sinks[0].Kind = script, script, script
	s.Sinks[0].Gaps = []control.Gap{{Resource: script, Reason: script, At: s.At}}
	s.Sinks[0].Fuse = &control.Fuse{Seconds: -1, Text: script}
	return s
}

// states returns all statuses by their names.
func states() map[string]control.Status {
	return map[string]control.Status{
		"healthy": healthy(), "outage": outage(), "at-risk": atRisk(), "failing": failing(), "lossy": lossy(),
		"paused": paused(), "refused": refused(), "standby": standby(), "starting": starting(), "stopping": stopping(),
		"large": large(), "hostile": hostile(),
	}
}
