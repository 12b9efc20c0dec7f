package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/fifo"
	"github.com/deltabridge/deltabridge/pkg/parked"
)

const orphanRemedy = "restore the sink with its old name, and state.log as it was, until its events are delivered, " +
	"or remove the file or directory, which loses these events"

// OrphanedEvents returns an error and a remedy if the state directory contains spilled or parked events of a removed or
// renamed sink, or audit events without a sink for them, which the bridge would never deliver. It ignores files that it
// cannot read or that are in use.
func OrphanedEvents(cfg *config.Config) (remedy string, err error) {
	errs := append(orphanedIn(cfg.State.Path, cfg), orphanedIn(assemble.AuditState(cfg), cfg)...)
	if events, _ := fifo.Peek(assemble.AuditDir(cfg)); events > 0 && cfg.Audit == nil {
		errs = append(errs, fmt.Errorf("%s contains %d audit events, and no sink with events: audit is in the configuration",
			assemble.AuditDir(cfg), events))
	}
	return orphanRemedy, errors.Join(errs...)
}

// orphanedIn is OrphanedEvents for a directory. With a state log, sinks with events: audit have one of their own.
func orphanedIn(dir string, cfg *config.Config) (errs []error) {
	entries, _ := os.ReadDir(dir)
	removed := func(sink string) bool { // a name with a dot is that of a quarantined file
		return !strings.Contains(sink, ".") && !slices.ContainsFunc(cfg.Sinks, func(s config.Sink) bool {
			apart := cfg.State.Log != nil && s.IsAudit()
			return s.Name == sink && apart == (dir == assemble.AuditState(cfg))
		})
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		name, isDatabase := strings.CutSuffix(entry.Name(), ".db")
		kind, sink, _ := strings.Cut(name, "-")
		var events int64
		of := ""
		switch {
		case kind == "spill" && removed(sink):
			events, _ = fifo.Peek(path)
		case kind == "parked" && isDatabase && removed(sink):
			queues, _ := parked.Read(dir, sink)
			var destinations []string
			for _, q := range queues {
				events += int64(q.Events)
				destinations = append(destinations, q.Destination)
			}
			of = " of " + strings.Join(destinations, ", ")
		}
		if events > 0 {
			errs = append(errs, fmt.Errorf("%s contains %d events%s for sink %s, which is not in the configuration, or has its "+
				"events elsewhere with this state.log", path, events, of, sink))
		}
	}
	return errs
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
