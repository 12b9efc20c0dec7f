// Package engine watches a cluster and delivers its changes to sinks, from the initial list to the last
// acknowledgement. [New] requires finished parts and does not read configuration files. internal/assemble builds the
// parts from the configuration.
//
// The files, in the order in which the engine starts, an event passes through it, and the engine stops:
//
//	options.go     the options of an engine: its sinks, scopes, buffers and other parts
//	engine.go      Engine: opens all parts, starts them, and stops them in stages
//	set.go         the API server client and the set of informers
//	enrichment.go  the index of facts from which events are enriched; it sees every change before the pipelines
//	kubernetesevents.go  counts the occurrences of Kubernetes Events
//	listener.go    listener: the handler that connects one informer to one pipeline; it filters, encodes and pushes
//	refilter.go    the events that a listener sends after the filter of its sink was changed
//	queue.go       the queue of a pipeline, in memory and on disk
//	lost.go        the gap events that replace events which a damaged file lost
//	pipeline.go    pipeline: one sink with its filter, encoder and delivery
//	delivery.go    delivery: the queue and the drain of a sink, which can outlive the engine
//	restating.go   re-sends the known objects of one resource to one sink
//	resync.go      starts re-sends as restated events, at intervals and on request
//	progress.go    determines up to where the destination has everything, for progress events
//	pause.go       pauses and resumes a sink on request
//	introduce.go   starts re-sends as an initial list, for a new destination
//	collector.go   the metrics that are read from the other parts during a scrape
//	kept.go        what an engine leaves running for the next one, which has a changed configuration
//	shutdown.go    the end of delivery: drains stop, sinks are closed
//	trial.go       [Trial]: passes one change through the same code up to the queue, for `bridge explain`
//
// internal/tracker records which events are settled.
//
// [Engine.Run] documents the order in which the parts stop. An Engine can run only once.
package engine
