package daemon

import (
	"context"
	"errors"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/engine"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// intake receives audit events from API servers, or reads them where they are already, and stores them. A nil *intake
// is valid and does nothing. It outlives the engines.
type intake struct {
	journal *audit.Journal
	runner  runner
	metrics *metrics.AuditIntake
}

// runner is a *audit.Server or an *audit.Importer.
type runner interface {
	Run(ctx context.Context) error
}

// openIntake opens the journal, and the listener or the files, if the configuration has the key audit.
func (b *bridge) openIntake(cfg *config.Config, store *checkpoint.Store) (*intake, error) {
	if cfg.Audit == nil {
		return nil, nil
	}
	sources, err := assemble.AuditSources(cfg.Audit, b.log)
	if err != nil {
		return nil, err
	}
	journal, err := assemble.AuditJournal(cfg, store.AllPositions(), b.log)
	if err != nil {
		return nil, err
	}
	i := &intake{journal: journal, metrics: metrics.NewAuditIntake(journal.Status)}
	if len(sources) > 0 {
		importer := audit.NewImporter(audit.ImporterOptions{
			Journal: journal, Sources: sources, Logger: b.log, Observer: i.metrics,
		})
		for _, source := range sources {
			b.log.Info("reading audit events", "source", source.Name())
		}
		i.runner, i.metrics.Sources = importer, importer.Status
		return i, nil
	}
	server, err := assemble.AuditServer(cfg.Audit, journal, i.metrics, b.log)
	if err != nil {
		return nil, errors.Join(err, journal.Close())
	}
	b.log.Info("receiving audit events", "address", server.Addr())
	i.runner = server
	return i, nil
}

// giveTo sets the options of an engine that sends the audit events.
func (i *intake) giveTo(o *engine.Options) {
	if i != nil {
		o.Journal, o.AuditSources = i.journal, i.metrics.Sources
	}
}

// during gets audit events while call runs. If that is not possible any longer, it ends the context of call.
func (i *intake) during(ctx context.Context, call func(context.Context) error) error {
	if i == nil {
		return call(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- i.runner.Run(ctx)
	}()
	err := call(ctx)
	cancel()
	return errors.Join(err, <-ended, i.journal.Close())
}
