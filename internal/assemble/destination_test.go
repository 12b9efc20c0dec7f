package assemble

import (
	"reflect"
	"testing"

	"github.com/deltabridge/deltabridge/internal/config"
)

// Each key about access that the configuration has gets to the sink.
func TestAccessKeysGetToTheSinks(t *testing.T) {
	tls := config.TLS{CAFile: "1", CertFile: "2", KeyFile: "3", ServerName: "4"}
	d := new(Destination)
	n := d.natsConfig(&config.NATS{CredentialsFile: "5", NkeyFile: "6", TokenFile: "7", User: "8", PasswordFile: "9", TLS: tls})
	k := d.kafkaConfig(&config.Kafka{
		TLS:  config.KafkaTLS{Enabled: true, TLS: tls},
		SASL: config.SASL{Mechanism: "a", Username: "b", PasswordFile: "c", Region: "d"},
	})
	seen := make(map[string]int)
	for _, part := range []any{n.Auth, n.TLS, k.TLS, k.SASL} {
		v := reflect.ValueOf(part)
		for i := range v.NumField() {
			name := v.Type().String() + "." + v.Type().Field(i).Name
			if v.Field(i).IsZero() && name != "kafka.TLSConfig.InsecureSkipVerify" { // there is no key for it
				t.Errorf("%s is not set", name)
			}
			if v.Field(i).Kind() == reflect.String {
				seen[v.Field(i).String()]++
			}
		}
	}
	for value, times := range seen {
		if times != 1 && (value < "1" || value > "4" || times != 2) { // those of TLS are in both
			t.Errorf("%q is set %d times", value, times)
		}
	}
}
