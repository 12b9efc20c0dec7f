package config

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "write the expected messages and docs/configuration.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
