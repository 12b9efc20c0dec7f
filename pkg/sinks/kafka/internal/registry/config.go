package registry

import (
	"errors"
	"net/url"

	"github.com/deltabridge/deltabridge/internal/strictyaml"
	"github.com/deltabridge/deltabridge/pkg/sinks/access"
)

const (
	section     = "kafka.schemaRegistry"
	tlsSection  = section + ".tls"
	keyURL      = section + ".url"
	keyUsername = section + ".username"
	keyPassword = section + ".passwordFile"
)

// Config configures the schema registry in which the sink registers the schema of its values.
type Config struct {
	// The URL of the schema registry. It must have the API of the Confluent Schema Registry. With Apicurio Registry, the
	// URL ends in `/apis/ccompat/v7`.
	URL string `yaml:"url" required:"true" example:"https://schema-registry:8081"`
	// The format of values. `avro`: Avro, and each value begins with the id of its schema; `content` must not be set.
	// `json`: JSON as without a registry, and the id of its schema, a JSON Schema, is in the header `__value_schema_id`; it
	// requires `content: structured`.
	Format Format `yaml:"format" required:"true" enum:"avro json" example:"avro"`
	// The user name for the schema registry (HTTP basic authentication). It requires `passwordFile`.
	Username string `yaml:"username" example:"bridge"`
	// The file that contains the password of `username`. The bridge reads it again for each request.
	PasswordFile string `yaml:"passwordFile" format:"file" example:"/etc/deltabridge/registry-password"`
	// TLS settings for the schema registry. They require a `url` that begins with `https`.
	TLS access.TLS `yaml:"tls"`
}

// Validate reports mistakes that tags can't describe.
func (cfg *Config) Validate(at *strictyaml.Section) {
	at.Together("username", "passwordFile")
	cfg.TLS.Validate(at.At("tls"))
	if cfg.URL == "" || !at.Fine("url") {
		return
	}
	u, err := url.Parse(cfg.URL)
	switch {
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "":
		at.Report("url", "is not an http or https URL without user and query", "")
	case u.Scheme == "http" && cfg.TLS.IsSet():
		at.Report("tls", "has no effect with an http URL", "remove it, or write an https URL")
	}
}

// CheckFiles returns an error if a certificate, key or password file is unreadable or invalid.
func (cfg *Config) CheckFiles() error {
	_, err := cfg.TLS.NewSession(tlsSection)
	_, passwordErr := cfg.password()
	return errors.Join(err, passwordErr)
}

func (cfg *Config) password() (string, error) {
	if cfg.PasswordFile == "" {
		return "", nil
	}
	return access.Secret(keyPassword, cfg.PasswordFile)
}
