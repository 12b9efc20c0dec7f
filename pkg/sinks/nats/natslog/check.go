package natslog

import (
	"context"
	"errors"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
)

var _ diagnose.Checker = (*Log)(nil)

// requests returns the subjects of the JetStream API that the log requires to read and truncate a stream.
func requests(access *natsconn.Access, stream string) []string {
	api := access.API()
	return []string{
		api + ".STREAM.MSG.GET." + stream, api + ".STREAM.PURGE." + stream, api + ".CONSUMER.CREATE." + stream + ".*",
		api + ".CONSUMER.MSG.NEXT." + stream + ".*",
	}
}

// Check implements [diagnose.Checker]. It neither creates the stream nor appends a record.
func (l *Log) Check(ctx context.Context) []diagnose.Finding {
	server, _, findings := l.stream.CheckAccess(ctx)
	if server != nil {
		defer server.Conn.Close()
		findings = append(findings, l.checkStream(ctx, server)...)
	}
	for i := range findings {
		findings[i].Remedy = strings.TrimSuffix(findings[i].Remedy, changeSubject)
	}
	return findings
}

// checkStream checks the stream or, if it does not exist, whether it can be created.
func (l *Log) checkStream(ctx context.Context, server *natsconn.Attempt) (findings []diagnose.Finding) {
	ctx, cancel := context.WithTimeout(ctx, l.client.Timeout)
	defer cancel()
	step, target := sinks.StepStream, "stream "+l.stream.Config.Name
	replicas := l.stream.Config.Replicas
	info, err := l.stream.Find(ctx, server)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound) && l.stream.Create:
		if err := l.stream.CreationError(ctx, server); err != nil {
			return append(findings, diagnose.Failed(step, target, err))
		}
		detail := "the bridge creates it at startup"
		findings = append(findings, diagnose.Finding{Step: step, Target: target, Detail: detail})
	case err != nil:
		return append(findings, diagnose.Failed(step, target, l.stream.Error(err)))
	default:
		if err := l.unfit(&info.Config); err != nil {
			return append(findings, diagnose.Failed(step, target, err))
		}
		findings, replicas = append(findings, l.stream.Describe(info)), info.Config.Replicas
	}
	if replicas <= 1 {
		findings = append(findings, diagnose.Finding{
			Step: step, Target: target, Warn: true,
			Detail: "it has one replica: if the server loses its data, the state log is lost",
			Remedy: "use 3 replicas, in a cluster of at least 3 servers (num_replicas)",
		})
	}
	return findings
}
