package kafkacheck

import (
	"context"

	"github.com/deltabridge/deltabridge/pkg/sinks"
	"github.com/deltabridge/deltabridge/pkg/sinks/diagnose"
	"github.com/deltabridge/deltabridge/pkg/sinks/kafka/internal/registry"
)

// registry checks the connection to the schema registry. If it fails, schemas are not checked.
func (c *Check) registry(ctx context.Context) diagnose.Finding {
	target := c.Registry.URL
	if err := c.Registry.Ping(ctx); err != nil {
		c.Registry = nil
		return diagnose.Failed(sinks.StepSchema, target, err)
	}
	detail := "the schema registry supports the format " + string(c.Registry.Format)
	return diagnose.Finding{Step: sinks.StepSchema, Target: target, Detail: detail}
}

// checkSchema checks whether the registry has the schema for the topic, or would accept it.
func (t *topic) checkSchema(ctx context.Context) {
	if t.Registry == nil {
		return
	}
	id, err := t.Registry.Lookup(ctx, t.Name)
	if err == nil && id.Number == 0 {
		err = t.Registry.Compatible(ctx, t.Name)
	}
	switch subject := registry.Subject(t.Name); {
	case err != nil:
		t.findings = append(t.findings, diagnose.Failed(sinks.StepSchema, subject, err))
	case id.Number == 0:
		t.pass(sinks.StepSchema, "the subject %s does not have the schema; the bridge registers it", subject)
	default:
		t.pass(sinks.StepSchema, "the subject %s has the schema, with the id %d", subject, id.Number)
	}
}
