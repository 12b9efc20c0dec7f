// Package engine watches a cluster and delivers its changes to sinks, from the first list to the last acknowledgement. [New] takes finished
// parts and knows nothing of configuration files; internal/assemble makes these.
//
// Data flows in the order of these files:
//
//	set.go        the informers; engine.go attaches each of them to the tracker and to every pipeline
//	listener.go   listener: the handler that joins one informer to one pipeline; it filters, encodes and pushes
//	refilter.go   what a listener sends while the filter of its sink is another one than before
//	queue.go      the queue of a pipeline, in memory and on disk
//	pipeline.go   pipeline: one sink with its filter, encoder, queue and drain
//	introduce.go  the initial list for a destination that is another one than before
//	resync.go     restating what exists, at intervals and on request; restating.go is the part of one listener
//	shutdown.go   the end of delivery
//
// What was settled is what internal/tracker knows. [Trial] goes the way of events up to the queue, for `bridge explain`.
//
// The order of start and stop is that of [Engine.Run]. An Engine runs once.
package engine
