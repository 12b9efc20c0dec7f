package kafkacheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// fence checks what the sink requires to fence earlier processes, so that it sends nothing twice after a crash.
func (c *Check) fence(ctx context.Context) []diagnose.Finding {
	f := diagnose.Finding{Step: sinks.StepAuthorize, Target: "fence"}
	t := wire.Transactions{Client: c.Client, ID: wire.TransactionPrefix}
	_, err := t.Find(ctx)
	switch {
	case errors.Is(err, kafkago.TransactionalIDAuthorizationFailed):
		f.Warn = true
		f.Detail = "transactional ids are not permitted: after a crash, events are written twice"
		f.Remedy = fmt.Sprintf("give %s the permissions Describe and Write on the transactional ids with the prefix %s",
			c.Client.Config.SASL.Who(), wire.TransactionPrefix)
		return []diagnose.Finding{f}
	case wire.NoTransactions(err):
		f.Warn = true
		f.Detail = fmt.Sprintf("%v: after a crash, events are written twice", err)
		f.Remedy = "connect without a proxy, or use a cluster that supports transactional ids"
		return []diagnose.Finding{f}
	case err != nil && !errors.Is(err, kafkago.GroupCoordinatorNotAvailable): // brokers create its topic at the first use
		return []diagnose.Finding{diagnose.Failed(f.Step, f.Target, err)}
	}
	f.Detail = "earlier processes can be fenced"
	settings, err := c.Client.BrokerSettings(ctx)
	if err != nil {
		f.Detail += "; the settings of the brokers cannot be read and are not checked"
		return []diagnose.Finding{f}
	}
	findings := []diagnose.Finding{f}
	warn := func(remedy, format string, args ...any) {
		f.Warn, f.Remedy, f.Detail = true, remedy, fmt.Sprintf(format, args...)
		findings = append(findings, f)
	}
	for _, name := range []string{"producer.id.expiration.ms", "transactional.id.expiration.ms"} {
		const least = 2 * wire.FenceInterval
		if keep := time.Duration(settings.Number(name)) * time.Millisecond; keep >= 0 && keep < least {
			warn(fmt.Sprintf("set %s to at least %v", name, least),
				"%s of the brokers is %v, and fences are renewed every %v: brokers can forget a fence",
				name, keep, wire.FenceInterval)
		}
	}
	if settings.Number("transaction.state.log.replication.factor") == 1 {
		warn("set transaction.state.log.replication.factor to 3, and increase the number of replicas of the topic "+
			"__transaction_state to 3",
			"transaction.state.log.replication.factor of the brokers is 1: while a broker is down, a bridge that starts "+
				"cannot fence some partitions, and their events wait; if the broker is lost, so are its fences")
	}
	return findings
}
