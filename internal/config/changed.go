package config

import (
	"maps"
	"os"
	"reflect"
	"slices"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// ParseChanged is Parse for a bridge that runs with another configuration. It also reports what cannot change while the
// bridge runs.
func ParseChanged(name string, data []byte, running *Config) (*Config, error) {
	c, at := strictyaml.Decode[Config](name, data)
	c, err := c.checked(at)
	if err != nil {
		return nil, err
	}
	before, after := FixedValues(running), FixedValues(c)
	for _, key := range slices.Sorted(maps.Keys(after)) {
		if !reflect.DeepEqual(before[key], after[key]) {
			what := "cannot change while the bridge runs"
			if key == "sinks" {
				what = "with events: audit " + what + " with state.log"
			}
			at.Report(key, what,
				"restart the bridge (in Kubernetes, replace its Pods), or restore the earlier value")
		}
	}
	if err := at.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// FixedValues returns the values of the keys that cannot change while the bridge runs. If one of them changes, the
// chart replaces the Pod (`deltabridge.fixedConfig`).
func FixedValues(c *Config) map[string]any {
	return map[string]any{
		"cluster":     c.Cluster,
		"kubeconfig":  c.Kubeconfig,
		"state.path":  c.State.Path,
		"state.log":   c.State.Log,
		"election":    c.Election,
		"audit":       c.Audit,
		"sinks":       c.fixedSinks(),
		"http.listen": c.HTTP.Listen,
		"http.ui":     c.HTTP.UI,
		"log.format":  c.Log.Format,
	}
}

// fixedSinks returns the sinks that cannot change: with a state log, those with audit events.
func (c *Config) fixedSinks() (fixed []Sink) {
	if c.State.Log == nil {
		return nil
	}
	for n := range c.Sinks {
		if c.Sinks[n].IsAudit() {
			fixed = append(fixed, c.Sinks[n])
		}
	}
	return fixed
}

// Same reports whether two configurations have the same values.
func Same(a, b *Config) bool { return reflect.DeepEqual(a, b) }

// Readable returns what can be read of the configuration file at path, which may have mistakes. Everything else has its
// default.
func Readable(path string) *Config {
	data, _ := os.ReadFile(path) // without a file, everything has its default
	c, _ := strictyaml.DecodeOffline[Config](path, data)
	return c
}
