// Package engine watches a cluster and delivers its changes to sinks, from the first list to the last acknowledgement.
// [New] takes finished parts and knows nothing of configuration files; internal/assemble builds these parts.
//
// Data flows in the order of these files:
//
//	set.go        the informers; engine.go attaches each of them to the tracker and to every pipeline
//	listener.go   listener: the handler that joins one informer to one pipeline; it filters, encodes and pushes
//	refilter.go   what a listener sends when the filter of its sink has changed
//	queue.go      the queue of a pipeline, in memory and on disk
//	pipeline.go   pipeline: one sink with its filter, encoder, queue and drain
//	restating.go  re-sends what the informers of one resource know to one sink
//	resync.go     re-sends it as restated events, at intervals and on request
//	introduce.go  re-sends it as an initial list, to a new destination
//	shutdown.go   the end of delivery
//
// internal/tracker knows what is settled. [Trial] passes a change through the same code up to the queue, for `bridge
// explain`.
//
// [Engine.Run] gives the order of start and stop. An Engine runs once.
package engine
