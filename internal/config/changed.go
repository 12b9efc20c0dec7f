package config

import (
	"reflect"

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
	for _, k := range []struct {
		key           string
		before, after any
	}{
		{"cluster", running.Cluster, c.Cluster},
		{"kubeconfig", running.Kubeconfig, c.Kubeconfig},
		{"state.path", running.State.Path, c.State.Path},
		{"state.log", running.State.Log, c.State.Log},
		{"election", running.Election, c.Election},
		{"http.listen", running.HTTP.Listen, c.HTTP.Listen},
		{"log.format", running.Log.Format, c.Log.Format},
	} {
		if !reflect.DeepEqual(k.before, k.after) {
			at.Report(k.key, "cannot change while the bridge runs",
				"restart the bridge (in Kubernetes, replace its Pods), or restore the earlier value")
		}
	}
	if err := at.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Same reports whether two configurations have the same values.
func Same(a, b *Config) bool { return reflect.DeepEqual(a, b) }
