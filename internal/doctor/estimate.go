package doctor

import "fmt"

// The figures of an estimate come from the measurements in docs/performance.md. docs/operations.md explains them.
const (
	// processBytes is the live memory of a bridge without watches. Most of it is for states that the checkpoint has not
	// stored yet.
	processBytes = 28 << 20
	watchBytes   = 64 << 10 // the memory of a watch
	objectBytes  = 400      // the memory of a known object, regardless of its size
	headerBytes  = 1 << 10  // the size of an event in addition to its data
	pageBytes    = 4 << 10  // what a commit of the checkpoint writes at least for each changed object

	// checkpointPercent is the size of the checkpoint in percent of the objects' JSON, with its free pages.
	checkpointPercent = 150

	// changeRate is the number of changes per second that the figures for CPU and bandwidth refer to.
	changeRate = 1000
	// firstSinkCores and nextSinkCores are the processor cores for changeRate changes of about 2.6 KB.
	firstSinkCores, nextSinkCores = 0.11, 0.02

	// sampleSize is the maximum number of objects of each watch whose size is measured.
	sampleSize = 10
)

// estimate contains the number of objects that one or several watches select, and the size of their JSON without
// managedFields.
type estimate struct {
	watches, objects, bytes int64
	more                    bool // there are more objects, but the API server does not count them
}

func (s *estimate) add(other estimate) {
	s.watches += other.watches
	s.objects += other.objects
	s.bytes += other.bytes
	s.more = s.more || other.more
}

func (s *estimate) String() string {
	switch {
	case s.watches == 0: // the API server does not answer, or RBAC forbids everything
		return "an unknown number of objects"
	case s.more:
		return fmt.Sprintf("more than %d objects", s.objects)
	}
	return fmt.Sprintf("%d objects", s.objects)
}

// memory returns the live memory while the buffers are full. The garbage collector lets the heap grow to twice as much.
func (s *estimate) memory(buffers int64) int64 {
	return processBytes + s.watches*watchBytes + s.objects*objectBytes + buffers
}

// checkpoint returns the size of the checkpoint.
func (s *estimate) checkpoint() int64 { return s.bytes * checkpointPercent / 100 }

// estimateLoad reports which CPU, bandwidth and disk operations the bridge requires. It reports nothing if no objects
// were counted.
func (e *examination) estimateLoad() {
	if e.size.objects == 0 {
		return
	}
	average := e.size.bytes / e.size.objects
	cores := firstSinkCores + nextSinkCores*float64(len(e.cfg.Sinks)-1)
	rate := func(bytes int64) string { return fmt.Sprintf("%.1f MB/s", float64(bytes*changeRate)/1e6) }
	e.ok("load", "", fmt.Sprintf("for each %d changes per second about %.2f cores, %s from the API server "+
		"(without managedFields), %s to each sink, and %s with 2 fsync calls per second to disk; "+
		"the objects have %d bytes on average",
		changeRate, cores, rate(average), rate(average+headerBytes), rate(max(average, pageBytes)), average))
}
