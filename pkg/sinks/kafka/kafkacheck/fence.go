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
func (c *Check) fence(ctx context.Context) diagnose.Finding {
	f := diagnose.Finding{Step: sinks.StepAuthorize, Target: "fence"}
	t := wire.Transactions{Client: c.Client, ID: wire.TransactionPrefix}
	_, err := t.Find(ctx)
	switch {
	case errors.Is(err, kafkago.TransactionalIDAuthorizationFailed):
		f.Warn = true
		f.Detail = "transactional ids are not permitted: after a crash, events are written twice"
		f.Remedy = fmt.Sprintf("give %s the permissions Describe and Write on the transactional ids with the prefix %s",
			c.Client.Config.SASL.Who(), wire.TransactionPrefix)
		return f
	case err != nil && !errors.Is(err, kafkago.GroupCoordinatorNotAvailable): // brokers create its topic at the first use
		return diagnose.Failed(f.Step, f.Target, err)
	}
	f.Detail = "earlier processes can be fenced"
	settings, err := c.Client.BrokerSettings(ctx)
	if err != nil {
		f.Detail += "; the settings of the brokers cannot be read and are not checked"
		return f
	}
	for _, name := range []string{"producer.id.expiration.ms", "transactional.id.expiration.ms"} {
		const least = 2 * wire.FenceInterval
		if keep := time.Duration(settings.Number(name)) * time.Millisecond; keep >= 0 && keep < least {
			f.Warn = true
			f.Detail = fmt.Sprintf("%s of the brokers is %v, and fences are renewed every %v: brokers can forget a fence",
				name, keep, wire.FenceInterval)
			f.Remedy = fmt.Sprintf("set %s to at least %v", name, least)
		}
	}
	return f
}
