package natslog_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natsconn"
	"github.com/deltabridge/deltabridge/pkg/sinks/nats/natslog"
)

// A caller that requires only the first of many records causes no consumer, to which the server would send many.
func TestReadOnlyTheFirstRecord(t *testing.T) {
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := startServer(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "bridge", Password: "secret", Permissions: &server.Permissions{
			Publish: &server.SubjectPermission{Deny: []string{"$JS.API.CONSUMER.>"}},
		}}}
	})
	l := open(t, func(c *natslog.Config) { c.Auth = natsconn.Auth{User: "bridge", PasswordFile: password} }, url)
	end := add(t, l, fence(t, l), strings.Split(strings.Repeat("x", 50), "")...)
	if err := l.Truncate(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	var positions []int64
	_, err := l.Read(t.Context(), 0, func(position int64, _ []byte) error {
		positions = append(positions, position)
		return enough
	})
	if !errors.Is(err, enough) || len(positions) != 1 || positions[0] != 20 {
		t.Errorf("%v, %v", positions, err)
	}
	if _, err := l.Read(t.Context(), 0, func(int64, []byte) error { return nil }); err == nil {
		t.Errorf("all records up to %d were read without a consumer", end)
	}
}
