package nats_test

import (
	"testing"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats"
)

// The servers of a cluster are counted, whichever of them the URLs name.
func TestSurveyCountsServers(t *testing.T) {
	b := newCluster(t)
	edit := b.edit
	for urls := 1; urls <= 3; urls++ {
		b.edit = func(c *nats.Config) { edit(c); c.URLs = c.URLs[:urls] }
		found, err := b.NewSink(t).(*nats.Sink).Survey(t.Context())
		if err != nil || found.Servers != 3 || found.Exists || found.Detail != "" {
			t.Errorf("%d URLs: %+v, %v", urls, found, err)
		}
	}
}
