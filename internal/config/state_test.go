package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var defaultElection = Election{Lease: Lease{Name: "deltabridge"}, LeaseDuration: 10 * time.Second}

func TestStateLog(t *testing.T) {
	c, err := Load("testdata/state-log.yaml")
	if err != nil {
		t.Fatal(err)
	}
	log := c.State.Log
	if log.NATS != nil || log.Kafka.ClientID != "deltabridge-local-state" ||
		log.Kafka.CreateTopics.ReplicationFactor != 3 {
		t.Errorf("%+v", log)
	}
	if diff := cmp.Diff(defaultElection, c.Election); diff != "" {
		t.Error(diff)
	}
	if e := c.Election; e.RenewDeadline() != 7*time.Second || e.RetryPeriod() != 500*time.Millisecond {
		t.Errorf("renew deadline %s, retry period %s", e.RenewDeadline(), e.RetryPeriod())
	}

	c = mustParse(t, `{state: {log: {nats: {url: "nats://a"}}}, redactionKeyFile: testdata/full.yaml,
		sinks: [{name: a, stdout: {}}]}`)
	if log := c.State.Log; log.NATS.Stream.Name != "DELTABRIDGE_STATE" ||
		log.NATS.ConnectionName != "deltabridge-local-state" {
		t.Errorf("%+v", log)
	}
}
