package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
)

const stepAuditEvents = "audit events"

// checkAuditSources reads the first events of each file, topic and stream with audit events. Without a state directory,
// it leaves out files, because it may run on another machine than the bridge.
func (e *examination) checkAuditSources(ctx context.Context) {
	cfg := *e.cfg.Audit
	if e.cfg.State.Path == "" {
		cfg.Files = nil
	}
	cfg.Files = slices.DeleteFunc(slices.Clone(cfg.Files), func(path string) bool {
		_, err := os.Stat(path)
		missing := errors.Is(err, fs.ErrNotExist)
		if missing {
			e.warn(stepAuditEvents, path, "there is no such file yet", "check audit.files and the API server's --audit-log-path")
		}
		return missing
	})
	sources, err := assemble.AuditSources(&cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		e.fail(stepAuditEvents, "", err, "")
	}
	for _, s := range sources {
		e.add(checkAuditSource(ctx, s))
	}
}

func checkAuditSource(ctx context.Context, s audit.Source) diagnose.Finding {
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, audit.Idle+stepTimeout)
	defer cancel()
	batch, err := s.Read(ctx, nil)
	if err == nil {
		err = batch.Err
	} else if errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("there is no answer within %s", audit.Idle+stepTimeout)
	}
	if err != nil {
		return diagnose.Failed(stepAuditEvents, s.Name(), err)
	}
	f := diagnose.Finding{Step: stepAuditEvents, Target: s.Name()}
	events, lost := 0, ""
	for _, loss := range batch.All() {
		if loss == nil {
			events++
		} else if lost == "" {
			lost = loss.Message
		}
	}
	switch {
	case lost != "":
		f.Warn, f.Detail = true, fmt.Sprintf(
			"%d of the oldest events can be read; what is missing is announced by gap events: %s",
			events,
			lost,
		)
		f.Remedy = "check that it contains audit events of the version audit.k8s.io/v1, and nothing else"
	case events == 0:
		f.Detail = "can be read, and has no events"
	default:
		f.Detail = fmt.Sprintf("can be read; events read from its beginning: %d", events)
	}
	return f
}
