package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

const (
	orphanRemedy = "put the sink back under its name until its events are delivered; " +
		"or remove the file or directory, which loses these events"
	earlierRemedy = "run the version that wrote it until its events are delivered, or re-sent (bridge dead-letters); or remove the file, which loses them"
)

// OrphanedEvents returns an error and a remedy if the state directory contains events that the bridge would never
// deliver. These are spilled or parked events of a removed or renamed sink, and events in the format of an earlier
// version. OrphanedEvents ignores files that it cannot read or that are in use.
func OrphanedEvents(cfg *config.Config) (remedy string, err error) {
	for _, pattern := range []string{"spill-*.db", "dead-letters-*.db"} {
		if paths, _ := filepath.Glob(filepath.Join(cfg.State.Path, pattern)); len(paths) > 0 {
			return earlierRemedy, fmt.Errorf(
				"%s has events in the format of an earlier version, which this version cannot read",
				paths[0],
			)
		}
	}
	var errs []error
	for _, kind := range []struct {
		prefix, suffix string
		peek           func(path, sink string) (events int64, of string)
	}{{"spill-", "", peekSpill}, {"parked-", ".db", peekParked}} {
		paths, err := filepath.Glob(filepath.Join(cfg.State.Path, kind.prefix+"*"+kind.suffix))
		if err != nil {
			return "", fmt.Errorf("state.path: %w", err)
		}
		for _, path := range paths {
			name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path), kind.prefix), kind.suffix)
			if strings.Contains(name, ".") ||
				slices.ContainsFunc(cfg.Sinks, func(s config.Sink) bool { return s.Name == name }) {
				continue // a quarantined file or a configured sink
			}
			if events, of := kind.peek(path, name); events > 0 {
				errs = append(errs, fmt.Errorf("%s contains %d events%s for sink %s, which is not in the configuration",
					path, events, of, name))
			}
		}
	}
	return orphanRemedy, errors.Join(errs...)
}

// spillBytes returns the size of a sink's spill on disk.
func spillBytes(state, sink string) (n int64) {
	entries, err := os.ReadDir(filepath.Join(state, "spill-"+sink))
	if err != nil {
		return 0 // the sink has no spill
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil {
			n += info.Size()
		}
	}
	return n
}

func peekSpill(path, _ string) (events int64, of string) {
	events, err := fifo.PeekSpill(path)
	if err != nil {
		return 0, ""
	}
	return events, ""
}

func peekParked(file, sink string) (events int64, of string) {
	queues, err := parked.Read(filepath.Dir(file), sink)
	if err != nil {
		return 0, ""
	}
	var destinations []string
	for _, q := range queues {
		events += int64(q.Events)
		destinations = append(destinations, q.Destination)
	}
	return events, " of " + strings.Join(destinations, ", ")
}
