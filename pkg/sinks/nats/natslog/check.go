package natslog

import (
	"context"
	"strings"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natscheck"
)

var _ diagnose.Checker = (*Log)(nil)

// Check implements [diagnose.Checker]. It neither creates the stream nor appends a record. It does not try to purge.
func (l *Log) Check(ctx context.Context) []diagnose.Finding {
	server, findings := natscheck.Reach(ctx, &l.client.Access)
	if server == nil {
		return findings
	}
	defer server.Conn.Close()
	ctx, cancel := context.WithTimeout(ctx, l.client.Timeout)
	defer cancel()
	info, found := l.stream.Inspect(ctx, server, l.unfit)
	findings = append(findings, found...)
	if info == nil {
		return withoutSubject(findings)
	}
	name := l.stream.Config.Name
	target := "stream " + name
	for _, err := range l.stream.Try(ctx, server,
		"STREAM.MSG.GET."+name, "CONSUMER.CREATE."+name+".*", "CONSUMER.MSG.NEXT."+name+".*") {
		findings = append(findings, diagnose.Failed(sinks.StepAuthorize, target, err))
	}
	if info.Config.Replicas <= 1 {
		findings = append(findings, diagnose.Finding{
			Step: sinks.StepStream, Target: target, Warn: true,
			Detail: "it has one replica: if the server loses its data, the state log is lost",
			Remedy: "use 3 replicas, in a cluster of at least 3 servers (num_replicas)",
		})
	}
	return withoutSubject(findings)
}

// withoutSubject removes from the remedies what does not apply to a log.
func withoutSubject(findings []diagnose.Finding) []diagnose.Finding {
	for i := range findings {
		findings[i].Remedy = strings.TrimSuffix(findings[i].Remedy, changeSubject)
	}
	return findings
}
