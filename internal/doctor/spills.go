package doctor

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

// OrphanRemedy is the remedy for the errors of OrphanedEvents.
const OrphanRemedy = "put the sink back under its name until its events are delivered; or remove the file, which loses these events"

// OrphanedEvents returns an error for each state file that contains spilled or parked events of a sink that is not in
// the configuration. Such a sink was removed or renamed, so its events would never be delivered. Files that are in use
// or cannot be read are skipped.
func OrphanedEvents(cfg *config.Config) error {
	var errs []error
	for _, kind := range []struct {
		prefix string
		peek   func(file, sink string) (events int64, of string)
	}{{"spill-", peekSpill}, {"parked-", peekParked}} {
		files, err := filepath.Glob(filepath.Join(cfg.State.Path, kind.prefix+"*.db"))
		if err != nil {
			return fmt.Errorf("state.path: %w", err)
		}
		for _, file := range files {
			name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), kind.prefix), ".db")
			if slices.ContainsFunc(cfg.Sinks, func(s config.Sink) bool { return s.Name == name }) {
				continue
			}
			if events, of := kind.peek(file, name); events > 0 {
				errs = append(errs, fmt.Errorf("%s holds %d events%s for sink %s, which the configuration does not have", file, events, of, name))
			}
		}
	}
	return errors.Join(errs...)
}

func peekSpill(file, _ string) (events int64, of string) {
	events, err := fifo.PeekSpill(file)
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
