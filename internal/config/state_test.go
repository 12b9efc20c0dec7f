package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReplicas(t *testing.T) {
	c, err := Load("testdata/replicas.yaml")
	if err != nil {
		t.Fatal(err)
	}
	log := c.State.Log
	if log.NATS != nil || log.Rows != RowsIdentity || log.Kafka.ClientID != "deltabridge-local-state" ||
		log.Kafka.CreateTopics.ReplicationFactor != 3 {
		t.Errorf("%+v", log)
	}
	want := &Election{
		Lease: Lease{Name: "audit", Namespace: "tools"}, LeaseDuration: 15 * time.Second, RenewDeadline: 10 * time.Second,
		RetryPeriod: 2 * time.Second,
	}
	if diff := cmp.Diff(want, c.Election); diff != "" {
		t.Error(diff)
	}

	c = mustParse(t, `{state: {log: {nats: {url: "nats://a"}}}, redactionKeyFile: testdata/full.yaml, election: {},
		sinks: [{name: a, stdout: {}}]}`)
	want = &Election{
		Lease: Lease{Name: "deltabridge"}, LeaseDuration: 10 * time.Second, RenewDeadline: 7 * time.Second,
		RetryPeriod: time.Second,
	}
	if diff := cmp.Diff(want, c.Election); diff != "" {
		t.Error(diff)
	}
	if log := c.State.Log; log.Rows != "full" || log.NATS.Stream.Name != "DELTABRIDGE_STATE" ||
		log.NATS.ConnectionName != "deltabridge-local-state" {
		t.Errorf("%+v", log)
	}
}
