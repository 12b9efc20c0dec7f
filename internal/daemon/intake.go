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

// intake receives audit events from API servers, and stores them. A nil *intake is valid and does nothing. It outlives
// the engines.
type intake struct {
	journal *audit.Journal
	server  *audit.Server
	metrics *metrics.AuditIntake
}

// openIntake opens the journal and the listener, if the configuration has the key audit.
func (b *bridge) openIntake(cfg *config.Config, store *checkpoint.Store) (*intake, error) {
	if cfg.Audit == nil {
		return nil, nil
	}
	journal, err := assemble.AuditJournal(cfg, store.AllPositions(), b.log)
	if err != nil {
		return nil, err
	}
	counts := metrics.NewAuditIntake(journal.Status)
	server, err := assemble.AuditServer(cfg.Audit, journal, counts, b.log)
	if err != nil {
		return nil, errors.Join(err, journal.Close())
	}
	b.log.Info("receiving audit events", "address", server.Addr())
	return &intake{journal, server, counts}, nil
}

// giveTo sets the options of an engine that sends the audit events.
func (i *intake) giveTo(o *engine.Options) {
	if i != nil {
		o.Journal = i.journal
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
		ended <- i.server.Run(ctx)
	}()
	err := call(ctx)
	cancel()
	return errors.Join(err, <-ended, i.journal.Close())
}
