// Package engine watches a cluster and delivers its changes to sinks, from the initial list to the last
// acknowledgement. [New] requires finished parts and does not read configuration files. internal/assemble builds the
// parts from the configuration.
//
// An [Engine] attaches a listener to each informer for each sink. The listeners of a sink belong to its pipeline. They
// filter and encode changes, and push the messages to the pipeline's delivery, which is a queue and a drain. A changed
// configuration replaces the engine, and can keep deliveries. A [Rehearsal] passes changes through the same code up to
// the queue.
//
// internal/tracker records which events are settled. [Engine.Run] documents the order in which the parts stop. An
// Engine can run only once.
package engine
