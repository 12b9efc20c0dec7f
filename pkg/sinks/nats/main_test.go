package nats_test

import (
	"flag"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "4"); err != nil { // more than CPUs: these tests mostly wait
		fmt.Fprintln(os.Stderr, "nats:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}
