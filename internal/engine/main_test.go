package engine

import (
	"flag"
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

var update = flag.Bool("update", false, "rewrite the reference pages that the tests compare")

func TestMain(m *testing.M) {
	// The second handler limits the rate of reported errors by the time of the last one in the process. In a bubble of
	// synctest, whose clock begins in 2000, it would wait for decades if a test outside of it was the last.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] //nolint:reassign // that is how handlers are removed
	goleak.VerifyTestMain(m)
}
