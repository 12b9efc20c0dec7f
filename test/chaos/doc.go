// Package chaos tests the built bridge with random histories and random faults, and judges what arrived by etcd's own
// history.
//
// It has four parts:
//
//   - Generate draws a Scenario from a seed: a configuration and a list of steps. A scenario is data: it can be
//     printed, replayed and shrunk.
//   - A runner plays a scenario on the built binary, with a real API server, etcd, nats-server and Kafka, and records
//     what happened when: the Timeline.
//   - Judge compares etcd's history with what each destination holds. It is a pure function.
//   - Shrink looks for the smallest scenario that still fails.
//
// A violation is printed with the seed. To replay it:
//
//	go test ./test/chaos -run 'TestChaos$' -chaos.seed 4711 -chaos.runs 1
package chaos
