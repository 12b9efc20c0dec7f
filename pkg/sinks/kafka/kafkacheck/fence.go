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
	err := t.Find(ctx)
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
	state := wire.Topic{}
	if found, err := c.Client.Topics(ctx, stateTopic); err == nil && len(found) == 1 {
		state = found[0] // without the permission Describe it has no partitions
	}
	if detail, remedy := stateProblem(&topic{Topic: state}, settings); detail != "" {
		warn(remedy, "%s", detail)
	}
	return findings
}

// stateTopic is the topic in which the coordinators store the owner of each transactional id.
const stateTopic = "__transaction_state"

// stateProblem returns what is wrong with the topic stateTopic. If it does not exist yet, or is not known, the settings
// of the brokers determine how many replicas it will have.
func stateProblem(t *topic, brokers wire.Settings) (detail, remedy string) {
	const setting = "transaction.state.log.replication.factor"
	replicas, _, leaderless := t.replication()
	known, configured := len(t.Partitions) > 0, brokers.Number(setting)
	if !known {
		replicas = configured
	}
	switch {
	case leaderless > 0:
		return fmt.Sprintf("%d of %d partitions of the topic %s have no leader: a bridge that starts cannot fence some "+
				"partitions, and their events wait", leaderless, len(t.Partitions), stateTopic),
			"start the brokers that have replicas of these partitions"
	case replicas != 1:
		return "", ""
	case configured == 1:
		detail = setting + " of the brokers is 1"
	default:
		detail = "the topic " + stateTopic + " has one replica"
	}
	return detail + ": while a broker is down, a bridge that starts cannot fence some partitions, and their events " +
			"wait; if the broker is lost, so are its fences",
		"set " + setting + " to 3, and increase the number of replicas of the topic " + stateTopic + " to 3"
}
