package doctor

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/pkg/fifo"
)

// SpillRemedy is what to do about events that wait for a sink which is not configured.
const SpillRemedy = "put the sink back under its name until its spill is empty; or remove the file, which loses these events"

// AbandonedSpills is an error for each spill file that holds events of a sink which the configuration does not have: nothing would
// ever deliver them. A file that can't be read, or is in use, is none.
func AbandonedSpills(cfg *config.Config) error {
	files, err := filepath.Glob(filepath.Join(cfg.State.Path, "spill-*.db"))
	if err != nil {
		return fmt.Errorf("state.path: %w", err)
	}
	var errs []error
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(file), "spill-"), ".db")
		if slices.ContainsFunc(cfg.Sinks, func(s config.Sink) bool { return s.Name == name }) {
			continue
		}
		if items, err := fifo.PeekSpill(file); err == nil && items > 0 {
			errs = append(errs, fmt.Errorf("%s holds %d events for sink %s, which the configuration does not have", file, items, name))
		}
	}
	return errors.Join(errs...)
}
