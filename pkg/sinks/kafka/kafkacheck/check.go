package kafkacheck

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/deltabridge/deltabridge/pkg/event"
	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/registry"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/wire"
)

// Check configures a check of a Kafka sink.
type Check struct {
	Client     *wire.Client
	Topic      *event.Template
	Create     *wire.NewTopic // If it is nil, missing topics are not created.
	Tombstones bool           // reports whether deletions are followed by tombstones
	Letters    bool           // reports whether the messages are dead letters, which are not read back

	// Control is the topic of control events. It is nil if they go to Topic. CreateControl is Create for this topic.
	Control       *event.Template
	CreateControl *wire.NewTopic
	// Registry is the schema registry. It is nil if values have no schema.
	Registry *registry.Client

	control bool // reports whether Topic is for control events only
}

// Run implements [diagnose.Checker]. Its only side effect is that it requests a producer id, which uses up one id.
func (c *Check) Run(ctx context.Context) []diagnose.Finding {
	findings, reached := Reach(ctx, c.Client)
	if !reached {
		return findings
	}
	findings = append(findings, c.producer(ctx))
	if !c.Letters {
		findings = append(findings, c.fence(ctx)...)
	}
	if c.Registry != nil {
		findings = append(findings, c.registry(ctx))
	}
	if c.Control == nil {
		return append(findings, c.topics(ctx, nil)...)
	}
	control := &Check{
		Client: c.Client, Topic: c.Control, Create: c.CreateControl, Registry: c.Registry, control: true,
	}
	apart, err := c.Client.TopicsLike(ctx, c.Control.String())
	if err != nil {
		return append(findings, diagnose.Failed(sinks.StepTopic, c.Control.String(), err))
	}
	findings = append(findings, c.topics(ctx, apart)...)
	return append(findings, control.topics(ctx, nil)...)
}

// Reach checks the files and the connections to all brokers. It reports whether the client can read the metadata of the
// cluster.
func Reach(ctx context.Context, client *wire.Client) (findings []diagnose.Finding, reached bool) {
	if names := client.Config.Files(); len(names) > 0 {
		if err := client.Config.CheckFiles(); err != nil {
			return []diagnose.Finding{diagnose.Failed(sinks.StepFiles, "kafka", err)}, false
		}
		findings = append(findings, diagnose.Finding{
			Step: sinks.StepFiles, Target: "kafka", Detail: strings.Join(names, ", "),
		})
	}
	found, reached := brokers(ctx, client, client.Config.Brokers)
	findings = append(findings, found...)
	if !reached {
		return findings, false
	}
	if _, err := client.Topics(ctx); err != nil {
		return append(findings, diagnose.Failed(sinks.StepProtocol, "cluster", err)), false
	}
	found, _ = brokers(ctx, client, slices.DeleteFunc(client.Addresses(), func(addr string) bool {
		return slices.Contains(client.Config.Brokers, addr)
	}))
	return append(findings, found...), true
}

// brokers checks all brokers in parallel and reports whether at least one of them is usable.
func brokers(ctx context.Context, client *wire.Client, addrs []string) (all []diagnose.Finding, reached bool) {
	each := make([][]diagnose.Finding, len(addrs))
	var wg sync.WaitGroup
	for i, addr := range addrs {
		wg.Go(func() { each[i] = client.Try(ctx, addr) })
	}
	wg.Wait()
	for _, findings := range each {
		all = append(all, findings...)
		reached = reached || findings[len(findings)-1].Err == nil
	}
	return all, reached
}

// producer checks whether the client can be an idempotent producer, which the sink requires to preserve the order after
// failures.
func (c *Check) producer(ctx context.Context) diagnose.Finding {
	const target = "idempotent producer"
	if _, err := c.Client.ProducerID(ctx); err != nil {
		return diagnose.Failed(sinks.StepAuthorize, target, err)
	}
	return diagnose.Finding{Step: sinks.StepAuthorize, Target: target, Detail: "the cluster grants a producer id"}
}
