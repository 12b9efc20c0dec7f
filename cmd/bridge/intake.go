package main

import (
	"context"
	"errors"

	"github.com/deltabridge/deltabridge/internal/assemble"
	"github.com/deltabridge/deltabridge/internal/config"
	"github.com/deltabridge/deltabridge/internal/metrics"
	"github.com/deltabridge/deltabridge/pkg/audit"
	"github.com/deltabridge/deltabridge/pkg/checkpoint"
)

// intake receives audit events from API servers, and stores them. A nil *intake is valid and receives nothing. It
// outlives the engines.
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
	i := &intake{journal: journal, metrics: metrics.NewAuditIntake(journal.Status)}
	if i.server, err = assemble.AuditServer(cfg.Audit, journal, i.metrics, b.log); err != nil {
		return nil, errors.Join(err, journal.Close())
	}
	b.log.Info("receiving audit events", "address", i.server.Addr())
	return i, nil
}

// during receives audit events while call runs. If it cannot receive any longer, it ends the context of call.
func (i *intake) during(ctx context.Context, call func(context.Context) error) error {
	if i == nil {
		return call(ctx)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel()
		served <- i.server.Run(ctx)
	}()
	err := call(ctx)
	cancel()
	return errors.Join(err, <-served, i.journal.Close())
}
