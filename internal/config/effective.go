package config

import (
	"fmt"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
)

// Effective returns a configuration file with the same meaning as c, which must be valid. It contains all defaults,
// except those that have no effect because of other values: Parse rejects them. Sinks are a list, and relative paths of
// input files are absolute.
func (c *Config) Effective() ([]byte, error) {
	omitted := map[string]bool{}
	for {
		text, err := strictyaml.Encode(*c, func(path string) bool { return omitted[path] })
		if err != nil {
			return nil, err
		}
		again, at := strictyaml.DecodeOffline[Config]("", text)
		if _, err = again.checked(at); err == nil {
			return text, nil
		}
		for _, m := range strictyaml.Mistakes(err) {
			if omitted[m.Path] {
				return nil, fmt.Errorf("the effective configuration is not valid: %w", m)
			}
			omitted[m.Path] = true
		}
	}
}
